"""How the HTML report looks, and the one script that it has: tables are sorted and filtered, commands copied.

All that the page says is there without the script.
"""

from __future__ import annotations

from llmtop.analysis.kernels.stalls import PALETTE, UNNAMED
from llmtop.analysis.timeline.causes import PALETTE as IDLE_PALETTE

_HUES = {1: (0, 75), 2: (28, 85), 3: (48, 80), 4: (125, 45), 5: (178, 50), 6: (212, 75), 7: (268, 60), 8: (215, 6)}
"""Hue and saturation of the eight colours of stall reasons and causes of idle time: red, orange, yellow, green ..."""
_SHADES = {1: 56, 2: 42, 3: 72}
"""Lightness of the three shades, in %."""


def _colours() -> str:
    looks = sorted({*PALETTE.values(), *IDLE_PALETTE.values(), UNNAMED})
    return "\n".join(
        f".s{colour}-{shade} {{ background: hsl({_HUES[colour][0]} {_HUES[colour][1]}% {_SHADES[shade]}%); }}"
        for colour, shade in looks
    )


STYLE = f"""
:root {{ color-scheme: light dark; --back: #fff; --card: #f6f7f9; --text: #1b1f24; --dim: #5b6470; --line: #d8dee4;
  --accent: #1d4ed8; --good: #15803d; --warn: #b45309; --bad: #b91c1c; --gap: #d9dee5; }}
@media (prefers-color-scheme: dark) {{ :root {{ --back: #14171b; --card: #1c2126; --text: #e4e7ea; --dim: #98a2ae;
  --line: #343b43; --accent: #7ab2ff; --good: #5fce85; --warn: #f5b454; --bad: #ff7b72; --gap: #39424c; }} }}
* {{ box-sizing: border-box; }}
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 76rem; padding: 1rem; color: var(--text);
  background: var(--back); }}
h1 {{ font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }}
h2 {{ font-size: 1.15rem; margin: 2rem 0 .6rem; }}
h3 {{ font-size: .95rem; margin: 1rem 0 .4rem; color: var(--dim); font-weight: 600; }}
header p, .why, .source, footer {{ color: var(--dim); font-size: .85rem; margin: .4rem 0; overflow-wrap: anywhere; }}
footer {{ margin-top: 2rem; border-top: 1px solid var(--line); padding-top: .6rem; }}
.verdict {{ font-size: 1.2rem; font-weight: 600; border-left: .35rem solid var(--good); padding: .3rem .8rem;
  margin: 1rem 0; overflow-wrap: anywhere; }}
.verdict.info {{ border-color: var(--accent); }} .verdict.warning {{ border-color: var(--warn); }}
.verdict.error {{ border-color: var(--bad); }}
.cards {{ display: grid; gap: .8rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); }}
.card {{ background: var(--card); border-radius: .5rem; padding: .7rem .9rem; border-top: .2rem solid var(--accent);
  min-width: 0; }}
.card.warning {{ border-color: var(--warn); }} .card.error {{ border-color: var(--bad); }}
.card h3 {{ margin: 0 0 .3rem; color: var(--text); overflow-wrap: anywhere; }}
.card p {{ margin: .3rem 0; overflow-wrap: anywhere; }} .card ul {{ margin: .3rem 0; padding-left: 1.1rem;
  font-size: .85rem; overflow-wrap: anywhere; }}
.event {{ margin: .1rem 0; font-size: .85rem; overflow-wrap: anywhere; }}
.severity {{ color: var(--accent); }} .warning .severity {{ color: var(--warn); }}
.error .severity {{ color: var(--bad); }}
pre {{ position: relative; margin: .5rem 0; padding: .5rem 4rem .5rem .6rem; background: var(--back);
  border: 1px solid var(--line); border-radius: .3rem; white-space: pre-wrap; overflow-wrap: anywhere;
  font: 12.5px/1.45 ui-monospace, monospace; }}
pre button {{ position: absolute; right: .3rem; top: .3rem; font-size: .7rem; }}
.charts {{ display: grid; gap: 0 2rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); }}
.charts section {{ min-width: 0; }}
.bar {{ display: flex; height: 1.15rem; background: var(--gap); border-radius: .2rem; overflow: hidden; }}
.bar i {{ display: block; height: 100%; }}
.bars {{ display: grid; grid-template-columns: minmax(5rem, 15rem) minmax(4rem, 1fr) auto auto; gap: .25rem .6rem;
  align-items: center; font-size: .85rem; }}
.name {{ overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }}
.legend {{ list-style: none; display: flex; flex-wrap: wrap; gap: .1rem 1rem; padding: 0; margin: .4rem 0;
  font-size: .82rem; }}
.legend i {{ display: inline-block; width: .8em; height: .8em; border-radius: .15em; margin-right: .4em; }}
.b-time {{ background: var(--accent); }} .b-memory {{ background: #3b82f6; }} .b-compute {{ background: #f59e0b; }}
.b-balanced {{ background: #10b981; }} .b-latency {{ background: #a855f7; }} .b-unknown {{ background: #8b949e; }}
.i-busy {{ background: #10b981; }}
{_colours()}
.wide {{ overflow-x: auto; }} .wide svg {{ min-width: 38rem; }}
svg {{ display: block; width: 100%; height: auto; }} svg text {{ font: 12px system-ui, sans-serif; fill: var(--dim); }}
svg path {{ fill: none; stroke: currentColor; }} svg .grid {{ stroke: var(--line); }}
svg .memory {{ stroke: #3b82f6; stroke-width: 2; }} svg .compute {{ stroke: #f59e0b; stroke-width: 2; }}
svg text.memory {{ fill: #3b82f6; stroke: none; }} svg text.compute {{ fill: #d97706; stroke: none; }}
svg .dot {{ fill: var(--accent); fill-opacity: .4; stroke: var(--accent); }} svg .bin {{ fill: var(--accent); }}
svg .lane {{ stroke: var(--accent); stroke-width: 1.5; }} svg .mark-info {{ stroke: var(--dim); }}
svg .mark-warning {{ stroke: var(--warn); }} svg .mark-error {{ stroke: var(--bad); stroke-width: 2; }}
svg .f {{ fill: var(--gap); }} svg .f-run {{ fill: #10b981; fill-opacity: .5; }}
svg .f-queue {{ fill: #f59e0b; fill-opacity: .5; }} svg .f-wait {{ fill: #3b82f6; fill-opacity: .4; }}
svg text.mark {{ fill: var(--text); font-weight: 600; }}
svg text.frame {{ fill: var(--text); font: 11px ui-monospace, monospace; }}
.points {{ columns: 24rem auto; font-size: .82rem; padding-left: 1.6rem; overflow-wrap: anywhere; margin: .5rem 0; }}
.small {{ display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 17rem), 1fr)); }}
figure {{ margin: 0; }} figcaption {{ font-size: .85rem; color: var(--dim); }}
details summary {{ cursor: pointer; }}
.table {{ overflow-x: auto; max-height: 85vh; }}
.filter {{ font: inherit; font-size: .85rem; width: min(100%, 22rem); padding: .3rem .5rem; margin-bottom: .5rem;
  color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: .3rem; }}
table {{ border-collapse: collapse; font-size: .82rem; width: 100%; }}
th, td {{ padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }}
th {{ position: sticky; top: 0; background: var(--back); white-space: nowrap; }}
th[aria-sort=ascending]::after {{ content: " ▲"; }} th[aria-sort=descending]::after {{ content: " ▼"; }}
tfoot td {{ font-weight: 600; border-top: 2px solid var(--line); }}
.sortable th {{ cursor: pointer; }} .n {{ text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }}
td.t {{ min-width: 12rem; max-width: 30rem; overflow-wrap: anywhere; }} td summary {{ list-style: none;
  text-decoration: underline dotted var(--dim); }} td summary::-webkit-details-marker {{ display: none; }}
@media (max-width: 40rem) {{ .bars {{ grid-template-columns: 1fr auto auto; }}
  .bars .name {{ grid-column: 1 / -1; margin-top: .3rem; }}
  .wide svg {{ min-width: 32rem; }} svg text {{ font-size: 13px; }}
  table {{ font-size: .75rem; }} td.t {{ min-width: 4.8rem; }}
  th, td {{ padding: .25rem .3rem; white-space: normal; }} :is(td:first-child, td:last-child) {{
  overflow-wrap: anywhere; min-width: 3.3rem; }} td:last-child {{ min-width: 5rem; }}
  body {{ padding: .7rem; }} .verdict {{ font-size: 1.05rem; }} }}
@media print {{ .table {{ max-height: none; overflow: visible; }} pre button, .filter {{ display: none; }} }}
"""

