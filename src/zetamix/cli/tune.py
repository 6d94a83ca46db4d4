"""`zetamix tune`."""

import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from zetamix.cli.overview import near_path, time_left
from zetamix.cli.problems import told_in_a_sentence
from zetamix.words import counted

SPACE = "gamma=1..6,weight_decay=log:5e-5..1e-3"


def tune(
    data: Annotated[str, typer.Option(help="A dataset's name, or the path of yours.")] = "digits",
    space: Annotated[
        str | None,
        typer.Option(
            help="What to search: ranges, log: ranges, a|b|c or one value.",
            show_default="see above",
        ),
    ] = None,
    grid: Annotated[
        str | None,
        typer.Option(help="Train every value instead: gamma=1.8:5.0:0.2 is the paper's analysis."),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            min=1, help="Models in all, with those that are there already.", show_default="200"
        ),
    ] = None,
    sampler: Annotated[
        str | None, typer.Option(help="tpe, random or grid.", show_default="tpe")
    ] = None,
    prune: Annotated[
        bool | None,
        typer.Option(help="Stop hopeless trials early.", show_default="yes, except in a grid"),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Models at each place of a grid.", show_default="3")
    ] = None,
    test_seeds: Annotated[
        int, typer.Option(min=0, help="Models for the test split, in the end; 0 leaves it unread.")
    ] = 3,
    metric: Annotated[
        str | None,
        typer.Option(
            help="What to choose by: error, accuracy, balanced_accuracy, f1_macro, auc, nll, ...",
            show_default="error; balanced_accuracy where classes differ in size",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the search.")] = 0,
    epochs: Annotated[int | None, typer.Option(min=1, help="Instead of the recipe's.")] = None,
    model: Annotated[
        str | None, typer.Option(help="resnet18, lenet5, any classifier of torchvision.")
    ] = None,
    train_size: Annotated[
        str | None, typer.Option(help="Train on part of the data: a number or a fraction.")
    ] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Any field of the recipe: lr=0.05.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the study.", show_default="out/tune-NAME")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            envvar="ZETAMIX_STORAGE",
            help="postgresql://user@host/name, to share a study between machines.",
            show_default="study.db in --out",
        ),
    ] = None,
    study: Annotated[
        str | None, typer.Option(help="Its name in the storage.", show_default="tune-NAME")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Trials at a time.", show_default="one for each core; 4 on a GPU"),
    ] = None,
    backend: Annotated[str, typer.Option(help="local, or ray for a cluster.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of the Ray cluster: auto, or host:port.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; cuda if there is one.")] = None,
    time_limit: Annotated[
        str | None, typer.Option(help="Stop and save in time: 9m, 1h30m.")
    ] = None,
    save_every: Annotated[float, typer.Option(min=0, help="Seconds between checkpoints.")] = 60,
    root: Annotated[Path | None, typer.Option(help="Where datasets are kept.")] = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="Side in pixels that images of your own get.")
    ] = None,
) -> None:
    """Which γ for my data, how sure, how sensitive? Search on the validation split, then test.

    What is searched by default: gamma=1..6,weight_decay=log:5e-5..1e-3

    Leaves report.html, results.json, trials.csv and figures. The same command goes on after any
    interruption, and with more --trials trains only what is missing; several at a time share one
    study.
    """
    # loading what is imported here, and the data, takes its part of a time limit
    began = time.monotonic()
    from zetamix.tune import make_plan, make_question
    from zetamix.tune.run import tune as search
    from zetamix.tune.write import write_report

    console = Console()
    place = _device(device)
    stop = _stop(time_limit, began)
    kind, what = _kind(space, grid, sampler)
    with told_in_a_sentence():
        _hide_password(storage)
        question = make_question(
            data,
            what,
            metric=metric,
            seed=seed,
            train_size=_size(train_size),
            model=model,
            epochs=epochs,
            changes=change or [],
            root=root,
            size=size,
        )
        plan = make_plan(question, kind, trials, prune, seeds)
        name = f"tune-{question.dataset.name}" + ("-grid" if kind == "grid" else "")
        folder = out or Path("out") / name
        _announce(console, question, plan)
        with stop, Watcher(console, question) as watch:
            found = search(
                question,
                plan,
                out=folder,
                storage=storage,
                name=study or name,
                test_seeds=test_seeds,
                jobs=jobs,
                backend=backend,
                address=address,
                device=place,
                compile=_compiles(question, place),
                save_every=save_every,
                watch=watch,
                stop=stop,
            )
        page = write_report(found, folder, _facts())
        _print(console, found, page)
        if not found.finished or (test_seeds and found.chosen and not found.tested):
            why = "Stopped." if stop.terminated else "The time is up."
            console.print(f"{why} Everything is saved; the same command goes on.")
            raise typer.Exit(0 if stop.signal is None else 128 + stop.signal)


