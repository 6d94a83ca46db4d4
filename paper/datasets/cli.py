"""`python -m paper data`: the datasets, and what is known of each."""

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from paper import datasets
from paper.datasets import CATALOGUE
from paper.datasets.files import not_found_message
from zetamix_lab.cli import options
from zetamix_lab.cli.errors import report_errors
from zetamix_lab.cli.live import print_line, show_reading
from zetamix_lab.data.source import resolve_data_dir

SPLIT_KINDS = {"official": "official", "made": "stratified 70/10/20, seeded", "drawn": "drawn"}


def data(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Name of a dataset. Default: list all.")
    ] = None,
    prepare: Annotated[
        bool,
        typer.Option(
            "--prepare",
            help="Download the dataset where possible, verify it, and decode it once for fast "
            "loading.",
        ),
    ] = False,
    data_dir: options.DataDir = None,
) -> None:
    """List the paper's datasets, or show what one is and how to get what is missing of it."""
    with report_errors():
        if name is not None:
            _describe(name, prepare, data_dir)
        elif prepare:
            raise typer.BadParameter("needs the NAME of a dataset", param_hint="--prepare")
        else:
            _list(data_dir)


def _list(data_dir: options.DataDir) -> None:
    table = Table("name", box=None, pad_edge=False, header_style="bold")
    for heading in ("images", "classes"):
        table.add_column(heading, justify="right")
    table.add_column("on this machine")
    for spec in CATALOGUE.values():
        sizes = f"{sum(spec.sizes.values()):,}", str(len(spec.classes))
        table.add_row(spec.name, *sizes, datasets.status(spec, data_dir))
    console = Console()
    console.print(table, highlight=False)
    how = "python -m paper data NAME shows what a dataset is, and how to get what is missing."
    print_line(console, f"{how} Data folder: {resolve_data_dir(data_dir)}")


def _describe(name: str, prepare: bool, data_dir: options.DataDir) -> None:
    """Print the catalogue's entry, and the content of the dataset if it is prepared."""
    spec = datasets.find(name)
    if prepare:
        with show_reading() as progress:
            datasets.prepare(spec, data_dir, progress=progress)
    sizes = ", ".join(f"{split} {count:,}" for split, count in spec.sizes.items())
    rows = [
        ("name", f"{spec.name}, {spec.title}"),
        ("classes", f"{len(spec.classes)}: {', '.join(spec.classes)}"),
        ("shape", " × ".join(map(str, spec.shape))),
        ("splits", f"{sizes} ({SPLIT_KINDS[spec.split]})"),
        ("images", f"{spec.fit.describe()}; {spec.fit.why}" if spec.fit.why else ""),
        ("licence", spec.licence),
        ("source", spec.url),
        *(("note", note) for note in spec.notes),
    ]
    local = datasets.status(spec, data_dir)
    if local == "files":
        rows += [("local", f"files, not prepared: python -m paper data {spec.name} --prepare")]
    elif not local:
        rows += [("local", not_found_message(spec, resolve_data_dir(data_dir)))]
    else:
        found = datasets.load(spec, data_dir)
        sizes = ", ".join(f"{split} {len(part):,}" for split, part in found.splits.items())
        rows += [("note", note) for note in found.notes]
        rows += [("local", sizes), ("from", found.origin), ("fingerprint", found.fingerprint)]
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    # notes of the catalogue are also those of the dataset
    for heading, text in dict.fromkeys(rows):
        if text:
            table.add_row(heading, escape(text))
    Console().print(table, highlight=False)
