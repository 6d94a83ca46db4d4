"""Nested batches: dicts, tuples and lists of tensors, NumPy arrays and tv_tensors, with rules."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from zetamix.checks import add_note
from zetamix.plan import MixPlan
from zetamix.rules import Blend, Rule, is_image

Rules: TypeAlias = Rule | Mapping[str, "Rules"] | Sequence["Rules"]
Path: TypeAlias = tuple[object, ...]
# the keys that labels have in datasets of Hugging Face and torchvision
LABEL_KEYS = ("labels", "label", "targets", "target")


def mix_tree(value: Any, rules: Rules, plan: MixPlan, *, mixes: bool, path: Path = ()) -> Any:
    """Mix every entry by its rule; unless `mixes`, samples are returned as they are.

    The range of the samples must have been checked.
    """
    if not isinstance(rules, (Mapping, Sequence)):
        try:
            if isinstance(rules, Blend):
                return rules.mix(value, plan, looked=True) if mixes else value
            return rules.mix(value, plan)
        except Exception as error:
            hint = " A dict needs a dict of rules." if isinstance(value, Mapping) else ""
            _name_entry(error, path, hint)
            raise
    check_entries(rules, value, path)
    parts = {
        name: mix_tree(entry, rules[name], plan, mixes=mixes, path=(*path, name))
        for name, entry in _entries(value)
    }
    return parts if isinstance(rules, Mapping) else in_form_of(value, list(parts.values()))


def blended_leaves(value: Any, rules: Rules) -> list[tuple[Tensor, Blend]]:
    """The tensors that are blended, each with its rule. Entries without a rule are skipped."""
    if isinstance(rules, Blend):
        if isinstance(value, Tensor):
            return [(value, rules)]
        leaves = pytree.tree_leaves(value)
        return [(leaf, rules) for leaf in leaves if isinstance(leaf, Tensor)]
    pairs: Iterable[tuple[Any, Rules]] = ()
    if isinstance(rules, Mapping) and isinstance(value, Mapping):
        pairs = [(value[name], rule) for name, rule in rules.items() if name in value]
    elif isinstance(rules, Sequence) and isinstance(value, (tuple, list)):
        pairs = zip(value, rules, strict=False)
    return [leaf for part, rule in pairs for leaf in blended_leaves(part, rule)]


def find_pair(batch: Any, name: str) -> tuple[Any, Any]:
    """Where (samples, labels), or a dict of one image and labels, has them; raises for others.

    name: of the transform, for messages.
    """
    if isinstance(batch, dict):
        return _find_keys(batch)
    if isinstance(batch, list) and batch and all(isinstance(e, (tuple, dict)) for e in batch):
        raise TypeError(
            f"{name} expects a batch, got a list of single samples. For a DataLoader, pass "
            "collate_fn=transform.collate, which collates them first."
        )
    if not isinstance(batch, (tuple, list)) or len(batch) < 2:
        is_list = isinstance(batch, (tuple, list))
        got = f"{len(batch)} entries" if is_list else type(batch).__name__
        raise TypeError(
            f"{name} expects (samples, labels), got {got}. "
            "For other batches, pass rules= with one rule per entry."
        )
    return 0, 1


def _find_keys(batch: dict[Any, Any]) -> tuple[Any, Any]:
    """The keys of {"pixel_values": images, "labels": labels} and the like."""
    images, labels = [], []
    for key, entry in batch.items():
        if key in LABEL_KEYS:
            labels.append(key)
        elif isinstance(entry, Tensor) and is_image(entry.shape):
            images.append(key)
    if (len(images), len(labels), len(batch)) == (1, 1, 2):
        return images[0], labels[0]
    known = [*images[: len(images) == 1], *labels[: len(labels) == 1]]
    missing = ", ".join(repr(key) for key in batch if key not in known) or "an image or labels"
    raise ValueError(
        f"There is no rule for {missing}. Pass rules= with one rule per entry: Blend() for "
        "inputs, OneHot(num_classes) for class indices, Average() for soft labels and "
        "regression, FromAnchor() for ids."
    )


def _entries(tree: Any) -> Iterable[tuple[Any, Any]]:
    """(name, entry) of a dict, tuple or list."""
    return tree.items() if isinstance(tree, Mapping) else enumerate(tree)


def check_entries(rules: Any, batch: Any, path: Path) -> None:
    """Raise unless there is one rule for every entry of the batch."""
    named = isinstance(rules, Mapping)

    def describe(nest: Any) -> str:
        if not isinstance(nest, Mapping if named else (tuple, list)):
            return f"is a {type(nest).__name__}"
        return f"has the keys {sorted(nest, key=str)}" if named else f"has {len(nest)} entries"

    if describe(rules) != describe(batch):
        wanted, got = describe(rules), describe(batch)
        error = ValueError(f"rules {wanted}, but the batch {got}. Pass one rule per entry.")
        _name_entry(error, path)
        raise error


def _name_entry(error: Exception, path: Path, hint: str = "", tree: str = "batch") -> None:
    """Add the entry's name to the traceback of an error: In batch['meta']['id']."""
    if path:
        add_note(error, f"In {tree}{''.join(f'[{name!r}]' for name in path)}.{hint}")


