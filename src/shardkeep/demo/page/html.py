"""HTML of `report.html`: one self-contained file for light and dark screens."""

from __future__ import annotations

from html import escape

from shardkeep.demo.page.charts import RANK_COLOURS, loss_chart, rank_colour, reading_chart
from shardkeep.demo.page.timeline import Timeline
from shardkeep.demo.page.uses import uses_chart
from shardkeep.demo.report import DemoReport
from shardkeep.html_page import page, scrolling, table, text_table
from shardkeep.quantities import counted

__all__ = ["render"]

_RULES = """:root { LIGHT }
@media (prefers-color-scheme: dark) { :root { DARK } }
.legend { display:flex; flex-wrap:wrap; gap:4px 18px; margin:0 0 6px; font-size:14px; }
.legend i { display:inline-block; width:11px; height:11px; border-radius:50%; margin-right:6px; }
.legend .faded { background:var(--quiet); opacity:.45; }
.legend .once-mark { background:var(--rank-0); border-radius:2px; }
.legend .missing-mark { border:1.5px solid var(--bad); border-radius:2px; box-sizing:border-box; }
.legend .repeated-mark { background:var(--bad); border-radius:2px; }
.frame { fill:none; stroke:var(--quiet); }
.grid { stroke:var(--grid); fill:none; }
.epoch { stroke:var(--quiet); stroke-dasharray:2 3; fill:none; }
.kill { stroke:var(--bad); stroke-width:1.6; fill:none; }
.kill-label { fill:var(--bad); font-size:12.5px; font-weight:600; }
.kill-mark { fill:var(--bad); font:700 22px sans-serif; }
.kill-mark { stroke:var(--paper); stroke-width:4; paint-order:stroke; }
.label { fill:var(--quiet); font-size:12.5px; }
.tick { fill:var(--quiet); font-size:11.5px; font-variant-numeric:tabular-nums; }
.line { fill:none; stroke:var(--rank-0); stroke-width:2; stroke-linejoin:round; }
.dot { fill:var(--rank-0); }
.lost-line { stroke:var(--bad); stroke-dasharray:4 3; }
.lost-dot { fill:var(--bad); }
.lost-band { fill:var(--lost); }
.rank-block-lost { opacity:.45; }
.hatch { fill:var(--paper); opacity:.65; }
.once { fill:var(--rank-0); }
.missing { fill:var(--paper); stroke:var(--bad); stroke-width:1.5; }
.repeated { fill:var(--bad); }
.lost-use { stroke:var(--quiet); opacity:.7; }
.shard-edge { stroke:var(--paper); stroke-width:1.5; }
.reads { fill:none; stroke-linecap:round; }
.lost-reads { opacity:.4; }
"""


def render(report: DemoReport, timeline: Timeline) -> str:
    """Return the page as HTML."""
    verdict = "every check holds" if report.ok else "a check FAILED"
    body = f"""<p class="lead">{_lead(report)}</p>

<section>
<h2>Checks</h2>
{scrolling(_checks(report))}
</section>

<section>
<h2>How often each record was used</h2>
{_uses_legend(timeline)}
{scrolling(uses_chart(timeline))}
<p class="caption">{_uses_caption(timeline)}</p>
{scrolling(_epochs(report))}
<p class="caption">Counted from the {report.rows_merged:,} predictions in <code>results.h5</code>, each of
which names its record. The last column is the independent proof from the receipts that the workers committed
with their rows. Epochs are numbered from 0.</p>
</section>

<section>
<h2>Loss</h2>
{scrolling(loss_chart(timeline))}
<p class="caption">{_loss_caption(timeline)}</p>
</section>

<section>
<h2>Which rank read which record in which step</h2>
{_legend(timeline)}
{scrolling(reading_chart(timeline))}
<p class="caption">{_reading_caption(timeline)}</p>
</section>

<section>
<h2>Numbers</h2>
{scrolling(text_table((), report.rows()))}
</section>

<section>
<h2>Commands to inspect the files</h2>
<pre>{_commands(report)}</pre>
</section>"""
    return page("shardkeep demo", verdict, body, good=report.ok, rules=_rules())


def _lead(report: DemoReport) -> str:
    text = (
        f"{counted(report.workers, 'process')} trained one classifier on {report.records:,} images in "
        f"{len(report.shard_records)} shards for {counted(report.epochs, 'epoch')}, each reading its part of "
        "a global shuffle and writing its own HDF5 file. "
    )
    for death in report.deaths:
        text += (
            f"At step {death.step} rank {death.rank} was killed with SIGKILL. The run was resumed from the "
            f"checkpoint of step {death.resumed_step}, {death.away_s:.1f} s later, by "
            f"{counted(death.workers_after, 'new process')}: {_ranks(death.workers_after)}. "
        )
    held_out = f"{report.held_out_records:,} held-out images"
    return text + f"The model classifies {report.accuracy:.1%} of the {held_out} correctly."


