"""NumPy arrays and torchvision's tv_tensors: mixed as tensors, returned in their own type."""

import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def as_tensors(batch: Any) -> Any:
    """The same nested structure with a plain tensor for each array and tv_tensor."""
    if type(batch) is Tensor:
        return batch
    if isinstance(batch, Mapping):
        return _changed(batch, {name: as_tensors(entry) for name, entry in batch.items()})
    if isinstance(batch, (tuple, list)):
        return _changed(batch, [as_tensors(entry) for entry in batch])
    if _is_array(batch):
        # torch.from_numpy rejects negative strides and warns about read-only arrays
        taken = batch.flags.writeable and min(batch.strides, default=0) >= 0
        return torch.from_numpy(batch if taken else batch.copy())
    return batch.as_subclass(Tensor) if _is_tv_tensor(batch) else batch


def refuse_coordinates(batch: Any) -> None:
    """Raise for tv_tensors of coordinates, which cannot be averaged."""
    if isinstance(batch, (tuple, list)):
        for entry in batch:
            refuse_coordinates(entry)
    elif _is_tv_tensor(batch) and type(batch).__name__ in ("BoundingBoxes", "KeyPoints"):
        raise TypeError(
            f"{type(batch).__name__} cannot be mixed: averaged coordinates mark no object. "
            "Remove them from the batch, or pass rules= with FromAnchor() for them."
        )


def in_kind_of(batch: Any, mixed: Any) -> Any:
    """The mixed batch with an array or tv_tensor wherever `batch` has one."""
    if type(batch) is Tensor:
        return mixed
    if isinstance(mixed, Tensor):
        if _is_array(batch):
            return mixed.detach().numpy()
        if _is_tv_tensor(batch):
            # torchvision is imported already: `batch` is one of its tensors
            return sys.modules["torchvision.tv_tensors"].wrap(mixed, like=batch)
        return mixed
    if isinstance(mixed, Mapping):
        return _changed(mixed, {name: in_kind_of(batch[name], mixed[name]) for name in mixed})
    if isinstance(mixed, (tuple, list)):
        pairs = zip(batch, mixed, strict=True)
        return _changed(mixed, [in_kind_of(entry, part) for entry, part in pairs])
    return mixed


def _changed(nest: Any, entries: Any) -> Any:
    """The structure with other entries; itself if no entry changed."""
    names = entries if isinstance(entries, dict) else range(len(entries))
    if all(nest[name] is entries[name] for name in names):
        return nest
    if isinstance(entries, dict):
        return entries
    return type(nest)(*entries) if hasattr(nest, "_fields") else type(nest)(entries)


def _is_array(value: object) -> bool:
    # compared by name, because the core imports torch only
    return any(
        f"{kind.__module__}.{kind.__name__}" == "numpy.ndarray" for kind in type(value).mro()
    )


def _is_tv_tensor(value: object) -> bool:
    return type(value).__module__.startswith("torchvision.tv_tensors")