def in_form_of(batch: Any, parts: list[Any]) -> Any:
    """The parts as a list, a named tuple or a tuple, as the batch is one."""
    if hasattr(batch, "_fields"):
        return type(batch)(*parts)
    return parts if isinstance(batch, list) else tuple(parts)


def check_rule_types(rules: object, path: Path = ()) -> None:
    """Raise unless `rules` is a rule, or nested dicts, tuples and lists of rules."""
    if isinstance(rules, (Mapping, tuple, list)):
        for name, rule in _entries(rules):
            check_rule_types(rule, (*path, name))
    elif isinstance(rules, type) or not hasattr(rules, "mix"):
        got = f"the class {rules.__name__}" if isinstance(rules, type) else type(rules).__name__
        error = TypeError(
            "A rule must be Blend(), OneHot(...), Average() or FromAnchor(), or a dict or tuple "
            f"of them, got {got}."
        )
        _name_entry(error, path, tree="rules")
        raise error


def first_tensor(batch: Any) -> Tensor:
    """The first tensor of a nested batch that has a batch dimension."""
    for leaf in pytree.tree_leaves(batch):
        if isinstance(leaf, Tensor) and leaf.ndim > 0:
            return leaf
    raise TypeError("The batch must contain at least one tensor [batch, ...], got none.")


def as_tensors(batch: Any, *, coordinates: bool = True) -> Any:
    """The same nest with a plain tensor for each array and tv_tensor; itself if it has none.

    Mappings that are no dicts, such as a tokenizer's BatchEncoding, become dicts.

    coordinates: whether tv_tensors of coordinates, which cannot be averaged, are accepted.
    """
    if type(batch) is Tensor:
        return batch
    if isinstance(batch, (dict, Mapping)):
        nest = batch if isinstance(batch, dict) else dict(batch)
        entries = [as_tensors(entry, coordinates=coordinates) for entry in batch.values()]
        return _changed(nest, dict(zip(nest, entries, strict=True)))
    if isinstance(batch, (tuple, list)):
        return _changed(batch, [as_tensors(entry, coordinates=coordinates) for entry in batch])
    if _is_array(batch):
        # torch.from_numpy rejects negative strides and warns about read-only arrays
        taken = batch.flags.writeable and min(batch.strides, default=0) >= 0
        return torch.from_numpy(batch if taken else batch.copy())
    if not _is_tv_tensor(batch):
        return batch
    if not coordinates and type(batch).__name__ in ("BoundingBoxes", "KeyPoints"):
        raise TypeError(
            f"{type(batch).__name__} cannot be mixed: averaged coordinates mark no object. "
            "Remove them from the batch, or pass rules= with FromAnchor() for them."
        )
    return batch.as_subclass(Tensor)


def in_kind_of(batch: Any, mixed: Any) -> Any:
    """The mixed batch with an array or tv_tensor wherever `batch` has one."""
    if type(batch) is Tensor:
        return mixed
    if isinstance(mixed, Tensor):
        if _is_array(batch):
            return mixed.detach().numpy()
        # torchvision is imported already if `batch` is one of its tensors
        wraps = _is_tv_tensor(batch)
        return sys.modules["torchvision.tv_tensors"].wrap(mixed, like=batch) if wraps else mixed
    if isinstance(mixed, Mapping):
        return _changed(mixed, {name: in_kind_of(batch[name], mixed[name]) for name in mixed})
    if isinstance(mixed, (tuple, list)):
        pairs = zip(batch, mixed, strict=True)
        return _changed(mixed, [in_kind_of(entry, part) for entry, part in pairs])
    return mixed


def _changed(nest: Any, entries: Any) -> Any:
    """The nest with other entries; itself if no entry changed."""
    names = entries if isinstance(entries, dict) else range(len(entries))
    if all(nest[name] is entries[name] for name in names):
        return nest
    return entries if isinstance(entries, dict) else in_form_of(nest, entries)


def _is_array(value: object) -> bool:
    # the core imports torch only
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def _is_tv_tensor(value: object) -> bool:
    return type(value).__module__.startswith("torchvision.tv_tensors")
