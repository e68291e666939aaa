"""Pages of reports: one self-contained file of HTML for light and dark screens, without scripts.

A report adds its own rules to `STYLE` where it has more than text and tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["STYLE", "page", "scrolling", "table", "text_table"]

STYLE = """:root {
  color-scheme: light dark;
  --paper:#ffffff; --ink:#1b1f24; --quiet:#57606a; --grid:#e3e6ea; --panel:#f6f7f9;
  --good:#1a7f37; --bad:#b42318; --lost:#fbeae7;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper:#14171b; --ink:#e6e8eb; --quiet:#9aa4af; --grid:#2b3138; --panel:#1c2026;
    --good:#4ac26b; --bad:#ff7b6b; --lost:#38211f;
  }
}
body { margin:0; background:var(--paper); color:var(--ink); font:16px/1.5 system-ui, sans-serif; }
main { max-width:1000px; margin:0 auto; padding:24px 20px 64px; }
header { display:flex; align-items:baseline; gap:16px; flex-wrap:wrap; }
h1 { font-size:28px; margin:0; }
h2 { font-size:19px; margin:40px 0 10px; }
.lead { max-width:75ch; }
.verdict { margin:0; font-weight:600; }
.good { color:var(--good); }
.bad { color:var(--bad); font-weight:600; }
table { border-collapse:collapse; width:100%; font-size:15px; }
th, td { text-align:left; vertical-align:top; padding:6px 14px 6px 0; border-bottom:1px solid var(--grid); }
th { font-weight:600; white-space:nowrap; }
thead th { color:var(--quiet); font-weight:500; }
.numbers td, .numbers th { text-align:right; font-variant-numeric:tabular-nums; }
.numbers th:first-child { text-align:left; }
.numbers td:last-child, .numbers th:last-child { padding-right:0; }
.caption { color:var(--quiet); font-size:14px; max-width:85ch; margin:6px 0 0; }
pre { background:var(--panel); padding:14px 16px; border-radius:6px; overflow-x:auto; font-size:13.5px; }
.scroll {
  overflow-x:auto; background-repeat:no-repeat; background-size:40px 100%, 40px 100%, 14px 100%, 14px 100%;
  background-image:linear-gradient(to right, var(--paper) 40%, transparent),
    linear-gradient(to left, var(--paper) 40%, transparent),
    linear-gradient(to right, var(--grid), transparent), linear-gradient(to left, var(--grid), transparent);
  background-position:left, right, left, right; background-attachment:local, local, scroll, scroll;
}
.caption + .scroll { margin-top:16px; }
svg { display:block; width:100%; min-width:900px; height:auto; font-family:system-ui, sans-serif; }
@media (max-width:560px) {
  main { padding:16px 14px 48px; }
  th, td { padding:6px 7px 6px 0; }
  table { font-size:14px; }
  .numbers { font-size:13px; }
  thead th { white-space:normal; }
}
"""


def page(title: str, verdict: str, body: str, *, good: bool, rules: str = "") -> str:
    """Return a page.

    Parameters
    ----------
    title, verdict : str
        Texts of the heading.
    body : str
        HTML below the heading.
    good : bool
        Colour of the verdict.
    rules : str
        CSS rules after `STYLE`.

    Returns
    -------
    str
    """
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}: {escape(verdict)}</title>
<style>
{STYLE}{rules}</style>
</head>
<body>
<main>
<header>
<h1>{escape(title)}</h1>
<p class="verdict {"good" if good else "bad"}">{escape(verdict)}</p>
</header>
{body}
</main>
</body>
</html>
"""


def table(kind: str, head: str, rows: Iterable[str]) -> str:
    """Return a table of class `kind` from the HTML of its head and rows."""
    top = f"<thead><tr>{head}</tr></thead>\n" if head else ""
    body = "\n".join(rows)
    return f'<table class="{kind}">\n{top}<tbody>\n{body}\n</tbody>\n</table>'


def text_table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """Return a table of texts; the first of each row is its name.

    Examples
    --------
    >>> print(text_table(["File", "Verdict"], [["a<b", "ok"]]).splitlines()[3])
    <tr><th>a&lt;b</th><td>ok</td></tr>
    """
    lines = (
        "<tr>" + "".join(_cell("td" if i else "th", text) for i, text in enumerate(row)) + "</tr>"
        for row in rows
    )
    return table(kind, "".join(_cell("th", name) for name in head), lines)


def scrolling(content: str) -> str:
    """Put a chart or table into a box that scrolls where the screen is narrower, also by the keyboard."""
    return f'<div class="scroll" tabindex="0">\n{content}\n</div>'


def _cell(name: str, text: str) -> str:
    return f"<{name}>{escape(text)}</{name}>"
