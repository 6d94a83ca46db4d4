"""BatchMix and GammaMix: the base classes of the transforms."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self, overload

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate, get_worker_info

from zetamix import _checks, batch_tree
from zetamix import plan as plans
from zetamix._checks import Gamma, GammaSchedule
from zetamix.array_kinds import as_tensors, in_kind_of, refuse_coordinates
from zetamix.batch_tree import Rules
from zetamix.boxes import Size, check_size
from zetamix.kernels.dispatch import IMPLEMENTATIONS, Implementation
from zetamix.kernels.plan_spec import Finish, PlanSpec
from zetamix.mix import check_pair, mix_pair, plan_dtype
from zetamix.plan import ANCHORS, LAMS, AnchorChoice, MixPlan
from zetamix.prepared_calls import PreparedCalls
from zetamix.rules import Average, Blend, infer_rule
from zetamix.sampling import Draw, process_rank, process_stream

NOT_SET = -1.0
# fraction of images that ZetaMix pastes by default, from the search in results/zetamix-search
IMAGES_PASTED = 0.5


# options are checked whenever they are set, so that a call need not check them
OPTIONAL = {"num_classes", "ignore_index", "rules", "generator", "sources", "paste"}
OPTIONAL |= {"keep_variance"}
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
    """Settings that can change while loader workers run, as the numbers in shared memory."""

    enabled: float = 1.0
    p: float = 1.0
    epoch: float = 0.0
    training: float = 1.0
    gamma_low: float = NOT_SET
    """γ set after construction: one number, or a range together with `gamma_high`."""
    gamma_high: float = NOT_SET


# attributes stored in the controls, which are part of the key of a prepared call: setting them, as
# callbacks may do at every step, does not clear the prepared calls
CONTROLLED = {"enabled", "p", "gamma", "training", "_controls"}
# train or eval mode belongs to the module tree, not to a checkpoint
SAVED = tuple(name for name in Controls._fields if name != "training")


class BatchMix(nn.Module):
    """Base class of the transforms: reads a batch, draws a plan and applies it.

    The controls (`enabled`, `p`, γ, the epoch, train or eval mode) are in shared memory, so that
    changing them in the training process reaches loader workers that are already running.
    `state_dict` holds them and the state of the generator, as tensors. A transform inside a model
    adds nothing to the model's `state_dict`: save the transform's own `state_dict` as well.
    """

    keep_variance: bool | None = False
    # the probability of a pasted output; above 0 plans need the size of the images
    paste: float | None = 0.0
    _cuts = False  # whether boxes are CutMix's, which `_paste_boxes` draws
    _options: tuple[str, ...] = ()  # the names that repr shows
    _without_images = "Use ZetaMix, ZetaMixup or Mixup for other data."

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
            raise ValueError(
                "Pass num_classes or rules, not both. With rules, use OneHot(num_classes)."
            )
        if rules is not None and ignore_index is not None:
            raise ValueError(
                "Pass ignore_index or rules, not both. With rules, use OneHot(..., ignore_index)."
            )
        self._blend = Blend()
        self._home_rank = 0
        self._calls = PreparedCalls()
        self._controls = Controls(p=float(p))
        self._shared = _share(self._controls)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in CHECKS and not (value is None and name in OPTIONAL):
            CHECKS[name](value)
        super().__setattr__(name, value)
        # calls prepared for earlier batches use the old options
        if name not in CONTROLLED and "_calls" in self.__dict__:
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
        """Whether to mix. If False, samples are returned unmixed; targets keep their shape."""
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

    @property
    def keeps_variance(self) -> bool:
        """Whether blended samples are scaled to the variance of unmixed ones.

        This is `keep_variance` if it is set. If it is None: True for classification and False for
        regression, where scaled samples with unscaled targets would give too small a slope.
        """
        if self.keep_variance is not None:
            return self.keep_variance
        if self.rules is None:
            return self.num_classes is not None
        return not any(isinstance(rule, Average) for rule in batch_tree.rules_in(self.rules))

    def _read_controls(self) -> Controls:
        # a traced function cannot read the shared tensor; this process's own copy is equal to it
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
        # in a loader worker, `self.training` keeps the value from when the worker was started
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
        if self.rules is None:
            refuse_coordinates(inputs)
        batch = self._read_batch(as_tensors(inputs))
        return in_kind_of(given, self._mix(batch, self._read_controls()))

    def _mix(self, batch: Any, controls: Controls) -> Any:
        """Mix a batch of tensors: a pair, or the structure that the rules describe."""
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
            checked = self.paste != 0 or self.keep_variance is not False
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

        size: (height, width) of the images; required if the transform pastes.
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
        """The plan to mix `value` by these rules; `first` is its first tensor."""
        mixes = self._mixes(self._read_controls())
        size = self._check_blended(value, rules) if mixes else None
        return self.make_plan(first.shape[0], size=size, device=first.device, dtype=dtype)

    def _check_blended(self, value: Any, rules: Rules) -> Size | None:
        """The size of the images to paste into, or None; raises if samples cannot be pasted."""
        if self.paste == 0:
            return None
        shapes = [leaf.shape for leaf, _ in batch_tree.blended_leaves(value, rules)]
        images = [
            shape
            for shape in shapes
            if len(shape) >= 4 and (self.paste is not None or _is_image(shape))
        ]
        sizes = {(shape[-2], shape[-1]) for shape in images}
        if len(sizes) == 1:
            _warn_of_shape(images[0])
            return sizes.pop()
        if self.paste is None:
            # one box cannot cover the same part of images of different sizes
            return None
        if images:
            raise ValueError(
                f"{type(self).__name__} pastes the same boxes into all images of a sample, which "
                f"must have one size, got {', '.join(str(list(shape)) for shape in images)}. "
                f"Resize them. {self._without_images}"
            )
        raise ValueError(
            f"{type(self).__name__} pastes boxes into images [batch, channels, height, width], "
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
        keep = self.keeps_variance if self.keep_variance is None else self.keep_variance
        return Finish(controls.p, paste, keep, self._blend.mean)

    def _paste_boxes(self, plan: MixPlan, size: Size, draw: Draw) -> MixPlan:
        """The plan with the boxes of CutMix, for transforms that cut."""
        raise NotImplementedError

    def _read_batch(self, inputs: tuple[Any, ...]) -> Any:
        """The batch as one value; raises if there are no rules and it is not a pair."""
        alone = len(inputs) == 1 and (self.rules is not None or not isinstance(inputs[0], Tensor))
        batch = batch_tree.with_dicts(inputs[0] if alone else inputs)
        if self.rules is not None:
            return batch
        if isinstance(batch, list) and batch and all(isinstance(e, (tuple, dict)) for e in batch):
            raise TypeError(
                f"{type(self).__name__} expects a batch, got a list of single samples. For a "
                "DataLoader, pass collate_fn=transform.collate, which collates them first."
            )
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            is_list = isinstance(batch, (tuple, list))
            got = f"{len(batch)} entries" if is_list else type(batch).__name__
            raise TypeError(
                f"{type(self).__name__} expects (samples, labels), got {got}. "
                "For other batches, pass rules= with one rule per entry."
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
                "Only one of the checkpoint and the transform has a generator: training will not "
                "resume with the same random plans."
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
    """Base class of ZetaMix and ZetaMixup: γ as a number, a range or a schedule, and `sources`."""

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
        """Raise if γ is invalid."""
        _checks.check_gamma(gamma)

    def set_epoch(self, epoch: int) -> None:
        _checks.check_count("epoch", epoch, 0)
        self._check_gamma(self._gamma_at(self._read_controls()._replace(epoch=float(epoch))))
        super().set_epoch(epoch)

    def _spec(self, batch_size: int, draw: Draw, controls: Controls) -> PlanSpec:
        gamma = self._gamma_at(controls)
        if isinstance(gamma, Tensor):
            _checks.check_gamma(gamma, batch_size, draw.device)
        # a last, smaller batch uses all of its samples
        few = self.sources is not None and self.sources < batch_size
        sources = self.sources if few else None
        return plans.zeta_spec(batch_size, gamma, sources, None, self.anchor, draw, checked=True)

    def extra_repr(self) -> str:
        # a schedule is shown by its name, unless a number was set instead
        scheduled = callable(self._gamma) and self._controls.gamma_low == NOT_SET
        gamma = getattr(self._gamma, "__name__", self._gamma) if scheduled else self.gamma
        return f"gamma={gamma}, {super().extra_repr()}"


def _warn_of_shape(shape: torch.Size) -> None:
    """Warn about channels-last shapes and about images of one pixel in height or width."""
    if len(shape) == 4 and shape[-1] in (1, 3, 4) and min(shape[1:3]) > 4:
        _checks.warn(
            f"Images of shape {list(shape)} look like [batch, height, width, channels], but boxes "
            "are pasted in [batch, channels, height, width]. Pass images.permute(0, 3, 1, 2)."
        )
    elif min(shape[-2:]) == 1:
        _checks.warn(
            f"Images of shape {list(shape)} are one pixel high or wide, so most boxes are empty "
            "and leave samples unmixed. To blend them instead, use ZetaMix(paste=0) or Mixup."
        )


def _is_image(shape: torch.Size) -> bool:
    """Whether samples are images, not volumes or signals [batch, channels, 1, length]."""
    return len(shape) == 4 and min(shape[2:]) > 1
