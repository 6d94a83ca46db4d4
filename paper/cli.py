"""`zetamix reproduce`."""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from zetamix_lab.cli import options
from zetamix_lab.cli.errors import report_errors
from zetamix_lab.cli.live import Display, print_line, time_left
from zetamix_lab.cli.stop import make_stop, stop_status
from zetamix_lab.text import did_you_mean, plural

if TYPE_CHECKING:
    import torch

    from paper.reproduce import CellRequest, Outcome, Session
    from paper.results.record_store import PaperView, RecordStore

PAGE, ALL = "page", "all"
OUT, SMOKE_OUT = Path("out/reproduce"), Path("out/reproduce-quick")


def reproduce(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="IDs from --list; all; or page, for one HTML page."),
    ] = None,
    show_list: Annotated[
        bool,
        typer.Option(
            "--list", help="List artifacts, or only selected cells: data, done, missing, time left."
        ),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Smoke test on synthetic data with 1 epoch; the numbers are meaningless.",
        ),
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
            help="Folder of records and reports. Default: out/reproduce.",
        ),
    ] = None,
    json_file: options.Json = None,
) -> None:
    """Reproduce figures and tables of the paper: run the missing cells, then render.

    A cell is one training run or measurement. Its result is a record in OUT/ID/records.jsonl;
    figures and tables are written to the same folder. Rerun the same command to resume. In a
    checkout, --out results extends the committed records.
    """
    # imports and loading of data count towards the time limit
    began = time.monotonic()
    console = options.open_console(json_file)
    with report_errors():
        from paper.reproduce import CellRequest, Session, make_view, select_cells
        from paper.results.record_store import RecordStore
        from zetamix.methods import parse_list
        from zetamix_lab.provenance import FileRef

        store = RecordStore(out or (SMOKE_OUT if quick else OUT))
        if data_dir is not None and not data_dir.is_dir():
            raise typer.BadParameter(f"{data_dir} is not a folder", param_hint="--data-dir")
        try:
            request = CellRequest(
                seeds=None if seeds is None else options.parse_seeds(seeds, 1),
                augmentations=_split(augmentation),
                epochs=epochs,
                weights=None if weights is None else FileRef.read(weights),
                datasets=_split(datasets),
                models=_split(models),
                methods=None if methods is None else tuple(m.label for m in parse_list(methods)),
            )
            chosen = _choose(ids or [ALL], request, store)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        if quick and (seeds is not None or epochs is not None):
            raise typer.BadParameter("--quick cannot be combined with --seeds or --epochs")
        if show_list or not ids or ids == [PAGE]:
            views = [
                make_view(id, store, request=only, is_smoke=quick) for id, only in chosen.items()
            ]
            if show_list or not ids:
                _print_list(console, views, data_dir, options.parse_device(device))
            else:
                _write_page(console, views)
            options.write_results(json_file, [_count(view) for view in views])
            return
        stop = make_stop(time_limit, began, console)
        session = Session(
            store,
            data_dir=data_dir,
            device=options.parse_device(device),
            jobs=jobs,
            is_smoke=quick,
            stop=stop,
            log=lambda text: print_line(console, text, style="dim"),
            display=lambda: Display(console),
        )
        with stop:
            outcomes = {
                id: session.run(id, partial(select_cells, id, only, store))
                for id, only in chosen.items()
            }
        views = [make_view(id, store, is_smoke=quick) for id in outcomes]
        reports = [
            {**_count(view), **_print_outcome(console, view, outcomes[view.artifact])}
            for view in views
        ]
        _print_busy(console, session, time.monotonic() - began)
        options.write_results(json_file, reports)
        _exit(console, session, outcomes)


def _choose(
    ids: list[str], request: "CellRequest", store: "RecordStore"
) -> dict[str, "CellRequest"]:
    """The artifacts to list or run; raises for invalid requests before anything runs."""
    from paper.reproduce import ARTIFACTS, CellRequest, requests_of_all, select_cells

    choices = [*ARTIFACTS, ALL, PAGE]
    for id in ids:
        if id not in choices:
            raise typer.BadParameter(
                f"expected one of {', '.join(choices)}, got {id!r}.{did_you_mean(id, choices)}",
                param_hint="ID",
            )
    if PAGE in ids and (len(ids) > 1 or request != CellRequest()):
        raise typer.BadParameter(
            "page covers all artifacts and cannot be combined with other IDs or filters",
            param_hint="ID",
        )
    if PAGE in ids or ALL in ids:
        return requests_of_all(request, store)
    for id in ids:
        select_cells(id, request, store)
    return dict.fromkeys(ids, request)


