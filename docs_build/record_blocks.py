"""Verdicts, figures and tables of the committed records, for the pages of the site.

A page says where they go: `<!-- verdicts -->` is the table of all claims, `<!-- artifact: ID -->`
the verdict, figures and tables of one artifact, `<!-- section: ID -->` the same with a heading,
`<!-- figure: NAME -->` a figure alone and `<!-- status: ID -->` the sentences of its verdict.
"""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from paper.report import make_report
from paper.report.artifact_report import ArtifactReport
from paper.report.write import empty_cells, verdict_table
from paper.reproduce import ARTIFACTS, make_view
from paper.results.record_store import PaperView, RecordStore
from zetamix_lab.report import Picture, Table
from zetamix_lab.text import sentence_case

RECORDS = Path(__file__).parent.parent / "results"
FIGURES = "results/figures"
PLACE = re.compile(
    r"^<!-- (verdicts|section|artifact|figure|status)(?:: ([\w-]+))? -->$", re.MULTILINE
)
# points and densities are pixels in a PNG and thousands of elements in an SVG
LARGEST_SVG = 200_000
# a table of more rows is shown on a click
MAX_ROWS = 12


@cache
def artifacts() -> dict[str, tuple[PaperView, ArtifactReport]]:
    """All artifacts with what their records say; figures are drawn once per build."""
    store = RecordStore(RECORDS)
    views = {id: make_view(id, store) for id in ARTIFACTS}
    return {id: (view, make_report(view)) for id, view in views.items()}


@cache
def figure_files() -> dict[str, tuple[str, bytes, Picture]]:
    """By the name of the figure: its file in the site, the content, and the picture."""
    files = {}
    for _, report in artifacts().values():
        for picture in report.pictures:
            small = len(picture.svg) <= LARGEST_SVG
            content = picture.svg.encode() if small else picture.png
            suffix = "svg" if small else "png"
            files[picture.name] = f"{FIGURES}/{picture.name}.{suffix}", content, picture
    return files


def fill_places(markdown: str, to_root: str) -> str:
    """The page with its places filled. to_root: the relative path to the root of the site."""
    writers: dict[str, Callable[[str], str]] = {
        "verdicts": lambda _: _verdict_table(),
        "section": lambda id: f"{_heading(id)}\n\n{_describe(id, to_root)}",
        "artifact": lambda id: _describe(id, to_root),
        "figure": lambda name: _figure(name, to_root),
        "status": _status,
    }
    return PLACE.sub(lambda match: writers[match[1]](match[2] or ""), markdown)


def _verdict_table() -> str:
    return verdict_table([pair for pair in artifacts().values() if not pair[0].ours]).markdown()


def _heading(id: str) -> str:
    view, _ = artifacts()[id]
    return f"## {sentence_case(view.title)} {{ #{id} }}"


def _status(id: str) -> str:
    view, report = artifacts()[id]
    status, sentences = sentence_case(report.verdict.status), " ".join(report.verdict.sentences)
    return f"**{status}** ({view.progress} cells). {sentences}"


def _describe(id: str, to_root: str) -> str:
    view, report = artifacts()[id]
    parts = [_status(id), *(_figure(picture.name, to_root) for picture in report.pictures)]
    if view.records:
        parts += [_fold(table) for table in report.tables.values() if table.rows]
    if (empty := empty_cells(view)) is not None:
        parts.append(_fold(empty, is_open=False))
    return "\n\n".join(parts)


def _fold(table: Table, is_open: bool | None = None) -> str:
    """A table with its notes behind its caption, open where it is short."""
    opened = len(table.rows) <= MAX_ROWS if is_open is None else is_open
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
