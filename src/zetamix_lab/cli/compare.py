"""`zetamix compare`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from zetamix_lab.cli import options
from zetamix_lab.cli.errors import report_errors
from zetamix_lab.cli.live import (
    RUNS,
    Display,
    print_findings,
    print_header,
    print_line,
    print_table,
    short_path,
    show_reading,
)
from zetamix_lab.cli.stop import exit_stopped, make_stop

if TYPE_CHECKING:
    from zetamix_lab.comparison import Comparison
    from zetamix_lab.runs.compare import Grid
    from zetamix_lab.train.stop import Stop

SEEDS, UNTIL = 5, 0.8


def compare(
    data: options.Data = "digits",
    data_dir: options.DataDir = None,
    size: options.Size = None,
    group: options.GroupBy = None,
    skip_broken: options.SkipBroken = False,
    model: options.Model = None,
    weights: options.Weights = None,
    epochs: options.Epochs = None,
    train_size: options.TrainSize = None,
    change: options.Changes = None,
    methods: options.Methods = None,
    seeds: options.Seeds = None,
    until: options.Until = UNTIL,
    device: options.Device = None,
    jobs: options.Jobs = None,
    backend: options.Backend = "local",
    time_limit: options.TimeLimit = None,
    out: options.Out = None,
    log: options.Log = None,
    json_file: options.Json = None,
) -> None:
    """Compare mixing methods on a dataset and report which differences are significant.

    All methods share splits, schedule, the fraction of training in which they mix and, for each
    seed, initial weights. The default is none, mixup, switch (for images) and zetamix, with 5
    seeds. Writes report.html, results.json, results.csv, and tables in Markdown and LaTeX. Rerun
    the same command to resume; with more seeds or methods it trains only the missing runs.
    """
    # importing and loading count towards the time limit
    began = time.monotonic()
    console = options.open_console(json_file)
    chosen, numbers = options.parse_methods(methods, until), options.parse_seeds(seeds, SEEDS)
    groups, part = options.parse_group(group), options.parse_train_size(train_size)
    options.check_data(data)
    from zetamix_lab.data import prepare
    from zetamix_lab.metrics import primary_metric
    from zetamix_lab.runs.compare import check_recipe, make_grid
    from zetamix_lab.runs.compare import compare as compare_methods
    from zetamix_lab.runs.executor import parse_backend
    from zetamix_lab.train.loggers import FolderLog

    options.check_device(device)
    stop = make_stop(time_limit, began, console)
    with report_errors():
        parse_backend(backend)
        recipe: dict[str, Any] = {
            "model": model,
            "weights": weights,
            "epochs": epochs,
            "changes": change or [],
        }
        check_recipe(**recipe)
        with show_reading() as progress:
            found: dict[str, Any] = {"data_dir": data_dir, "size": size, "group": groups}
            found["progress"] = progress
            if skip_broken:
                # later loads use the prepared data
                prepare(data, skip_broken=True, **found)
            grid = make_grid(
                data,
                chosen,
                out=out,
                seeds=numbers,
                until=until,
                train_size=part,
                **found,
                **recipe,
            )
        options.check_writable(grid.out, "--out")
        _print_grid(console, grid)
        test = grid.dataset.splits["test"]
        with stop, FolderLog(log, grid.out) as curves, Display(console) as display:

            def watch(name: str, done: float, total: float, text: str = "") -> None:
                display(name, done, total, text)
                if name == RUNS:
                    curves()

            comparison = compare_methods(
                grid,
                jobs=jobs,
                backend=backend,
                device=device,
                watch=watch,
                metric=primary_metric(test.counts(), multi_label=test.multi_label),
                stop=lambda: stop() or display.closed,
            )
        _finish(console, comparison, grid.out, json_file, stop)


def _finish(
    console: Console, comparison: "Comparison", out: Path, json_file: Path | None, stop: "Stop"
) -> None:
    """Write and print the results, and exit."""
    # the files are written first: printing to a closed pipe would end the command
    page, replaced = _write(comparison, out)
    _print(console, comparison)
    _print_page(console, page, replaced)
    if page is not None:
        options.write_results(json_file, out / "results.json")
    if not comparison.complete and not comparison.failures:
        exit_stopped(console, stop, _hint(comparison, stop))
    if comparison.failures:
        raise typer.Exit(1)


def _print_grid(console: Console, grid: "Grid") -> None:
    print_header(console, grid.dataset, grid.recipe, len(grid.methods), len(grid.seeds))
    if len(grid.methods) == 1:
        print_line(
            console, "There is only one method, so nothing is compared. Use --methods none,zetamix"
        )


def _hint(comparison: "Comparison", stop: "Stop") -> str:
    recipe, dataset = comparison.recipe, comparison.dataset
    if recipe is None or dataset is None:
        return ""
    samples = len(dataset.train)
    steps = comparison.epochs_trained * recipe.steps(samples) / recipe.epochs
    # a few steps are trained before a limit that has already passed takes effect
    if steps > 5 or stop.signal is not None:
        return ""
    return (
        f" Almost no steps were trained: start-up takes most of the {stop.limit:g} s. Use a longer "
        "--time-limit."
    )


def _print(console: Console, comparison: "Comparison") -> None:
    from zetamix_lab.report.compare import difference_table, main_table
    from zetamix_lab.report.compare_text import summarise

    if comparison.records:
        print_table(console, main_table(comparison))
        if comparison.compared:
            print_table(console, difference_table(comparison), required=3)
    print_findings(console, summarise(comparison).pairs)


def _write(comparison: "Comparison", out: Path) -> tuple[Path | None, str]:
    """Write the report; return its page, and a note if it replaces another report."""
    from zetamix_lab.report.compare import describe_replaced, write_report

    if not comparison.records:
        return None, ""
    replaced = describe_replaced(comparison, out)
    return write_report(comparison, out, _machine(comparison)), replaced


def _print_page(console: Console, page: Path | None, replaced: str = "") -> None:
    if page is not None:
        print_line(console, f"Report written to {short_path(page)}")
    if replaced:
        print_line(console, replaced)


def _machine(comparison: "Comparison") -> dict[str, str]:
    import torch

    from zetamix_lab.provenance import machine_info

    on_gpu = any("gpu" in record.machine for record in comparison.records.values())
    return machine_info(torch.device("cuda" if on_gpu and torch.cuda.is_available() else "cpu"))
