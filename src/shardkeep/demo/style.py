"""The stylesheet of `report.html`: one set of variables for light screens, one for dark ones."""

from __future__ import annotations

from shardkeep.demo.charts import RANK_COLOURS

__all__ = ["stylesheet"]

_VARIABLES = """
:root {
  color-scheme: light dark;
  LIGHT
  --paper:#ffffff; --ink:#1b1f24; --quiet:#57606a; --grid:#e3e6ea; --panel:#f6f7f9;
  --good:#1a7f37; --bad:#b42318; --lost:#fbeae7;
}
@media (prefers-color-scheme: dark) {
  :root {
    DARK
    --paper:#14171b; --ink:#e6e8eb; --quiet:#9aa4af; --grid:#2b3138; --panel:#1c2026;
    --good:#4ac26b; --bad:#ff7b6b; --lost:#38211f;
  }
}
"""

_RULES = """body { margin:0; background:var(--paper); color:var(--ink); font:16px/1.5 system-ui, sans-serif; }
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
.legend { display:flex; flex-wrap:wrap; gap:4px 18px; margin:0 0 6px; font-size:14px; }
.legend i { display:inline-block; width:11px; height:11px; border-radius:50%; margin-right:6px; }
.legend .faded { background:var(--quiet); opacity:.45; }
pre { background:var(--panel); padding:14px 16px; border-radius:6px; overflow-x:auto; font-size:13.5px; }
svg { display:block; width:100%; height:auto; font-family:system-ui, sans-serif; }
.frame { fill:none; stroke:var(--quiet); }
.grid { stroke:var(--grid); fill:none; }
.epoch { stroke:var(--quiet); stroke-dasharray:2 3; fill:none; }
.kill { stroke:var(--bad); stroke-width:1.6; fill:none; }
.kill-label { fill:var(--bad); font-size:12.5px; font-weight:600; }
.label { fill:var(--quiet); font-size:12.5px; }
.tick { fill:var(--quiet); font-size:11.5px; font-variant-numeric:tabular-nums; }
.line { fill:none; stroke:var(--rank-0); stroke-width:2; stroke-linejoin:round; }
.dot { fill:var(--rank-0); }
.lost-line { stroke:var(--bad); stroke-dasharray:4 3; }
.lost-dot { fill:var(--bad); }
.lost-band { fill:var(--lost); }
.lane-lost { opacity:.45; }
.hatch { fill:var(--paper); opacity:.65; }
.reads { fill:none; stroke-linecap:round; }
.lost-reads { opacity:.4; }
"""


def stylesheet() -> str:
    """Return the CSS, with a variable for the colour of each of the first ranks."""
    light, dark = (
        " ".join(f"--rank-{rank}:{pair[screen]};" for rank, pair in enumerate(RANK_COLOURS))
        for screen in (0, 1)
    )
    return _VARIABLES.strip().replace("LIGHT", light).replace("DARK", dark) + "\n" + _RULES.strip()
