"""Options that several commands share: their declarations, parsers and error messages."""

import inspect
import json
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from rich.console import Console

from zetamix_lab.cli.errors import report_errors

if TYPE_CHECKING:
    import torch

    from zetamix.methods import Method
    from zetamix_lab.data.groups import Group
    from zetamix_lab.data.source import Progress
    from zetamix_lab.train.stop import Stop

# --json -
STDOUT = Path("-")


def parse_folder(text: str) -> Path:
    """A folder; raises for an empty string, such as an unset shell variable."""
    if not text.strip():
        raise typer.BadParameter("expected a folder, got an empty string")
    return Path(text)


Data = Annotated[str, typer.Option("--data", help="Name of a dataset, or path of your own data.")]
Methods = Annotated[
    str | None,
    typer.Option(
        "--methods", help="Comma-separated: none, mixup:1.0, cutmix, switch, zetamix, zeta:2.8."
    ),
]
Seeds = Annotated[
    str | None,
    typer.Option("--seeds", help="Number of seeds (3 means 0, 1, 2), or a list such as 0,4,7."),
]
Epochs = Annotated[
    int | None, typer.Option("--epochs", min=1, help="Override the recipe's number of epochs.")
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="resnet18, lenet5, mlp, any classifier of torchvision, timm:NAME, or "
        "FILE.py:FUNCTION, your own function that takes the number of classes and returns a "
        "module.",
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(
        "--weights",
        help="Initial weights: a state dict (.pt, .pth, .safetensors), such as torchvision's for "
        "ImageNet. Default: train from scratch.",
    ),
]
Optimizer = Annotated[
    str | None,
    typer.Option(
        "--optimizer",
        help="sgd, or adamw with warm-up and cosine annealing. Default: adamw for networks with "
        "layer normalisation (transformers, ConvNeXt), else sgd.",
    ),
]
TrainSize = Annotated[
    str | None,
    typer.Option("--train-size", help="Train on a subset: a number of samples or a fraction."),
]
Size = Annotated[
    int | None, typer.Option("--size", min=1, help="Resize your own images to SIZE × SIZE pixels.")
]
GroupColumn = Annotated[
    str | None,
    typer.Option("--group", help="Column with the patient or lesion; each stays in one split."),
]
GroupPattern = Annotated[
    str | None,
    typer.Option(
        "--group-pattern",
        help="As --group, from file paths: a regular expression whose first group is the patient.",
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override a field of the recipe, such as lr=0.05. Repeatable."),
]
Device = Annotated[
    str | None, typer.Option("--device", help="cpu or cuda. Default: cuda if available.")
]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", min=1, help="Parallel runs. Default: one per CPU core, four per GPU."),
]
Backend = Annotated[
    str, typer.Option("--backend", help="local: processes on this machine; ray: a Ray cluster.")
]
Address = Annotated[
    str | None, typer.Option("--address", help="Address of the Ray cluster: auto or host:port.")
]
TimeLimit = Annotated[
    str | None,
    typer.Option(
        "--time-limit",
        help="Save and stop after this time, such as 9m; exits with 75 if work is left.",
    ),
]
SaveEvery = Annotated[
    float, typer.Option("--save-every", min=0, help="Seconds between two checkpoints.")
]
Log = Annotated[
    str | None,
    typer.Option("--log", help="Also log the curves of all runs: tensorboard."),
]
Json = Annotated[
    Path | None,
    typer.Option(
        "--json",
        help="Write the results as JSON to this file; - writes only JSON to standard output.",
    ),
]
SkipBroken = Annotated[
    bool, typer.Option("--skip-broken", help="Skip your own images that cannot be read.")
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        parser=parse_folder,
        metavar="FOLDER",
        help="Folder of datasets. Default: $ZETAMIX_DATA or ~/.cache/zetamix.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        parser=parse_folder,
        metavar="FOLDER",
        help="Output folder. Default: out/COMMAND-NAME.",
    ),
]


