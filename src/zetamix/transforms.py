"""ZetaMix, ZetaMixup, Mixup, CutMix and other transforms of a batch.

They take a batch `(samples, labels)` and return `(samples, targets)`. Use them after a DataLoader,
as its `collate_fn`, or in `torchvision.transforms.v2` containers.
"""

import inspect
import itertools
import math
import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from multiprocessing.context import get_spawning_popen
from multiprocessing.sharedctypes import RawArray
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar, overload

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate, get_worker_info

from zetamix import batches, checks
from zetamix.batches import Rules
from zetamix.boxes import Size, check_size
from zetamix.checks import Gamma, GammaSchedule
from zetamix.gamma import dominance_threshold
from zetamix.plan import (
    ANCHORS,
    LAMS,
    AnchorChoice,
    LamChoice,
    MixPlan,
    draw_plan,
    identity_plan,
)
from zetamix.plan_rule import PlanRule
from zetamix.rules import (
    Blend,
    OneHot,
    check_pair,
    infer_rule,
    is_image,
    launch,
    plan_dtype,
    refuse_range,
)
from zetamix.sampling import Draw, process_rank, process_stream

NOT_SET = -1.0
# the mean of a smaller batch is too noisy to judge
LEAST_CENTRED = 16
# what versions before 0.2 wrote into checkpoints beside the epoch and the generator
FORMERLY_SAVED = ("enabled", "p", "gamma_low", "gamma_high")
Self = TypeVar("Self", bound="BatchMix")


class Controls(NamedTuple):
    """What can change while a transform is used; a call reads it once."""

    enabled: float = 1.0
    p: float = 1.0
    epoch: float = 0.0
    training: float = 1.0
    before_until: float = 1.0
    """Whether the epoch is among those that are mixed."""
    gamma_low: float = NOT_SET
    """γ set after construction: one number, or a range together with `gamma_high`."""
    gamma_high: float = NOT_SET


