"""Nested batches: dicts, tuples and lists of tensors, with rules in the same structure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from torch import Tensor
from torch.utils import _pytree as pytree

from zetamix._checks import check_tensor
from zetamix.kernels.dispatch import Implementation
from zetamix.plan import MixPlan
from zetamix.rules import Blend, Rule

Rules: TypeAlias = Rule | Mapping[str, "Rules"] | Sequence["Rules"]
Path: TypeAlias = tuple[object, ...]


def mix_tree(
    value: Any, rules: Rules, plan: MixPlan, implementation: Implementation | None, path: Path = ()
) -> Any:
    """Mix every entry by its rule; if `implementation` is None, samples are returned unmixed."""
    try:
        if isinstance(rules, (Mapping, Sequence)):
            _check_entries(rules, value)
        elif isinstance(rules, Blend):
            return value if implementation is None else rules.mix(value, plan, implementation)
        else:
            return rules.mix(value, plan)
    except Exception as error:
        one_rule = isinstance(value, Mapping) and not isinstance(rules, (Mapping, Sequence))
        hint = " A dict needs a dict of rules." if one_rule else ""
        _name_entry(error, path, hint)
        raise
    parts = {
        name: mix_tree(value[name], rule, plan, implementation, (*path, name))
        for name, rule in _entries(rules)
    }
    return parts if isinstance(rules, Mapping) else in_form_of(value, tuple(parts.values()))


def blended_leaves(value: Any, rules: Rules) -> list[tuple[Tensor, Blend]]:
    """The tensors that are blended, each with its rule. Entries without a rule are skipped."""
    if isinstance(rules, Blend):
        leaves = pytree.tree_leaves(value)
        return [(leaf, rules) for leaf in leaves if isinstance(leaf, Tensor)]
    pairs: Iterable[tuple[Any, Rules]] = ()
    if isinstance(rules, Mapping) and isinstance(value, Mapping):
        pairs = [(value[name], rule) for name, rule in rules.items() if name in value]
    elif isinstance(rules, Sequence) and isinstance(value, (tuple, list)):
        pairs = zip(value, rules, strict=False)
    return [leaf for part, rule in pairs for leaf in blended_leaves(part, rule)]


def rules_in(rules: Rules) -> list[Rule]:
    """All rules of a nested structure."""
    if not isinstance(rules, (Mapping, Sequence)):
        return [rules]
    return [rule for _, part in _entries(rules) for rule in rules_in(part)]


def _entries(tree: Any) -> Iterable[tuple[Any, Any]]:
    """(name, entry) of a dict, tuple or list."""
    return tree.items() if isinstance(tree, Mapping) else enumerate(tree)


def _check_entries(rules: Mapping[Any, Any] | Sequence[Any], batch: Any) -> None:
    """Raise unless there is one rule for every entry of the batch."""
    if isinstance(rules, Mapping):
        if not isinstance(batch, Mapping) or set(rules) != set(batch):
            is_dict = isinstance(batch, Mapping)
            names = f"has the keys {sorted(batch, key=str)}" if is_dict else None
            got = names or f"is a {type(batch).__name__}"
            raise ValueError(
                f"rules has the keys {sorted(rules, key=str)}, but the batch {got}. "
                "Pass one rule per entry."
            )
    elif not isinstance(batch, (tuple, list)) or len(rules) != len(batch):
        is_list = isinstance(batch, (tuple, list))
        got = f"has {len(batch)} entries" if is_list else f"is a {type(batch).__name__}"
        raise ValueError(
            f"rules has {len(rules)} entries, but the batch {got}. Pass one rule per entry."
        )


def _name_entry(error: Exception, path: Path, hint: str = "", tree: str = "batch") -> None:
    """Add the entry's name to the traceback of an error: In batch['meta']['id']."""
    if path:
        error.add_note(f"In {tree}{''.join(f'[{name!r}]' for name in path)}.{hint}")


def with_dicts(batch: Any) -> Any:
    """The batch with a dict for every other mapping, such as a tokenizer's BatchEncoding."""
    if isinstance(batch, Mapping):
        return {name: with_dicts(entry) for name, entry in batch.items()}
    if not isinstance(batch, (tuple, list)):
        return batch
    if not any(isinstance(entry, (Mapping, tuple, list)) for entry in batch):
        return batch
    parts = tuple(with_dicts(entry) for entry in batch)
    return list(parts) if isinstance(batch, list) else in_form_of(batch, parts)


def in_form_of(batch: Any, parts: tuple[Any, ...]) -> Any:
    """The parts as a tuple, or as a named tuple if the batch is one."""
    return type(batch)(*parts) if hasattr(batch, "_fields") else parts


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


def check_first_tensor(batch: object) -> Tensor:
    """The first tensor of a nested batch, which determines the batch size."""
    for path, leaf in pytree.tree_flatten_with_path(batch)[0]:
        if isinstance(leaf, Tensor):
            try:
                return check_tensor("samples", leaf)
            except (TypeError, ValueError) as error:
                error.add_note(f"In batch{pytree.keystr(path)}.")
                raise
    raise TypeError("The batch must contain at least one tensor, got none.")
