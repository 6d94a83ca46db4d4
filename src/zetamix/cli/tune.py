"""`zetamix tune`."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group
from rich.progress_bar import ProgressBar
from rich.text import Text

from zetamix.cli import options
from zetamix.cli.errors import exit_stopped, report_errors
from zetamix.cli.live import (
    QUIET_SECONDS,
    LiveDisplay,
    RunsView,
    print_findings,
    print_line,
    print_plan,
    print_table,
    short_path,
    show_reading,
    time_left,
)
from zetamix.text import plural

if TYPE_CHECKING:
    from zetamix.experiments.tune.study import SearchProgress
    from zetamix.results.tuning import SearchPlan, StudySpec

SPACE = "gamma=1..6"


@options.takes_training
def tune(
    data: options.Data = "digits",
    space: Annotated[
        str | None,
        typer.Option(
            help="Search space: NAME=VALUES separated by commas, such as "
            "gamma=1..6,lr=log:1e-3..1e-1,sources=2|8|all. VALUES are a range (log: for a "
            "logarithmic scale), a list (|) or one value; NAME is gamma, sources, p or a field "
            "of the recipe."
        ),
    ] = None,
    grid: Annotated[
        str | None,
        typer.Option(help="Train all combinations, such as gamma=1.8:5.0:0.2, as in the paper."),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Total number of trials; rerun with more to continue the study. The paper has "
            "200.",
            show_default="50",
        ),
    ] = None,
    sampler: Annotated[
        str | None, typer.Option(help="tpe, random or grid.", show_default="tpe")
    ] = None,
    prune: Annotated[
        bool | None,
        typer.Option(
            help="Stop a trial early once 75 % of the finished ones were better at the same "
            "epoch. Default: --prune, but --no-prune for a grid."
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="Validation metric to optimise. Default: error if classes are balanced, else "
            "balanced_accuracy; map for several labels per sample."
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="Seeds of every setting of a --grid: a number, or a list such as 0,4,7. In other "
            "searches every trial has its own seed."
        ),
    ] = None,
    sampler_seed: Annotated[int, typer.Option(min=0, help="Seed of the sampler.")] = 0,
    test_seeds: Annotated[
        int, typer.Option(min=0, help="Number of seeds of the final test; 0 skips it.")
    ] = 3,
    study: Annotated[
        str | None, typer.Option(help="Name of the study.", show_default="tune-DATA")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            help="Database shared by several machines: postgresql://user@host:5432/name, with the "
            "password in PGPASSWORD. Default: a file in the output folder."
        ),
    ] = None,
    *,
    training: options.Training,
) -> None:
    """Search γ and other hyperparameters on the validation split, then test the best setting once.

    The search is for γ of ζ-mixup (zeta). ZetaMix draws γ at random, and is one of the baselines of
    the final test.

    The default search space is gamma=1..6. If --space includes parameters of the recipe, they are
    also searched for every baseline, with as many trials each, so that the comparison is fair.

    Writes report.html, results.json, trials.csv and figures. Rerun the same command to resume, even
    after it was killed; with more --trials it trains only the missing ones. Several commands may
    share one study: on one machine with the same --out, between machines with --storage.
    """
    # importing and loading count towards the time limit
    began = time.monotonic()
    options.check_data(data)
    import torch

    from zetamix.provenance import machine_info
    from zetamix.report.tune import final_test_tables, write_report
    from zetamix.report.tune_text import summarise_tuning
    from zetamix.train.loggers import FolderLog

    console = options.open_console(training.json_file)
    options.check_device(training.device)
    stop = options.make_stop(training.time_limit, began, console)
    sampler, text = _sampler(space, grid, sampler)
    with report_errors():
        from zetamix.experiments.tune import make_plan, make_spec
        from zetamix.experiments.tune import tune as search

        _mask_password(storage)
        with show_reading() as progress:
            spec = make_spec(
                data,
                text,
                metric=metric,
                seed=sampler_seed,
                **training.prepare(data, progress),
                **training.recipe,
            )
        grid_seeds = None if seeds is None else options.parse_seeds(seeds, 3)
        plan = make_plan(spec, sampler, trials, prune, grid_seeds)
        name = f"tune-{spec.dataset.name}" + ("-grid" if sampler == "grid" else "")
        folder = training.out or Path("out") / name
        options.check_writable(folder, "--out")
        _print_header(console, spec, plan, test_seeds)
        curves = FolderLog(training.log, folder)
        with stop, curves, show_trials(console, spec, curves) as watch:
            tuning = search(
                spec,
                plan,
                out=folder,
                storage=storage,
                name=study or name,
                test_seeds=test_seeds,
                watch=watch,
                stop=stop,
                **training.workers,
            )
        kind = "cuda" if torch.cuda.is_available() else "cpu"
        page = write_report(tuning, folder, machine_info(torch.device(kind)))
        for table in final_test_tables(tuning) if tuning.tested else []:
            print_table(console, table)
        print_findings(console, summarise_tuning(tuning))
        print_line(console, f"Report written to {short_path(page)}")
        options.write_results(training.json_file, folder / "results.json")
        if tuning.test_failures:
            raise typer.Exit(1)
        if not tuning.finished or (test_seeds and tuning.chosen and not tuning.tested):
            exit_stopped(console, stop)


def show_trials(
    console: Console, spec: "StudySpec", curves: Callable[[], None] = lambda: None
) -> LiveDisplay:
    """The live display of a search and of its final test."""
    trials, runs = TrialsView(spec), RunsView(console, spec.metric)

    def pick(snapshot: Any) -> Any:
        return runs if hasattr(snapshot, "cells") else trials

    return LiveDisplay(console, lambda s: pick(s).view(s), lambda s: pick(s).lines(s), curves)


class TrialsView:
    """A `SearchProgress` as a bar with text, or as one line per finished trial."""

    def __init__(self, spec: "StudySpec", clock: Callable[[], float] = time.monotonic) -> None:
        self.spec, self.clock = spec, clock
        self._printed = -1
        self._last_line = clock()

    def view(self, progress: "SearchProgress") -> Group:
        bar = ProgressBar(total=progress.total, completed=progress.done, width=40)
        parts = [*self._parts(progress), *self._running(progress)]
        return Group(bar, *(Text(f"  {part}") for part in parts))

    def lines(self, progress: "SearchProgress") -> list[str]:
        is_quiet = self.clock() - self._last_line >= QUIET_SECONDS
        if progress.done == self._printed and not (is_quiet and progress.running):
            return []
        running = self._running(progress) if progress.done == self._printed else []
        self._printed, self._last_line = progress.done, self.clock()
        return [", ".join([*self._parts(progress), *running])]

    def _running(self, progress: "SearchProgress") -> list[str]:
        """The epochs of running trials."""
        epochs = [f"{epoch}/{self.spec.recipe.epochs}" for epoch in progress.running.values()]
        return [f"epoch {', '.join(epochs)}"] if epochs else []

    def _parts(self, progress: "SearchProgress") -> list[str]:
        from zetamix.methods import display_name
        from zetamix.metrics import METRICS
        from zetamix.results.search_space import format_setting

        counts = [f"{count} {state}" for state, count in progress.counts.items() if count]
        counts.append(f"{len(progress.running)} running")
        best, text = progress.best, "no trial complete yet"
        if best is not None:
            metric = METRICS[self.spec.metric]
            value = f"{metric.title} {metric.format(best.value)}"
            text = f"best so far: {value} at {format_setting(best.setting)}"
        if progress.baseline:
            text = f"{display_name(progress.baseline)}: {text}"
        # a study that was started with more trials has more than requested now
        total = max(progress.done, progress.total)
        done = f"{progress.done} of {total} trials done ({', '.join(counts)})"
        return list(filter(None, (text, done, time_left(progress.seconds_left))))


def _sampler(space: str | None, grid: str | None, sampler: str | None) -> tuple[str, str]:
    """The sampler and the search space; --grid sets both."""
    if grid is None:
        return sampler or "tpe", SPACE if space is None else space
    if space is not None:
        raise typer.BadParameter("cannot be combined with --space", param_hint="--grid")
    if sampler not in (None, "grid"):
        raise typer.BadParameter(
            f"cannot be combined with --sampler {sampler}", param_hint="--grid"
        )
    return "grid", grid


def _mask_password(storage: str | None) -> None:
    """Mask the password in the command line, which every record stores."""
    if storage is not None:
        from zetamix.experiments.tune.storage import mask, parse_url

        masked = mask(parse_url(storage))
        sys.argv = [argument.replace(storage, masked) for argument in sys.argv]


def _print_header(console: Console, spec: "StudySpec", plan: "SearchPlan", test_seeds: int) -> None:
    from zetamix.experiments.tune import baselines_of
    from zetamix.metrics import METRICS

    is_shared = spec.space.for_baseline("none").searched
    same = " for ζ-mixup and for each baseline" if is_shared else ""
    sizes = {name: f"{len(split):,}" for name, split in spec.dataset.splits.items()}
    tested, after = 1 + len(baselines_of(spec)), ""
    if test_seeds:
        after = (
            f", then {plural(tested * test_seeds, 'run')} of the final test ({tested} methods × "
            f"{plural(test_seeds, 'seed')}; --test-seeds 0 skips it)"
        )
    print_plan(
        console,
        spec.dataset,
        spec.recipe,
        f"{sizes['train']} training, {sizes['val']} validation and {sizes.get('test', 'no')} test "
        "samples",
        f"ζ-mixup (zeta) with {spec.space.text}",
        f"{plural(plan.trials, 'trial')}{same} ({plan.sampler}), chosen by validation "
        f"{METRICS[spec.metric].title}{after}",
    )
