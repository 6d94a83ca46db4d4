"""`zetamix reproduce`."""

import difflib
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from zetamix.cli.problems import told_in_a_sentence

PAGE, ALL = "page", "all"
# real results are kept, quick ones are not
RESULTS, QUICK, WORK = Path("results"), Path("out/reproduce-quick"), Path("out/reproduce")

# of a verdict; the rest is in the files
SENTENCES = 6


def reproduce(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="Artifacts of --list; all; or page, one for all."),
    ] = None,
    show_list: Annotated[
        bool, typer.Option("--list", help="Every artifact: data, time, cells done and missing.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Stand-ins and shortened recipes: does it run?")
    ] = False,
    data_root: Annotated[Path | None, typer.Option(help="Where datasets are kept.")] = None,
    time_limit: Annotated[
        str | None, typer.Option(help="Stop and save in time: 9m, 1h30m.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Instead of the artifact's: 0,1,2.")] = None,
    datasets: Annotated[str | None, typer.Option(help="Only these, separated by commas.")] = None,
    methods: Annotated[str | None, typer.Option(help="Only these: none,mixup,zeta:2.8.")] = None,
    variants: Annotated[
        str | None, typer.Option(help="Augmentation of the recipe: crop-flip, flip, none.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="A shortened recipe, labelled as one.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; cuda if there is one.")] = None,
    concurrent: Annotated[
        int, typer.Option(min=1, help="Models to train side by side in this process.")
    ] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Folder of results; results, or out/… if quick.")
    ] = None,
    work: Annotated[Path, typer.Option(help="Folder of unfinished runs.")] = WORK,
) -> None:
    """Reproduce figures and tables of the paper: run what is missing, then draw.

    The same command goes on where the last one stopped. Every result is a record in
    OUT/ID/records.jsonl, with figures and tables beside it.
    """
    # loading what is imported here, and the data, takes its part of a time limit
    began = time.monotonic()
    from zetamix.reproduce import Results, Session
    from zetamix.train.stopping import Stop

    console = Console()
    folder = out or (QUICK if quick else RESULTS)
    with told_in_a_sentence():
        results = Results(folder)
        if show_list or not ids:
            _list(console, results, data_root, _device(device))
            return
        chosen = _ids(ids)
        if chosen == [PAGE]:
            _page(console, results, quick)
            return
        ask = _ask(chosen, seeds, variants, epochs)
        place = _device(device)
        stop = Stop(_seconds(time_limit), began=began)
        with _watcher(console) as watch:
            session = Session(
                results,
                work=work / "quick" if quick else work,
                root=data_root,
                device=place,
                concurrent=concurrent,
                is_quick=quick,
                stop=stop,
                tell=lambda text: console.print(f"[dim]{text}[/dim]", highlight=False),
                watch=watch,
            )
            with stop:
                outcomes = {
                    id: session.run(id, _cells(id, ask, datasets, methods, session))
                    for id in chosen
                }
        _report(console, results, outcomes, quick)
        _leave(console, stop, outcomes)


