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
    show_reading,
)
from zetamix_lab.cli.stop import exit_stopped, make_stop

if TYPE_CHECKING:
    from zetamix_lab.comparison import Comparison
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
    groups = options.parse_group(group)
    options.check_data(data)
    from zetamix_lab.data import load
    from zetamix_lab.metrics import choose_metrics
    from zetamix_lab.runs.compare import check_recipe, make_grid
    from zetamix_lab.runs.compare import compare as compare_methods
    from zetamix_lab.runs.executor import parse_backend
    from zetamix_lab.train.run_folder import CurveLog

    stop = make_stop(time_limit, began, console)
    recipe: dict[str, Any] = {"model": model, "weights": weights, "epochs": epochs}
    recipe["changes"] = change or []
    with report_errors():
        parse_backend(backend)
        check_recipe(**recipe)
        with show_reading() as progress:
            found: dict[str, Any] = {"data_dir": data_dir, "size": size, "group": groups}
            found["progress"] = progress
            if skip_broken:
                # later loads use the prepared data
                load(data, skip_broken=True, **found)
            grid = make_grid(
                data,
                chosen,
                out=out,
                seeds=numbers,
                until=until,
                train_size=train_size,
                **found,
                **recipe,
            )
        options.check_writable(grid.out, "--out")
        print_header(console, grid.dataset, grid.recipe, len(grid.methods), len(grid.seeds))
        test = grid.dataset.splits["test"]
        start_up = time.monotonic() - began
        with stop, CurveLog(log, grid.out) as curves, Display(console) as display:

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
                metric=choose_metrics(test.counts(), multi_label=test.multi_label)[0],
                stop=lambda: stop() or display.closed,
            )
        _finish(console, comparison, grid.out, json_file)
        if not comparison.complete and not comparison.failures:
            exit_stopped(console, stop, _hint(stop, start_up))
    if comparison.failures:
        raise typer.Exit(1)


def _finish(console: Console, comparison: "Comparison", out: Path, json_file: Path | None) -> None:
    """Write and print the results."""
    import torch

    from zetamix_lab.provenance import machine_info
    from zetamix_lab.report.compare import (
        describe_replaced,
        difference_table,
        main_table,
        write_report,
    )
    from zetamix_lab.report.compare_text import summarise

    page, replaced, command = None, "", ""
    if comparison.records:
        on_gpu = any("gpu" in record.machine for record in comparison.records.values())
        device = torch.device("cuda" if on_gpu and torch.cuda.is_available() else "cpu")
        replaced = describe_replaced(comparison, out)
        # the files are written first: printing to a closed pipe would end the command
        about = machine_info(device)
        page, command = write_report(comparison, out, about), about["command"]
        options.write_results(json_file, out / "results.json")
        print_table(console, main_table(comparison))
        if comparison.compared:
            print_table(console, difference_table(comparison), required=3)
    print_findings(console, summarise(comparison, command).pairs)
    if page is not None:
        print_line(console, f"Report written to {page}")
    if replaced:
        print_line(console, replaced)


def _hint(stop: "Stop", start_up: float) -> str:
    if stop.signal or stop.limit is None or start_up < 0.8 * stop.limit:
        return ""
    return f" Start-up took {start_up:.1f} s of the {stop.limit:g} s: use a longer --time-limit."
