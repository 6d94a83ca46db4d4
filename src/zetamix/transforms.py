"""ZetaMixup, Mixup, CutMix and LocalMixup: hyperparameters, a generator, and one call.

They take a batch `(samples, labels)` and return `(samples, targets)`: behind a loader, as its
`collate_fn`, or inside `torchvision.transforms.v2` containers.
"""

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Self, overload

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate, get_worker_info

from zetamix import _checks, batch_tree
from zetamix import plan as plans
from zetamix._checks import Gamma, GammaSchedule
from zetamix.batch_tree import Rules
from zetamix.gamma import dominance_threshold
from zetamix.kernels.dispatch import IMPLEMENTATIONS, Implementation
from zetamix.kernels.plan_spec import PlanSpec
from zetamix.mix import apply_plan, check_pair, mix_pair, plan_dtype
from zetamix.plan import ANCHORS, LAMS, AnchorChoice, LamChoice, MixPlan
from zetamix.rules import Blend, OneHot, infer_rule
from zetamix.sampling import BOX, Draw, draw_lam, process_rank, process_stream

NOT_SET = -1.0


# options are checked whenever they are set, so that a call need not check them
OPTIONAL = ("num_classes", "ignore_index", "rules", "generator", "sources")
CHECKS: dict[str, Callable[[Any], None]] = {
    "num_classes": lambda value: _checks.check_count("num_classes", value, 1),
    "ignore_index": _checks.check_ignore_index,
    "rules": batch_tree.check_rule_types,
    "generator": _checks.check_generator,
    "implementation": lambda value: _checks.check_choice("implementation", value, IMPLEMENTATIONS),
    "sources": lambda value: _checks.check_count("sources", value, 2),
    "anchor": lambda value: _checks.check_choice("anchor", value, ANCHORS),
    "alpha": _checks.check_alpha,
    "per": lambda value: _checks.check_choice("per", value, LAMS),
}


class Controls(NamedTuple):
    """What can be changed while loader workers run, as the numbers that shared memory holds."""

    enabled: float = 1.0
    p: float = 1.0
    epoch: float = 0.0
    training: float = 1.0
    gamma_low: float = NOT_SET
    """γ that was set after construction: one number, or with `gamma_high` a range."""
    gamma_high: float = NOT_SET


