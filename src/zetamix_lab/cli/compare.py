"""`zetamix compare`."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

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

    # with its folder, and what is printed if it was stopped
    Made: TypeAlias = tuple[Comparison, Path, str]

SEEDS, UNTIL = 5, 0.8
# options that have an effect with --runs and --train
WITH_RUNS = ("runs", "out", "json_file")
WITH_TRAIN = (
    "train", "methods", "seeds", "until", "device", "jobs", "backend", "time_limit", "out",
    "json_file",
)  # fmt: skip


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
    console, groups = options.open_console(json_file), options.parse_group(group)
    numbers, stop = options.parse_seeds(seeds, SEEDS), make_stop(time_limit, began, console)
    shared = {"out": out, "seeds": numbers, "until": until}
    how = {"jobs": jobs, "backend": backend, "device": device}
    with report_errors():
        if runs is not None:
            _refuse_others(context, "--runs", WITH_RUNS)
            from zetamix_lab.runs.own import read_table

            made = read_table(runs), (out or Path("out") / f"compare-{runs.stem}").absolute(), ""
        elif train is not None:
            _refuse_others(context, "--train", WITH_TRAIN)
            made = _call(console, stop, train, methods, shared, how)
        else:
            grid = {"size": size, "group": groups, "train_size": train_size, **shared}
            recipe = {"model": model, "epochs": epochs, "changes": change or []}
            made = _train(console, stop, data, methods, skip_broken, grid, recipe, how, log)
        comparison, folder, rest = made
        _finish(console, comparison, folder, json_file)
        if runs is None and not comparison.complete and not comparison.failures:
            exit_stopped(console, stop, rest)
    if comparison.failures:
        raise typer.Exit(1)


def _refuse_others(context: typer.Context, option: str, allowed: Sequence[str]) -> None:
    """Raise for options that would have no effect."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name not in allowed and getattr(source, "name", "") == "COMMANDLINE":
            raise typer.BadParameter(
                f"it has no effect with {option}: leave it out", param_hint=parameter.opts[0]
            )


def _train(
    console: Console,
    stop: "Stop",
    data: str,
    methods: str | None,
    skip_broken: bool,
    grid_options: dict[str, Any],
    recipe: dict[str, Any],
    how: dict[str, Any],
    log: str | None,
) -> "Made":
    # before the slow imports: a misspelt name is reported in 1.6 s instead of 5
    from zetamix.methods import parse_list
    from zetamix_lab.data.load_dataset import find

    chosen = None if methods is None else parse_list(methods, grid_options["until"])
    find(data)
    from zetamix_lab.data import load
    from zetamix_lab.metrics import choose_metrics
    from zetamix_lab.runs.compare import check_recipe, make_grid
    from zetamix_lab.runs.compare import compare as compare_methods
    from zetamix_lab.runs.executor import parse_backend
    from zetamix_lab.train.run_folder import CurveLog

    parse_backend(how["backend"])
    check_recipe(**recipe)
    with show_reading() as progress:
        if skip_broken:
            # later loads use the prepared data
            found = {name: grid_options[name] for name in ("size", "group")}
            load(data, skip_broken=True, progress=progress, **found)
        grid = make_grid(data, chosen, progress=progress, **grid_options, **recipe)
    print_header(console, grid.dataset, grid.recipe, len(grid.methods), len(grid.seeds))
    test = grid.dataset.splits["test"]
    start_up = time.monotonic() - stop.began
    with stop, CurveLog(log, grid.out) as curves, Display(console) as display:

        def watch(name: str, done: float, total: float, text: str = "") -> None:
            display(name, done, total, text)
            if name == RUNS:
                curves()

        comparison = compare_methods(
            grid,
            watch=watch,
            metric=choose_metrics(test.counts(), multi_label=test.multi_label)[0],
            stop=lambda: stop() or display.closed,
            **how,
        )
    text = "Everything is saved. Rerun the same command to resume."
    if not stop.signal and stop.limit is not None and start_up >= 0.8 * stop.limit:
        text = (
            f"Start-up took {start_up:.1f} s of the {stop.limit:g} s: use a longer --time-limit. "
            f"{text}"
        )
    return comparison, grid.out, text


def _call(
    console: Console,
    stop: "Stop",
    train: str,
    methods: str | None,
    shared: dict[str, Any],
    how: dict[str, Any],
) -> "Made":
    from zetamix_lab.runs.executor import parse_backend
    from zetamix_lab.runs.own import OwnFunction, compare_own

    parse_backend(how["backend"])
    function = OwnFunction.read(train)
    out = shared["out"] or Path("out") / f"compare-{function.code.path.stem}"
    shared = {**shared, "out": out.absolute()}
    with stop, Display(console) as display:
        how = {**how, "watch": display, "stop": lambda: stop() or display.closed}
        comparison = compare_own(function, methods, **shared, **how)
    text = "Finished runs are saved. Rerun the same command to make the others."
    return comparison, shared["out"], text


def _finish(console: Console, comparison: "Comparison", out: Path, json_file: Path | None) -> None:
    """Write and print the results."""
    import torch

    from zetamix_lab.atomic_io import read_json
    from zetamix_lab.provenance import machine_info
    from zetamix_lab.report.compare import (
        describe_replaced,
        difference_table,
        main_table,
        write_report,
    )
    from zetamix_lab.report.compare_text import summarise

    lines, command = list[str](), ""
    if comparison.finished:
        on_gpu = any("gpu" in record.machine for record in comparison.records.values())
        device = torch.device("cuda" if on_gpu and torch.cuda.is_available() else "cpu")
        replaced = describe_replaced(comparison, out)
        # the files are written first: printing to a closed pipe would end the command
        about = machine_info(device)
        page, command = write_report(comparison, out, about), about["command"]
        lines = [f"Report written to {page}", replaced]
        if json_file is not None:
            options.write_results(json_file, read_json(out / "results.json"))
        print_table(console, main_table(comparison))
        if comparison.compared:
            print_table(console, difference_table(comparison), required=3)
    print_findings(console, summarise(comparison, command).pairs)
    for line in filter(None, lines):
        print_line(console, line)
