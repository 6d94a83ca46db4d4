"""`python -m paper`: run the missing cells of figures and tables, list them, render them."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from paper.artifacts import ARTIFACTS, make_view, select_cells
from paper.datasets import CATALOGUE, status
from paper.page import write_artifact, write_page
from paper.records import PaperCell, RecordStore, View
from paper.session import Session
from zetamix.methods import parse_list
from zetamix_lab.cli import options
from zetamix_lab.cli.errors import report_errors
from zetamix_lab.cli.live import Display, print_line
from zetamix_lab.cli.stop import make_stop, stop_status
from zetamix_lab.provenance import machine_info
from zetamix_lab.text import did_you_mean

PAGE = "page"
OUT = Path("out/paper")


def run(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="IDs from --list, or page, for one HTML page."),
    ] = None,
    show_list: Annotated[
        bool,
        typer.Option("--list", help="List the artifacts: data, finished and missing cells."),
    ] = False,
    datasets: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated datasets to run, such as cifar10,breastmnist. Default: all of "
            "the artifact."
        ),
    ] = None,
    methods: options.Methods = None,
    seeds: options.Seeds = None,
    device: options.Device = None,
    jobs: options.Jobs = None,
    data_dir: options.DataDir = None,
    time_limit: options.TimeLimit = None,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=options.parse_folder,
            metavar="FOLDER",
            help="Folder of records and reports. Default: out/paper.",
        ),
    ] = None,
) -> None:
    """The figures and tables of the paper: run the missing cells, then render.

    A cell is one training run or measurement. Its result is a record in OUT/ID/records.jsonl;
    figures and tables are written to the same folder. Rerun the same command to resume. In a
    checkout, --out results extends the committed records. Datasets: python -m paper data.
    """
    began = time.monotonic()
    console = Console()
    with report_errors():
        store = RecordStore(out or OUT)
        if data_dir is not None and not data_dir.is_dir():
            raise typer.BadParameter(f"{data_dir} is not a folder", param_hint="--data-dir")
        cells = _choose(ids or [], datasets, methods, seeds)
        views = [make_view(id, store, own) for id, own in cells.items()]
        if show_list or not ids:
            _print_list(console, views, data_dir)
            return
        if ids == [PAGE]:
            path = store.folder / "index.html"
            write_page(views, path, machine_info(torch.device("cpu")))
            print_line(console, f"Report written to {path}")
            return
        empty = {view.artifact: len(view.empty) for view in views}
        stop = make_stop(time_limit, began, console)
        session = Session(
            store,
            data_dir=data_dir,
            device=options.parse_device(device),
            jobs=jobs,
            stop=stop,
            log=lambda text: print_line(console, text, style="dim"),
            display=lambda: Display(console),
        )
        with stop:
            reasons = {id: session.run(id, own) for id, own in cells.items()}
        ran = left = 0
        for id, own in cells.items():
            rest = sum(store.find(cell) is None for cell in own)
            done = empty[id] - rest
            ran, left = ran + done, left + rest
            counts = f"{done} cells run, {len(own) - empty[id]} had a record, {rest} left"
            print_line(console, f"{id}: {counts}", style="bold")
            # the report has all cells of the artifact
            result = write_artifact(make_view(id, store), store.folder / id)
            report = f"Report written to {store.folder / id / 'report.html'}"
            for text in (*reasons[id], *result.findings, report):
                print_line(console, f"  {text}")
        if left and stop():
            print_line(console, f"{stop.reason} Rerun the same command to resume.")
            raise typer.Exit(stop_status(stop))
        if left and not ran:
            raise typer.Exit(1)


def _choose(
    ids: Sequence[str], datasets: str | None, methods: str | None, seeds: str | None
) -> dict[str, list[PaperCell]]:
    """The cells to list or run by artifact; raises for invalid requests before anything runs."""
    choices = [*ARTIFACTS, PAGE]
    for id in ids:
        if id not in choices:
            raise typer.BadParameter(
                f"expected one of {', '.join(choices)}, got {id!r}.{did_you_mean(id, choices)}",
                param_hint="ID",
            )
    if PAGE in ids or not ids:
        if len(ids) > 1 or (datasets, methods, seeds) != (None, None, None):
            raise typer.BadParameter(
                "page and the list of all artifacts cannot be combined with other IDs or filters",
                param_hint="ID",
            )
        ids = list(ARTIFACTS)
    try:
        names = [] if datasets is None else datasets.replace(" ", "").split(",")
        labels = [] if methods is None else [method.label for method in parse_list(methods)]
        numbers = () if seeds is None else options.parse_seeds(seeds, 1)
        return {id: select_cells(id, names, labels, numbers) for id in ids}
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _print_list(console: Console, views: Sequence[View], data_dir: Path | None) -> None:
    table = Table("id", "artifact and data", box=None, header_style="bold", pad_edge=False)
    for head in ("done", "missing"):
        table.add_column(head, justify="right", no_wrap=True)
    for view in views:
        names = [name for name in dict.fromkeys(cell.dataset for cell in view.cells) if name]
        absent = [name for name in names if not status(CATALOGUE[name], data_dir)]
        available = ", ".join(name for name in names if name not in absent)
        lines = [view.title, f"[green]available: {available}[/green]" if available else ""]
        lines += [f"[dim]missing: {', '.join(absent)}[/dim]"] if absent else []
        done, text = len(view.cells) - len(view.empty), "\n".join(filter(None, lines))
        table.add_row(view.artifact, text, str(done), str(len(view.empty)))
    console.print(table, highlight=False)
    console.print(
        f"\nRecords are read from {views[0].store.folder} (--out). "
        "python -m paper data info NAME shows how to get missing data.",
        highlight=False,
    )
