"""`report.html`: one file, nothing to fetch, light and dark."""

from __future__ import annotations

from html import escape

from shardkeep.demo.charts import loss_chart, rank_colour, reading_chart
from shardkeep.demo.report import DemoReport, plural
from shardkeep.demo.story import Story
from shardkeep.demo.style import stylesheet

__all__ = ["render"]


def render(report: DemoReport, story: Story) -> str:
    """Return the whole page as text."""
    verdict = "every check holds" if report.ok else "a check FAILED"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>shardkeep demo: {verdict}</title>
<style>
{stylesheet()}
</style>
</head>
<body>
<main>
<header>
<h1>shardkeep demo</h1>
<p class="verdict {"good" if report.ok else "bad"}">{verdict}</p>
</header>
<p class="lead">{_lead(report)}</p>

<section>
<h2>What was found</h2>
<table class="checks">
<thead><tr><th>Check</th><th>Verdict</th><th>Finding</th></tr></thead>
<tbody>
{_checks(report)}
</tbody>
</table>
</section>

<section>
<h2>Loss</h2>
{loss_chart(story)}
<p class="caption">{_loss_caption(story)}</p>
</section>

<section>
<h2>Which rank read which record when</h2>
{_legend(story)}
{reading_chart(story)}
<p class="caption">{_reading_caption(story)}</p>
</section>

<section>
<h2>Epoch by epoch</h2>
<table class="numbers">
<thead><tr><th>Epoch</th><th>Records</th><th>Used once</th><th>Missing</th><th>Repeated</th>
<th>Receipts say</th></tr></thead>
<tbody>
{_epochs(report)}
</tbody>
</table>
<p class="caption">Counted from the {report.rows_merged:,} predictions in <code>results.h5</code>: each of
them names the record that it was made from. The last column is the independent proof from the receipts
that the workers committed together with their rows. Epochs count from 0, as they do in the files.</p>
</section>

<section>
<h2>Numbers</h2>
<table>
<tbody>
{_numbers(report)}
</tbody>
</table>
</section>

<section>
<h2>Look further</h2>
<pre>{_commands(report)}</pre>
</section>
</main>
</body>
</html>
"""


def _lead(report: DemoReport) -> str:
    processes = plural(report.workers, "process", "processes")
    epochs = plural(report.epochs, "epoch", "epochs")
    text = (
        f"{processes} trained one classifier on {report.records:,} images in {len(report.shard_records)} "
        f"shards for {epochs}, each reading its part of a global shuffle and writing its own HDF5 file. "
    )
    for death in report.deaths:
        processes = plural(death.workers_after, "process", "processes")
        text += (
            f"At step {death.step} worker {death.rank} was killed with SIGKILL; the run went on from the "
            f"checkpoint of step {death.resumed_step} with {processes}, {death.away_s:.1f} s later. "
        )
    held_out = f"{report.held_out_records:,} held-out images"
    return text + f"The model names {report.accuracy:.1%} of the {held_out} rightly."


def _checks(report: DemoReport) -> str:
    return "\n".join(
        f'<tr><th>{escape(check.name)}</th><td class="{"good" if check.ok else "bad"}">'
        f"{'ok' if check.ok else 'FAILED'}</td><td>{escape(check.finding)}</td></tr>"
        for check in report.checks
    )


def _epochs(report: DemoReport) -> str:
    audited = {found["epoch"]: found for found in report.audit.get("epochs", [])}
    rows = []
    for use in report.uses:
        found = audited.get(use.epoch)
        says = "nothing" if found is None else ("each once" if found["ok"] else "NOT each once")
        good = "good" if found is not None and found["ok"] else "bad"
        rows.append(
            f"<tr><th>{use.epoch}</th><td>{use.records:,}</td><td>{use.once:,}</td><td>{use.missing:,}</td>"
            f'<td>{use.repeated:,}</td><td class="{good}">{says}</td></tr>'
        )
    return "\n".join(rows)


def _numbers(report: DemoReport) -> str:
    return "\n".join(
        f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in report.rows()
    )


def _legend(story: Story) -> str:
    items = [
        f'<span><i style="background:{rank_colour(rank)}"></i>rank {rank}</span>'
        for rank in range(min(story.ranks, 16))
    ]
    if story.ranks > 16:
        items.append(f"<span>… rank {story.ranks - 1}</span>")
    if any(mark.lost for mark in story.marks):
        items.append('<span><i class="faded"></i>read, then lost with the kill</span>')
    return f'<p class="legend">{"".join(items)}</p>'


def _loss_caption(story: Story) -> str:
    lost = sum(mark.lost for mark in story.marks)
    if not story.marks:
        return "There was no step."
    text = "Each point is one step, averaged over the rows of all ranks."
    if lost:
        text += (
            f" The {plural(lost, 'dashed point', 'dashed points')} on the shaded ground came after the last "
            "checkpoint: lost with the killed worker, and done again to the right of the red line."
        )
    return text


def _reading_caption(story: Story) -> str:
    text = (
        "Above, one block for each step of each rank; below, one dot for each record at the step that "
        "used it. Between two epoch lines every record has exactly one dot that stands"
    )
    if any(mark.lost for mark in story.marks):
        text += "; the faded dots are of the lost steps, and their records were read again after the kill"
    return text + "."


def _commands(report: DemoReport) -> str:
    commands = report.commands()
    width = max(len(command) for command, _ in commands)
    return "\n".join(escape(f"{command:<{width}}   # {purpose}") for command, purpose in commands)
