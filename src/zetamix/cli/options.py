"""Options that several commands take: read in one way, and refused with the same sentence."""

import re
from typing import Any

import typer


def read_device(name: str | None) -> Any:
    """The device that was named, or a GPU where there is one."""
    import torch

    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    check_device(name)
    return torch.device(name)


def check_device(name: str | None) -> None:
    """Refuse a device that is not there; None leaves the choice to whoever trains."""
    import torch

    if name is None:
        return
    if re.fullmatch(r"(cpu|cuda)(:(0|[1-9][0-9]*))?", name) is None:
        raise typer.BadParameter(f"expected cpu or cuda, got {name!r}", param_hint="--device")
    kind, _, index = name.partition(":")
    there = torch.cuda.device_count() if kind == "cuda" else 1
    if there == 0:
        raise typer.BadParameter("torch finds no CUDA device; use cpu", param_hint="--device")
    if int(index or "0") >= there:
        raise typer.BadParameter(
            f"torch counts {there} of them, from {kind}:0; got {name!r}", param_hint="--device"
        )


def read_stop(time_limit: str | None, began: float) -> Any:
    """What says when to stop: a signal, or the time limit, counted from `began`."""
    from zetamix.train.stopping import Stop, parse_duration

    try:
        limit = None if time_limit is None else parse_duration(time_limit)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--time-limit") from None
    return Stop(limit, began=began)


def read_train_size(text: str | None) -> int | float | None:
    """A number of samples, or a fraction of them."""
    if text is None:
        return None
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise typer.BadParameter(
            f"expected a number of samples or a fraction such as 0.1, got {text!r}",
            param_hint="--train-size",
        ) from None


def read_seeds(text: str, option: str) -> list[int]:
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"expected whole numbers separated by commas, got {text!r}", param_hint=option
        ) from None
    if len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise typer.BadParameter(
            f"expected different numbers of at least 0, got {text!r}", param_hint=option
        )
    return seeds
