"""ZetaMix, ZetaMixup, Mixup, CutMix and others: hyperparameters, a generator, and one call.

They take a batch `(samples, labels)` and return `(samples, targets)`: behind a loader, as its
`collate_fn`, or inside `torchvision.transforms.v2` containers.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self, overload

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate, get_worker_info

from zetamix import _checks, batch_tree
from zetamix import plan as plans
from zetamix._checks import Gamma, GammaSchedule
from zetamix.array_kinds import as_tensors, in_kind_of
from zetamix.batch_tree import Rules
from zetamix.boxes import Size, check_size
from zetamix.gamma import dominance_threshold
from zetamix.kernels.dispatch import IMPLEMENTATIONS, Implementation
from zetamix.kernels.plan_spec import Finish, PlanSpec
from zetamix.mix import apply_plan, check_pair, mix_pair, plan_dtype
from zetamix.plan import ANCHORS, LAMS, AnchorChoice, LamChoice, MixPlan
from zetamix.prepared_calls import PreparedCalls
from zetamix.rules import Average, Blend, OneHot, infer_rule
from zetamix.sampling import Draw, process_rank, process_stream

NOT_SET = -1.0
# the share of images that ZetaMix pastes, by the search in results/zetamix-search
IMAGES_PASTED = 0.5


# options are checked whenever they are set, so that a call need not check them
OPTIONAL = ("num_classes", "ignore_index", "rules", "generator", "sources", "paste")
CHECKS: dict[str, Callable[[Any], None]] = {
    "num_classes": lambda value: _checks.check_count("num_classes", value, 1),
    "ignore_index": _checks.check_ignore_index,
    "rules": batch_tree.check_rule_types,
    "generator": _checks.check_generator,
    "implementation": lambda value: _checks.check_choice("implementation", value, IMPLEMENTATIONS),
    "sources": lambda value: _checks.check_count("sources", value, 2),
    "anchor": lambda value: _checks.check_choice("anchor", value, ANCHORS),
    "alpha": _checks.check_alpha,
    "mixup_alpha": _checks.check_alpha,
    "cutmix_alpha": _checks.check_alpha,
    "per": lambda value: _checks.check_choice("per", value, LAMS),
    "paste": lambda value: _checks.check_number("paste", value, low=0, high=1),
    "switch_prob": lambda value: _checks.check_number("switch_prob", value, low=0, high=1),
    "keep_variance": lambda value: _checks.check_flag("keep_variance", value),
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


# train or eval mode belongs to the module tree, not to a checkpoint
SAVED = tuple(name for name in Controls._fields if name != "training")


class BatchMix(nn.Module):
    """The base of all that mix by a plan: it reads a batch, applies a plan, holds the controls.

    The controls (`enabled`, `p`, γ, the epoch, train or eval mode) live in shared memory, so that
    changing them in the training process reaches loader workers that are already running.
    `state_dict` holds them and the state of the generator, as tensors. Inside a model the transform
    adds nothing to the model's `state_dict`: save its own beside it.
    """

    keep_variance = False
    # the probability of a pasted output; above 0 plans need the size of the images
    paste: float | None = 0.0
    _cuts = False  # whether boxes are CutMix's, which `_paste_boxes` draws
    _options: tuple[str, ...] = ()  # the names that repr shows
    _without_images = "Use mixup or zeta for other data."

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
        self._blend = Blend()
        self._home_rank = 0
        self._calls = PreparedCalls()
        self._controls = Controls(p=float(p))
        self._shared = _share(self._controls)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in CHECKS and not (value is None and name in OPTIONAL):
            CHECKS[name](value)
        super().__setattr__(name, value)
        # the calls of earlier batches had the old options
        if "_calls" in self.__dict__:
            self._calls.clear()

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
        _checks.check_flag("enabled", value)
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
        if (
            self.rules is None
            and len(inputs) == 2
            and type(inputs[0]) is Tensor
            and type(inputs[1]) is Tensor
        ):
            controls = self._read_controls()
            if not torch.compiler.is_compiling() and self._calls and self._mixes(controls):
                call = self._calls.find(*inputs, controls)
                if call is not None:
                    return call(*inputs, self._draw(inputs[0].device))
            return self._mix(inputs, controls)
        given = inputs[0] if len(inputs) == 1 else inputs
        batch = self._read_batch(as_tensors(inputs))
        return in_kind_of(given, self._mix(batch, self._read_controls()))

    def _mix(self, batch: Any, controls: Controls) -> Any:
        """Mix a batch of tensors: a pair, or whatever the rules are for."""
        mixes = self._mixes(controls)
        implementation = self.implementation if mixes else None
        if self.rules is not None:
            first = batch_tree.check_first_tensor(batch)
            plan = self._plan_for(first, plan_dtype(batch), batch, self.rules)
            return batch_tree.mix_tree(batch, self.rules, plan, implementation)
        samples, labels = batch
        rule = infer_rule(labels, self.num_classes, self.ignore_index)
        first = check_pair(samples, labels)
        if mixes and not self._cuts:
            checked = self.paste != 0 or self.keep_variance
            size = self._check_blended(samples, self._blend) if checked else None
            draw = self._draw(first.device)
            spec, finish = self._spec(first.shape[0], draw, controls), self._finish(controls, size)
            how = self.implementation, self._calls, controls, finish, size
            pair = mix_pair(samples, labels, rule, spec, draw, *how)
        else:
            plan = self._plan_for(first, plan_dtype(batch), samples, self._blend)
            mixed = batch_tree.mix_tree(samples, self._blend, plan, implementation)
            pair = mixed, rule.mix(labels, plan)
        return pair if type(batch) is tuple else batch_tree.in_form_of(batch, pair)

    def collate(self, samples: list[Any]) -> Any:
        """Collate and mix: pass `transform.collate` to a DataLoader as its `collate_fn`."""
        return self(default_collate(samples))

    def make_plan(
        self,
        batch_size: int,
        *,
        size: Size | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> MixPlan:
        """Draw the plan for one batch, as `forward` does. Nothing is mixed in eval mode.

        size: (height, width) of the images, which transforms that paste need.
        """
        _checks.check_batch_size(batch_size)
        controls = self._read_controls()
        if not self._mixes(controls):
            return plans.identity_plan(batch_size, device=device, dtype=dtype)
        draw = self._draw(device)
        spec, finish = self._spec(batch_size, draw, controls), self._finish(controls, size)
        if finish.paste:
            size = check_size(size)
        if not self._cuts:
            return plans.draw_finished(spec, finish, size, draw, dtype)
        plan = self._paste_boxes(plans.draw_plan(spec, draw, dtype), check_size(size), draw)
        return plan if finish.p == 1 else plans.with_probability(plan, finish.p, draw)

    def _plan_for(self, first: Tensor, dtype: torch.dtype, value: Any, rules: Rules) -> MixPlan:
        """The plan for a value that these rules are applied to; `first` is its first tensor."""
        mixes = self._mixes(self._read_controls())
        size = self._check_blended(value, rules) if mixes else None
        return self.make_plan(first.shape[0], size=size, device=first.device, dtype=dtype)

    def _check_blended(self, value: Any, rules: Rules) -> Size | None:
        """Refuse what cannot be pasted; the size of the images where something is."""
        if self.paste == 0:
            return None
        shapes = [leaf.shape for leaf, _ in batch_tree.blended_leaves(value, rules)]
        for shape in shapes:
            if len(shape) >= 4 and (self.paste is not None or _is_image(shape)):
                return shape[-2], shape[-1]
        if self.paste is None:
            return None
        raise ValueError(
            f"{type(self).__name__} cuts boxes out of images, [batch, channels, height, width], "
            f"got {', '.join(str(list(shape)) for shape in shapes) or 'none'}. "
            f"{self._without_images}"
        )

    def _spec(self, batch_size: int, draw: Draw, controls: Controls) -> PlanSpec:
        """The plan that blends every output."""
        raise NotImplementedError

    def _finish(self, controls: Controls, size: Size | None) -> Finish:
        paste = self.paste
        if paste is None:
            paste = 0.0 if size is None else IMAGES_PASTED
        return Finish(controls.p, paste, self.keep_variance, self._blend.mean)

    def _paste_boxes(self, plan: MixPlan, size: Size, draw: Draw) -> MixPlan:
        """The plan with the boxes of CutMix, for transforms that cut."""
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
        target = "rules" if self.rules else "num_classes"
        names = (*self._options, target, "p", "enabled")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    # Inside a model (where the prefix is not empty) nothing is saved: the model's state_dict holds
    # tensors of the model, and loads with and without the transform.

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        if prefix:
            return
        controls = self._read_controls()
        for name in SAVED:
            number = getattr(controls, name)
            destination[name] = torch.tensor(number, dtype=torch.float64, device="cpu")
        if self.generator is not None:
            destination["generator"] = self.generator.get_state()

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Tensor],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        if prefix:
            return
        missing_keys += [name for name in SAVED if name not in state_dict]
        unexpected_keys += [name for name in state_dict if name not in (*SAVED, "generator")]
        known = {name: float(state_dict[name]) for name in SAVED if name in state_dict}
        self._set_controls(**known)
        if self.generator is not None and "generator" in state_dict:
            self.generator.set_state(state_dict["generator"].cpu())
        elif (self.generator is None) == ("generator" in state_dict):
            _checks.warn(
                "Only one of checkpoint and transform has a generator: plans will not continue "
                "where they stopped."
            )

    def __copy__(self) -> Self:
        twin = self.__class__.__new__(self.__class__)
        twin.__dict__.update(self.__dict__)
        twin._shared = _share(self._shared.tolist())
        twin._calls = PreparedCalls()
        return twin

    def __getstate__(self) -> dict[str, Any]:
        # a spawned loader worker can neither receive a generator nor know its parent's rank
        state = {**self.__dict__, "_home_rank": process_rank(self._home_rank)}
        state["_calls"] = PreparedCalls()
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
        # a copy gets shared memory of its own; a spawned loader worker has its parent's
        if not self._shared.is_shared():  # type: ignore[no-untyped-call]
            self._shared = _share(self._shared.tolist())


def _share(numbers: Sequence[float]) -> Tensor:
    """The numbers in shared memory; a tensor made in inference mode could not be changed later."""
    with torch.inference_mode(False):
        tensor = torch.tensor(numbers, dtype=torch.float64, device="cpu")
        return tensor.share_memory_()  # type: ignore[no-untyped-call, no-any-return]


class GammaMix(BatchMix):
    """What ZetaMix and ZetaMixup share: γ as a number, a range or a schedule, and the sources."""

    sources: int | None
    anchor: AnchorChoice = "self"
    _gamma: Gamma | GammaSchedule

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
        self._check_gamma(value)
        low, high = value if isinstance(value, (tuple, list)) else (value, NOT_SET)
        self._set_controls(gamma_low=low, gamma_high=high)

    def _gamma_at(self, controls: Controls) -> Gamma:
        if controls.gamma_high != NOT_SET:
            return controls.gamma_low, controls.gamma_high
        if controls.gamma_low != NOT_SET:
            return controls.gamma_low
        return self._gamma(int(controls.epoch)) if callable(self._gamma) else self._gamma

    def _check_gamma(self, gamma: Gamma) -> None:
        """Refuse an impossible γ."""
        _checks.check_gamma(gamma)

    def set_epoch(self, epoch: int) -> None:
        _checks.check_count("epoch", epoch, 0)
        self._check_gamma(self._gamma_at(self._read_controls()._replace(epoch=float(epoch))))
        super().set_epoch(epoch)

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
        return f"gamma={gamma}, {super().extra_repr()}"


class ZetaMix(GammaMix):
    """The member of the ζ-mixup family with few sources, a random γ and full contrast.

    Every output mixes its own sample with one other: half of the images are blended, half are
    pasted. γ is drawn anew for each, so outputs range from an even mix (γ = 0) to nearly unmixed
    samples, and blends are scaled to the contrast of unmixed samples: the network meets in training
    what it meets in testing. Set `enabled` to False for the last fifth of training.

    gamma, sources: as in `ZetaMixup`.
    keep_variance: divide the weights of samples by their 2-norm, so that a blend of independent
        samples has the variance of one; targets keep the weights. Samples must be normalised to
        mean 0, or have their `mean` given.
    paste: the probability that an output is pasted rather than blended: every other source then
        covers a random box whose area is its weight, and targets are the exact shares of pixels.
        None stands for 0.5 where samples are images, [batch, channels, height, width], and for 0
        where they are not.
    mean: the mean of samples in [0, 1] or of bytes, one number or one per channel, as
        `torchvision.transforms.Normalize` takes it; see `zetamix.rules.Blend`.
    num_classes, ignore_index, rules, p, generator, implementation: as in `ZetaMixup`.

    >>> mix = ZetaMix(num_classes=10)
    >>> samples, targets = mix(torch.randn(32, 3, 28, 28), torch.randint(10, (32,)))
    >>> targets.shape
    torch.Size([32, 10])
    """

    _options = ("sources", "keep_variance", "paste")
    _without_images = "Pass paste=0 to blend other data."

    def __init__(
        self,
        *,
        num_classes: int | None = None,
        gamma: Gamma | GammaSchedule = (0.0, 4.0),
        sources: int | None = 2,
        keep_variance: bool = True,
        paste: float | None = None,
        mean: float | Sequence[float] | None = None,
        ignore_index: int | None = None,
        rules: Rules | None = None,
        p: float = 1.0,
        generator: torch.Generator | None = None,
        implementation: Implementation = "auto",
    ) -> None:
        super().__init__(num_classes, ignore_index, rules, p, generator, implementation)
        if rules is not None and mean is not None:
            raise ValueError("Pass mean or rules, not both: Blend(mean=...) holds its own.")
        self._blend = Blend(mean)
        self.sources = sources
        self.keep_variance = keep_variance
        self.paste = paste
        self._gamma = gamma
        self._warned = False
        self._check_gamma(self.gamma)

    def _check_blended(self, value: Any, rules: Rules) -> Size | None:
        if self.keep_variance and not self._warned and not torch.compiler.is_compiling():
            self._warned = True
            blended = batch_tree.blended_leaves(value, rules)
            if any(blend.mean is None and _is_nonnegative(leaf) for leaf, blend in blended):
                how = "mean=" if self.rules is None else "Blend(mean=...) in the rules"
                _checks.warn(
                    "The samples hold no negative number, so they are not normalised, and keeping "
                    "their variance would scale their mean as well. Normalise them first, or pass "
                    f"{how}, or keep_variance=False."
                )
        return super()._check_blended(value, rules)

    def extra_repr(self) -> str:
        mean = "" if self._blend.mean is None else f", mean={self._blend.mean}"
        return super().extra_repr() + mean


def _is_image(shape: torch.Size) -> bool:
    """Neither a volume nor a signal [batch, channels, 1, length]."""
    return len(shape) == 4 and min(shape[2:]) > 1


def _is_nonnegative(leaf: Tensor) -> bool:
    """Whether no number is negative; only on a CPU, where looking does not make the host wait."""
    if not leaf.is_floating_point() or leaf.device.type != "cpu" or leaf.numel() == 0:
        return False
    low, high = leaf.detach().aminmax()
    return bool((low >= 0) & (high > 0))


class ZetaMixup(GammaMix):
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
    generator: the only source of randomness, on the device of the batch; torch's default generator
        of that device when None.
    implementation: as in `zetamix.apply_plan`.

    >>> mix = ZetaMixup(num_classes=10, gamma=2.8)
    >>> samples, targets = mix(torch.rand(32, 3, 28, 28), torch.randint(10, (32,)))
    >>> targets.shape
    torch.Size([32, 10])
    """

    _options = ("sources", "anchor")

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

    def _check_gamma(self, gamma: Gamma) -> None:
        """Refuse an impossible γ, and warn once about one that lets no sample dominate."""
        super()._check_gamma(gamma)
        if isinstance(gamma, Tensor):
            # reading a tensor on a GPU would make the host wait
            gamma = float(gamma.min()) if gamma.device.type == "cpu" else math.inf
        lowest = gamma[0] if isinstance(gamma, (tuple, list)) else gamma
        threshold = dominance_threshold(self.sources)
        if lowest < threshold and not self._warned:
            self._warned = True
            among = "any number of" if self.sources is None else str(self.sources)
            _checks.warn(
                f"gamma={lowest:g} is below {threshold:.5f}, the threshold for {among} sources: "
                "the anchor need not outweigh the other samples together (Theorem 1)."
            )


