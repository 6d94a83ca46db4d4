"""`python -m paper data`: list, info, prepare."""

from collections.abc import Sequence
from itertools import groupby
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from paper import datasets
from paper.datasets import CATALOGUE, DatasetSpec
from paper.datasets.files import copy_hint, download_hint
from zetamix_lab.cli import options
from zetamix_lab.cli.errors import report_errors
from zetamix_lab.cli.live import print_line, show_reading
from zetamix_lab.data import Dataset
from zetamix_lab.data.source import resolve_data_dir

data = typer.Typer(
    help="The datasets of the paper by name.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a dataset.")]

ACCESS = {"built in": "", "download": "auto", "tool": "tool", "request": "request"}
SPLIT_KINDS = {"official": "official", "made": "stratified 70/10/20, seeded", "drawn": "drawn"}
# longer lists of classes are cut
MAX_SHOWN = 20


@data.command(name="list")
def list_datasets(data_dir: options.DataDir = None) -> None:
    """List all datasets, and which of them are on this machine."""
    console = Console()
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for heading in ("name", "images", "classes", "size", "licence", "get", "local"):
        right = heading in ("images", "classes")
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    for _, group in groupby(CATALOGUE.values(), lambda spec: spec.group):
        for spec in group:
            local = datasets.status(spec, data_dir)
            name = f"[bold]{spec.name}[/bold]" if local else spec.name
            size = (f"{spec.images:,}", str(len(spec.classes)), describe_shape(spec.shape))
            table.add_row(name, *size, spec.licence, ACCESS[spec.access], local)
        table.add_row()
    console.print(table)
    command = "python -m paper data"
    print_line(
        console, f"auto: {command} prepare NAME downloads it; tool, request: see {command} info."
    )
    print_line(console, f"Data folder: {resolve_data_dir(data_dir)}")


@data.command()
def info(name: Name, data_dir: options.DataDir = None) -> None:
    """Show what a dataset is, how to get what is missing, and its content if it is prepared."""
    with report_errors():
        spec = datasets.find(name)
        local = datasets.status(spec, data_dir)
        if local in ("prepared", "built in"):
            found = _describe(datasets.load(spec, data_dir))
        elif local == "files":
            found = [("local", f"files, not prepared: python -m paper data prepare {spec.name}")]
        else:
            folder = resolve_data_dir(data_dir)
            found = [("local", f"no. {download_hint(spec, folder)}")]
            found.append(("or", copy_hint(spec, folder)))
    _print(spec, found)


@data.command()
def prepare(
    name: Name,
    data_dir: options.DataDir = None,
    force: Annotated[
        bool, typer.Option("--force", help="Prepare again even if already prepared.")
    ] = False,
) -> None:
    """Download a dataset where possible, verify it, and decode it once for fast loading."""
    with report_errors(), show_reading() as progress:
        dataset = datasets.prepare(name, data_dir, progress=progress, force=force)
    _print(datasets.find(name), _describe(dataset))


def describe_shape(shape: tuple[int, ...]) -> str:
    """28² grey, 256² RGB, R¹²."""
    if len(shape) == 1:
        return "R" + str(shape[0]).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{shape[1]}² {'grey' if shape[0] == 1 else 'RGB'}"


def _describe(dataset: Dataset) -> list[tuple[str, str]]:
    """The content of a dataset on this machine."""
    sizes = ", ".join(f"{name} {len(split):,}" for name, split in dataset.splits.items())
    rows = [("note", note) for note in dataset.notes]
    return [*rows, ("local", sizes), ("from", dataset.origin), ("fingerprint", dataset.fingerprint)]


def _print(spec: DatasetSpec, found: Sequence[tuple[str, str]]) -> None:
    """The catalogue's entry, and what was found."""
    sizes = ", ".join(f"{split} {count:,}" for split, count in spec.sizes.items())
    names = ", ".join(spec.classes[:MAX_SHOWN]) + (", …" if spec.classes[MAX_SHOWN:] else "")
    rows = [
        ("name", f"{spec.name}, {spec.title}"),
        ("classes", f"{len(spec.classes)}: {names}"),
        ("samples", describe_shape(spec.shape)),
        ("splits", f"{sizes} ({SPLIT_KINDS[spec.split]})"),
        ("images", f"{spec.fit.describe()}; {spec.fit.why}" if spec.fit.why else ""),
        ("licence", spec.licence),
        ("source", spec.url),
        *(("note", note) for note in spec.notes),
    ]
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for heading, text in dict.fromkeys((*rows, *found)):
        if text:
            table.add_row(heading, escape(text))
    Console().print(table, highlight=False)
