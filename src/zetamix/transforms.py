"""ZetaMix, ZetaMixup, Mixup, CutMix and other transforms of a batch.

They take a batch `(samples, labels)` and return `(samples, targets)`. Use them after a DataLoader,
as its `collate_fn`, or in `torchvision.transforms.v2` containers.
"""

import ctypes
import itertools
import math
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import ForkingPickler
from multiprocessing.sharedctypes import RawArray, reduce_ctype  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, overload

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate, get_worker_info

from zetamix import batches, checks
from zetamix.batches import Rules
from zetamix.boxes import Size, check_size
from zetamix.checks import Gamma, GammaSchedule
from zetamix.plan import (
    ANCHORS,
    LAMS,
    AnchorChoice,
    LamChoice,
    MixPlan,
    PlanRule,
    draw_plan,
    identity_plan,
)
from zetamix.rules import (
    Blend,
    OneHot,
    check_pair,
    check_range,
    infer_rule,
    is_image,
    mix_pair,
    plan_dtype,
)
from zetamix.sampling import Draw, process_stream

NOT_SET = -1.0
# the mean of a smaller batch is too noisy to judge
LEAST_CENTRED = 16
# beside γ, the attributes that can be set at any time; others are fixed when a transform is made
CHANGING = ("enabled", "p", "training")

_is_above_0 = partial(checks.check_number, low=0, above=True)
CHECKS: dict[str, Callable[[str, Any], None]] = {
    "ignore_index": partial(checks.check_count, least=-math.inf),
    "generator": lambda _, value: checks.check_generator(value),
    "stream": partial(checks.check_count, least=0),
    "sources": partial(checks.check_count, least=2),
    "anchor": partial(checks.check_choice, choices=ANCHORS),
    "per": partial(checks.check_choice, choices=LAMS),
    "until": partial(checks.check_number, low=0, high=1, above=True),
    **dict.fromkeys(("enabled", "training", "keep_variance"), checks.check_flag),
    **dict.fromkeys(("p", "paste", "switch_prob"), partial(checks.check_number, low=0, high=1)),
    **dict.fromkeys(("alpha", "mixup_alpha", "cutmix_alpha"), _is_above_0),
}
MAY_BE_NONE = ("ignore_index", "generator", "stream", "sources")


class Controls(NamedTuple):
    """What can change while a transform is used; a call reads it once."""

    enabled: float = 1.0
    p: float = 1.0
    epoch: float = 0.0
    training: float = 1.0
    before_until: float = 1.0
    """Whether the epoch is among those that are mixed."""
    gamma_low: float = NOT_SET
    """γ of this epoch, where it is not that of the rule: one number, or a range up to the next."""
    gamma_high: float = NOT_SET