@dataclass(frozen=True)
class Training:
    """Options of all commands that train: the recipe, the data, and where to train."""

    epochs: Epochs = None
    model: Model = None
    weights: Weights = None
    optimizer: Optimizer = None
    train_size: TrainSize = None
    size: Size = None
    group: GroupColumn = None
    group_pattern: GroupPattern = None
    skip_broken: SkipBroken = False
    change: Changes = None
    device: Device = None
    jobs: Jobs = None
    backend: Backend = "local"
    address: Address = None
    time_limit: TimeLimit = None
    save_every: SaveEvery = 60.0
    log: Log = None
    json_file: Json = None
    out: Out = None
    data_dir: DataDir = None

    @property
    def recipe(self) -> dict[str, Any]:
        """Arguments of `make_recipe`."""
        names = ("epochs", "model", "weights", "optimizer")
        return {**{name: getattr(self, name) for name in names}, "changes": self.change or []}

    @property
    def workers(self) -> dict[str, Any]:
        """Arguments of `run_cells`."""
        names = ("device", "jobs", "backend", "address", "save_every")
        return {name: getattr(self, name) for name in names}

    def prepare(self, data: str, progress: "Progress") -> dict[str, Any]:
        """Prepare the data without broken images if requested; return arguments to load it."""
        group = parse_group(self.group, self.group_pattern)
        train_size = parse_train_size(self.train_size)
        prepare_without_broken(self.skip_broken, data, self.data_dir, self.size, group, progress)
        found = {"data_dir": self.data_dir, "size": self.size, "group": group}
        return {**found, "train_size": train_size, "progress": progress}


