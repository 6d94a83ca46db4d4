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
from paper.cells import Request
from paper.datasets import CATALOGUE, status
from paper.page import write_artifact, write_page
from paper.records import RecordStore, View
from paper.session import Outcome, Session
from zetamix.methods import parse_list
from zetamix_lab.cli import options
from zetamix_lab.cli.errors import make_stop, report_errors, stop_status
from zetamix_lab.cli.live import Display, print_line
from zetamix_lab.provenance import FileRef, machine_info
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
    models: Annotated[
        str | None,
        typer.Option(help="Comma-separated models to train, such as resnet18. Default: all."),
    ] = None,
    methods: options.Methods = None,
    seeds: options.Seeds = None,
    augmentation: Annotated[
        str | None, typer.Option(help="Override the recipe's augmentation: crop-flip, flip, none.")
    ] = None,
    epochs: options.Epochs = None,
    weights: options.Weights = None,
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
        try:
            request = Request(
                seeds=None if seeds is None else options.parse_seeds(seeds, 1),
                augmentations=_split(augmentation),
                epochs=epochs,
                weights=None if weights is None else FileRef.read(weights),
                datasets=_split(datasets),
                models=_split(models),
                methods=None if methods is None else tuple(m.label for m in parse_list(methods)),
            )
            chosen = _choose(ids or [], request)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        if show_list or not ids:
            _print_list(console, [make_view(id, store, request) for id in chosen], data_dir)
            return
        if ids == [PAGE]:
            path = store.folder / "index.html"
            views = [make_view(id, store) for id in chosen]
            write_page(views, path, machine_info(torch.device("cpu")))
            print_line(console, f"Report written to {path}")
            return
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
            outcomes = {id: session.run(id, select_cells(id, request)) for id in chosen}
        for id, outcome in outcomes.items():
            _print_outcome(console, make_view(id, store), outcome)
        if any(outcome.empty for outcome in outcomes.values()):
            if stop():
                print_line(console, f"{stop.reason} Rerun the same command to resume.")
                raise typer.Exit(stop_status(stop))
            if not any(outcome.ran for outcome in outcomes.values()):
                raise typer.Exit(1)


def _choose(ids: Sequence[str], request: Request) -> Sequence[str]:
    """The artifacts to list or run; raises for invalid requests before anything runs."""
    choices = [*ARTIFACTS, PAGE]
    for id in ids:
        if id not in choices:
            raise typer.BadParameter(
                f"expected one of {', '.join(choices)}, got {id!r}.{did_you_mean(id, choices)}",
                param_hint="ID",
            )
    if PAGE in ids or not ids:
        if len(ids) > 1 or request != Request():
            raise typer.BadParameter(
                "page and the list of all artifacts cannot be combined with other IDs or filters",
                param_hint="ID",
            )
        return list(ARTIFACTS)
    for id in ids:
        select_cells(id, request)
    return list(dict.fromkeys(ids))


def _split(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(text.replace(" ", "").split(","))


def _print_outcome(console: Console, view: View, outcome: Outcome) -> None:
    """Print what was run, and write the report of an artifact."""
    counts = f"{outcome.ran} cells run, {outcome.had_record} had a record"
    print_line(console, f"{view.artifact}: {counts}, {len(outcome.empty)} left", style="bold")
    folder = view.store.folder / view.artifact
    findings = write_artifact(view, folder).findings
    for text in (*outcome.reasons, *findings, f"Report written to {folder / 'report.html'}"):
        print_line(console, f"  {text}")


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
