"""Artifacts as files: figures, tables in four forms, a page for each and one page for all."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from zetamix.atomic_io import write_text
from zetamix.experiments.reproduce import smoke as quick
from zetamix.experiments.reproduce.experiments import EXPERIMENTS
from zetamix.provenance import machine_summary
from zetamix.report import Section, Table, render_page
from zetamix.report.page import Block, Fold
from zetamix.report.paper import Drawn, View
from zetamix.report.paper.artifacts import draw, look, missing
from zetamix.results import paper_values as paper
from zetamix.results.record_store import Results

TITLE = "ζ-mixup, reproduced"


def write_artifact(view: View, drawn: Drawn, folder: Path) -> None:
    """Figures as SVG and PNG, tables as Markdown, LaTeX, HTML and CSV, and a README of them all."""
    for picture in drawn.pictures:
        picture.save(folder)
    for name, table in drawn.tables.items():
        write_text(folder / f"{name}.md", _markdown(table))
        write_text(folder / f"{name}.tex", table.latex() + "\n")
        write_text(folder / f"{name}.csv", table.csv())
        # without who drew it: a table changes when its records do
        section = Section(table.caption, [table, *filter(None, [measured_on(view)])])
        page = render_page(table.caption, [section])
        write_text(folder / f"{name}.html", page)
    write_text(folder / "README.md", _readme(view, drawn))


def write_page(
    results: Results,
    path: Path,
    facts: Mapping[str, str],
    *,
    is_quick: bool = False,
    ids: Sequence[str] | None = None,
) -> None:
    """One page of everything that exists, with what is missing and how to fill it."""
    sections, lead = [], []
    found: Counter[str] = Counter()
    for id in EXPERIMENTS if ids is None else ids:
        view = look(id, results, is_quick=is_quick)
        drawn = draw(view)
        write_artifact(view, drawn, results.folder / id)
        sections.append(_section(view, drawn))
        found[drawn.answer.status] += 1
        lead.append((id, _answer(view, drawn)))
    title = f"{TITLE} ({quick.LABEL})" if is_quick else TITLE
    counts = ", ".join(f"{count} {status}" for status, count in found.most_common())
    lead.insert(0, ("In short", f"{found.total()} figures and tables of the paper: {counts}."))
    write_text(path, render_page(title, sections, machine=facts, lead=lead))


def _section(view: View, drawn: Drawn) -> Section:
    blocks: list[Block] = list(drawn.verdict)
    blocks += drawn.pictures
    tables = list(drawn.tables.values())
    blocks += tables if view.records else [Fold("The paper's values", tables)] if tables else []
    empty = missing(view)
    blocks += [empty] if empty is not None else []
    if not drawn.tables or view.artifact not in paper.TABLES:
        blocks += [f"About the paper: {issue.sentence}" for issue in paper.footnotes(view.artifact)]
    blocks += filter(None, [measured_on(view)])
    heading = f"{view.artifact}: {EXPERIMENTS[view.artifact].what}"
    return Section(heading, blocks, anchor=view.artifact)


def _answer(view: View, drawn: Drawn) -> str:
    status = f"{drawn.answer.status[0].upper()}{drawn.answer.status[1:]}."
    return " ".join(filter(None, (status, drawn.answer.sentence, f"({_progress(view)})")))


def _progress(view: View) -> str:
    """How many cells are filled."""
    done = len(view.cells) - len(view.empty)
    other = sum(view.results.find(cell) is not None for cell in view.more)
    more = f", and {other} of other variants of the recipe" if other else ""
    return f"{done} of {len(view.cells)} cells{more}"


def measured_on(view: View) -> str:
    """Where the records of an artifact come from, each machine once, with its commits."""
    commits: dict[str, list[str]] = {}
    for record in view.records:
        facts = dict(record.machine)
        commit = facts.pop("commit", None)
        known = commits.setdefault(machine_summary(facts), [])
        known += [commit] if commit is not None and commit not in known else []
    told = [
        f"{machine} · {'commits' if len(found) > 1 else 'commit'} {', '.join(found)}"
        if found
        else machine
        for machine, found in commits.items()
    ]
    return f"Measured on {'; '.join(told)}." if told else ""


def _markdown(table: Table) -> str:
    notes = "\n".join(f"- {note}" for note in table.notes)
    return f"**{table.caption}**\n\n{table.markdown()}\n\n{notes}\n"


def _readme(view: View, drawn: Drawn) -> str:
    parts = [f"# {view.artifact}: {EXPERIMENTS[view.artifact].what}"]
    if view.is_quick:
        parts.append(f"**{quick.LABEL.capitalize()}.**")
    command = f"zetamix reproduce {view.artifact}{' --quick' if view.is_quick else ''}"
    parts.append(f"{_progress(view)}. Made by `{command}`.")
    parts += drawn.verdict
    for picture in drawn.pictures:
        parts.append(f"![{picture.alt}]({picture.name}.png)\n\n*{picture.caption}*")
    parts += [_markdown(table).rstrip() for table in drawn.tables.values()]
    empty = missing(view)
    if empty is not None:
        parts.append(f"**{empty.caption}**\n\n{empty.markdown()}")
    if view.artifact not in paper.TABLES:
        parts += [f"About the paper: {issue.sentence}" for issue in paper.footnotes(view.artifact)]
    parts += filter(None, [measured_on(view)])
    return "\n\n".join(parts) + "\n"