def takes_training(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `Training` to a command, which gets them as the argument `training`."""
    signature, hints = inspect.signature(command), get_type_hints(Training, include_extras=True)
    own = [part for part in signature.parameters.values() if part.name != "training"]
    shared = [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=each.default,
            annotation=hints[each.name],
        )
        for each in fields(Training)
    ]

    @wraps(command)
    def run(**values: Any) -> None:
        training = Training(**{part.name: values.pop(part.name) for part in shared})
        command(**values, training=training)

    run.__signature__ = signature.replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
    run.__annotations__ = {part.name: part.annotation for part in (*own, *shared)}
    return run


def parse_device(name: str | None) -> "torch.device":
    """The named device; by default cuda if available, else cpu."""
    import torch

    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    check_device(name)
    return torch.device(name)


def check_device(name: str | None) -> None:
    """Raise for a device that torch does not have; None is resolved later."""
    import torch

    if name is None:
        return
    if re.fullmatch(r"(cpu|cuda)(:(0|[1-9][0-9]*))?", name) is None:
        raise typer.BadParameter(f"expected cpu or cuda, got {name!r}", param_hint="--device")
    kind, _, index = name.partition(":")
    count = torch.cuda.device_count() if kind == "cuda" else 1
    if count == 0:
        raise typer.BadParameter("torch finds no CUDA device; use cpu", param_hint="--device")
    if int(index or "0") >= count:
        raise typer.BadParameter(
            f"expected an index below {count}, the number of devices, got {name!r}",
            param_hint="--device",
        )


def check_writable(folder: Path, option: str) -> None:
    """Raise, before any work, if results cannot be written to a folder."""
    path = folder.absolute()
    try:
        nearest = next(parent for parent in (path, *path.parents) if parent.exists())
        # an unnamed file and no new folder, so that other commands see nothing
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise typer.BadParameter(
            f"cannot write to {folder}: {error.strerror}", param_hint=option
        ) from None


def open_console(json_file: Path | None) -> Console:
    """The console of a command: standard error if standard output is used for JSON."""
    if json_file is not None and json_file != STDOUT:
        if json_file.is_dir():
            raise typer.BadParameter(f"{json_file} is a folder", param_hint="--json")
        check_writable(json_file.parent, "--json")
    return Console(stderr=json_file == STDOUT)


def write_results(json_file: Path | None, results: Any) -> None:
    """Write results to the file or stream given by --json.

    results: a JSON-serialisable value, or the path of a JSON file.
    """
    from zetamix.atomic_io import write_text

    if json_file is None:
        return
    if isinstance(results, Path):
        text = results.read_text(encoding="utf-8")
    else:
        text = json.dumps(results, indent=1, ensure_ascii=False)
    if json_file == STDOUT:
        typer.echo(text)
    else:
        write_text(json_file, f"{text.rstrip()}\n")


def make_stop(time_limit: str | None, began: float, console: Console) -> "Stop":
    """The stop condition: a signal, or the time limit counted from `began` (`time.monotonic`).

    console: where the receipt of a signal is printed, before runs are saved.
    """
    from zetamix_lab.train.stop import Stop, parse_duration

    try:
        limit = None if time_limit is None else parse_duration(time_limit)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--time-limit") from None
    return Stop(limit, began=began, on_signal=lambda: _acknowledge(console))


def _acknowledge(console: Console) -> None:
    text = "Stopping: saving checkpoints … Press Ctrl-C again to quit at once."
    try:
        console.print(text, highlight=False, soft_wrap=True)
    except RuntimeError:
        # the signal interrupted a write to the same stream
        os.write(2, f"\n{text}\n".encode())


def parse_group(column: str | None, pattern: str | None) -> "str | re.Pattern[str] | None":
    """How samples are grouped: by a column or by a pattern, not by both."""
    if column is not None and pattern is not None:
        raise typer.BadParameter("--group and --group-pattern cannot be combined")
    try:
        return column if pattern is None else re.compile(pattern)
    except re.error as error:
        raise typer.BadParameter(
            f"{pattern!r} is not a regular expression: {error}", param_hint="--group-pattern"
        ) from None


def parse_train_size(text: str | None) -> int | float | None:
    """A number of samples (int) or a fraction of them (float)."""
    if text is None:
        return None
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise typer.BadParameter(
            f"expected a number of samples or a fraction such as 0.1, got {text!r}",
            param_hint="--train-size",
        ) from None


def prepare_without_broken(
    wanted: bool,
    data: str,
    data_dir: Path | None,
    size: int | None = None,
    group: "Group" = None,
    progress: "Progress | None" = None,
) -> None:
    """If wanted, prepare data without unreadable images; later loads use the prepared data."""
    if wanted:
        from zetamix_lab.data import prepare

        prepare(data, data_dir, size=size, group=group, skip_broken=True, progress=progress)


def check_data(name: str) -> None:
    """Report a dataset that does not exist, before the slow imports of a command."""
    from zetamix_lab.data.load_dataset import find

    with report_errors():
        find(name)


def parse_methods(text: str | None) -> "list[Method] | None":
    """Methods by name, None if none are given.

    Commands call it before their slow imports: a misspelt name is reported in 1.6 s instead of 5.
    """
    if text is None:
        return None
    from zetamix.methods import parse_list

    with report_errors():
        return parse_list(text)


def parse_seeds(text: str | None, default: int, option: str = "--seeds") -> tuple[int, ...]:
    """Seeds from a count or from a list; a trailing comma makes a list of one.

    >>> parse_seeds("3", 1), parse_seeds("0,4,7", 1), parse_seeds("7,", 1), parse_seeds(None, 2)
    ((0, 1, 2), (0, 4, 7), (7,), (0, 1))
    """
    if text is None:
        return tuple(range(default))
    try:
        numbers = [int(part) for part in text.removesuffix(",").split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"expected a number of seeds or a list such as 0,1,2, got {text!r}", param_hint=option
        ) from None
    if "," not in text:
        if numbers[0] < 1:
            raise typer.BadParameter(
                f"expected at least 1 seed, got {text!r}; for the single seed {numbers[0]}, use "
                f"'{numbers[0]},'",
                param_hint=option,
            )
        return tuple(range(numbers[0]))
    if len(set(numbers)) < len(numbers) or min(numbers) < 0:
        raise typer.BadParameter(
            f"expected distinct, non-negative seeds, got {text!r}", param_hint=option
        )
    return tuple(numbers)