class BatchMix(nn.Module):
    """The base of ZetaMixup and Mixup: it reads a batch, applies a plan, and holds the controls.

    The controls (`enabled`, `p`, γ, the epoch, train or eval mode) live in shared memory, so that
    changing them in the training process reaches loader workers that are already running.
    """

    def __init__(
        self,
        num_classes: int | None,
        ignore_index: int | None,
        rules: Rules | None,
        p: float,
        generator: torch.Generator | None,
        implementation: Implementation,
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.ignore_index = ignore_index
        self.rules = rules
        self.generator = generator
        self.implementation = implementation
        _checks.check_number("p", p, low=0, high=1)
        if rules is not None and num_classes is not None:
            raise ValueError("Pass num_classes or rules, not both: OneHot() holds its own.")
        if rules is not None and ignore_index is not None:
            raise ValueError("Pass ignore_index or rules, not both: OneHot() holds its own.")
        self._home_rank = 0
        self._controls = Controls(p=float(p))
        self._shared = _share(torch.tensor(self._controls, dtype=torch.float64, device="cpu"))

    def __setattr__(self, name: str, value: Any) -> None:
        if name in CHECKS and not (value is None and name in OPTIONAL):
            CHECKS[name](value)
        super().__setattr__(name, value)

    if TYPE_CHECKING:

        @overload
        def __call__(self, samples: Tensor, labels: Tensor, /) -> tuple[Tensor, Tensor]: ...
        @overload
        def __call__(self, batch: tuple[Tensor, Tensor], /) -> tuple[Tensor, Tensor]: ...
        @overload
        def __call__(self, *inputs: Any) -> Any: ...
        def __call__(self, *inputs: Any) -> Any: ...

    @property
    def enabled(self) -> bool:
        """The off switch: when false, samples come back unmixed, with targets of the same form."""
        return bool(self._read_controls().enabled)

    @enabled.setter
    def enabled(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise TypeError(f"enabled must be True or False, got {type(value).__name__}.")
        self._set_controls(enabled=value)

    @property
    def p(self) -> float:
        """The probability that an output is mixed, drawn for each output."""
        return self._read_controls().p

    @p.setter
    def p(self, value: float) -> None:
        _checks.check_number("p", value, low=0, high=1)
        self._set_controls(p=value)

    @property
    def epoch(self) -> int:
        return int(self._read_controls().epoch)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch here and in every loader worker that holds the transform."""
        _checks.check_count("epoch", epoch, 0)
        self._set_controls(epoch=epoch)

    def train(self, mode: bool = True) -> Self:
        self._set_controls(training=mode)
        return super().train(mode)

    def _read_controls(self) -> Controls:
        # a trace cannot read a tensor; there the training process's own copy is as good
        if torch.compiler.is_compiling():
            return self._controls
        return Controls(*self._shared.tolist())

    def _set_controls(self, **changes: float) -> None:
        self._controls = self._controls._replace(**{k: float(v) for k, v in changes.items()})
        self._shared.copy_(torch.tensor(self._controls, dtype=torch.float64, device="cpu"))

    def _mixes(self, controls: Controls) -> bool:
        """Whether anything is mixed now."""
        if not controls.enabled or not controls.training:
            return False
        # a worker's own flag is as old as the worker
        in_worker = not torch.compiler.is_compiling() and get_worker_info() is not None
        return in_worker or self.training

    def forward(self, *inputs: Any) -> Any:
        """Mix `(samples, labels)`, given as two arguments or as one tuple, list or dict."""
        batch: Any = inputs
        if self.rules is not None or len(inputs) != 2 or not isinstance(inputs[0], Tensor):
            batch = self._read_batch(inputs)
        controls = self._read_controls()
        mixes = self._mixes(controls)
        implementation = self.implementation if mixes else None
        if self.rules is not None:
            first = batch_tree.check_first_tensor(batch)
            plan = self.make_plan(first.shape[0], device=first.device, dtype=plan_dtype(batch))
            return batch_tree.mix_tree(batch, self.rules, plan, implementation)
        samples, labels = batch
        rule = infer_rule(labels, self.num_classes, self.ignore_index)
        first = check_pair(samples, labels)
        if mixes and controls.p == 1:
            # the plain case, which on a GPU needs no plan
            draw = self._draw(first.device)
            spec = self._spec(first.shape[0], draw, controls)
            pair = mix_pair(samples, labels, rule, spec, draw, self.implementation)
        else:
            plan = self.make_plan(first.shape[0], device=first.device, dtype=plan_dtype(batch))
            mixed = batch_tree.mix_tree(samples, Blend(), plan, implementation)
            pair = mixed, rule.mix(labels, plan)
        return pair if type(batch) is tuple else batch_tree.in_form_of(batch, pair)

    def collate(self, samples: list[Any]) -> Any:
        """Collate and mix: pass `transform.collate` to a DataLoader as its `collate_fn`."""
        return self(default_collate(samples))

    def make_plan(
        self,
        batch_size: int,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> MixPlan:
        """Draw the plan for one batch, as `forward` does. Nothing is mixed in eval mode."""
        _checks.check_batch_size(batch_size)
        controls = self._read_controls()
        if not self._mixes(controls):
            return plans.identity_plan(batch_size, device=device, dtype=dtype)
        draw = self._draw(device)
        plan = plans.draw_plan(self._spec(batch_size, draw, controls), draw, dtype)
        if controls.p == 1:
            return plan
        return plans.with_probability(plan, controls.p, self._draw(device))

    def _spec(self, batch_size: int, draw: Draw, controls: Controls) -> PlanSpec:
        raise NotImplementedError

    def _read_batch(self, inputs: tuple[Any, ...]) -> Any:
        """The batch, however it was given; without rules a pair, or an error that names both."""
        alone = len(inputs) == 1 and (self.rules is not None or not isinstance(inputs[0], Tensor))
        batch = batch_tree.with_dicts(inputs[0] if alone else inputs)
        if self.rules is not None:
            return batch
        if isinstance(batch, list) and batch and all(isinstance(e, (tuple, dict)) for e in batch):
            raise TypeError(
                f"{type(self).__name__} expects a batch, got a list of single samples. As a "
                "collate_fn pass the transform's .collate, which makes a batch of them first."
            )
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            is_list = isinstance(batch, (tuple, list))
            got = f"{len(batch)} entries" if is_list else type(batch).__name__
            raise TypeError(
                f"{type(self).__name__} expects (samples, labels), got {got}. "
                "For other batches pass rules=, one per entry."
            )
        return batch

    def _draw(self, device: torch.device | str) -> Draw:
        return Draw(self.generator, process_stream(self.generator, self._home_rank), device)

    def extra_repr(self) -> str:
        targets = f"rules={self.rules}" if self.rules else f"num_classes={self.num_classes}"
        return f"{targets}, p={self.p}, enabled={self.enabled}"

    def get_extra_state(self) -> dict[str, Any]:
        state: dict[str, Any] = {"controls": self._shared.clone()}
        if self.generator is not None:
            state["generator"] = self.generator.get_state()
        return state

    def set_extra_state(self, state: dict[str, Any]) -> None:
        controls = Controls(*state["controls"].tolist())
        # train or eval mode belongs to the module tree, not to a checkpoint
        self._set_controls(**controls._replace(training=self._controls.training)._asdict())
        if self.generator is not None and "generator" in state:
            self.generator.set_state(state["generator"].cpu())
        elif (self.generator is None) == ("generator" in state):
            warnings.warn(
                "Only one of checkpoint and transform has a generator: plans will not continue "
                "where they stopped.",
                stacklevel=2,
            )

    def __copy__(self) -> Self:
        twin = self.__class__.__new__(self.__class__)
        twin.__dict__.update(self.__dict__)
        twin._shared = _share(self._shared.clone())
        return twin

    def __getstate__(self) -> dict[str, Any]:
        # a spawned loader worker can neither receive a generator nor know its parent's rank
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


class ZetaMixup(BatchMix):
    """ζ-mixup of a batch: every output blends many samples, one of which dominates.

    gamma: how strongly the anchor dominates (see `zetamix.describe_gamma`): one number, a range
        `(low, high)` drawn per output, or a function of the epoch, for use with `set_epoch`. The
        attribute can be set to a number or a range.
    sources: how many samples go into one output; all of the batch by default, or in a smaller one.
    anchor: "self" or "random", as in `zeta_plan`.
    num_classes, ignore_index: for integer labels.
    rules: for batches other than `(samples, labels)`: a tuple or dict like the batch, with a rule
        of `zetamix.rules` for each entry: `Blend()`, `OneHot(...)`, `Average()`, `FromAnchor()`.
    p: the probability that an output is mixed. Also an attribute, as is `enabled`.
    implementation: as in `zetamix.apply_plan`.

    >>> mix = ZetaMixup(num_classes=10, gamma=2.8)
    >>> samples, targets = mix(torch.rand(32, 3, 28, 28), torch.randint(10, (32,)))
    >>> targets.shape
    torch.Size([32, 10])
    """

    def __init__(
        self,
        *,
        num_classes: int | None = None,
        gamma: Gamma | GammaSchedule = 2.8,
        sources: int | None = None,
        anchor: AnchorChoice = "self",
        ignore_index: int | None = None,
        rules: Rules | None = None,
        p: float = 1.0,
        generator: torch.Generator | None = None,
        implementation: Implementation = "auto",
    ) -> None:
        super().__init__(num_classes, ignore_index, rules, p, generator, implementation)
        self.sources = sources
        self.anchor = anchor
        self._gamma = gamma
        self._warned = False
        self._check_gamma(self.gamma)

    @property
    def gamma(self) -> Gamma:
        """γ of the current epoch. Setting a number or a range reaches running loader workers."""
        return self._gamma_at(self._read_controls())

    @gamma.setter
    def gamma(self, value: float | tuple[float, float]) -> None:
        if isinstance(value, Tensor) or callable(value):
            raise TypeError(
                "gamma can be set to a number or a range (low, high), got "
                f"{type(value).__name__}, which running loader workers would not see. Pass it to "
                "the constructor."
            )
        # past our own and torch's __setattr__
        self._check_gamma(value, stacklevel=5)
        low, high = value if isinstance(value, (tuple, list)) else (value, NOT_SET)
        self._set_controls(gamma_low=low, gamma_high=high)

    def _gamma_at(self, controls: Controls) -> Gamma:
        if controls.gamma_high != NOT_SET:
            return controls.gamma_low, controls.gamma_high
        if controls.gamma_low != NOT_SET:
            return controls.gamma_low
        return self._gamma(int(controls.epoch)) if callable(self._gamma) else self._gamma

    def set_epoch(self, epoch: int) -> None:
        _checks.check_count("epoch", epoch, 0)
        self._check_gamma(self._gamma_at(self._read_controls()._replace(epoch=float(epoch))))
        super().set_epoch(epoch)

    def _check_gamma(self, gamma: Gamma, stacklevel: int = 3) -> None:
        """Refuse an impossible γ, and warn once about one that lets no sample dominate."""
        _checks.check_gamma(gamma)
        if isinstance(gamma, Tensor):
            # reading a tensor on a GPU would make the host wait
            gamma = float(gamma.min()) if gamma.device.type == "cpu" else math.inf
        lowest = gamma[0] if isinstance(gamma, (tuple, list)) else gamma
        threshold = dominance_threshold(self.sources)
        if lowest < threshold and not self._warned:
            self._warned = True
            among = "any number of" if self.sources is None else str(self.sources)
            warnings.warn(
                f"gamma={lowest:g} is below {threshold:.5f}, the threshold for {among} sources: "
                "the anchor need not outweigh the other samples together (Theorem 1).",
                stacklevel=stacklevel,
            )

    def _spec(self, batch_size: int, draw: Draw, controls: Controls) -> PlanSpec:
        gamma = self._gamma_at(controls)
        if isinstance(gamma, Tensor):
            _checks.check_gamma(gamma, batch_size, draw.device)
        # a last, smaller batch uses all that it has
        few = self.sources is not None and self.sources < batch_size
        sources = self.sources if few else None
        return plans.zeta_spec(batch_size, gamma, sources, None, self.anchor, draw, checked=True)

    def extra_repr(self) -> str:
        # a schedule by its name, unless a number was set in its place
        scheduled = callable(self._gamma) and self._controls.gamma_low == NOT_SET
        gamma = getattr(self._gamma, "__name__", self._gamma) if scheduled else self.gamma
        options = f"gamma={gamma}, sources={self.sources}, anchor={self.anchor!r}"
        return f"{options}, {super().extra_repr()}"


class Mixup(BatchMix):
    """mixup of a batch: every output blends its own sample with another, λ ~ Beta(α, α).

    per: "sample" draws one λ for each output, "batch" one for all. The rest as in `ZetaMixup`.

    >>> mix = Mixup(num_classes=10, alpha=0.2)
    >>> samples, targets = mix(torch.rand(32, 3, 28, 28), torch.randint(10, (32,)))
    >>> targets.shape
    torch.Size([32, 10])
    """

    def __init__(
        self,
        *,
        num_classes: int | None = None,
        alpha: float = 1.0,
        per: LamChoice = "sample",
        ignore_index: int | None = None,
        rules: Rules | None = None,
        p: float = 1.0,
        generator: torch.Generator | None = None,
        implementation: Implementation = "auto",
    ) -> None:
        super().__init__(num_classes, ignore_index, rules, p, generator, implementation)
        self.alpha = alpha
        self.per = per

    def _spec(self, batch_size: int, draw: Draw, controls: Controls) -> PlanSpec:
        return plans.mixup_spec(batch_size, self.alpha, self.per, None, checked=True)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}, per={self.per!r}, {super().extra_repr()}"


class CutMix(nn.Module):
    """torchvision's CutMix, drawn on the batch's device from the caller's generator.

    As in torchvision's, one box and one λ ~ Beta(α, α) for the whole batch; sample k gets the
    box of sample k − 1, and targets the exact share of pixels. torchvision's own draws on the
    host from global randomness, which neither a seed per run nor a captured CUDA graph can use.

    >>> cut = CutMix(num_classes=10, generator=torch.Generator().manual_seed(0))
    >>> samples, targets = cut(torch.rand(8, 3, 32, 32), torch.arange(8))
    >>> targets.sum(1)
    tensor([1., 1., 1., 1., 1., 1., 1., 1.])
    """

    def __init__(
        self, *, num_classes: int, alpha: float = 1.0, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        _checks.check_alpha(alpha)
        self.rule = OneHot(num_classes)
        self.alpha = alpha
        self.generator = generator

    def forward(self, samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        check_pair(samples, labels)
        if samples.ndim != 4:
            raise ValueError(
                f"CutMix cuts boxes out of images, [batch, channels, height, width], got "
                f"{list(samples.shape)}. Use mixup or zeta for other data."
            )
        draw = Draw(self.generator, None, samples.device)
        lam = draw_lam(draw, self.alpha, 1)
        centre = draw.uniform(BOX, 2)
        targets = self.rule.mix(labels, plans.identity_plan(len(labels), device=labels.device))
        return cut_and_paste(samples, targets, lam, centre)


def cut_and_paste(
    samples: Tensor, targets: Tensor, lam: Tensor, centre: Tensor
) -> tuple[Tensor, Tensor]:
    """Paste the box for λ [1] and a centre [2] in (0, 1)² from sample k − 1 into sample k."""
    inside, kept = box_mask(lam, centre, *samples.shape[-2:])
    # roll by one, as torchvision does; a batch of one is its own partner
    mixed = torch.where(inside, samples.roll(1, 0), samples)
    share = kept.to(targets.dtype)
    return mixed, targets * share + targets.roll(1, 0) * (1 - share)


def box_mask(lam: Tensor, centre: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """The box of torchvision's CutMix for λ and a centre in (0, 1)²: (inside [h, w], share kept).

    The box has sides √(1 − λ) of the image's, halved and rounded down on both sides of its
    centre, and ends at the border of the image.
    """
    half = 0.5 * (1 - lam).sqrt()
    top, bottom = _box_ends(centre[0], half, height)
    left, right = _box_ends(centre[1], half, width)
    rows = torch.arange(height, device=lam.device)
    columns = torch.arange(width, device=lam.device)
    in_rows = (rows >= top) & (rows < bottom)
    in_columns = (columns >= left) & (columns < right)
    area = (bottom - top) * (right - left)
    return in_rows[:, None] & in_columns, 1 - area / (height * width)


def _box_ends(centre: Tensor, half: Tensor, length: int) -> tuple[Tensor, Tensor]:
    middle, reach = (centre * length).floor(), (half * length).floor()
    return (middle - reach).clamp_min(0), (middle + reach).clamp_max(length)


class LocalMixup(nn.Module):
    """The local synthetic instances of Brown et al. (2015): ranks by distance to the anchor.

    Nothing about them is random: `generator` is taken, as by all methods, and not used.
    """

    def __init__(
        self,
        *,
        num_classes: int,
        gamma: float = 2.8,
        sources: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        _checks.check_number("gamma", gamma, low=0)
        if sources is not None:
            _checks.check_count("sources", sources, 2)
        self.rule = OneHot(num_classes)
        self.gamma = gamma
        self.sources = sources

    def forward(self, samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        check_pair(samples, labels)
        sources = None if self.sources is None else min(self.sources, samples.shape[0])
        plan = plans.local_plan(samples, self.gamma, sources=sources)
        return apply_plan(samples, plan), self.rule.mix(labels, plan)
