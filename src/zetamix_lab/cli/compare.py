"""`zetamix compare`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from zetamix_lab.cli import options
from zetamix_lab.cli.errors import make_stop, report_errors, stop_status
from zetamix_lab.cli.live import (
    Display,
    print_findings,
    print_header,
    print_line,
    print_table,
    show_reading,
)
from zetamix_lab.progress import RUNS
from zetamix_lab.runs import SEEDS, UNTIL

if TYPE_CHECKING:
    from zetamix_lab.comparison import Comparison
    from zetamix_lab.runs.compare import Grid
    from zetamix_lab.runs.own import OwnGrid


# options that have an effect with --runs and --train
WITH = {
    "runs": "runs out",
    "train": "train methods seeds until device jobs backend time_limit out",
}


def compare(
    context: typer.Context,
    data: options.Data = "digits",
    size: options.Size = None,
    group: options.GroupBy = None,
    skip_broken: options.SkipBroken = False,
    model: options.Model = None,
    epochs: options.Epochs = None,
    train_size: options.TrainSize = None,
    change: options.Changes = None,
    methods: options.Methods = None,
    seeds: options.Seeds = None,
    until: options.Until = UNTIL,
    train: options.Train = None,
    runs: options.Runs = None,
    device: options.Device = None,
    jobs: options.Jobs = None,
    backend: options.Backend = "local",
    time_limit: options.TimeLimit = None,
    out: options.Out = None,
    log: options.Log = None,
) -> None:
    """Compare mixing methods on a dataset and report which differences are significant.

    All methods share splits, schedule, the fraction of training in which they mix and, for each
    seed, initial weights. The default is none, mixup, switch (for images) and zetamix, with 5
    seeds. Writes report.html, results.json, results.csv, and tables in Markdown and LaTeX. Rerun
    the same command to resume; with more seeds or methods it trains only the missing runs.
    --train compares in a training function of your own, --runs compares results that you have.
    """
    _check_usage(context)
    # importing and loading count towards the time limit
    began = time.monotonic()
    console, groups = Console(), options.parse_group(group)
    numbers = options.parse_seeds(seeds, SEEDS)
    with report_errors():
        if runs is not None:
            from zetamix_lab.runs.own import read_table

            folder = (out or Path("out") / f"compare-{runs.stem}").absolute()
            _finish(console, read_table(runs), folder)
            return
        # before the slow imports: a misspelt name is reported in 1.6 s instead of 5
        from zetamix.methods import parse_list
        from zetamix_lab.data.load_dataset import find

        settings: dict[str, Any] = {"out": out, "seeds": numbers, "until": until}
        settings["methods"] = None if methods is None else parse_list(methods, until)
        if train is None:
            find(data)
            from zetamix_lab.train.recipe import parse_changes

            settings |= {
                "size": size,
                "group": groups,
                "skip_broken": skip_broken,
                "train_size": train_size,
                "device": device,
                "changes": parse_changes(change or (), model=model, epochs=epochs),
            }
        from zetamix_lab.runs.compare import compare as compare_methods
        from zetamix_lab.runs.executor import parse_backend
        from zetamix_lab.train.run_folder import log_curves

        stop = make_stop(time_limit, began, console)
        parse_backend(backend)
        grid = _make_grid(console, data, train, settings)
        with stop, log_curves(log, grid.out) as curves, Display(console) as display:

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
                stop=lambda: stop() or display.closed,
            )
        _finish(console, comparison, grid.out)
        if comparison.missing:
            saved = "Everything is" if train is None else "Finished runs are"
            print_line(console, f"{stop.reason} {saved} saved. Rerun the same command to resume.")
            raise typer.Exit(stop_status(stop))


def _make_grid(
    console: Console, data: str, train: str | None, settings: dict[str, Any]
) -> "Grid | OwnGrid":
    """The runs of a user's function, or those on a dataset, which is read and described."""
    if train is not None:
        from zetamix_lab.runs.own import OwnGrid

        return OwnGrid(train, **settings)
    from zetamix_lab.runs.compare import make_grid

    with show_reading() as progress:
        grid = make_grid(data, progress=progress, **settings)
    print_header(console, grid.dataset, grid.recipe, len(grid.methods), len(grid.seeds))
    return grid


def _check_usage(context: typer.Context) -> None:
    """Raise for an argument, and for options that would have no effect."""
    if context.args:
        raise typer.BadParameter(
            f"unexpected argument {context.args[0]!r}. If it is your data, use: "
            f"zetamix compare --data {context.args[0]}"
        )
    given = {
        parameter.name: parameter.opts[0]
        for parameter in context.command.params
        if getattr(context.get_parameter_source(parameter.name or ""), "name", "") == "COMMANDLINE"
    }
    for name, allowed in WITH.items():
        others = [option for other, option in given.items() if other not in allowed.split()]
        if name in given and others:
            raise typer.BadParameter(
                f"it has no effect with --{name}: leave it out", param_hint=others[0]
            )


def _finish(console: Console, comparison: "Comparison", out: Path) -> None:
    """Write and print the results; exits with 1 if a run failed."""
    import torch

    from zetamix_lab.provenance import machine_info
    from zetamix_lab.report.compare import difference_table, main_table, write_report
    from zetamix_lab.report.compare_text import summarise

    on_gpu = any("gpu" in record.machine for record in comparison.records.values())
    about = machine_info(torch.device("cuda" if on_gpu and torch.cuda.is_available() else "cpu"))
    if comparison.finished:
        # the files are written first: printing to a closed pipe would end the command
        page = write_report(comparison, out, about)
        # the verdict goes by these; the report has the other metrics
        print_table(console, main_table(comparison, comparison.tested))
        if len(comparison.tests):
            print_table(console, difference_table(comparison))
    print_findings(console, summarise(comparison, about["command"]).items())
    if comparison.finished:
        print_line(console, f"Report written to {page}")
    if comparison.failures:
        raise typer.Exit(1)
