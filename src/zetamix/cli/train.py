"""`zetamix train`."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from zetamix.cli import options
from zetamix.cli.errors import exit_stopped, print_error, report_errors
from zetamix.cli.live import print_header, print_line, short_path, show_reading, show_runs

if TYPE_CHECKING:
    from zetamix.data import Dataset
    from zetamix.experiments.progress import CellProgress
    from zetamix.experiments.run_cells import CellResults
    from zetamix.methods import Method
    from zetamix.records import Cell, RunRecord
    from zetamix.train import Recipe


@options.takes_training
def train(
    data: options.Data = "digits",
    methods: options.Methods = "zetamix",
    seeds: options.Seeds = None,
    compile: Annotated[
        bool | None, typer.Option(help="Use torch.compile. Default: for long runs on a GPU.")
    ] = None,
    *,
    training: options.Training,
) -> None:
    """Train models with the recipe of the dataset: the paper's, if it has one.

    Every run has a folder with cell.json, metrics.jsonl, model.json, final.pt and record.json. For
    a single run, --out is that folder. Rerun the same command to resume after any interruption; it
    trains only the missing runs. Under torchrun, each run is distributed over all processes.
    """
    # importing and loading count towards the time limit
    began = time.monotonic()
    # an empty string means the default
    chosen = options.parse_methods(methods or "zetamix") or []
    numbers = options.parse_seeds(seeds, 1)
    options.check_data(data)
    from zetamix.data.load_dataset import load_or_take, with_reported_split
    from zetamix.experiments.run_cells import run_cells
    from zetamix.train import make_cell, make_recipe
    from zetamix.train.distributed import join, leave
    from zetamix.train.loggers import FolderLog

    console = options.open_console(training.json_file)
    stop = options.make_stop(training.time_limit, began, console)
    with report_errors():
        ranks, torch_device = join(options.parse_device(training.device))
        console.quiet = not ranks.leads
        with show_reading(quiet=not ranks.leads) as progress:
            dataset, ref = load_or_take(data, **training.prepare(data, progress))
        if dataset.test is None:
            dataset, ref = with_reported_split(dataset), None
        recipe = make_recipe(dataset, **training.recipe)
        cells = [make_cell(dataset, method, recipe, seed) for method in chosen for seed in numbers]
        folder, folder_of = _folders(training.out, dataset.name, cells)
        print_header(console, dataset, recipe, len(chosen), len(numbers))
        if ranks.leads:
            _check(dataset, recipe, chosen)
        curves = FolderLog(training.log if ranks.leads else None, folder)
        with stop, curves, show_runs(console, curves=curves) as watch:
            results = run_cells(
                cells,
                dataset,
                out=folder,
                folder_of=folder_of,
                ref=ref,
                compile=compile,
                ranks=ranks,
                watch=watch,
                stop=stop,
                **training.workers | ({} if ranks.world == 1 else {"device": str(torch_device)}),
            )
        leave()
        shown = folder / folder_of(cells[0]) if len(cells) == 1 else folder
        _print_results(console, results, shown)
        if ranks.leads:
            runs = [record.as_dict() for record in results.records.values()]
            options.write_results(training.json_file, {"runs": runs})
        if len(results.records) + len(results.failures) < len(cells):
            print_line(console, _unfinished(list(results.progress.values())))
            exit_stopped(console, stop)
        if results.failures:
            raise typer.Exit(1)


def _check(dataset: "Dataset", recipe: "Recipe", methods: Sequence["Method"]) -> None:
    """Raise for a model that does not fit the data, and warn about γ, once and not per worker."""
    import torch

    from zetamix.models import initialise

    initialise(recipe.model, dataset.num_classes, dataset.shape, 0, **recipe.network)
    for method in methods:
        method.transform(dataset.num_classes, torch.Generator())


def _folders(
    out: Path | None, name: str, cells: list["Cell"]
) -> tuple[Path, Callable[["Cell"], str]]:
    """The folder of all runs, and a function that returns the folder of a run within it.

    A single run uses `out` itself, unless it already contains several runs.
    """

    def folder_of(cell: "Cell") -> str:
        return f"{cell.method.replace(':', '-')}-s{cell.seed}"

    options.check_writable(out or Path("out") / f"train-{name}", "--out")
    if out is None:
        return Path("out") / f"train-{name}", folder_of
    is_run = (out / "cell.json").exists()
    if len(cells) == 1 and (is_run or not any(out.glob("*/cell.json"))):
        return out, lambda cell: "."
    if is_run:
        raise typer.BadParameter(
            f"{out} is the folder of a single run; use another for several runs",
            param_hint="--out",
        )
    return out, folder_of


def _print_results(console: Console, results: "CellResults", folder: Path) -> None:
    if results.records:
        console.print(_table(list(results.records.values())))
        print_line(console, f"Results written to {short_path(folder)}")
    for key, message in results.failures.items():
        if not console.quiet:
            print_error(f"{results.progress[key].name}: {message}")


def _table(records: list["RunRecord"]) -> Table:
    from zetamix.methods import display_name
    from zetamix.metrics import METRICS

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("method", overflow="fold")
    for index, record in enumerate(records):
        last, (minutes, seconds) = record.last, divmod(round(record.wall_s), 60)
        # headings are wrapped to fit 80 columns
        # only records of multi-label datasets have a mean average precision
        names = ["map", "hamming"] if "map" in last else ["error", "balanced_accuracy"]
        first, *others = (METRICS[name] for name in (*names, "f1_macro", "auc"))
        row = {
            "seed": str(record.cell.seed),
            first.heading: first.number(last[first.name]),
            **{m.heading.replace(" ", "\n"): m.number(last[m.name]) for m in others},
            # runs of one or two steps have no timed step
            "ms per\nstep": f"{record.step_ms:.2f}" if record.step_ms else "–",
            "time": f"{minutes}m {seconds:02d}s",
        }
        if record.best is not None:
            row[f"test\n{first.heading}\nat best\nval"] = first.number(record.best[first.name])
        for head in row if index == 0 else ():
            table.add_column(head, justify="right", no_wrap=True)
        table.add_row(display_name(record.cell.method), *row.values())
    return table


def _unfinished(progress: list["CellProgress"]) -> str:
    """The epochs of runs that were stopped."""
    texts = [
        f"{run.name} in epoch {min(int(run.epochs) + 1, run.total)} of {run.total}"
        for run in progress
        if run.state == "training"
    ]
    if len(progress) > 1:
        done = sum(run.state == "done" for run in progress)
        texts.insert(0, f"{done} of {len(progress)} runs finished")
    return ", ".join(texts) or "No run was started."