@dataclass(kw_only=True, eq=False, repr=False)
class BatchMix(nn.Module):
    """Base class of the transforms: reads a batch, draws a plan and applies it.

    Options are fixed at construction. `enabled`, `p`, `gamma`, the epoch and train or eval mode can
    change; running loader workers of the process that changes them follow, other processes, such as
    the other ranks of a job, do not.

    `state_dict` holds the epoch and the state of the generator. A transform inside a model adds
    nothing to the model's `state_dict`: save the transform's own `state_dict` as well.
    """

    num_classes: int | None = None
    ignore_index: int | None = None
    rules: Rules | None = None
    p: float = 1.0
    until: float = 1.0
    generator: torch.Generator | None = None
    stream: int | None = None
    enabled: bool = field(default=True, init=False)
    """Whether to mix. If False, samples are returned unmixed; targets keep their shape."""

    needs_images: ClassVar[bool] = False
    """Whether samples must be images, because boxes are pasted that no other samples have."""

    def _boxes(self) -> dict[str, float]:
        """The options of boxes in the rule of the plans, where the class names them otherwise."""
        return {}

    def __post_init__(self) -> None:
        super().__init__()
        mean = getattr(self, "mean", None)
        if self.rules is not None:
            batches.check_rule_types(self.rules)
            if (self.num_classes, self.ignore_index, mean) != (None, None, None):
                raise ValueError(
                    "Pass rules, or num_classes, ignore_index and mean, not both. With rules, use "
                    "OneHot(num_classes, ignore_index) and Blend(mean)."
                )
        for name, check in CHECKS.items():
            value = getattr(self, name, None)
            if hasattr(self, name) and (value is not None or name not in MAY_BE_NONE):
                check(name, value)
        self._blend = Blend(mean)
        if mean is not None:
            self.mean = self._blend.mean
        classes = self.num_classes
        self._one_hot = None if classes is None else OneHot(classes, self.ignore_index)
        self._home_rank = 0
        self._own = Controls(p=float(self.p))
        self._schedule: GammaSchedule | None = None
        self._start()
        names = [option.name for option in fields(PlanRule) if hasattr(self, option.name)]
        options = {name: getattr(self, name) for name in names} | self._boxes()
        if "gamma" in options:
            gamma = options["gamma"]
            self._schedule = gamma if callable(gamma) else None
            options["gamma"] = self._use_gamma(gamma(0) if callable(gamma) else gamma)
        self._rule = PlanRule(**options)

    def _start(self) -> None:
        """What every object has for itself, also a copy."""
        self._looked = False
        self._number = next(_numbers)
        self._block: Any = None
        self._block_owner = 0
        _live.add(self)

    def __setattr__(self, name: str, value: Any) -> None:
        # the rule is the last attribute that the constructor sets
        made = "_rule" in self.__dict__
        if made and name in CHANGING:
            CHECKS[name](name, value)
            value = float(value) if name == "p" else bool(value)
            self._control(**{name: value})
        elif made and name in {option.name for option in fields(self)}:
            if name != "gamma" or isinstance(value, Tensor) or callable(value):
                raise AttributeError(
                    f"{name} is fixed when a transform is made, because running loader workers "
                    f"would not see a change. Make a new {type(self).__name__}({name}=...). What "
                    "can be set: enabled, p, and gamma as a number or a range (low, high)."
                )
            value = self._use_gamma(value)
            self._schedule = None
        super().__setattr__(name, value)

    def _use_gamma(self, gamma: Any, **controls: float) -> Gamma:
        """Mix with this γ from now on; sets other controls with it."""
        checks.check_gamma(gamma)
        low = high = NOT_SET
        if isinstance(gamma, (tuple, list)):
            low, high = gamma = float(gamma[0]), float(gamma[1])
        elif not isinstance(gamma, Tensor):
            low = gamma = float(gamma)
        self.__dict__["gamma"] = gamma
        self._control(gamma_low=low, gamma_high=high, **controls)
        return gamma  # type: ignore[no-any-return]

    if TYPE_CHECKING:

        @overload
        def __call__(self, samples: Tensor, labels: Tensor, /) -> tuple[Tensor, Tensor]: ...
        @overload
        def __call__(self, batch: tuple[Tensor, Tensor], /) -> tuple[Tensor, Tensor]: ...
        @overload
        def __call__(self, samples: Any, labels: Any = ..., *rest: Any) -> Any: ...
        def __call__(self, samples: Any, labels: Any = ..., *rest: Any) -> Any: ...

    # the state

    @property
    def epoch(self) -> int:
        return int(self._read_controls().epoch)

    @property
    def mixing(self) -> bool:
        """Whether batches are mixed now: enabled, in train mode, before `until`, and p above 0."""
        return self._rule_now() is not None

    def set_epoch(self, epoch: int, epochs: int | None = None) -> None:
        """Set the epoch, from 0; of `epochs`, the first ⌊until · epochs⌋, at least one, are mixed.

        `epochs` may be left out if `until` is 1. Without this call every epoch is mixed.
        """
        checks.check_count("epoch", epoch, 0)
        if epochs is not None:
            checks.check_count("epochs", epochs, 1)
        elif self.until < 1:
            raise ValueError(
                f"set_epoch needs the number of epochs: {type(self).__name__} mixes in the first "
                f"{self.until:.0%} of them. Pass set_epoch(epoch, epochs) (to Lightning's Trainer "
                "max_epochs), or until=1."
            )
        # 0.29 · 100 is 28.999999999999996
        self._begin(epoch, epochs is None or epoch < max(1, math.floor(self.until * epochs + 1e-9)))

    def set_progress(self, done: float, epoch: int = 0) -> None:
        """For trainers that count steps: mix while less than `until` of the training is done."""
        checks.check_number("done", done, low=0)
        self._begin(epoch, self.until == 1 or done < self.until)

    def _begin(self, epoch: int, before_until: bool) -> None:
        changes: dict[str, float] = {"epoch": epoch, "before_until": before_until}
        if self._schedule is None:
            self._control(**changes)
        else:
            self._use_gamma(self._schedule(epoch), **changes)

    def _read_controls(self) -> Controls:
        if self._block is None or torch.compiler.is_compiling() or get_worker_info() is None:
            return self._own
        return Controls(*self._block)

    def _control(self, **changes: float) -> None:
        # not _replace, which the compiler of older versions of torch cannot trace
        values = {**self._own._asdict(), **{name: float(v) for name, v in changes.items()}}
        self._own = Controls(**values)
        if self._block is not None and self._block_owner == os.getpid():
            self._block[:] = self._own

    def _share(self) -> Any:
        """The memory that processes about to be started read, if they are loader workers."""
        if self._block_owner != os.getpid():
            self._block = RawArray("d", list(self._own))
            self._block_owner = os.getpid()
        return self._block

    # a batch

    def forward(self, samples: Any, labels: Any = ..., *rest: Any) -> Any:
        """Mix `(samples, labels)`, as two arguments or as one tuple, list or dict.

        Entries behind the labels are returned as they are. Other batches need `rules`.
        """
        if self.rules is None and type(samples) is Tensor is type(labels) and not rest:
            return self._mix_pair(samples, labels)
        given = samples if labels is ... else (samples, labels, *rest)
        batch = batches.as_tensors(given, coordinates=self.rules is not None)
        mixed = self._mix_batch(batch) if self.rules is None else self._mix_by_rules(batch)
        return mixed if batch is given else batches.in_kind_of(given, mixed)

    def _mix_pair(self, samples: Any, labels: Tensor) -> tuple[Any, Tensor]:
        target = infer_rule(labels, self._one_hot)
        batch, device = labels.shape[0], check_pair(samples, labels).device
        rule = self._rule_now()
        if rule is None:
            alone = identity_plan(batch, device=device, dtype=plan_dtype((samples, labels)))
            return samples, target.mix(labels, alone)
        one = type(samples) is Tensor
        leaves = [(samples, self._blend)] if one else batches.blended_leaves(samples, self._blend)
        size = self._size_of(leaves)
        draw = self._draw(rule, batch, device)
        return mix_pair(samples, labels, self._blend, target, rule, draw, size=size)

    def _mix_batch(self, batch: Any) -> Any:
        """Mix a batch of tensors by the rules that its entries suggest."""
        names = batches.find_pair(batch, type(self).__name__)
        if len(batch) > 2 and self._rule.anchor == "random":
            raise ValueError(
                'With anchor="random" an output begins with another sample than its own, '
                "so entries behind the labels need a rule: pass rules=."
            )
        mixed = self._mix_pair(batch[names[0]], batch[names[1]])
        if isinstance(batch, dict):
            return {**batch, names[0]: mixed[0], names[1]: mixed[1]}
        return batches.in_form_of(batch, [*mixed, *batch[2:]])

    def _mix_by_rules(self, batch: Any) -> Any:
        rules: Any = self.rules
        first = batches.first_tensor(batch)
        size, device, dtype = first.shape[0], first.device, plan_dtype(batch)
        rule = self._rule_now()
        if rule is None:
            plan = identity_plan(size, device=device, dtype=dtype)
        else:
            image = self._size_of(batches.blended_leaves(batch, rules))
            draw = self._draw(rule, size, device)
            plan = draw_plan(rule, size, draw, size=image, dtype=dtype)
        return batches.mix_tree(batch, rules, plan, mixes=rule is not None)

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

        size: (height, width) of the images to paste into; without it all outputs are blended.
        """
        checks.check_sizes(batch_size)
        if size is not None or self.needs_images:
            size = check_size(size)
        rule = self._rule_now()
        if rule is None:
            return identity_plan(batch_size, device=device, dtype=dtype)
        draw = self._draw(rule, batch_size, device)
        return draw_plan(rule, batch_size, draw, size=size, dtype=dtype)

    def _draw(self, rule: PlanRule, batch_size: int, device: torch.device | str) -> Draw:
        """The random numbers of one call."""
        generator = self.generator
        draw = Draw(generator, process_stream(generator, self._home_rank, self.stream), device)
        if isinstance(rule.gamma, Tensor):
            checks.check_gamma(rule.gamma, batch_size, draw.device)
        return draw

    def _rule_now(self) -> PlanRule | None:
        """What is drawn now; None if nothing is mixed. A call reads the controls here, once."""
        controls = self._own if self._block is None else self._read_controls()
        on = controls.enabled and controls.training and controls.before_until
        if not (on and controls.p > 0):
            return None
        rule, gamma = self._rule, self._rule.gamma
        if controls.gamma_low != NOT_SET:
            low, high = controls.gamma_low, controls.gamma_high
            gamma = low if high == NOT_SET else (low, high)
        elif self._schedule is not None:
            gamma = self._schedule(int(controls.epoch))
        tensors = isinstance(gamma, Tensor) or isinstance(rule.gamma, Tensor)
        if not tensors and (gamma, controls.p) == (rule.gamma, rule.p):
            return rule
        return replace(rule, gamma=gamma, p=controls.p)

    def _size_of(self, leaves: Sequence[tuple[Tensor, Blend]]) -> Size | None:
        """(height, width) of the images to paste into, which must be one; None to blend all."""
        if not self._looked:
            self._look(leaves)
        if self._rule.paste == 0:
            return None
        sizes = set()
        for leaf, _ in leaves:
            if is_image(leaf.shape):
                sizes.add((leaf.shape[-2], leaf.shape[-1]))
        if len(sizes) == 1:
            return sizes.pop()
        if not self.needs_images:
            # one box cannot cover the same part of images of different sizes
            return None
        listed = ", ".join(str(list(leaf.shape)) for leaf, _ in leaves) or "none"
        raise ValueError(
            f"{type(self).__name__} pastes boxes into images [batch, channels, height, width] of "
            f"one size, at least 2 × 2, got {listed}. Resize them, or use ZetaMix, ZetaMixup or "
            "Mixup, which blend other data."
        )

    def _look(self, leaves: Sequence[tuple[Tensor, Blend]]) -> None:
        """Look at the first batch: does it have the form and the range that the options expect?

        A GPU is waited for this once, but not while a CUDA graph is captured. Compiled code looks
        through an operator of its own, which does not break the graph.
        """
        rule, traced = self._rule, torch.compiler.is_compiling()
        if traced and _is_exporting():
            return
        if not traced:
            if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
                return
            self._looked = True
        for leaf, blend in leaves:
            has_mean = blend.mean is not None
            shape = leaf.shape
            last = len(shape) == 4 and shape[-1] in (1, 3, 4) and min(shape[1:3]) > 4
            if not traced and rule.paste and last:
                checks.warn(
                    f"Images of shape {list(shape)} look like [batch, height, width, channels], "
                    "but boxes are pasted in [batch, channels, height, width]. Pass "
                    "images.permute(0, 3, 1, 2)."
                )
            # with a mean, outputs are clipped, also where nothing is scaled
            scales = rule.keep_variance and (rule.paste != 1 or has_mean)
            if not (scales and is_image(leaf.shape) and leaf.is_floating_point()):
                continue
            if traced:
                seen = _look_once(leaf.detach(), self._number, has_mean)
                torch._assert_async(seen, "mean needs samples in [0, 1].")
            elif checks.has_memory(leaf):
                _check_values(leaf, has_mean)

    def extra_repr(self) -> str:
        names = [option.name for option in fields(self) if option.name != "generator"]
        values = {name: getattr(self, name) for name in names}
        if self._schedule is not None:
            values["gamma"] = getattr(self._schedule, "__name__", self._schedule)
        return ", ".join(
            f"{name}={value if name == 'gamma' else repr(value)}"
            for name, value in values.items()
            if value is not None or name == "sources"
        )

    # Inside a model (where the prefix is not empty) nothing is saved: the model's state_dict holds
    # tensors of the model, and loads with and without the transform.

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        if prefix:
            return
        destination["epoch"] = torch.tensor(self.epoch, dtype=torch.float64, device="cpu")
        if self.generator is not None:
            destination["generator"] = self.generator.get_state()

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Tensor], prefix: str, *given: Any
    ) -> None:
        if prefix:
            return
        _, _, missing_keys, unexpected_keys, _ = given
        unexpected_keys += state_dict.keys() - {"epoch", "generator"}
        if "epoch" in state_dict:
            self._begin(int(state_dict["epoch"]), bool(self._own.before_until))
        else:
            missing_keys.append("epoch")
        if self.generator is not None and "generator" in state_dict:
            self.generator.set_state(state_dict["generator"].cpu())
        elif (self.generator is None) == ("generator" in state_dict):
            checks.warn(
                "Only one of the checkpoint and the transform has a generator: training will not "
                "resume with the same random plans."
            )

    def __getstate__(self) -> dict[str, Any]:
        # a spawned loader worker can neither receive a generator (pytorch/pytorch#146828) nor know
        # its parent's rank
        state = {**self.__dict__, "_home_rank": process_stream(None, self._home_rank)}
        if self.generator is not None:
            numbers = bytes(self.generator.get_state().tolist())
            state["generator"] = (str(self.generator.device), numbers)
        # the process that is being started may be a loader worker
        state["_block"] = None if get_spawning_popen() is None else self._share()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        given = dict(state)
        if given["generator"] is not None:
            device, numbers = given["generator"]
            given["generator"] = torch.Generator(device)
            given["generator"].set_state(torch.tensor(list(numbers), dtype=torch.uint8))
        super().__setstate__(given)  # type: ignore[no-untyped-call]
        self._start()
        # the parent's memory: read by a loader worker, and not written
        self._block = given["_block"]


def check_transform(transform: object) -> None:
    """Raise unless `transform` is one of those that derive from `BatchMix`."""
    if not isinstance(transform, BatchMix):
        raise TypeError(
            "transform must be one of ZetaMix, ZetaMixup, Mixup, CutMix and MixupOrCutMix, got "
            f"{type(transform).__name__}."
        )


# a pickler knows the types that were registered before it was made: not one that `_share` brings
ForkingPickler.register(ctypes.c_double * len(Controls._fields), reduce_ctype)
_numbers = itertools.count()
_live: "weakref.WeakSet[BatchMix]" = weakref.WeakSet()
_looked_at: set[int] = set()


if hasattr(os, "register_at_fork"):
    # a forked process may be a loader worker; no memory is shared before
    os.register_at_fork(before=lambda: [transform._share() for transform in list(_live)])


# whether torch.export traces: an exported program has no operators of ours
_is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", lambda: False)


@torch.library.custom_op("zetamix::look_once", mutates_args=())
def _look_once(samples: Tensor, number: int, has_mean: bool) -> Tensor:
    """Look at the first batch of the transform of this number; True."""
    capturing = samples.is_cuda and torch.cuda.is_current_stream_capturing()
    if number not in _looked_at and not capturing:
        _looked_at.add(number)
        _check_values(samples, has_mean)
    return torch.ones((), dtype=torch.bool, device=samples.device)


@_look_once.register_fake
def _(samples: Tensor, number: int, has_mean: bool) -> Tensor:
    return samples.new_empty((), dtype=torch.bool)


def _check_values(leaf: Tensor, has_mean: bool) -> None:
    """Warn of images that are not normalised; raise if a mean is given for those that are."""
    if leaf.numel() == 0:
        return
    if has_mean:
        check_range(leaf, waits=True)
        return
    samples = leaf.detach().float()
    low, high = samples.aminmax()
    far, count = (low >= 0) & (high > 0), len(samples)
    if count >= LEAST_CENTRED:
        # per channel: within half a standard deviation plus four standard errors of 0
        deviation, mean = torch.std_mean(samples, [0, *range(2, samples.ndim)])
        far = far | (mean.abs() > (0.5 + 4 / math.sqrt(count)) * deviation).any()
    if far:
        checks.warn(
            "The samples are not normalised: their mean is far from 0, and keeping their variance "
            "would scale it as well. Normalise each channel first, or pass mean= (in rules, "
            "Blend(mean=...)), or keep_variance=False."
        )


@dataclass(kw_only=True, eq=False, repr=False)
class ZetaMix(BatchMix):
    """ζ-mixup of few samples with a random γ, pasted boxes, and the contrast of unmixed samples.

    By default, every output mixes its own sample with one other; half of the images are blended,
    half are pasted. γ is drawn for each output, so outputs range from an even mix (γ = 0) to nearly
    unmixed samples. Blended images are scaled to the contrast of unmixed ones, so that training and
    test images have similar contrast. The last fifth of training is unmixed: call
    `set_epoch(epoch, epochs)` in every epoch; without it, all of them are mixed.

    Boxes are pasted into, and the variance is kept of, images and volumes [n, c, ..., h, w] of at
    least 2 × 2 pixels. Other samples are blended.

    gamma, sources: as in `ZetaMixup`.
    keep_variance: divide the weights of images by their 2-norm, so that a blend of independent
        images has the variance of a single one; targets keep their weights. Images must be
        normalised to mean 0, or pass `mean`.
    paste: the probability that an image is pasted rather than blended: every source but the first
        then covers a random box whose area is its weight, later sources over earlier ones, and
        targets are the exact fractions of visible pixels. Boxes lie inside the image and have its
        aspect ratio, so that corners are rarely covered.
    mean: the mean of images in [0, 1] or of dtype uint8, one number or one per channel, as in
        `torchvision.transforms.Normalize`; see `zetamix.rules.Blend`.
    num_classes, ignore_index, rules, p, until, generator, stream: as in `ZetaMixup`.

    >>> mix = ZetaMix(num_classes=10)
    >>> samples, targets = mix(torch.randn(32, 3, 28, 28), torch.randint(10, (32,)))
    >>> targets.shape
    torch.Size([32, 10])
    """

    gamma: Gamma | GammaSchedule = (0.0, 4.0)
    sources: int | None = 2
    keep_variance: bool = True
    paste: float = 0.5
    mean: float | Sequence[float] | None = None
    until: float = 0.8


@dataclass(kw_only=True, eq=False, repr=False)
class ZetaMixup(BatchMix):
    """ζ-mixup of a batch: every output is a weighted average of many samples; one dominates.

    All pairs of the batch are multiplied, so time grows with its square; `sources=8` has 99 % of
    the weight at γ = 2.8.

    gamma: how strongly the anchor dominates (see `zetamix.describe_gamma`): one number, a range
        `(low, high)` from which γ is drawn per output, or a function of the epoch, for use with
        `set_epoch`. The attribute can be set to a number or a range.
    sources: number of samples mixed into one output; by default, and in batches smaller than this,
        the whole batch.
    anchor: "self" or "random", as in `zeta_plan`.
    num_classes, ignore_index: for integer labels.
    rules: for batches other than `(samples, labels)`: a tuple or dict like the batch, with a rule
        of `zetamix.rules` for each entry: `Blend()`, `OneHot(...)`, `Average()`, `FromAnchor()`.
    p: the probability that an output is mixed. Can be set as an attribute, as can `enabled`.
    until: the fraction of training that is mixed, from its beginning; see `set_epoch`.
    generator: the only source of randomness, on the device of the batch; None uses torch's default
        generator of that device.
    stream: a number in place of the rank of this process, so that processes with the same number
        and the same seed, such as the ranks of a tensor-parallel group, draw the same plans.

    >>> mix = ZetaMixup(num_classes=10, gamma=2.8)
    >>> samples, targets = mix(torch.rand(32, 3, 28, 28), torch.randint(10, (32,)))
    >>> targets.shape
    torch.Size([32, 10])
    """

    gamma: Gamma | GammaSchedule = 2.8
    sources: int | None = None
    anchor: AnchorChoice = "self"


@dataclass(kw_only=True, eq=False, repr=False)
class Mixup(BatchMix):
    """mixup of a batch: every output blends its own sample with another, λ ~ Beta(α, α).

    Sample k is blended with sample k − s, modulo the batch size, with one random s for each batch:
    every sample is the partner of exactly one other.

    per: "sample" draws one λ for each output, "batch" one for all.
    num_classes, ignore_index, rules, p, until, generator, stream: as in `ZetaMixup`.

    >>> mix = Mixup(num_classes=10, alpha=0.2)
    >>> samples, targets = mix(torch.rand(32, 3, 28, 28), torch.randint(10, (32,)))
    >>> targets.shape
    torch.Size([32, 10])
    """

    alpha: float = 1.0
    per: LamChoice = "sample"


@dataclass(kw_only=True, eq=False, repr=False)
class CutMix(BatchMix):
    """CutMix: a box of another sample is pasted into each one; targets are fractions of pixels.

    The other sample is that of `Mixup`. Boxes are those of torchvision's CutMix: centred anywhere
    in the image and cut off at its edges.

    per: "batch" draws one box and one λ ~ Beta(α, α) for the whole batch, as torchvision does;
        "sample" draws them for each output.
    num_classes, ignore_index, rules, p, until, generator, stream: as in `ZetaMixup`.

    All random numbers come from `generator`, on the device of the batch. torchvision's CutMix uses
    torch's global CPU generator, which rules out a seed per run and CUDA graph capture.

    >>> cut = CutMix(num_classes=10, generator=torch.Generator().manual_seed(0))
    >>> samples, targets = cut(torch.rand(8, 3, 32, 32), torch.arange(8))
    >>> targets.sum(1)
    tensor([1., 1., 1., 1., 1., 1., 1., 1.])
    """

    alpha: float = 1.0
    per: LamChoice = "batch"
    needs_images = True

    def _boxes(self) -> dict[str, float]:
        return {"paste": 1.0, "box_alpha": self.alpha}


@dataclass(kw_only=True, eq=False, repr=False)
class MixupOrCutMix(BatchMix):
    """CutMix with probability `switch_prob`, else mixup, as `timm.data.Mixup` with both alphas set.

    mixup_alpha, cutmix_alpha: α of λ ~ Beta(α, α) in mixup and in CutMix.
    per: "batch" switches once for the whole batch, with one λ and one box, as timm does by default;
        "sample" switches for each output. The other sample is that of `Mixup`.
    num_classes, ignore_index, rules, p, until, generator, stream: as in `ZetaMixup`.

    >>> mix = MixupOrCutMix(num_classes=10)
    >>> samples, targets = mix(torch.rand(8, 3, 32, 32), torch.arange(8))
    >>> targets.shape
    torch.Size([8, 10])
    """

    switch_prob: float = 0.5
    mixup_alpha: float = 0.8
    cutmix_alpha: float = 1.0
    per: LamChoice = "batch"
    needs_images = True

    def _boxes(self) -> dict[str, float]:
        boxes = {"paste": self.switch_prob, "box_alpha": self.cutmix_alpha}
        return {"alpha": self.mixup_alpha, **boxes}


class LabelSmoothing(nn.Module):
    """Label smoothing: unmixed samples, targets (1 − amount) · one-hot + amount / num_classes.

    Floating point labels (multi-hot) become (1 − amount) · target + amount / 2. `generator` is
    accepted for the common interface and not used.

    >>> LabelSmoothing(num_classes=4, amount=0.2)(torch.zeros(1, 3), torch.tensor([2]))[1]
    tensor([[0.0500, 0.0500, 0.8500, 0.0500]])
    """

    def __init__(
        self, *, num_classes: int, amount: float = 0.1, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        checks.check_number("amount", amount, low=0, high=1)
        self.rule, self.amount = OneHot(num_classes), amount

    def forward(self, samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        check_pair(samples, labels)
        levels, targets = 2, labels
        if not labels.is_floating_point():
            alone = identity_plan(len(labels), device=labels.device)
            levels, targets = self.rule.num_classes, self.rule.mix(labels, alone)
        return samples, (1 - self.amount) * targets + self.amount / levels