class Mixup(BatchMix):
    """mixup of a batch: every output blends its own sample with another, λ ~ Beta(α, α).

    per: "sample" draws one λ for each output, "batch" one for all. The rest as in `ZetaMixup`.

    >>> mix = Mixup(num_classes=10, alpha=0.2)
    >>> samples, targets = mix(torch.rand(32, 3, 28, 28), torch.randint(10, (32,)))
    >>> targets.shape
    torch.Size([32, 10])
    """

    _options = ("alpha", "per")

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


class CutMix(BatchMix):
    """CutMix: output k is sample k with a box of another sample, and targets the shares of pixels.

    per: "batch" is torchvision's CutMix: one box and one λ ~ Beta(α, α) for the whole batch, and
        sample k gets the box of sample k − 1. "sample" draws partner, λ and box for each output.
    num_classes, ignore_index, rules, p: as in `ZetaMixup`.

    Everything is drawn on the batch's device from the caller's generator. torchvision's own draws
    on the host from global randomness, which neither a seed per run nor a captured CUDA graph can
    use.

    >>> cut = CutMix(num_classes=10, generator=torch.Generator().manual_seed(0))
    >>> samples, targets = cut(torch.rand(8, 3, 32, 32), torch.arange(8))
    >>> targets.sum(1)
    tensor([1., 1., 1., 1., 1., 1., 1., 1.])
    """

    paste = 1.0
    _cuts = True
    _options = ("alpha", "per")

    def __init__(
        self,
        *,
        num_classes: int | None = None,
        alpha: float = 1.0,
        per: LamChoice = "batch",
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

    def _paste_boxes(self, plan: MixPlan, size: Size, draw: Draw) -> MixPlan:
        pairs = plans.rolled(plan) if self.per == "batch" else plan
        return plans.cutmix_plan(pairs, self.alpha, self.per, size, draw)


class MixupOrCutMix(BatchMix):
    """CutMix with probability `switch_prob`, else mixup: what timm does by default.

    mixup_alpha, cutmix_alpha: α of λ ~ Beta(α, α) in either.
    per: "batch" tosses once for the whole batch, with one λ and one box, as timm does; "sample"
        tosses for each output. The partner is drawn uniformly among the other samples.
    num_classes, ignore_index, rules, p: as in `ZetaMixup`.

    >>> mix = MixupOrCutMix(num_classes=10)
    >>> samples, targets = mix(torch.rand(8, 3, 32, 32), torch.arange(8))
    >>> targets.shape
    torch.Size([8, 10])
    """

    paste = 1.0
    _cuts = True
    _options = ("switch_prob", "mixup_alpha", "cutmix_alpha", "per")

    def __init__(
        self,
        *,
        num_classes: int | None = None,
        switch_prob: float = 0.5,
        mixup_alpha: float = 0.8,
        cutmix_alpha: float = 1.0,
        per: LamChoice = "batch",
        ignore_index: int | None = None,
        rules: Rules | None = None,
        p: float = 1.0,
        generator: torch.Generator | None = None,
        implementation: Implementation = "auto",
    ) -> None:
        super().__init__(num_classes, ignore_index, rules, p, generator, implementation)
        self.switch_prob = switch_prob
        self.mixup_alpha = mixup_alpha
        self.cutmix_alpha = cutmix_alpha
        self.per = per

    def _spec(self, batch_size: int, draw: Draw, controls: Controls) -> PlanSpec:
        return plans.mixup_spec(batch_size, self.mixup_alpha, self.per, None, checked=True)

    def _paste_boxes(self, plan: MixPlan, size: Size, draw: Draw) -> MixPlan:
        return plans.cutmix_plan(plan, self.cutmix_alpha, self.per, size, draw, self.switch_prob)


class LabelSmoothing(nn.Module):
    """Label smoothing: samples as they are, targets (1 − amount) · one-hot + amount / num_classes.

    Multi-hot targets become (1 − amount) · target + amount / 2. Nothing about it is random:
    `generator` is taken, as by all methods, and not used.

    >>> LabelSmoothing(num_classes=4, amount=0.2)(torch.zeros(1, 3), torch.tensor([2]))[1]
    tensor([[0.0500, 0.0500, 0.8500, 0.0500]])
    """

    def __init__(
        self, *, num_classes: int, amount: float = 0.1, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        _checks.check_number("amount", amount, low=0, high=1)
        self.rule = OneHot(num_classes)
        self.amount = amount

    def forward(self, samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        check_pair(samples, labels)
        if labels.is_floating_point():
            return samples, (1 - self.amount) * labels + self.amount / 2
        alone = plans.identity_plan(len(labels), device=labels.device)
        hot = self.rule.mix(labels, alone)
        return samples, (1 - self.amount) * hot + self.amount / self.rule.num_classes


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
        rule = Average() if labels.is_floating_point() else self.rule
        return apply_plan(samples, plan), rule.mix(labels, plan)
