"""Options of commands: their declarations, parsers and error messages."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zetamix_lab.text import join

if TYPE_CHECKING:
    import torch

# the sections of a help page
DATA, MODEL = "Data", "Model and training"
COMPARED, RUNNING, OUTPUT = "What to compare", "Running", "Output"
# larger numbers are slips of the keyboard
MAX_EPOCHS, MAX_JOBS, MAX_SIZE, MAX_SEEDS, MAX_SEED = 1_000_000, 1_000, 4096, 10_000, 2**31 - 1


def parse_folder(text: str) -> Path:
    """A folder; raises for an empty string, such as an unset shell variable."""
    if not text.strip():
        raise typer.BadParameter("expected a folder, got an empty string")
    return Path(text)


def _samples(size: float | None) -> int | float | None:
    """A number of samples (int), or a fraction of them below 1."""
    return int(size) if size is not None and size >= 1 else size


def _checked(device: str | None) -> str | None:
    """The device, if torch has it; None is resolved later."""
    return device if device is None else str(parse_device(device))


def option(panel: str, text: str, *flags: str, **settings: Any) -> Any:
    """flags: unless they follow from the name of the parameter."""
    return typer.Option(*flags, help=text, rich_help_panel=panel, **settings)


def _folder(panel: str, text: str) -> Any:
    return option(panel, text, parser=parse_folder, metavar="FOLDER")


Data = Annotated[str, option(DATA, "Path of your data, or name of a dataset.")]
DataDir = Annotated[
    Path | None,
    _folder(DATA, "Folder of datasets. Default: $ZETAMIX_DATA or ~/.cache/zetamix."),
]
Size = Annotated[
    int | None,
    option(DATA, "Resize your own image files to SIZE × SIZE pixels.", min=1, max=MAX_SIZE),
]
GroupBy = Annotated[
    str | None,
    option(
        DATA,
        "The patient or lesion, each of which stays in one split: a column, or a regular "
        "expression on file paths with the patient in brackets, such as '(P[0-9]+)_'.",
    ),
]
SkipBroken = Annotated[
    bool, option(DATA, "Skip your own images that cannot be read.", "--skip-broken")
]
Model = Annotated[
    str | None,
    option(
        MODEL,
        "resnet18, smallnet, lenet5, mlp, any classifier of torchvision, or timm:NAME. A network "
        "of your own: --train.",
    ),
]
Epochs = Annotated[
    int | None,
    option(MODEL, "Override the recipe's number of epochs.", min=1, max=MAX_EPOCHS),
]
TrainSize = Annotated[
    float | None,
    option(
        MODEL,
        "Train on a subset: a number of samples, or a fraction below 1.",
        min=0,
        callback=_samples,
    ),
]
Changes = Annotated[
    list[str] | None,
    option(
        MODEL,
        "Override a field of the recipe, such as lr=0.05 or optimizer=adamw. Repeatable.",
        "--set",
    ),
]
Methods = Annotated[
    str | None,
    option(COMPARED, "Comma-separated: none, mixup:1.0, cutmix, switch, zetamix, zeta:2.8."),
]
Seeds = Annotated[
    str | None,
    option(COMPARED, "Number of seeds (3 means 0, 1, 2), or a list such as 0,4,7."),
]
Until = Annotated[
    float,
    option(
        COMPARED,
        "Fraction of training in which all methods mix; NAME:until=1 overrides it for one.",
        min=0,
        max=1,
    ),
]
Train = Annotated[
    str | None,
    option(
        COMPARED,
        "Train by your own function instead, FILE.py:FUNCTION: it is called with the transform of "
        "a method, the seed and a folder, and returns predictions and targets, or metrics.",
    ),
]
Runs = Annotated[
    Path | None,
    option(
        COMPARED,
        "Compare runs that you have: a CSV table with the columns method, seed, metric, value, or "
        "method, seed, predictions.",
    ),
]
Device = Annotated[
    str | None,
    option(RUNNING, "cpu or cuda. Default: cuda if available.", callback=_checked),
]
Jobs = Annotated[
    int | None,
    option(RUNNING, "Parallel runs. Default: one per CPU core, four per GPU.", min=1, max=MAX_JOBS),
]
Backend = Annotated[
    str,
    option(
        RUNNING,
        "local: processes on this machine. ray: the Ray cluster that it belongs to; "
        "ray:HOST:PORT: another one.",
    ),
]
TimeLimit = Annotated[
    str | None,
    option(RUNNING, "Save and stop after this time, such as 9m; exits with 75 if work is left."),
]
Out = Annotated[Path | None, _folder(OUTPUT, "Output folder. Default: out/compare-NAME.")]
Log = Annotated[str | None, option(OUTPUT, "Also log all curves: tensorboard.")]


def parse_device(name: str | None) -> "torch.device":
    """The named device; by default cuda if available, else cpu."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    devices = ["cpu", *(["cuda"] if count else []), *(f"cuda:{index}" for index in range(count))]
    name = ("cuda" if count else "cpu") if name is None else name
    if name not in devices:
        found = "" if count else "; torch finds no CUDA device"
        raise typer.BadParameter(
            f"expected {join(devices, 'or')}, got {name!r}{found}", param_hint="--device"
        )
    return torch.device(name)


def parse_group(text: str | None) -> "str | re.Pattern[str] | None":
    """A column, or a pattern on paths, which has a group in brackets.

    >>> parse_group("patient"), parse_group("(P[0-9]+)_")
    ('patient', re.compile('(P[0-9]+)_'))
    """
    if text is None or "(" not in text:
        return text
    try:
        return re.compile(text)
    except re.error as error:
        raise typer.BadParameter(
            f"{text!r} is not a regular expression: {error}", param_hint="--group"
        ) from None


def parse_seeds(text: str | None, default: int) -> tuple[int, ...]:
    """Seeds from a count or from a list; a trailing comma makes a list of one.

    >>> parse_seeds("3", 1), parse_seeds("0,4,7", 1), parse_seeds("7,", 1), parse_seeds(None, 2)
    ((0, 1, 2), (0, 4, 7), (7,), (0, 1))
    """
    if text is None:
        return tuple(range(default))
    parts = text.removesuffix(",").split(",")
    numbers = [int(part) for part in parts if re.fullmatch("[0-9]{1,10}", part)]
    if "," in text and len({*numbers}) == len(parts) and max(numbers) <= MAX_SEED:
        return tuple(numbers)
    if "," not in text and numbers and 1 <= numbers[0] <= MAX_SEEDS:
        return tuple(range(numbers[0]))
    raise typer.BadParameter(
        f"expected a number of seeds from 1 to {MAX_SEEDS:,}, or a list of distinct seeds up to "
        f"{MAX_SEED:,} such as 0,4,7 (or '4,' for one), got {text[:40]!r}",
        param_hint="--seeds",
    )
