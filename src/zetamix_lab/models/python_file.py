"""A network of the user: `FILE.py:FUNCTION`."""

import importlib.util
import re
import sys
import traceback
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from zetamix_lab.models.errors import UnknownModelError
from zetamix_lab.provenance import FileRef
from zetamix_lab.text import did_you_mean


def is_python_file(name: str) -> bool:
    """Whether a model is named as FILE.py:FUNCTION.

    >>> is_python_file("nets/small.py:make"), is_python_file("timm:resnet18")
    (True, False)
    """
    return re.fullmatch(r".+\.py:\w+", name) is not None


def build_from_file(
    name: str, num_classes: int, shape: tuple[int, ...], code: FileRef | None = None
) -> nn.Module:
    """Call the function of a Python file with the number of classes.

    code: as of `load_function`.
    """
    make = load_function(name, code)
    try:
        model = make(num_classes)
        if not isinstance(model, nn.Module):
            raise UnknownModelError(
                f"{name} must take the number of classes and return a torch.nn.Module, got "
                f"{type(model).__name__}."
            )
        with torch.no_grad():
            logits = model.eval()(torch.zeros(1, *shape))
    except UnknownModelError:
        raise
    except Exception as error:
        raise UnknownModelError(
            f"{name} fails for {num_classes} classes and samples of shape {list(shape)}: "
            f"{_describe(error)}"
        ) from error
    if not isinstance(logits, torch.Tensor) or logits.shape != (1, num_classes):
        got = list(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise UnknownModelError(
            f"{name} must return logits [n, {num_classes}] for n samples, got {got} for n = 1."
        )
    return model.train()


def load_function(name: str, code: FileRef | None = None) -> Callable[..., Any]:
    """The function FILE.py:FUNCTION.

    code: the file as it was when the run was created; None uses the path in `name`.
    """
    path, _, function = name.rpartition(":")
    code = FileRef.read(path) if code is None else code
    code.check()
    module = _load(code)
    found: Callable[..., Any] | None = getattr(module, function, None)
    if not callable(found):
        names = [key for key, value in vars(module).items() if callable(value)]
        raise UnknownModelError(
            f"{Path(path).name} has no function {function!r}.{did_you_mean(function, names)}"
        )
    return found


@lru_cache
def _load(code: FileRef) -> ModuleType:
    """Run the file as a module, with its folder on sys.path as for a script."""
    path = code.path
    name = f"zetamix_model_{code.sha256[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UnknownModelError(f"{path} cannot be imported as a Python module.")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise UnknownModelError(f"{path} cannot be imported: {_describe(error)}") from error
    finally:
        sys.path.remove(str(path.parent))
    return module


def _describe(error: Exception) -> str:
    """An error of the user's code, with its line."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"{type(error).__name__}: {str(error).rstrip('.')} "
        f"({Path(last.filename).name}, line {last.lineno})."
    )