def _ids(given: list[str]) -> list[str]:
    from zetamix.reproduce import EXPERIMENTS

    known = [*EXPERIMENTS, ALL, PAGE]
    for id in given:
        if id not in known:
            near = difflib.get_close_matches(id, known, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise typer.BadParameter(
                f"expected some of {', '.join(known)}, got {id!r}.{hint}", param_hint="ID"
            )
    if PAGE in given and len(given) > 1:
        raise typer.BadParameter("page is of all artifacts; give it alone", param_hint="ID")
    return list(EXPERIMENTS) if ALL in given else list(dict.fromkeys(given))


def _ask(ids: list[str], seeds: str | None, variants: str | None, epochs: int | None) -> Any:
    from zetamix.cli.train import _seeds
    from zetamix.data.augment import AUGMENTATIONS
    from zetamix.reproduce import EXPERIMENTS, Ask

    names = None if variants is None else tuple(part.strip() for part in variants.split(","))
    for name in names or ():
        if name not in AUGMENTATIONS:
            raise typer.BadParameter(
                f"expected some of {', '.join(AUGMENTATIONS)}, got {name!r}",
                param_hint="--variants",
            )
    ask = Ask(None if seeds is None else tuple(_seeds(seeds, "--seeds")), names, epochs)
    if ask != Ask() and not any(EXPERIMENTS[id].trains for id in ids):
        raise typer.BadParameter(
            f"--seeds, --variants and --epochs are for artifacts that train models, which "
            f"{' and '.join(ids)} does not"
        )
    return ask


def _cells(id: str, ask: Any, datasets: str | None, methods: str | None, session: Any) -> list[Any]:
    """The cells that were asked for."""
    from zetamix.methods import parse_list
    from zetamix.reproduce import EXPERIMENTS
    from zetamix.reproduce.quick import shorten

    cells = list(EXPERIMENTS[id].cells(ask))
    for option, text, field in (
        ("--datasets", datasets, "dataset"),
        ("--methods", methods, "method"),
    ):
        if text is None:
            continue
        names = (
            [part.strip() for part in text.split(",")]
            if field == "dataset"
            else [method.label for method in parse_list(text)]
        )
        known = list(dict.fromkeys(getattr(cell, field) for cell in cells))
        for name in names:
            if name not in known:
                raise typer.BadParameter(
                    f"{id} has {', '.join(filter(None, known))}; got {name!r}", param_hint=option
                )
        cells = [cell for cell in cells if getattr(cell, field) in names]
    return shorten(cells, session.device) if session.is_quick else cells


def _device(name: str | None) -> Any:
    import torch

    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.split(":")[0] not in ("cpu", "cuda"):
        raise typer.BadParameter(f"expected cpu or cuda, got {name!r}", param_hint="--device")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise typer.BadParameter("torch finds no CUDA device; use cpu", param_hint="--device")
    place = torch.device(name)
    # which convolution is fastest is tried out once per shape; shapes never change here
    torch.backends.cudnn.benchmark = place.type == "cuda"
    return place


def _seconds(time_limit: str | None) -> float | None:
    from zetamix.train.stopping import parse_duration

    try:
        return None if time_limit is None else parse_duration(time_limit)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--time-limit") from None


def _watcher(console: Console) -> Any:
    from zetamix.cli.progress import Watcher

    return Watcher(console, [])


def _list(console: Console, results: Any, root: Path | None, place: Any) -> None:
    from zetamix.data import CATALOGUE
    from zetamix.data.access import status
    from zetamix.reproduce import EXPERIMENTS, Ask
    from zetamix.reproduce.speed import Speed

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, justify in (("id", "left"), ("what it shows, and its data", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for name in ("done", "missing", "time left"):
        table.add_column(name, justify="right", no_wrap=True)
    speed = Speed(place, results)
    for experiment in EXPERIMENTS.values():
        cells = experiment.cells(Ask())
        empty = [cell for cell in cells if results.find(cell) is None]
        names = [name for name in dict.fromkeys(cell.dataset for cell in cells) if name]
        here = [name for name in names if status(CATALOGUE[name], root)]
        gone = [name for name in names if name not in here]
        able = [cell for cell in empty if cell.device in (None, place.type)]
        lines = [experiment.what]
        lines += [f"[green]here: {', '.join(here)}[/green]"] if here else []
        lines += [f"[dim]not here: {', '.join(gone)}[/dim]"] if gone else []
        table.add_row(
            f"[bold]{experiment.id}[/bold]",
            "\n".join(lines),
            str(len(cells) - len(empty)),
            str(len(empty)),
            _duration(sum(map(speed.seconds, able))) if able else "–",
        )
    console.print(table, highlight=False)
    console.print(
        "\nzetamix data info NAME says how to get data that is not here. Times are estimates for "
        f"all missing cells on {speed.facts.get('gpu', speed.facts['processor'])}, one after the "
        "other; those that another device has to measure are not counted.",
        highlight=False,
    )


def _duration(seconds: float) -> str:
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "m")):
        if seconds >= size:
            count = seconds / size
            return f"≈ {count:.1f} {unit}" if count < 9.95 else f"≈ {count:,.0f} {unit}"
    return f"≈ {max(1, round(seconds))} s"


def _page(console: Console, results: Any, quick: bool) -> None:
    import torch

    from zetamix.machine import describe_machine
    from zetamix.reproduce.writing import write_page

    path = results.folder / "index.html"
    write_page(results, path, describe_machine(torch.device("cpu")), is_quick=quick)
    console.print(f"[dim]in {path}[/dim]", highlight=False, soft_wrap=True)


def _report(console: Console, results: Any, outcomes: dict[str, Any], quick: bool) -> None:
    import torch

    from zetamix.machine import describe_machine

    for id, outcome in outcomes.items():
        console.print(
            f"[bold]{id}[/bold]: {outcome.ran} cells run, {outcome.done} were there, "
            f"{len(outcome.left)} still empty",
            highlight=False,
        )
        verdict = _draw(id, results, quick, describe_machine(torch.device("cpu")))
        more = len(verdict) - SENTENCES
        told = [f"{more} more sentences are in README.md."] if more > 0 else []
        for word in (*verdict[:SENTENCES], *told, *outcome.reasons):
            console.print(Padding(Text(word), (0, 0, 0, 2)))
        console.print(f"[dim]  in {results.folder / id}[/dim]", highlight=False, soft_wrap=True)


def _draw(id: str, results: Any, quick: bool, facts: dict[str, str]) -> list[str]:
    """Write figures and tables, and return the verdict; records are kept where nothing can draw."""
    try:
        from zetamix.reproduce.artifacts import draw, look
        from zetamix.reproduce.writing import write_artifact
    except ModuleNotFoundError as missing:
        if missing.name not in ("matplotlib", "scipy"):
            raise
        return [
            f"Drawing needs {missing.name}, which is not here. The records are kept: zetamix "
            "reproduce page draws them where it is."
        ]
    view = look(id, results, is_quick=quick)
    drawn = draw(view)
    write_artifact(view, drawn, results.folder / id, facts)
    return list(drawn.verdict)


def _leave(console: Console, stop: Any, outcomes: dict[str, Any]) -> None:
    """Say why anything is left, in words and as the exit status."""
    left = sum(len(outcome.left) for outcome in outcomes.values())
    if not left:
        return
    if stop():
        why = "Stopped." if stop.terminated else "The time is up."
        console.print(f"{why} Everything is saved; the same command goes on.")
        # as a shell counts a signal: 143 for SIGTERM, 130 for Ctrl-C
        raise typer.Exit(0 if stop.signal is None else 128 + stop.signal)
    if not any(outcome.ran for outcome in outcomes.values()):
        raise typer.Exit(1)
