"""BatchMix: a batch read, planned and mixed, under controls that reach running loader workers."""

import warnings
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate, get_worker_info

from zetamix._checks import (
    check_choice,
    check_count,
    check_generator_type,
    check_ignore_index,
    check_number,
    check_pair,
    check_tensor_labels,
)
from zetamix.batch_tree import (
    Rules,
    check_first_tensor,
    check_rule_types,
    check_rules,
    in_form_of,
    mix_tree,
    with_dicts,
)
from zetamix.kernels.dispatch import IMPLEMENTATIONS
from zetamix.mix import Samples
from zetamix.mix.pair import plan_dtype
from zetamix.plan import MixPlan, identity_plan
from zetamix.plan.make import spare
from zetamix.rules import Rule, infer_rule
from zetamix.sampling import process_rank, process_stream

CONTROLS = ("enabled", "p", "epoch", "training")


class BatchMix(nn.Module):
    """What ZetaMixup and Mixup share: reading a batch, applying a plan, and the controls.

    The controls (`enabled`, `p`, the epoch, train or eval mode) live in shared memory, so that
    changing them in the training process reaches loader workers that are already running.
    """

    def __init__(
        self,
        *,
        num_classes: int | None = None,
        ignore_index: int | None = None,
        rules: Rules | None = None,
        p: float = 1.0,
        generator: torch.Generator | None = None,
        implementation: str = "auto",
    ) -> None:
        super().__init__()
        check_choice("implementation", implementation, IMPLEMENTATIONS)
        if num_classes is not None:
            check_count("num_classes", num_classes, 1)
            if rules is not None:
                raise ValueError("Pass num_classes or rules, not both: Classes() holds its own.")
        if rules is not None:
            check_rule_types(rules)
            if ignore_index is not None:
                raise ValueError("Pass ignore_index or rules, not both: Classes() holds its own.")
        check_ignore_index(ignore_index)
        check_generator_type(generator)
        check_number("p", p, low=0, high=1)
        self.num_classes = num_classes
        self.ignore_index = ignore_index
        self.rules = rules
        self.generator = generator
        self.implementation = implementation
        self._home_rank = 0
        self._controls = dict(zip(CONTROLS, (1.0, float(p), 0.0, 1.0), strict=True))
        values = list(self._controls.values())
        self._shared = _share(torch.tensor(values, dtype=torch.float64, device="cpu"))

    @property
    def enabled(self) -> bool:
        """The off switch: when false, samples come back unmixed, with targets of the same form."""
        return bool(self._read()["enabled"])

    @enabled.setter
    def enabled(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise TypeError(f"enabled must be True or False, got {type(value).__name__}.")
        self._set_control("enabled", value)

    @property
    def p(self) -> float:
        """The probability that an output is mixed, drawn for each output."""
        return self._read()["p"]

    @p.setter
    def p(self, value: float) -> None:
        check_number("p", value, low=0, high=1)
        self._set_control("p", value)

    @property
    def epoch(self) -> int:
        return int(self._read()["epoch"])

    def set_epoch(self, epoch: int) -> None:
        """Tell the transform, and every loader worker that holds it, which epoch it is."""
        check_count("epoch", epoch, 0)
        self._set_control("epoch", epoch)

    def train(self, mode: bool = True) -> Self:
        self._set_control("training", mode)
        return super().train(mode)

    def _state(self) -> tuple[bool, float]:
        """Whether anything is mixed now, and p; one read of the shared memory."""
        controls = self._read()
        mixes = bool(controls["enabled"]) and bool(controls["training"])
        # a worker's own flag is as old as the worker
        if torch.compiler.is_compiling() or get_worker_info() is None:
            mixes = mixes and self.training
        return mixes, controls["p"]

    def _read(self) -> dict[str, float]:
        # a trace cannot read a tensor; there the training process's own copy is as good
        if torch.compiler.is_compiling():
            return self._controls
        return dict(zip(CONTROLS, self._shared.tolist(), strict=True))

    def _set_control(self, name: str, value: float) -> None:
        self._controls[name] = float(value)
        self._shared[CONTROLS.index(name)] = float(value)

    def forward(self, *inputs: Any) -> Any:
        """Mix `(samples, labels)`, given as two arguments or as one tuple, list or dict."""
        alone = len(inputs) == 1 and (self.rules is not None or not isinstance(inputs[0], Tensor))
        batch = inputs[0] if alone else inputs
        batch = with_dicts(batch)
        mixes, p = self._state()
        if self.rules is None and mixes and p == 1:
            # the plain case goes through the function, which on a GPU skips the plan
            return in_form_of(batch, self._mix_pair(*self._pair_of(batch)))
        implementation = self.implementation if mixes else None
        if self.rules is not None:
            check_rules(self.rules, batch)
            return mix_tree(batch, self.rules, self._plan_for(batch), implementation)
        # not as a nest: errors call the two samples and labels, which says more than entry 0 and 1
        rule = self._rule_for(batch)
        plan = self._plan_for(batch)
        mixed = mix_tree(batch[0], Samples(), plan, implementation)
        return in_form_of(batch, (mixed, rule.mix(batch[1], plan)))

    def collate(self, samples: list[Any]) -> Any:
        """Collate and mix: pass `transform.collate` to a DataLoader as its `collate_fn`."""
        return self(default_collate(samples))

    def make_plan(
        self, batch: int, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
    ) -> MixPlan:
        """Draw the plan for one batch; what `forward` applies. Nothing is mixed in eval mode."""
        mixes, p = self._state()
        if not mixes:
            return identity_plan(batch, device=device, dtype=dtype)
        plan = self._draw(batch, device=device, dtype=dtype)
        return plan if p == 1 else spare(plan, p, generator=self.generator, stream=self._stream())

    def _draw(self, batch: int, *, device: torch.device | str, dtype: torch.dtype) -> MixPlan:
        raise NotImplementedError

    def _mix_pair(self, samples: Any, labels: Tensor) -> Any:
        raise NotImplementedError

    def _plan_for(self, batch: Any) -> MixPlan:
        first = check_first_tensor(batch)
        return self.make_plan(first.shape[0], device=first.device, dtype=plan_dtype(batch))

    def _rule_for(self, batch: Any) -> Rule:
        """The rule that the labels of a pair call for."""
        samples, labels = self._pair_of(batch)
        rule = infer_rule(labels, self.num_classes, self.ignore_index)
        check_pair(samples, labels)
        return rule

    def _pair_of(self, batch: Any) -> tuple[Any, Tensor]:
        """(samples, labels), or an error that says what else can be done."""
        if isinstance(batch, list) and batch and all(isinstance(e, (tuple, dict)) for e in batch):
            raise TypeError(
                f"{type(self).__name__} expects a batch, got a list of single samples. As a "
                "collate_fn pass the transform's .collate, which makes a batch of them first."
            )
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            got = type(batch).__name__
            if isinstance(batch, (tuple, list)):
                got = f"{len(batch)} entries"
            raise TypeError(
                f"{type(self).__name__} expects (samples, labels), got {got}. "
                "For other batches pass rules=, one per entry."
            )
        samples, labels = batch
        check_tensor_labels(labels)
        return samples, labels

    def _form(self) -> str:
        targets = f"rules={self.rules}" if self.rules else f"num_classes={self.num_classes}"
        return f"{targets}, p={self.p}, enabled={self.enabled}"

    def get_extra_state(self) -> dict[str, Any]:
        state: dict[str, Any] = {"controls": self._shared.clone()}
        if self.generator is not None:
            state["generator"] = self.generator.get_state()
        return state

    def set_extra_state(self, state: dict[str, Any]) -> None:
        for name, value in zip(CONTROLS, state["controls"].tolist(), strict=True):
            # train or eval mode belongs to the module tree, not to a checkpoint
            if name != "training":
                self._set_control(name, value)
        if self.generator is not None and "generator" in state:
            self.generator.set_state(state["generator"].cpu())
        elif (self.generator is None) == ("generator" in state):
            holder, other = "checkpoint", "transform"
            if self.generator is not None:
                holder, other = other, holder
            warnings.warn(
                f"The {holder} has a generator and the {other} has none: plans will not go on "
                "where they stopped.",
                stacklevel=2,
            )

    def _stream(self) -> int:
        return process_stream(self.generator, self._home_rank)

    def __copy__(self) -> Self:
        twin = self.__class__.__new__(self.__class__)
        twin.__dict__.update(self.__dict__)
        twin._controls = dict(self._controls)
        twin._shared = _share(self._shared.clone())
        return twin

    def __getstate__(self) -> dict[str, Any]:
        # a spawned loader worker can neither receive a generator nor tell the rank it works for
        state = {**self.__dict__, "_home_rank": process_rank(self._home_rank)}
        if self.generator is not None:
            numbers = bytes(self.generator.get_state().tolist())
            state["generator"] = (str(self.generator.device), numbers)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["generator"] is not None:
            device, numbers = state["generator"]
            state["generator"] = torch.Generator(device)
            state["generator"].set_state(torch.tensor(list(numbers), dtype=torch.uint8))
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        # a copy or an unpickled transform gets shared memory of its own
        self._shared = _share(self._shared)


def _share(tensor: Tensor) -> Tensor:
    return tensor.share_memory_()  # type: ignore[no-untyped-call, no-any-return]
