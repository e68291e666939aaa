"""The view of event files: the scalars of several runs as curves, while they are written."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from shardkeep.viewer.runs.event_files import EventFile, EventFiles, is_event_file, recent_files
from shardkeep.viewer.runs.series import Series
from shardkeep.viewer.view import Answer, Json, Page, View, Visit

__all__ = ["SCALARS"]

_TAGS = 12
_MOST_RUNS = 8


@dataclass(frozen=True)
class _Row:
    tag: str
    run: str
    count: int
    last_step: int
    last: float
    low: float
    high: float


def _show(visit: Visit) -> Answer:
    files = recent_files.of(visit.location)
    is_complete = files.update()
    runs = _runs(files)
    if visit.part == "curve":
        return Json(_curve(runs, visit.query.text("tag"), visit.query.text("run")))
    find, wanted_run = visit.query.text("find"), visit.query.text("run")
    tags = sorted(
        {tag for found in runs.values() for file in found for tag in list(file.series) if find in tag}
    )
    paging = visit.query.paging(_TAGS, len(tags))
    shown = tags[paging.here]
    rows = [
        row
        for tag in shown
        for run in runs
        if run.startswith(wanted_run) and (row := _row(runs[run], tag, run))
    ]
    all_files = list(files.files.values())
    values = {
        "tags": shown,
        "rows": rows,
        "runs": len(runs),
        "most_runs": _MOST_RUNS,
        "find": find,
        "run": wanted_run,
        "paging": paging,
        "is_complete": is_complete,
        "read_bytes": sum(file.read_bytes for file in all_files),
        "size_bytes": sum(file.size_bytes for file in all_files),
        "problems": [(file.path, file.problem) for file in all_files if file.problem],
        "files": len(all_files),
    }
    return Page("runs/scalars_live.html" if visit.part == "live" else "runs/scalars.html", values)


def _runs(files: EventFiles) -> dict[str, list[EventFile]]:
    """Return the files of each run, by its folder below the location."""
    folder = files.location.path if files.location.is_folder else os.path.dirname(files.location.path)
    runs: dict[str, list[EventFile]] = {}
    for path, file in list(files.files.items()):
        runs.setdefault(os.path.relpath(os.path.dirname(path), folder), []).append(file)
    return runs


def _row(files: list[EventFile], tag: str, run: str) -> _Row | None:
    found = [series for file in files if (series := file.series.get(tag)) is not None and series.count]
    if not found:
        return None
    newest = found[-1]
    lows = [one.low for one in found if not math.isnan(one.low)]
    highs = [one.high for one in found if not math.isnan(one.high)]
    count = sum(one.count for one in found)
    low, high = min(lows, default=math.nan), max(highs, default=math.nan)
    return _Row(tag, run, count, newest.last_step, newest.last, low, high)


def _curve(runs: dict[str, list[EventFile]], tag: str, wanted: str) -> dict[str, object]:
    """Return the curves of a tag; of a run that was resumed, each step as it was written last."""
    curves: dict[str, dict[int, float | None]] = {}
    for run, files in runs.items():
        if not run.startswith(wanted) or len(curves) == _MOST_RUNS:
            continue
        points: list[tuple[int, float]] = []
        for file in files:
            series = file.series.get(tag)
            if series is not None and series.first_step is not None:
                points = _followed(points, series)
        if points:
            curves[run] = {step: value if math.isfinite(value) else None for step, value in points}
    steps = sorted(set().union(*curves.values()))
    names = {run: tag if run == "." else run for run in curves}
    series_of = [
        {"name": names[run], "values": [found.get(step) for step in steps]} for run, found in curves.items()
    ]
    return {"x": steps, "series": series_of, "xlabel": "step", "joined": True}


def _followed(points: list[tuple[int, float]], series: Series) -> list[tuple[int, float]]:
    assert series.first_step is not None
    return [one for one in points if one[0] < series.first_step] + series.points()


def _fits_folder(path: str) -> bool:
    """Return whether there is an event file in a folder or in a folder below it."""
    folders = [path]
    try:
        with os.scandir(path) as entries:
            for number, entry in enumerate(entries):
                if number >= 1000:
                    break
                if is_event_file(entry.name):
                    return True
                if len(folders) < 50 and entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
        for folder in folders[1:]:
            with os.scandir(folder) as entries:
                for number, entry in enumerate(entries):
                    if is_event_file(entry.name):
                        return True
                    if number >= 100:
                        break
    except OSError:
        return False
    return False


SCALARS = View(
    "scalars",
    "Scalars",
    lambda location: (
        _fits_folder(location.path)
        if location.is_folder
        else is_event_file(os.path.basename(location.path)) and location.kind.name in ("tfrecord", "empty")
    ),
    _show,
)
