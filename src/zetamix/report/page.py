"""One HTML page that holds everything: words, tables, figures. It opens without a network."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

from zetamix.provenance import machine_line
from zetamix.report.figure import Picture
from zetamix.report.table import Table


@dataclass(frozen=True)
class Fold:
    """What most readers can do without: a line that opens on a click."""

    title: str
    blocks: Sequence["Block"]


Block: TypeAlias = str | Table | Picture | Fold

# nothing may be loaded from anywhere but this page: a browser enforces what we promise
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

CSS = """
:root { color-scheme: light dark; --ink: #1a1a1a; --soft: #595959; --line: #d0d0d0;
  --page: #ffffff; --stripe: #f5f6f8; --accent: #004488; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --soft: #a8a8a8; --line: #444444;
  --page: #16181c; --stripe: #1f2227; --accent: #8ab4f0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 70rem; background: var(--page);
  color: var(--ink); font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .6rem; border-bottom: 1px solid var(--line);
  padding-bottom: .25rem; }
p { margin: .6rem 0; max-width: 46rem; }
.lead { margin: 1.6rem 0; max-width: 50rem; display: grid; gap: .5rem 1.1rem;
  grid-template-columns: max-content 1fr; }
.lead dt { font-weight: 700; }
a { color: var(--accent); text-underline-offset: 3px; }
.lead dd { margin: 0; }
@media (max-width: 40rem) { .lead { grid-template-columns: 1fr; gap: .1rem; }
  .lead dd { margin-bottom: .5rem; } }
td small { display: block; color: var(--soft); font-size: .8rem; }
.note, figcaption, caption, footer, .facts { color: var(--soft); font-size: .87rem; }
code { font: .87em/1.4 ui-monospace, Consolas, monospace; overflow-wrap: anywhere; }
figure { margin: 1.4rem 0; }
figure img { display: block; max-width: 100%; height: auto; background: #ffffff;
  border-radius: 6px; padding: 6px; }
figure .scroll { margin: 0; }
@media (max-width: 40rem) { figure img { max-width: none; width: min(var(--width), 42rem); } }
figcaption { margin-top: .45rem; max-width: 46rem; }
.scroll { overflow-x: auto; margin: 1.2rem 0 .5rem; }
.scroll:focus-visible { outline: 2px solid var(--accent); }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .5rem; }
th, td { padding: .34rem .6rem; text-align: right; white-space: nowrap; vertical-align: top; }
th[scope=row], .text { text-align: left; }
td.long { white-space: normal; overflow-wrap: anywhere; min-width: 20rem; }
th[scope=row] { font-weight: 500; }
thead th { border-bottom: 2px solid var(--ink); }
tbody tr { border-bottom: 1px solid var(--line); }
tbody tr:nth-child(odd) { background: var(--stripe); }
[title] { cursor: help; }
th[title] { text-decoration: underline dotted; text-underline-offset: 3px; }
td.best { font-weight: 700; }
td.second { text-decoration: underline; }
summary { cursor: pointer; }
.facts dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .9rem; }
.facts dd { margin: 0; overflow-wrap: anywhere; }
@media print { body { max-width: none; padding: 0; } figure, tr { break-inside: avoid; } }
"""


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it: paragraphs, tables and pictures in any order."""

    title: str
    blocks: Sequence[Block]
    word: str = ""
    """Of the lead, which becomes a link to here."""


def render_page(
    title: str,
    sections: Sequence[Section],
    *,
    facts: Mapping[str, str] | None = None,
    lead: Sequence[tuple[str, str]] = (),
) -> str:
    """The page as text, with everything inlined.

    facts: where the page was made, from `zetamix.provenance.describe_machine`; none are shown where
        the numbers come from elsewhere and say so themselves.
    lead: what a reader in a hurry should know, each in a word and a sentence or two.

    >>> page = render_page("Title", [Section("Part", ["Words."])], facts={"command": "zetamix x",
    ...     "processor": "CPU", "threads": "2", "torch": "2.15"})
    >>> "http" in page.replace("http-equiv", "")
    False
    """
    body = "\n".join(_section(section) for section in sections)
    linked = {section.word for section in sections}
    words = "".join(
        f"<dt>{_word(word, word in linked)}</dt><dd>{escape(text)}</dd>" for word, text in lead
    )
    return f"""<!DOCTYPE html>
<html lang="en-GB">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>{CSS}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
{"" if facts is None else _facts(facts)}
<dl class="lead">{words}</dl>
</header>
<main>
{body}
</main>
</body>
</html>
"""


def _facts(facts: Mapping[str, str]) -> str:
    rows = "".join(f"<dt>{escape(key)}</dt><dd>{escape(facts[key])}</dd>" for key in facts)
    return (
        f'<div class="facts"><code>{escape(facts["command"])}</code>'
        f"<details><summary>{escape(machine_line(dict(facts)))}</summary><dl>{rows}</dl></details>"
        "</div>"
    )


def _word(word: str, is_link: bool) -> str:
    return f'<a href="#{escape(word)}">{escape(word)}</a>' if is_link else escape(word)


def _section(section: Section) -> str:
    blocks = "\n".join(_block(block) for block in section.blocks)
    anchor = f' id="{escape(section.word)}"' if section.word else ""
    return f"<section{anchor}>\n<h2>{escape(section.title)}</h2>\n{blocks}\n</section>"


def _block(block: Block) -> str:
    if isinstance(block, Table):
        return block.html()
    if isinstance(block, Picture):
        return _figure(block)
    if isinstance(block, Fold):
        inside = "\n".join(_block(each) for each in block.blocks)
        return f"<details><summary>{escape(block.title)}</summary>\n{inside}\n</details>"
    return f"<p>{escape(block)}</p>"


def _figure(picture: Picture) -> str:
    # an image and not inline SVG: two inlined files would share the names of their parts
    content = base64.b64encode(picture.svg.encode()).decode()
    width, height = picture.size
    return (
        # on a phone a wide figure scrolls by itself: shrunk to the screen its letters are too small
        f'<figure id="{escape(picture.name)}"><div class="scroll" tabindex="0">'
        f'<img src="data:image/svg+xml;base64,{content}" width="{width}" height="{height}" '
        f'style="--width: {width}px" alt="{escape(picture.alt)}"></div>'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
    )
