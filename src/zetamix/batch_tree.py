"""Batches of any form: rules in the same nest of dicts, tuples and lists, checked and applied."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from torch import Tensor
from torch.utils import _pytree as pytree

from zetamix._checks import check_tensor
from zetamix.mix import Anchor, Classes, Samples, Soft, mix
from zetamix.plan import MixPlan
from zetamix.rules import Rule
from zetamix.transforms.entries import NAMED_ERRORS, name_entry, nested_hint, path_to

Rules: TypeAlias = Rule | Mapping[str, "Rules"] | Sequence["Rules"]


def mix_tree(value: Any, rules: Rules, plan: MixPlan, implementation: str | None) -> Any:
    """Every entry by its rule; without an implementation samples pass through as they are."""
    if isinstance(rules, Mapping):
        return {
            name: _mix_entry(name, value[name], rule, plan, implementation)
            for name, rule in rules.items()
        }
    if isinstance(rules, Sequence):
        places = enumerate(zip(value, rules, strict=True))
        parts = (_mix_entry(place, *pair, plan, implementation) for place, pair in places)
        return in_form_of(value, tuple(parts))
    if isinstance(rules, Samples):
        return value if implementation is None else mix(value, plan, implementation=implementation)
    return rules.mix(value, plan)


def _mix_entry(
    name: object, value: Any, rules: Rules, plan: MixPlan, implementation: str | None
) -> Any:
    try:
        return mix_tree(value, rules, plan, implementation)
    except NAMED_ERRORS as error:
        hint = ""
        if isinstance(value, Mapping) and isinstance(rules, (Classes, Soft, Anchor)):
            hint = nested_hint(name, value, rules)
        name_entry(error, name, hint)
        raise


def with_dicts(batch: Any) -> Any:
    """The same nest with a dict for every other mapping, such as a tokenizer's BatchEncoding."""
    if isinstance(batch, Mapping):
        return {name: with_dicts(entry) for name, entry in batch.items()}
    is_nest = isinstance(batch, (tuple, list))
    if is_nest and any(isinstance(entry, (Mapping, tuple, list)) for entry in batch):
        parts = tuple(with_dicts(entry) for entry in batch)
        return list(parts) if isinstance(batch, list) else in_form_of(batch, parts)
    return batch


def in_form_of(batch: Any, parts: tuple[Any, ...]) -> Any:
    """A named tuple where the batch is one, so that its entries keep their names."""
    return type(batch)(*parts) if hasattr(batch, "_fields") else parts


def check_rule_types(rules: object) -> None:
    """Rules, or a nest of dicts, tuples and lists of them."""
    if isinstance(rules, (Mapping, tuple, list)):
        named = rules.items() if isinstance(rules, Mapping) else enumerate(rules)
        for name, rule in named:
            try:
                check_rule_types(rule)
            except TypeError as error:
                name_entry(error, name)
                raise
    elif isinstance(rules, type) or not hasattr(rules, "mix"):
        got = f"the class {rules.__name__}" if isinstance(rules, type) else type(rules).__name__
        raise TypeError(
            "A rule must be Samples(), Classes(...), Soft() or Anchor(), or a dict or tuple of "
            f"them, got {got}."
        )


def check_rules(rules: object, batch: object) -> None:
    """A rule for every entry of the batch, in the same nest of dicts, tuples and lists."""
    if isinstance(rules, Mapping):
        if not isinstance(batch, Mapping) or set(rules) != set(batch):
            got = type(batch).__name__
            if isinstance(batch, Mapping):
                got = str(sorted(batch, key=str))
            raise ValueError(
                f"rules name the entries {sorted(rules, key=str)}, but the batch has {got}. "
                "Give one rule per entry."
            )
        for name, rule in rules.items():
            _check_entry(name, rule, batch[name])
    elif isinstance(rules, (tuple, list)):
        if not isinstance(batch, (tuple, list)) or len(rules) != len(batch):
            got = f"is a {type(batch).__name__}"
            if isinstance(batch, (tuple, list)):
                got = f"has {len(batch)} entries"
            raise ValueError(
                f"There are {len(rules)} rules, but the batch {got}. Give one rule per entry."
            )
        for place, (rule, entry) in enumerate(zip(rules, batch, strict=True)):
            _check_entry(place, rule, entry)


def _check_entry(name: object, rules: object, entry: object) -> None:
    try:
        check_rules(rules, entry)
    except ValueError as error:
        name_entry(error, name)
        raise


def check_first_tensor(batch: object) -> Tensor:
    """The first tensor of a batch of any form; its rows are the batch."""
    tensors = [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor)]
    if not tensors:
        raise TypeError("The batch holds no tensor: there is nothing to mix.")
    try:
        return check_tensor("samples", tensors[0])
    except NAMED_ERRORS as error:
        for name in reversed(path_to(tensors[0], batch)):
            name_entry(error, name)
        raise
