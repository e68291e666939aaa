"""The view of a run folder: commits, rows and rates of its ranks, its collectors, the doctor's findings."""

from __future__ import annotations

import os
import threading
import time

from shardkeep.diagnosis import DoctorReport, doctor
from shardkeep.hdf5.segments.run_folder import list_ranks
from shardkeep.viewer.locations import Location
from shardkeep.viewer.nearby import is_run
from shardkeep.viewer.runs.collectors import collectors_in
from shardkeep.viewer.runs.ranks import commits_of, rank_of
from shardkeep.viewer.view import Answer, Json, Page, View, Visit

__all__ = ["RUN"]

_RANKS = 32
_CURVES = 8
_POINTS = 500
_READ_S = 0.1


def _show(visit: Visit) -> Answer:
    location = visit.location
    if visit.part == "doctor":
        return Page("runs/doctor.html", {"report": _doctor(location)})
    folders = list_ranks(location.path)
    numbers = sorted(folders)
    paging = visit.query.paging(_RANKS, len(numbers))
    chosen = numbers[paging.here]
    found = {number: location.child(os.path.basename(folders[number])) for number in chosen}
    places = {number: place for number, place in found.items() if not place.leads_out}
    if visit.part == "curve":
        return Json(_curve(dict(list(places.items())[:_CURVES])))
    deadline_s = time.monotonic() + _READ_S
    ranks = [rank_of(number, place, deadline_s) for number, place in places.items()]
    ages = [one.age_s for one in ranks if one.age_s is not None]
    datasets: dict[str, int] = {}
    for one in ranks:
        for name, rows in one.rows.items():
            datasets[name] = datasets.get(name, 0) + rows
    values = {
        "ranks": ranks,
        "rank_count": len(numbers),
        "curves": min(_CURVES, len(chosen)),
        "writing": sum(one.writer is not None for one in ranks),
        "commits": sum(one.commits for one in ranks),
        "newest_age_s": min(ages, default=None),
        "rows_per_s": sum(one.rows_per_s or 0.0 for one in ranks if one.writer is not None),
        "datasets": datasets,
        "is_partial": any(one.commits and not one.rows for one in ranks),
        "collectors": collectors_in(location),
        "paging": paging,
        "report": _doctor(location) if visit.query.text("doctor") else None,
    }
    return Page("runs/run_live.html" if visit.part == "live" else "runs/run.html", values)


def _curve(places: dict[int, Location]) -> dict[str, object]:
    """Return the step of the newest commit of each rank over the time."""
    curves = {}
    for number, place in places.items():
        commits = commits_of(place.path)
        kept = commits[:: max(1, len(commits) // _POINTS)]
        if commits and kept[-1] is not commits[-1]:
            kept.append(commits[-1])
        curves[number] = {one.time_s: one.segment.step for one in kept}
    times = sorted(set().union(*curves.values()))
    series = [{"name": f"rank {one}", "values": [curves[one].get(at) for at in times]} for one in curves]
    return {"x": times, "series": series, "time": True, "joined": True, "empty": "There are no commits yet."}


def _doctor(location: Location) -> DoctorReport:
    """Return what the doctor finds; at most one examination at a time, and none twice in half a minute."""
    with _lock:
        known = _reports.get(location.path)
        if known is None or time.monotonic() - known[0] > _FRESH_S:
            _reports.clear()
            _reports[location.path] = known = (time.monotonic(), doctor([location.path]))
        return known[1]


_FRESH_S = 30.0
_lock = threading.Lock()
_reports: dict[str, tuple[float, DoctorReport]] = {}

RUN = View("run", "Run", lambda location: location.is_folder and is_run(location.path), _show)
