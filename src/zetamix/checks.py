"""Argument checks that several modules share, and their messages: expected, got, do this.

A check that needs only shapes, dtypes and Python numbers raises at once. A check that would have to
read values from a GPU tensor becomes a device-side assertion, so that no check ever makes the host
wait for the device.
"""

import math
import sys
import warnings
from collections.abc import Callable
from numbers import Integral, Real
from typing import TypeAlias

import torch
from torch import Tensor

Gamma: TypeAlias = float | tuple[float, float] | Tensor
GammaSchedule: TypeAlias = Callable[[int], Gamma]
# frames of these modules are skipped to find the line of the caller
INSIDE = ("torch.", "zetamix.hidden", "zetamix.transforms")


def reads_need_sync(tensor: Tensor) -> bool:
    """Whether reading a value would stall the device or break a trace."""
    return tensor.device.type != "cpu" or torch.compiler.is_compiling()


def holds_for_all_sizes(condition: bool) -> bool:
    """The comparison of sizes; while tracing, True only if it holds for all sizes of the graph.

    Branching on the plain comparison would compile one graph for each outcome.
    """
    if not torch.compiler.is_compiling():
        return condition
    try:
        # torch.compile has imported it already; importing zetamix must not
        from torch.fx.experimental.symbolic_shapes import statically_known_true
    except ImportError:
        # not public: without it there are more graphs
        return bool(condition)
    return statically_known_true(condition)


def has_memory(*tensors: Tensor) -> bool:
    """Whether they are plain tensors whose memory can be read.

    False for the tensors of torch.func, FakeTensorMode and other subclasses, and on meta.
    """
    try:
        for tensor in tensors:
            if type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.is_meta:
                return False
            tensor.data_ptr()
    except RuntimeError:
        # wrapped by torch.func
        return False
    return True


def add_note(error: BaseException, note: str) -> None:
    """Add a line to the traceback of an error; to its message in Python 3.10."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:
        error.args = (f"{error.args[0] if error.args else ''} {note}", *error.args[1:])


def warn(message: str) -> None:
    """Warn at the line that uses a transform: the first frame outside torch and the transforms."""
    level, frame = 2, sys._getframe(1)
    # code run by exec has no name
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(INSIDE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


def check_count(name: str, value: int, least: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, Integral)):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}.")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}.")


def check_sizes(batch_size: int, sources: int | None = None, outputs: int | None = None) -> None:
    """The sizes of a plan."""
    check_count("batch_size", batch_size, 1)
    if outputs is not None:
        check_count("outputs", outputs, 1)
    if sources is not None:
        check_count("sources", sources, 2)
        if sources > batch_size:
            raise ValueError(
                f"sources must be at most the batch size, {batch_size}, got {sources}. "
                "Use fewer, or sources=None for the whole batch."
            )


def check_number(
    name: str, value: float, *, low: float, high: float = math.inf, above: bool = False
) -> None:
    """A finite real number in [low, high], or above `low`; booleans are not numbers."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Real)):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}.")
    # comparisons only, which a trace with symbolic numbers can follow; they are false for NaN
    if not (low <= value <= high and value < math.inf) or (above and value == low):
        bounds = f"{'above' if above else 'at least'} {low:g}"
        if high < math.inf:
            bounds = f"between {low:g} and {high:g}{f', not {low:g}' if above else ''}"
        raise ValueError(f"{name} must be finite and {bounds}, got {value}.")


def check_flag(name: str, value: object) -> None:
    # a comparison of NumPy numbers gives a bool of NumPy
    if not isinstance(value, bool) and str(getattr(value, "dtype", "")) != "bool":
        raise TypeError(f"{name} must be True or False, got {value!r}.")


def check_gamma(
    gamma: Gamma, outputs: int | None = None, device: torch.device | None = None
) -> None:
    """One number, a range (low, high), or a tensor holding one number or one per output."""
    if not isinstance(gamma, Tensor):
        numbers = gamma if isinstance(gamma, (tuple, list)) else (gamma, gamma)
        for number in numbers:
            check_number("gamma", number, low=0)
        if len(numbers) != 2 or numbers[0] > numbers[1]:
            raise ValueError(
                f"A gamma range must be (low, high) with low <= high, got {gamma}. "
                "For one gamma per output, pass a tensor."
            )
        return
    if device is not None and gamma.device != device:
        raise ValueError(f"gamma must be on {device}, where the plan is drawn, got {gamma.device}.")
    if not gamma.is_floating_point():
        raise TypeError(f"gamma must be a floating point tensor, got {gamma.dtype}.")
    if gamma.ndim > 1 or (gamma.ndim == 1 and outputs is not None and gamma.shape[0] != outputs):
        expected = "[outputs]" if outputs is None else f"[{outputs}] (one per output)"
        raise ValueError(f"gamma must have shape [] or {expected}, got {list(gamma.shape)}.")
    valid = (torch.isfinite(gamma) & (gamma >= 0)).all()
    message = "gamma must be finite and at least 0 in every output."
    if reads_need_sync(gamma):
        torch._assert_async(valid, message)
    elif not bool(valid):
        raise ValueError(message)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {listed}, got {value!r}.")


def check_generator(generator: torch.Generator, device: torch.device | None = None) -> None:
    """Raise unless it is a generator, and on `device` if that is given."""
    if not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator, got {type(generator).__name__}.")
    if device is None:
        return
    other = generator.device
    indices_differ = None not in (other.index, device.index) and other.index != device.index
    if other.type != device.type or indices_differ:
        raise ValueError(
            f"generator must be on {device}, where the plan is drawn, got a generator on {other}. "
            f"Create it with torch.Generator(device={str(device)!r})."
        )


def check_tensor(name: str, value: object) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(value).__name__}.")
    if value.is_nested or value.layout is not torch.strided:
        got = "a nested tensor" if value.is_nested else str(value.layout)
        raise TypeError(f"{name} must be a dense tensor, got {got}. Pad it, or use .to_dense().")
    if value.ndim == 0:
        raise ValueError(f"{name} must have a leading batch dimension, got a scalar tensor.")
    return value


def check_same(what: str, first_name: str, first: Tensor, second_name: str, second: Tensor) -> None:
    """The same "shape" or "device"."""
    ours, theirs = getattr(first, what), getattr(second, what)
    if ours != theirs:
        ours, theirs = (list(x) if what == "shape" else x for x in (ours, theirs))
        raise ValueError(
            f"{first_name} and {second_name} must have the same {what}, got {ours} and {theirs}."
        )