def _ranks(size: int) -> str:
    return "rank 0" if size == 1 else f"ranks 0 to {size - 1}"


def _checks(report: DemoReport) -> str:
    rows = (
        f'<tr><th>{escape(check.name)}</th><td class="{"good" if check.ok else "bad"}">'
        f"{'ok' if check.ok else 'FAILED'}</td><td>{escape(check.finding)}</td></tr>"
        for check in report.checks
    )
    return table("", "<th>Check</th><th>Verdict</th><th>Finding</th>", rows)


def _epochs(report: DemoReport) -> str:
    audited = {found["epoch"]: found for found in report.audit.get("epochs", [])}
    rows = []
    for use in report.uses:
        found = audited.get(use.epoch)
        verdict = "none" if found is None else ("each once" if found["ok"] else "NOT each once")
        good = "good" if found is not None and found["ok"] else "bad"
        rows.append(
            f"<tr><th>{use.epoch}</th><td>{use.records:,}</td><td>{use.once:,}</td><td>{use.missing:,}</td>"
            f'<td>{use.repeated:,}</td><td class="{good}">{verdict}</td></tr>'
        )
    names = ("Epoch", "Records", "Used once", "Missing", "Repeated", "Receipts")
    return table("numbers", "".join(f"<th>{name}</th>" for name in names), rows)


def _uses_legend(timeline: Timeline) -> str:
    items = ['<span><i class="once-mark"></i>used once</span>']
    if any((epoch.lost > 0).any() for epoch in timeline.epochs):
        items.append('<span><i class="faded"></i>read once more, in a step that was lost</span>')
    items += [
        '<span><i class="missing-mark"></i>missing</span>',
        '<span><i class="repeated-mark"></i>used twice or more</span>',
    ]
    return f'<p class="legend">{"".join(items)}</p>'


def _uses_caption(timeline: Timeline) -> str:
    text = (
        "One strip for each epoch, one column for each record, shard after shard. The height is the number "
        "of rows of the record in the merged file: a full strip of height 1 means that every record was used "
        "exactly once, a gap would be a lost record, a peak a repeated one."
    )
    if any((epoch.lost > 0).any() for epoch in timeline.epochs):
        text += (
            " The grey lines are reads of the lost steps. Their rows were rolled back before the run "
            "resumed, so they do not count."
        )
    return text


def _legend(timeline: Timeline) -> str:
    items = [
        f'<span><i style="background:{rank_colour(rank)}"></i>rank {rank}</span>'
        for rank in range(min(timeline.ranks, 16))
    ]
    if timeline.ranks > 16:
        items.append(f"<span>… rank {timeline.ranks - 1}</span>")
    if any(step.lost for step in timeline.steps):
        items.append('<span><i class="faded"></i>read in a step that was lost</span>')
    return f'<p class="legend">{"".join(items)}</p>'


def _loss_caption(timeline: Timeline) -> str:
    lost = sum(step.lost for step in timeline.steps)
    text = "Each point is the mean over the rows of all ranks in one step."
    if lost:
        text += (
            f" The {counted(lost, 'dashed point')} in the shaded area came after the last "
            "checkpoint: they were lost with the killed rank and repeated to the right of the red line."
        )
    return text


def _reading_caption(timeline: Timeline) -> str:
    text = (
        "Top: one block for each step of each rank. Bottom: one dot for each record at its step. "
        "Between two epoch lines every record has exactly one solid dot"
    )
    if any(step.lost for step in timeline.steps):
        text += "; faded dots belong to lost steps, and their records were read again after the kill"
    if timeline.restarts:
        text += (
            ". A rank is the number of a process in its world. × marks the one that was killed; the new "
            "processes have the ranks from 0 again, and in a smaller world the rows of the highest ranks end"
        )
    return text + "."


def _commands(report: DemoReport) -> str:
    commands = report.commands()
    width = max(len(command) for command, _ in commands)
    return "\n".join(escape(f"{command:<{width}}   # {purpose}") for command, purpose in commands)


def _rules() -> str:
    """Return the CSS rules of the charts."""
    light, dark = (
        " ".join(f"--rank-{rank}:{pair[screen]};" for rank, pair in enumerate(RANK_COLOURS))
        for screen in (0, 1)
    )
    return _RULES.replace("LIGHT", light).replace("DARK", dark)