SCRIPT = """
'use strict';
function value(row, i) {
  const cell = row.cells[i], number = cell.dataset.v;
  if (number !== undefined) return Number(number);
  const text = (cell.querySelector('summary') || cell).textContent.trim();
  return text === '' || text === '\\u2013' ? null : text.toLowerCase();
}
function order(a, b) {
  if (a === null || b === null) return (a === null) - (b === null);
  return typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === 'number' ? -1 : 1;
}
function sort(table, i) {
  const head = table.tHead.rows[0].cells, title = head[i], body = table.tBodies[0];
  const first = title.classList.contains('n') ? 'descending' : 'ascending';
  const other = first === 'descending' ? 'ascending' : 'descending';
  const way = title.getAttribute('aria-sort') === first ? other : first;
  for (const one of head) one.removeAttribute('aria-sort');
  title.setAttribute('aria-sort', way);
  const rows = Array.from(body.rows, (row, place) => [value(row, i), place, row]);
  rows.sort((a, b) => {
    const known = a[0] !== null && b[0] !== null;
    return (known && way === 'descending' ? -1 : 1) * order(a[0], b[0]) || a[1] - b[1];
  });
  body.append(...rows.map(row => row[2]));
}
for (const table of document.querySelectorAll('table')) {
  table.classList.add('sortable');
  Array.from(table.tHead.rows[0].cells).forEach((title, i) => {
    title.tabIndex = 0;
    title.addEventListener('click', () => sort(table, i));
    title.addEventListener('keydown', event => { if (event.key === 'Enter') sort(table, i); });
  });
  if (table.tBodies[0].rows.length > 10) {
    const box = document.createElement('input');
    box.className = 'filter';
    box.type = 'search';
    box.placeholder = 'filter';
    box.setAttribute('aria-label', 'filter the rows');
    box.addEventListener('input', () => {
      const wanted = box.value.toLowerCase();
      for (const row of table.tBodies[0].rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
    table.parentElement.before(box);
  }
}
for (const block of document.querySelectorAll('pre')) {
  if (!navigator.clipboard) break;
  const button = document.createElement('button'), text = block.textContent;
  button.textContent = 'copy';
  button.addEventListener('click', () => navigator.clipboard.writeText(text).then(() => {
    button.textContent = 'copied';
  }));
  block.append(button);
}
"""
