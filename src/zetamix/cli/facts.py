"""What `zetamix data` tells of a dataset: a table of facts, a line for each."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from zetamix.data import Dataset
    from zetamix.data.catalogue.spec import DatasetSpec

# how much of a long list is shown
SHOWN = 10


def fact_table() -> Table:
    """An empty one: names beside what is told."""
    facts = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    return facts


def add_spec(facts: Table, spec: "DatasetSpec", data_dir: Path, seed: int | None) -> None:
    """What the catalogue says; with a seed also whether it is here."""
    from zetamix.data.download import next_step, stand_in_hint
    from zetamix.data.loading import status

    facts.add_row("name", f"{spec.name}, {escape(spec.title)}")
    facts.add_row("classes", f"{len(spec.classes)}: {escape(_some(spec.classes))}")
    sizes = ", ".join(f"{split} {count:,}" for split, count in spec.sizes.items())
    how = {"official": "official", "made": "stratified 70:10:20, seeded", "drawn": "drawn"}
    facts.add_row("splits", f"{sizes} ({how[spec.split]})")
    facts.add_row("samples", form(spec.shape))
    if spec.fit.size is not None:
        facts.add_row("images", f"{spec.fit.describe()}; {escape(spec.fit.why)}")
    facts.add_row("licence", spec.licence)
    if spec.where:
        facts.add_row("source", escape(spec.where))
    for note in spec.notes:
        facts.add_row("note", escape(note))
    if seed is None:
        return
    here = status(spec, data_dir, seed)
    if here == "built in" and spec.split != "drawn":
        facts.add_row("here", "built in; prepared at its first use")
    elif here == "files":
        facts.add_row("here", f"files, not prepared: zetamix data prepare {spec.name}")
    elif not here:
        facts.add_row("here", f"no. {escape(next_step(spec, data_dir))}")
        if hint := stand_in_hint(spec, data_dir):
            facts.add_row("or", escape(hint))


def add_content(facts: Table, found: "Dataset") -> None:
    """What a dataset holds that the catalogue does not know."""
    facts.add_row("name", escape(found.name))
    facts.add_row("classes", f"{found.num_classes}: {escape(_some(found.classes))}")
    facts.add_row("samples", form(found.shape))


def add_prepared(facts: Table, found: "Dataset", folder: Path, known: tuple[str, ...] = ()) -> None:
    """What is here, with those of its notes that are not `known`."""
    for note in found.notes:
        if note not in known:
            facts.add_row("note", escape(note))
    counts = ", ".join(f"{name} {len(split):,}" for name, split in found.splits.items())
    facts.add_row("here", counts)
    facts.add_row("from", escape(found.origin))
    if folder.is_dir():
        facts.add_row("prepared", escape(str(folder)))
    facts.add_row("fingerprint", found.fingerprint)


def to_prepare(what: str, data_dir: Path | None, seed: int, size: int | None) -> str:
    """The command that prepares just what was asked for."""
    options = {"--data-dir": data_dir, "--seed": seed or None, "--size": size}
    given = [
        word for name, value in options.items() if value is not None for word in (name, str(value))
    ]
    return shlex.join(["zetamix", "data", "prepare", what, *given])


def form(shape: tuple[int, ...]) -> str:
    """28² grey, 256² RGB, R¹²."""
    if len(shape) == 1:
        return "R" + str(shape[0]).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    channels, height, width = shape
    side = f"{height}²" if height == width else f"{height}×{width}"
    return f"{side} {'grey' if channels == 1 else 'RGB'}"


def _some(names: tuple[str, ...]) -> str:
    """All names, or the first of very many."""
    if len(names) <= 2 * SHOWN:
        return ", ".join(names)
    return f"{', '.join(names[:SHOWN])} and {len(names) - SHOWN:,} more"
