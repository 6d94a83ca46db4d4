"""Files of the artifacts: figures, tables in three formats, a page each, and one page for all."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from paper import values as paper
from paper.artifacts import draw
from paper.datasets import CATALOGUE
from paper.drawing import Result
from paper.records import View
from zetamix_lab.atomic_io import write_text
from zetamix_lab.provenance import machine_summary
from zetamix_lab.report import Cell, Section, Table, render_page
from zetamix_lab.report.page import Block
from zetamix_lab.text import sentence_case

TITLE, OUR_TITLE = "Reproduction of ζ-mixup", "ZetaMix"


def write_artifact(view: View, folder: Path) -> Result:
    """Write figures (SVG, PNG), tables (Markdown, LaTeX, CSV) and a page of them."""
    result = draw(view)
    for picture in result.pictures:
        picture.save(folder)
    for name, table in result.tables.items():
        notes = "\n".join(f"- {note}" for note in table.notes)
        write_text(folder / f"{name}.md", f"**{table.caption}**\n\n{table.markdown()}\n\n{notes}\n")
        write_text(folder / f"{name}.tex", table.latex() + "\n")
        write_text(folder / f"{name}.csv", table.csv())
    title = TITLE if view.artifact in paper.read()["claims"] else OUR_TITLE
    # without the machine that rendered it, so that the page changes only with the records
    write_text(folder / "report.html", render_page(title, [_section(view, result)]))
    return result


def write_page(views: Sequence[View], path: Path, machine: Mapping[str, str]) -> None:
    """Write all artifacts, and one page of their figures, tables and empty cells."""
    results = [write_artifact(view, path.parent / view.artifact) for view in views]
    sections = [_section(view, result) for view, result in zip(views, results, strict=True)]
    first = Section("What was measured", [claim_table(views)])
    write_text(path, render_page(TITLE, [first, *sections], machine=machine))


def claim_table(views: Sequence[View]) -> Table:
    """The claims of the paper, and how much of their figures and tables was measured."""
    rows: list[list[Cell | str]] = []
    for view in views:
        claim = paper.read()["claims"].get(view.artifact, f"Ours: {view.title}")
        rows.append([Cell(claim, link=view.artifact), view.progress])
    caption = "Each claim links to its figures, tables and missing cells"
    return Table(["claim of the paper", "cells measured"], rows, caption)


def _section(view: View, result: Result) -> Section:
    blocks: list[Block] = [f"Measured: {view.progress} cells."]
    blocks += [*result.findings, *result.pictures, *result.tables.values()]
    blocks += filter(None, [empty_cells(view)])
    if view.artifact not in paper.TABLES:
        # tables of trained models have these as notes
        blocks += paper.footnotes(view.artifact)
    return Section(sentence_case(view.title), [*blocks, *_provenance(view)], anchor=view.artifact)


def _provenance(view: View) -> list[str]:
    """The machines of the records, each once with its commits."""
    commits: dict[str, dict[str, None]] = {}
    for record in view.records:
        machine = {key: value for key, value in record.machine.items() if key != "commit"}
        own = commits.setdefault(machine_summary(machine), {})
        own |= {record.machine["commit"]: None} if "commit" in record.machine else {}
    parts = [
        f"{machine} · commit{'s'[: len(own) > 1]} {', '.join(own)}" if own else machine
        for machine, own in commits.items()
    ]
    return [f"Measured on {'; '.join(parts)}."] if parts else []


def empty_cells(view: View) -> str:
    """How many cells of each dataset have no record, and the command that fills them."""
    counts = Counter(cell.dataset for cell in view.empty)
    if not counts:
        return ""
    names = [f"{CATALOGUE[n].title if n else 'no data'} ({k})" for n, k in counts.items()]
    return (
        f"Not run yet: {len(view.empty):,} of {len(view.cells):,} cells, of {', '.join(names)}. "
        f"They are run by: python -m paper {view.artifact} "
        f"{shlex.join(['--out', str(view.store.folder)])}; how to get their data is shown by: "
        "python -m paper data NAME."
    )