class BatchMix(nn.Module):
    """Base class of the transforms: reads a batch, draws a plan and applies it.

    Options are fixed at construction. `enabled`, `p`, `gamma`, the epoch and train or eval mode can
    change; running loader workers of the process that changes them follow, other processes, such as
    the other ranks of a job, do not.

    `state_dict` holds the epoch and the state of the generator. A transform inside a model adds
    nothing to the model's `state_dict`: save the transform's own `state_dict` as well.
    """

    num_classes: int | None
    ignore_index: int | None
    rules: Rules | None
    until: float
    generator: torch.Generator | None
    stream: int | None
    _rule: PlanRule
    keep_variance: bool = False
    paste: float = 0.0
    needs_images: ClassVar[bool] = False
    """Whether samples must be images, because boxes are pasted that no other samples have."""
    _shown: ClassVar[tuple[str, ...]] = ()  # the options that repr shows first
    _names: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__init__" in cls.__dict__:
            cls._names = cls._names | set(inspect.signature(cls).parameters)

    def __init__(
        self,
        rule: PlanRule,
        num_classes: int | None,
        ignore_index: int | None,
        rules: Rules | None,
        until: float,
        generator: torch.Generator | None,
        stream: int | None,
        mean: float | Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        checks.check_number("p", rule.p, low=0, high=1)
        checks.check_number("until", until, low=-math.inf)
        if not 0 < until <= 1:
            raise ValueError(f"until must be above 0 and at most 1, got {until}.")
        if num_classes is not None:
            checks.check_count("num_classes", num_classes, 1)
        if ignore_index is not None:
            checks.check_ignore_index(ignore_index)
        if generator is not None:
            checks.check_generator(generator)
        if stream is not None:
            checks.check_count("stream", stream, 0)
        if rules is not None:
            batches.check_rule_types(rules)
        for name, given, instead in (
            ("num_classes", num_classes, "OneHot(num_classes)"),
            ("ignore_index", ignore_index, "OneHot(..., ignore_index)"),
            ("mean", mean, "Blend(mean=...)"),
        ):
            if rules is not None and given is not None:
                raise ValueError(f"Pass {name} or rules, not both. With rules, use {instead}.")
        self.num_classes = num_classes
        self.ignore_index = ignore_index
        self.rules = rules
        self.until = float(until)
        self.generator = generator
        self.stream = None if stream is None else int(stream)
        self._rule = rule
        self._blend = Blend(mean)
        self._home_rank = 0
        self._own = Controls(p=float(rule.p))
        self._start()

    def _start(self) -> None:
        """What every object has for itself, also a copy."""
        self._looked = False
        self._number = next(_numbers)
        self._block: Any = None
        self._block_owner = 0
        _live.add(self)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._names and name in self.__dict__:
            raise AttributeError(
                f"{name} is fixed when a transform is made, because running loader workers would "
                f"not see a change. Make a new {type(self).__name__}({name}=...)."
            )
        has_setter = isinstance(getattr(type(self), name, None), property)
        known = name.startswith("_") or name in (*self._names, "training") or has_setter
        # classes that users derive may have attributes of their own
        if not known and type(self).__module__ == __name__:
            options = ", ".join(sorted(self._names))
            raise AttributeError(
                f"{type(self).__name__} has no attribute {name!r}; its options: {options}."
            )
        super().__setattr__(name, value)
        if name == "training" and "_own" in self.__dict__:
            self._control(training=value)

    if TYPE_CHECKING:

        @overload
        def __call__(self, samples: Tensor, labels: Tensor, /) -> tuple[Tensor, Tensor]: ...
        @overload
        def __call__(self, batch: tuple[Tensor, Tensor], /) -> tuple[Tensor, Tensor]: ...
        @overload
        def __call__(self, samples: Any, labels: Any = ..., *rest: Any) -> Any: ...
        def __call__(self, samples: Any, labels: Any = ..., *rest: Any) -> Any: ...

    @property
    def enabled(self) -> bool:
        """Whether to mix. If False, samples are returned unmixed; targets keep their shape."""
        return bool(self._read_controls().enabled)

    @enabled.setter
    def enabled(self, value: bool) -> None:
        checks.check_flag("enabled", value)
        self._control(enabled=value)

    @property
    def p(self) -> float:
        """The probability that an output is mixed, drawn for each output."""
        return self._read_controls().p

    @p.setter
    def p(self, value: float) -> None:
        checks.check_number("p", value, low=0, high=1)
        self._control(p=value)

    @property
    def epoch(self) -> int:
        return int(self._read_controls().epoch)

    @property
    def mixing(self) -> bool:
        """Whether batches are mixed now: enabled, in train mode, before `until`, and p above 0."""
        return self._mixes(self._read_controls())

    def set_epoch(self, epoch: int, epochs: int | None = None) -> None:
        """Set the epoch, from 0; of `epochs`, the first `mixed_epochs(epochs)` are mixed.

        `epochs` may be left out if `until` is 1. Without this call every epoch is mixed.
        """
        checks.check_count("epoch", epoch, 0)
        if epochs is not None:
            checks.check_count("epochs", epochs, 1)
        elif self.until < 1:
            raise ValueError(
                f"set_epoch needs the number of epochs: {type(self).__name__} mixes in the first "
                f"{self.until:.0%} of them. Pass set_epoch(epoch, epochs), or until=1."
            )
        before = epochs is None or epoch < self.mixed_epochs(epochs)
        self._control(epoch=epoch, before_until=before)

    def set_progress(self, done: float) -> None:
        """For trainers that count steps: mix while less than `until` of the training is done."""
        checks.check_number("done", done, low=0)
        self._control(before_until=self.until == 1 or done < self.until)

    def mixed_epochs(self, epochs: int) -> int:
        """How many of `epochs`, from the first, are mixed: ⌊until · epochs⌋, but at least one."""
        # 0.29 · 100 is 28.999999999999996
        return max(1, math.floor(self.until * epochs + 1e-9))

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

    def _share(self) -> None:
        """Have memory that processes about to be started read, if they are loader workers."""
        if self._block_owner != os.getpid():
            self._block = RawArray("d", list(self._own))
            self._block_owner = os.getpid()

    def _mixes(self, controls: Controls) -> bool:
        """Whether anything is mixed now."""
        return bool(
            controls.enabled and controls.training and controls.before_until and controls.p > 0
        )

    def forward(self, samples: Any, labels: Any = ..., *rest: Any) -> Any:
        """Mix `(samples, labels)`, as two arguments or as one tuple, list or dict.

        Entries behind the labels are returned as they are. Other batches need `rules`.
        """
        controls = self._read_controls()
        plain = self.rules is None and type(samples) is Tensor and type(labels) is Tensor
        if plain and not rest:
            return self._mix_pair(samples, labels, controls)
        given = samples if labels is ... else (samples, labels, *rest)
        if self.rules is None:
            given = (given,) if isinstance(given, Tensor) else given
            batches.refuse_coordinates(given)
        batch = batches.with_dicts(batches.as_tensors(given))
        return batches.in_kind_of(given, self._mix_batch(batch, controls))

    def _mix_pair(
        self, samples: Tensor, labels: Tensor, controls: Controls
    ) -> tuple[Tensor, Tensor]:
        target = infer_rule(labels, self.num_classes, self.ignore_index)
        check_pair(samples, labels)
        dtype, device = plan_dtype((samples, labels)), samples.device
        if not self._mixes(controls):
            alone = identity_plan(samples.shape[0], device=device, dtype=dtype)
            return samples, target.mix(labels, alone)
        if not self._looked:
            self._look([(samples, self._blend)])
        size = self._size_of([samples.shape])
        rule, draw = self._rule_now(controls, samples.shape[0], device), self._draw(device)
        if samples.is_cuda:
            pair = launch(samples, labels, target, rule, size, self._blend.mean, draw)
            if pair is not None:
                return pair
        plan = draw_plan(rule, samples.shape[0], draw, size=size, dtype=dtype)
        return self._blend.mix(samples, plan, looked=True), target.mix(labels, plan)

    def _mix_batch(self, batch: Any, controls: Controls) -> Any:
        """Mix a batch of tensors by the rules, or by those that its entries suggest."""
        rules, rest = self.rules, []
        if rules is None:
            name = type(self).__name__
            rules = batches.infer_rules(
                batch, self._blend, self.num_classes, self.ignore_index, name
            )
            if not isinstance(batch, Mapping):
                rest = list(batch[2:])
                if rest and self._rule.anchor == "random":
                    raise ValueError(
                        'With anchor="random" an output begins with another sample than its own, '
                        "so entries behind the labels need a rule: pass rules=."
                    )
                form, batch = batch, batch[:2]
                check_pair(*batch)
                if type(batch[0]) is Tensor:
                    pair = self._mix_pair(batch[0], batch[1], controls)
                    return batches.in_form_of(form, [*pair, *rest])
        first = batches.check_first_tensor(batch)
        mixes = self._mixes(controls)
        size = None
        if mixes:
            leaves = batches.blended_leaves(batch, rules)
            if not self._looked:
                self._look(leaves)
            size = self._size_of([leaf.shape for leaf, _ in leaves])
        plan = self._plan(controls, first.shape[0], size, first.device, plan_dtype(batch))
        mixed = batches.mix_tree(batch, rules, plan, mixes=mixes, looked=True)
        return batches.in_form_of(form, [*mixed, *rest]) if rest else mixed

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
        checks.check_batch_size(batch_size)
        checks.check_weights_dtype(dtype)
        if size is not None or self.needs_images:
            size = check_size(size)
        return self._plan(self._read_controls(), batch_size, size, device, dtype)

    def _plan(
        self,
        controls: Controls,
        batch_size: int,
        size: Size | None,
        device: torch.device | str,
        dtype: torch.dtype,
    ) -> MixPlan:
        if not self._mixes(controls):
            return identity_plan(batch_size, device=device, dtype=dtype)
        draw = self._draw(device)
        rule = self._rule_now(controls, batch_size, draw.device)
        return draw_plan(rule, batch_size, draw, size=size, dtype=dtype)

    def _draw(self, device: torch.device | str) -> Draw:
        generator = self.generator
        return Draw(generator, process_stream(generator, self._home_rank, self.stream), device)

    def _rule_now(self, controls: Controls, batch_size: int, device: torch.device) -> PlanRule:
        """The rule of the transform with the controls of this call."""
        return self._rule if controls.p == self._rule.p else replace(self._rule, p=controls.p)

    def _size_of(self, shapes: Sequence[torch.Size]) -> Size | None:
        """(height, width) of the images to paste into, which must be one; None to blend all."""
        if self._rule.paste == 0:
            return None
        if self.needs_images:
            images = [shape for shape in shapes if len(shape) >= 4]
        else:
            images = [shape for shape in shapes if is_image(shape)]
        sizes = {(shape[-2], shape[-1]) for shape in images}
        if len(sizes) == 1:
            return sizes.pop()
        if not self.needs_images:
            # one box cannot cover the same part of images of different sizes
            return None
        listed = ", ".join(str(list(shape)) for shape in images or shapes) or "none"
        if images:
            raise ValueError(
                f"{type(self).__name__} pastes the same boxes into all images of a sample, which "
                f"must have one size, got {listed}. Resize them. Use ZetaMix, ZetaMixup or Mixup "
                "for other data."
            )
        raise ValueError(
            f"{type(self).__name__} pastes boxes into images [batch, channels, height, width], "
            f"got {listed}. Use ZetaMix, ZetaMixup or Mixup for other data."
        )

    def _look(self, leaves: Sequence[tuple[Tensor, Blend]]) -> None:
        """Look at the first batch: does it have the form and the range that the options expect?

        A GPU is waited for this once, but not while a CUDA graph is captured. Compiled code looks
        through an operator of its own, which does not break the graph.
        """
        traced = torch.compiler.is_compiling()
        if traced and _is_exporting():
            return
        if not traced and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return
        if not traced:
            self._looked = True
        keeps, only_pastes = self._rule.keep_variance, self._rule.paste == 1
        for leaf, blend in leaves:
            if not traced and self._rule.paste:
                _warn_of_shape(leaf.shape, self.needs_images)
            if not (keeps and is_image(leaf.shape) and leaf.is_floating_point()):
                continue
            # with a mean, outputs are clipped, also where nothing is scaled
            if only_pastes and blend.mean is None:
                continue
            if traced:
                seen = _look_once(leaf.detach(), self._number, blend.mean is not None)
                torch._assert_async(seen, "mean needs samples in [0, 1].")
            elif checks.has_memory(leaf) and _check_values(leaf, blend.mean is not None):
                return

    def extra_repr(self) -> str:
        target = "rules" if self.rules else "num_classes"
        names = [*self._shown, target, "p", "until", "enabled"]
        shown = [f"{name}={getattr(self, name)!r}" for name in names]
        if self._blend.mean is not None:
            shown.append(f"mean={self._blend.mean!r}")
        if self.stream is not None:
            shown.append(f"stream={self.stream}")
        return ", ".join(shown)

    # Inside a model (where the prefix is not empty) nothing is saved: the model's state_dict holds
    # tensors of the model, and loads with and without the transform.

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        if prefix:
            return
        destination["epoch"] = torch.tensor(self.epoch, dtype=torch.float64, device="cpu")
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
        known = ("epoch", "generator", *FORMERLY_SAVED)
        unexpected_keys += [name for name in state_dict if name not in known]
        if "epoch" in state_dict:
            self._control(epoch=float(state_dict["epoch"]))
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
        state = {**self.__dict__, "_home_rank": process_rank(self._home_rank)}
        if self.generator is not None:
            numbers = bytes(self.generator.get_state().tolist())
            state["generator"] = (str(self.generator.device), numbers)
        if get_spawning_popen() is None:
            state["_block"] = None
        else:
            # the process that is being started may be a loader worker
            self._share()
            state["_block"] = self._block
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        given = dict(state)
        if given["generator"] is not None:
            device, numbers = given["generator"]
            given["generator"] = torch.Generator(device)
            given["generator"].set_state(torch.tensor(list(numbers), dtype=torch.uint8))
        super().__setstate__(given)  # type: ignore[no-untyped-call]
        block, owner = given["_block"], os.getppid()
        self._start()
        # the parent's memory: read by a loader worker, and not written
        self._block, self._block_owner = block, owner if block is not None else 0


_numbers = itertools.count()
_live: "weakref.WeakSet[BatchMix]" = weakref.WeakSet()
_looked_at: set[int] = set()


def _share_all() -> None:
    for transform in list(_live):
        transform._share()


if hasattr(os, "register_at_fork"):
    # a forked process may be a loader worker; no memory is shared before
    os.register_at_fork(before=_share_all)


def _is_exporting() -> bool:
    """Whether torch.export traces: an exported program has no operators of ours."""
    exporting = getattr(torch.compiler, "is_exporting", None)
    return exporting is not None and bool(exporting())


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


def _check_values(leaf: Tensor, has_mean: bool) -> bool:
    """Warn of images that are not normalised; raise if a mean is given for those that are.

    Whether it warned.
    """
    if leaf.numel() == 0:
        return False
    samples = leaf.detach().float()
    low, high = samples.aminmax()
    if has_mean:
        refuse_range(*torch.stack([low, high]).tolist())
        return False
    far, count = (low >= 0) & (high > 0), len(samples)
    if count >= LEAST_CENTRED:
        # per channel: within half a standard deviation plus four standard errors of 0
        deviation, mean = torch.std_mean(samples, [0, *range(2, samples.ndim)])
        far = far | (mean.abs() > (0.5 + 4 / math.sqrt(count)) * deviation).any()
    warns = bool(far)
    if warns:
        checks.warn(
            "The samples are not normalised: their mean is far from 0, and keeping their variance "
            "would scale it as well. Normalise each channel first, or pass mean= (in rules, "
            "Blend(mean=...)), or keep_variance=False."
        )
    return warns


def _warn_of_shape(shape: torch.Size, needs_images: bool) -> None:
    """Warn about channels-last shapes, and where boxes are needed about images of one pixel."""
    if len(shape) == 4 and shape[-1] in (1, 3, 4) and min(shape[1:3]) > 4:
        checks.warn(
            f"Images of shape {list(shape)} look like [batch, height, width, channels], but boxes "
            "are pasted in [batch, channels, height, width]. Pass images.permute(0, 3, 1, 2)."
        )
    elif needs_images and len(shape) >= 4 and min(shape[-2:]) == 1:
        checks.warn(
            f"Images of shape {list(shape)} are one pixel high or wide, so most boxes are empty "
            "and leave samples unmixed. To blend them instead, use ZetaMix or Mixup."
        )


class GammaMix(BatchMix):
    """Base class of ZetaMix and ZetaMixup: γ as a number, a range or a schedule, and `sources`."""

    sources: int | None
    _gamma: Gamma | GammaSchedule

    def _set_gamma(self, gamma: Gamma | GammaSchedule, sources: int | None) -> None:
        if sources is not None:
            checks.check_count("sources", sources, 2)
        self.sources = sources
        self._gamma = gamma
        self._check_gamma(self.gamma)
        if not callable(gamma):
            self._rule = replace(self._rule, gamma=_as_range(gamma))

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
        self._control(gamma_low=low, gamma_high=high)

    def _gamma_at(self, controls: Controls) -> Gamma:
        if controls.gamma_high != NOT_SET:
            return controls.gamma_low, controls.gamma_high
        if controls.gamma_low != NOT_SET:
            return controls.gamma_low
        return self._gamma(int(controls.epoch)) if callable(self._gamma) else self._gamma

    def _check_gamma(self, gamma: Gamma) -> None:
        """Raise if γ is invalid."""
        checks.check_gamma(gamma)

    def set_epoch(self, epoch: int, epochs: int | None = None) -> None:
        checks.check_count("epoch", epoch, 0)
        self._check_gamma(self._gamma_at(self._own._replace(epoch=float(epoch))))
        super().set_epoch(epoch, epochs)

    def _rule_now(self, controls: Controls, batch_size: int, device: torch.device) -> PlanRule:
        rule = super()._rule_now(controls, batch_size, device)
        if isinstance(rule.gamma, Tensor):
            checks.check_gamma(rule.gamma, batch_size, device)
        if controls.gamma_low == NOT_SET and not callable(self._gamma):
            return rule
        return replace(rule, gamma=_as_range(self._gamma_at(controls)))

    def extra_repr(self) -> str:
        # a schedule is shown by its name, unless a number was set instead
        scheduled = callable(self._gamma) and self._own.gamma_low == NOT_SET
        gamma = getattr(self._gamma, "__name__", self._gamma) if scheduled else self.gamma
        return f"gamma={gamma}, {super().extra_repr()}"


def _as_range(gamma: Gamma) -> Gamma:
    """γ with a tuple for a range, which may be given as a list."""
    return (gamma[0], gamma[1]) if isinstance(gamma, (tuple, list)) else gamma


class ZetaMix(GammaMix):
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

    mean: float | Sequence[float] | None
    _shown = ("sources", "keep_variance", "paste")

    def __init__(
        self,
        *,
        num_classes: int | None = None,
        gamma: Gamma | GammaSchedule = (0.0, 4.0),
        sources: int | None = 2,
        keep_variance: bool = True,
        paste: float = 0.5,
        mean: float | Sequence[float] | None = None,
        ignore_index: int | None = None,
        rules: Rules | None = None,
        p: float = 1.0,
        until: float = 0.8,
        generator: torch.Generator | None = None,
        stream: int | None = None,
    ) -> None:
        checks.check_flag("keep_variance", keep_variance)
        checks.check_number("paste", paste, low=0, high=1)
        rule = PlanRule(
            gamma=0.0, sources=sources, p=p, paste=paste, keep_variance=bool(keep_variance)
        )
        common = num_classes, ignore_index, rules, until, generator, stream
        super().__init__(rule, *common, mean)
        self.keep_variance = bool(keep_variance)
        self.paste = paste
        self.mean = self._blend.mean
        self._set_gamma(gamma, sources)


class ZetaMixup(GammaMix):
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

    anchor: AnchorChoice
    _shown = ("sources", "anchor")

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
        until: float = 1.0,
        generator: torch.Generator | None = None,
        stream: int | None = None,
    ) -> None:
        checks.check_choice("anchor", anchor, ANCHORS)
        rule = PlanRule(gamma=0.0, sources=sources, anchor=anchor, p=p)
        super().__init__(rule, num_classes, ignore_index, rules, until, generator, stream)
        self.anchor = anchor
        self._warned = False
        self._set_gamma(gamma, sources)

    def _check_gamma(self, gamma: Gamma) -> None:
        """Raise if γ is invalid, and warn once if it is below the dominance threshold."""
        super()._check_gamma(gamma)
        if isinstance(gamma, Tensor):
            # reading a tensor on a GPU would make the host wait
            gamma = float(gamma.min()) if checks.has_values(gamma) else math.inf
        lowest = gamma[0] if isinstance(gamma, (tuple, list)) else gamma
        threshold = dominance_threshold(self.sources)
        if lowest < threshold and not self._warned:
            self._warned = True
            among = "any number of" if self.sources is None else str(self.sources)
            checks.warn(
                f"gamma={lowest:g} is below {threshold:.5f}, the threshold for {among} sources: "
                "the anchor may weigh less than the other samples together (Theorem 1)."
            )


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

    alpha: float
    per: LamChoice
    _shown = ("alpha", "per")

    def __init__(
        self,
        *,
        num_classes: int | None = None,
        alpha: float = 1.0,
        per: LamChoice = "sample",
        ignore_index: int | None = None,
        rules: Rules | None = None,
        p: float = 1.0,
        until: float = 1.0,
        generator: torch.Generator | None = None,
        stream: int | None = None,
    ) -> None:
        checks.check_alpha(alpha)
        checks.check_choice("per", per, LAMS)
        rule = PlanRule(alpha=alpha, partner="rotated", per=per, p=p)
        super().__init__(rule, num_classes, ignore_index, rules, until, generator, stream)
        self.alpha = alpha
        self.per = per


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

    alpha: float
    per: LamChoice
    needs_images = True
    _shown = ("alpha", "per")

    def __init__(
        self,
        *,
        num_classes: int | None = None,
        alpha: float = 1.0,
        per: LamChoice = "batch",
        ignore_index: int | None = None,
        rules: Rules | None = None,
        p: float = 1.0,
        until: float = 1.0,
        generator: torch.Generator | None = None,
        stream: int | None = None,
    ) -> None:
        checks.check_alpha(alpha)
        checks.check_choice("per", per, LAMS)
        rule = PlanRule(partner="rotated", per=per, p=p, paste=1.0, box_alpha=alpha)
        super().__init__(rule, num_classes, ignore_index, rules, until, generator, stream)
        self.alpha = alpha
        self.per = per


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

    switch_prob: float
    mixup_alpha: float
    cutmix_alpha: float
    per: LamChoice
    needs_images = True
    _shown = ("switch_prob", "mixup_alpha", "cutmix_alpha", "per")

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
        until: float = 1.0,
        generator: torch.Generator | None = None,
        stream: int | None = None,
    ) -> None:
        checks.check_number("switch_prob", switch_prob, low=0, high=1)
        checks.check_alpha(mixup_alpha)
        checks.check_alpha(cutmix_alpha)
        checks.check_choice("per", per, LAMS)
        rule = PlanRule(
            alpha=mixup_alpha,
            partner="rotated",
            per=per,
            p=p,
            paste=switch_prob,
            box_alpha=cutmix_alpha,
        )
        super().__init__(rule, num_classes, ignore_index, rules, until, generator, stream)
        self.switch_prob = switch_prob
        self.mixup_alpha = mixup_alpha
        self.cutmix_alpha = cutmix_alpha
        self.per = per


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
        self.rule = OneHot(num_classes)
        self.amount = amount

    def forward(self, samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        check_pair(samples, labels)
        if labels.is_floating_point():
            return samples, (1 - self.amount) * labels + self.amount / 2
        alone = identity_plan(len(labels), device=labels.device)
        hot = self.rule.mix(labels, alone)
        return samples, (1 - self.amount) * hot + self.amount / self.rule.num_classes