def _split(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(text.replace(" ", "").split(","))


def _write_page(console: Console, views: Sequence["PaperView"]) -> None:
    import torch

    from paper.report.write import write_page
    from zetamix_lab.provenance import machine_info

    path = views[0].store.folder / "index.html"
    write_page(views, path, machine_info(torch.device("cpu")))
    print_line(console, f"Report written to {path}")


def _count(view: "PaperView") -> dict[str, Any]:
    """An artifact and the number of its cells, for JSON."""
    missing = len(view.empty)
    counts = {"cells": len(view.cells), "done": len(view.cells) - missing, "missing": missing}
    return {"id": view.artifact, "title": view.title, **counts}


def _print_outcome(console: Console, view: "PaperView", outcome: "Outcome") -> dict[str, Any]:
    """Write the report of an artifact, and print its verdict; needs matplotlib and scipy."""
    counts = f"{outcome.ran} cells run, {outcome.had_record} had a record"
    print_line(console, f"{view.artifact}: {counts}, {len(outcome.empty)} left", style="bold")
    folder = view.store.folder / view.artifact
    shown: dict[str, Any] = {"ran": outcome.ran, "reasons": outcome.reasons}
    try:
        from paper.report.write import write_artifact

        verdict = write_artifact(view, folder).verdict
        shown |= {"verdict": verdict.status, "sentences": list(verdict.sentences)}
        sentences = [f"{verdict.status}: {verdict.sentences[0]}", *verdict.sentences[1:]]
        sentences.append(f"Report written to {folder / 'report.html'}")
    except ModuleNotFoundError as error:
        if error.name not in ("matplotlib", "scipy"):
            raise
        sentences = [
            f"Rendering needs {error.name}, which is not installed. The records are saved: install "
            "it and run zetamix reproduce page."
        ]
    for text in (*outcome.reasons, *sentences):
        print_line(console, f"  {text}")
    return shown


def _print_busy(console: Console, session: "Session", seconds: float) -> None:
    """Print the fraction of the session that GPUs spent on training steps."""
    if session.busy_s > 0 and session.device.type == "cuda":
        import torch

        # without an index, cuda means all GPUs
        gpus = 1 if session.device.index is not None else torch.cuda.device_count()
        print_line(
            console,
            f"Training steps used about {session.busy_s:.0f} of {gpus * seconds:.0f} s on "
            f"{plural(gpus, 'GPU')} ({100 * session.busy_s / (gpus * seconds):.0f} %); the rest "
            "was start-up, evaluation and writing.",
        )


def _exit(console: Console, session: "Session", outcomes: dict[str, "Outcome"]) -> None:
    """Print why cells are missing, and exit with the status."""
    if not any(outcome.empty for outcome in outcomes.values()):
        return
    if session.stop():
        for cell in session.discarded:
            print_line(console, f"Not saved, will start again: {cell.name}.")
        for run in session.unfinished:
            print_line(console, f"Saved: {run}.")
        print_line(console, f"{session.stop.reason} Rerun the same command to resume.")
        raise typer.Exit(stop_status(session.stop))
    if not any(outcome.ran for outcome in outcomes.values()):
        raise typer.Exit(1)


def _print_list(
    console: Console, views: Sequence["PaperView"], data_dir: Path | None, device: "torch.device"
) -> None:
    from paper.datasets import CATALOGUE, status
    from paper.reproduce import TimeEstimates
    from zetamix_lab.provenance import machine_info

    estimate, machines = TimeEstimates(views[0].store, machine_info(device)), set[str]()
    table = Table("id", "artifact and data", box=None, header_style="bold", pad_edge=False)
    for head in ("done", "missing", "time left"):
        table.add_column(head, justify="right", no_wrap=True)
    for view in views:
        names = [name for name in dict.fromkeys(cell.dataset for cell in view.cells) if name]
        absent = [name for name in names if not status(CATALOGUE[name], data_dir)]
        available = ", ".join(name for name in names if name not in absent)
        lines = [view.title, f"[green]available: {available}[/green]" if available else ""]
        lines += [f"[dim]missing: {', '.join(absent)}[/dim]"] if absent else []
        runnable = [cell for cell in view.empty if cell.device in (None, device.type)]
        estimates = [estimate(cell) for cell in runnable if cell.dataset not in absent]
        known = [found for found in estimates if found is not None]
        machines |= {found.machine for found in known}
        times = [time_left(sum(found.seconds for found in known)).removesuffix(" left")]
        times += ["unknown"] if None in estimates else []
        left = " + ".join(filter(None, times)) or "–"
        text = "\n".join(filter(None, lines))
        done = len(view.cells) - len(view.empty)
        table.add_row(view.artifact, text, str(done), str(len(view.empty)), left)
    console.print(table, highlight=False)
    notes = [
        f"Records are read from {views[0].store.folder} (--out).",
        "python -m paper data info NAME shows how to get missing data.",
    ]
    if machines:
        here = estimate.machine if machines == {estimate.machine} else ", ".join(sorted(machines))
        notes.append(f"Time left: for cells whose data is available, from records of {here}.")
    if machines - {estimate.machine}:
        notes.append(f"This machine is {estimate.machine}.")
    console.print("\n" + " ".join(notes), highlight=False)