class Watcher(AbstractContextManager["Watcher"]):
    """Best so far, trials done, running, stopped early and failed, and the time that is left.

    On a terminal the lines stay in place; elsewhere there is a line for each trial that ends.
    """

    def __init__(self, console: Console, question: Any) -> None:
        self.console, self.question = console, question
        self.live = Live(console=console, auto_refresh=False, transient=True)
        self.told = -1
        self.died = 0

    def __enter__(self) -> "Watcher":
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def __call__(self, progress: Any) -> None:
        if progress.died > self.died:
            self.died = progress.died
            self._line("A worker died; the trials under way are tried again.")
        if self.console.is_terminal:
            self.live.update(self.lines(progress), refresh=True)
        elif progress.done != self.told:
            self.told = progress.done
            self._line(", ".join(self.words(progress)))

    def _line(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def lines(self, progress: Any) -> Group:
        """A bar with the numbers below it."""
        done, total = progress.done, progress.total
        bar = Table.grid(padding=(0, 1))
        bar.add_row("trials" if hasattr(progress, "best") else "test", _bar(done, total))
        return Group(bar, *(Text(f"  {word}") for word in self.words(progress)))

    def words(self, progress: Any) -> list[str]:
        if not hasattr(progress, "best"):
            percent = 100 * progress.epochs / progress.epochs_total
            return [f"test: {progress.done} of {progress.total} models done, {percent:.0f} %"]
        counts = [f"{progress.complete} finished"]
        named = {"pruned": "stopped early", "diverged": "diverged", "failed": "failed"}
        counts += [f"{getattr(progress, k)} {v}" for k, v in named.items() if getattr(progress, k)]
        counts.append(f"{len(progress.running)} running{self._epochs(progress.running)}")
        done = f"{progress.done} of {progress.total} trials done ({', '.join(counts)})"
        left = time_left(progress.seconds_left)
        return [self._best(progress.best), done, *([left] if left else [])]

    def _epochs(self, running: Any) -> str:
        if not running or not self.console.is_terminal:
            return ""
        each = [f"{epochs}/{self.question.recipe.epochs}" for epochs in running.values()]
        return f": epoch {', '.join(each)}"

    def _best(self, best: Any) -> str:
        from zetamix.tune.reading import show
        from zetamix.tune.space import label

        if best is None:
            return "no trial finished yet"
        return f"best so far {show(self.question.metric, best.value)} at {label(best.setting)}"


def _bar(done: int, total: int) -> ProgressBar:
    return ProgressBar(total=total, completed=done, width=40)


def _kind(space: str | None, grid: str | None, sampler: str | None) -> tuple[str, str]:
    """The sampler and the space, which `--grid` gives both of."""
    if grid is None:
        return sampler or "tpe", SPACE if space is None else space
    if space is not None:
        raise typer.BadParameter("give --space or --grid, not both", param_hint="--grid")
    if sampler not in (None, "grid"):
        raise typer.BadParameter(
            f"a grid is trained whole, and not drawn by {sampler}: leave --sampler out",
            param_hint="--grid",
        )
    return "grid", grid


def _device(name: str | None) -> str | None:
    import torch

    if name is None:
        return None
    if name.split(":")[0] not in ("cpu", "cuda"):
        raise typer.BadParameter(f"expected cpu or cuda, got {name!r}", param_hint="--device")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise typer.BadParameter("torch finds no CUDA device; use cpu", param_hint="--device")
    return name


def _stop(time_limit: str | None, began: float) -> Any:
    from zetamix.train.stopping import Stop, parse_duration

    try:
        limit = None if time_limit is None else parse_duration(time_limit)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--time-limit") from None
    return Stop(limit, began=began)


def _size(text: str | None) -> int | float | None:
    if text is None:
        return None
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise typer.BadParameter(
            f"expected a number of samples or a fraction such as 0.1, got {text!r}",
            param_hint="--train-size",
        ) from None


def _hide_password(storage: str | None) -> None:
    """The command is kept with every result; a password in it is not."""
    import sys

    from zetamix.tune.question import without_password

    if storage is not None:
        sys.argv = [arg.replace(storage, without_password(storage)) for arg in sys.argv]


def _compiles(question: Any, device: str | None) -> bool:
    import torch

    from zetamix.train.graph import compile_pays

    recipe = question.recipe
    steps = recipe.epochs * (len(question.dataset.train) // recipe.batch_size)
    on_gpu = torch.cuda.is_available() and device != "cpu"
    return compile_pays(torch.device("cuda" if on_gpu else "cpu"), steps)


def _announce(console: Console, question: Any, plan: Any) -> None:
    from zetamix.metrics import METRICS

    dataset, recipe = question.dataset, question.recipe
    test = 0 if dataset.test is None else len(dataset.test)
    console.print(
        f"[bold]{dataset.name}[/bold]: {len(dataset.train):,} to train, {len(dataset.val):,} to "
        f"choose by {METRICS[question.metric][0]}, {test:,} to test what is chosen · "
        f"{question.space.text} · {counted(plan.trials, 'trial')}, {plan.sampler} · "
        f"{recipe.model}, {counted(recipe.epochs, 'epoch')}, batch {recipe.batch_size} · recipe: "
        f"{recipe.source}",
        highlight=False,
    )
    for note in dataset.notes:
        console.print(f"[dim]{note}[/dim]", highlight=False)


def _print(console: Console, found: Any, page: Path) -> None:
    from zetamix.tune.reading import read
    from zetamix.tune.write import results_table

    if found.tested:
        table = results_table(found)
        shown = Table(box=None, header_style="bold", pad_edge=False)
        # the measure that was chosen by; the page has all
        for number, head in enumerate(table.heads[:2]):
            shown.add_column(head.name, justify="left" if number == 0 else "right")
        for row in table.cells:
            shown.add_row(*(cell.text() for cell in row[:2]))
        console.print(shown)
    for word, sentence in read(found):
        console.print(f"[bold]{word}[/bold]  {sentence}", highlight=False)
    console.print(f"[dim]in[/dim] {near_path(page)}", highlight=False, soft_wrap=True)


def _facts() -> dict[str, str]:
    import torch

    from zetamix.machine import describe_machine

    return describe_machine(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
