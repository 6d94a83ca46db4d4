"""Figures and tables of the committed records, for the pages of the site.

A page says where they go: `<!-- claims -->` is the table of all claims, `<!-- artifact: ID -->`
the findings, figures and tables of one artifact, `<!-- section: ID -->` the same with a heading,
and `<!-- figure: NAME -->` a figure alone.
"""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from paper import values as paper
from paper.artifacts import ARTIFACTS, draw, make_view
from paper.drawing import Result
from paper.page import claim_table, empty_cells
from paper.records import RecordStore, View
from zetamix_lab.report import Picture, Table
from zetamix_lab.text import sentence_case

RECORDS = Path(__file__).parent.parent / "results"
FIGURES = "results/figures"
PLACE = re.compile(r"^<!-- (claims|section|artifact|figure)(?:: ([\w-]+))? -->$", re.MULTILINE)
# points and densities are pixels in a PNG and thousands of elements in an SVG
LARGEST_SVG = 200_000
# a table of more rows is shown on a click
MAX_ROWS = 12


@cache
def artifacts() -> dict[str, tuple[View, Result]]:
    """All artifacts with what their records say; figures are drawn once per build."""
    store = RecordStore(RECORDS)
    views = {id: make_view(id, store) for id in ARTIFACTS}
    return {id: (view, draw(view)) for id, view in views.items()}


@cache
def figure_files() -> dict[str, tuple[str, bytes, Picture]]:
    """By the name of the figure: its file in the site, the content, and the picture."""
    files = {}
    for _, result in artifacts().values():
        for picture in result.pictures:
            small = len(picture.svg) <= LARGEST_SVG
            content = picture.svg.encode() if small else picture.png
            suffix = "svg" if small else "png"
            files[picture.name] = f"{FIGURES}/{picture.name}.{suffix}", content, picture
    return files


def fill_places(markdown: str, to_root: str) -> str:
    """The page with its places filled. to_root: the relative path to the root of the site."""
    writers: dict[str, Callable[[str], str]] = {
        "claims": lambda _: _claim_table(),
        "section": lambda id: f"{_heading(id)}\n\n{_describe(id, to_root)}",
        "artifact": lambda id: _describe(id, to_root),
        "figure": lambda name: _figure(name, to_root),
    }
    return PLACE.sub(lambda match: writers[match[1]](match[2] or ""), markdown)


def _claim_table() -> str:
    views = [view for id, (view, _) in artifacts().items() if id in paper.read()["claims"]]
    return claim_table(views).markdown()


def _heading(id: str) -> str:
    view, _ = artifacts()[id]
    return f"## {sentence_case(view.title)} {{ #{id} }}"


def _describe(id: str, to_root: str) -> str:
    view, result = artifacts()[id]
    parts = [" ".join([f"Measured: {view.progress} cells.", *result.findings])]
    parts += [_figure(picture.name, to_root) for picture in result.pictures]
    if view.records:
        parts += [_fold(table) for table in result.tables.values() if table.rows]
    parts += filter(None, [empty_cells(view)])
    return "\n\n".join(parts)


def _fold(table: Table) -> str:
    """A table with its notes behind its caption, open where it is short."""
    opened = len(table.rows) <= MAX_ROWS
    notes = "\n".join(f"- {_plain(note)}" for note in table.notes)
    body = f"{table.markdown()}\n\n{notes}".strip()
    lines = "\n".join(f"    {line}" if line else "" for line in body.splitlines())
    caption = (table.caption or "Table").replace('"', "'")
    return f'???{"+" if opened else ""} note "{caption}"\n\n{lines}'


def _figure(name: str, to_root: str) -> str:
    if name not in figure_files():
        return "*This figure is drawn once its records exist.*"
    path, _, picture = figure_files()[name]
    width, _height = picture.size
    return (
        f'<figure markdown="span" class="plot">\n'
        f'![{picture.alt}]({to_root}{path}){{ width="{width}" }}\n'
        f"<figcaption>{_plain(picture.caption)}</figcaption>\n</figure>"
    )


def _plain(text: str) -> str:
    return text.replace("*", "\\*").replace("<", "&lt;")
