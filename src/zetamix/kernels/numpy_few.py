"""Few sources on a CPU, in NumPy: plans, and what torch needs to apply them.

An operation on a batch takes 1 to 2 µs in NumPy and 3 to 7 in torch. NumPy is optional, as it is
for torch: without it, plain torch draws the plans, from other random numbers.
"""

import contextlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from zetamix.boxes import Size, visible_pixels
from zetamix.kernels.plan_spec import Finish, Law, PlanShape, PlanSpec

np: Any = None
with contextlib.suppress(ImportError):
    import numpy as np

Array: TypeAlias = Any
# of weights
DTYPES = {torch.float32: "f4", torch.float64: "f8"}
# weights with which the sum of a sample and itself is exactly that sample
PARTS = {1: (1.0,), 2: (0.5, 0.5), 3: (0.5, 0.25, 0.25), 4: (0.25, 0.25, 0.25, 0.25)}


class Pasted(NamedTuple):
    """The pasted outputs: the first source fills the image, the others cover their boxes."""

    outputs: Array
    """[pasted], int64: which outputs."""
    boxes: Array
    """[pasted, sources − 1, 4], int64."""
    size: Size

    def all_boxes(self, outputs: int) -> Array:
        """The boxes of a `MixPlan`, [outputs, sources, 4]."""
        boxes = np.zeros((outputs, self.boxes.shape[1] + 1, 4), np.int64)
        boxes[self.outputs, 0, 2:] = self.size
        boxes[self.outputs, 1:] = self.boxes
        return boxes


class FewPlan(NamedTuple):
    """A plan as arrays."""

    indices: Array
    """[outputs, sources], int64."""
    weights: Array
    """[outputs, sources], float32 or float64."""
    pasted: Pasted | None

    @classmethod
    def of(
        cls, indices: Tensor, weights: Tensor, boxes: Tensor | None, size: Size | None
    ) -> "FewPlan | None":
        """The plan of these tensors; None if the box of a first source does not fill the image."""
        pasted = None
        if boxes is not None and size is not None:
            places = boxes.numpy()
            fills = (places[:, 0] == (0, 0, *size)).all(1)
            if places[~fills].any():
                return None
            outputs = fills.nonzero()[0]
            pasted = Pasted(outputs, places[outputs, 1:], size)
        return cls(indices.numpy(), weights.detach().numpy(), pasted)

    def tensors(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Indices, weights and boxes of a `MixPlan`."""
        boxes = None
        if self.pasted is not None:
            boxes = torch.from_numpy(self.pasted.all_boxes(len(self.indices)))
        return torch.from_numpy(self.indices), torch.from_numpy(self.weights), boxes


def count_numbers(shape: PlanShape, finish: Finish) -> int:
    """How many random numbers `make_plan` takes for each output."""
    count = shape.gamma_range + shape.sources - shape.own_anchor
    if finish.paste:
        count += 2 * (shape.sources - 1) + 1
    return count + (finish.p != 1)


def make_plan(
    spec: PlanSpec,
    finish: Finish,
    size: Size | None,
    uniform: Tensor,
    lam: Tensor | None,
    dtype: torch.dtype,
) -> FewPlan:
    """A finished plan, with boxes if some outputs are pasted.

    uniform: [count_numbers(...), outputs], in [0, 1): for γ, the rows, the corners of the boxes,
        which outputs are pasted, which are mixed. lam: [outputs] or [1], of mixup.
    """
    shape, parameter = spec
    sources, numbers = shape.sources, uniform.numpy()
    if shape.law is Law.MIXUP:
        by_source = _pair(lam, sources)
    elif isinstance(parameter, tuple):
        low, high = parameter
        by_source = _weigh(low + (high - low) * numbers[0], sources)
        numbers = numbers[1:]
    else:
        by_source = _weigh_alike(float(parameter), sources)
    weights = _outputs_first(by_source, np.empty((shape.outputs, sources), DTYPES[dtype]))
    drawn = sources - shape.own_anchor
    indices, numbers = _choose(numbers[:drawn], shape), numbers[drawn:]
    pasted = None
    if finish.paste:
        corners, toss = numbers[: 2 * sources - 2], numbers[2 * sources - 2]
        pasted = _paste(weights, (toss < finish.paste).nonzero()[0], corners, size)
    if finish.p != 1:
        mixed = numbers[-1] < finish.p
        alone = ~mixed
        indices[alone] = _own_rows(shape.batch_size, shape.outputs)[alone, None]
        weights[alone] = 0
        weights[alone, 0] = 1
        if pasted is not None:
            kept = mixed[pasted.outputs]
            pasted = Pasted(pasted.outputs[kept], pasted.boxes[kept], pasted.size)
    return FewPlan(indices, weights, pasted)


def _outputs_first(by_source: Array, result: Array) -> Array:
    """Write what is [sources, outputs] or [sources, 1] into a result [outputs, sources]."""
    # column by column: NumPy is slow at transposing many short rows (8,192: 33 µs against 7)
    for rank, column in enumerate(by_source):
        result[:, rank] = column
    return result


def _weigh(gamma: Array, sources: int) -> Array:
    """`gamma.weigh`, but [sources, outputs], for γ [outputs]."""
    if sources == 2:
        # Theorem 2, in half as many steps
        second = np.exp2(-gamma)
        second /= 1 + second
        return 1 - second, second
    powers = np.arange(1.0, sources + 1)[:, None] ** -gamma
    return powers / powers.sum(0)


@lru_cache(maxsize=64)
def _weigh_alike(gamma: float, sources: int) -> Array:
    """[sources, 1]; cached, do not modify."""
    return _weigh(np.array([gamma]), sources)


def _pair(lam: Tensor | None, sources: int) -> Array:
    """λ and 1 − λ, [2, outputs] or [2, 1]; the only source of a batch of one has weight 1."""
    if lam is None or sources == 1:
        return (1.0,)
    first = lam.numpy()
    return first, 1 - first


def _choose(uniform: Array, shape: PlanShape) -> Array:
    """[outputs, sources], distinct batch rows: the Lehmer code of `sampling._order_by_digits`."""
    batch, rows = shape.batch_size, np.empty((shape.sources, shape.outputs), np.int64)
    if shape.own_anchor:
        rows[0] = _own_rows(batch, shape.outputs)
    for rank, numbers in enumerate(uniform, int(shape.own_anchor)):
        rows[rank] = numbers * (batch - rank)
    for rank in range(shape.sources - 2, -1, -1):
        later = rows[rank + 1 :]
        later += later >= rows[rank]
    return _outputs_first(rows, np.empty((shape.outputs, shape.sources), np.int64))


@lru_cache(maxsize=64)
def _own_rows(batch: int, outputs: int) -> Array:
    """[outputs]: the first batch row of each output; cached, do not modify."""
    return np.arange(outputs) % batch


def _paste(weights: Array, outputs: Array, corners: Array, size: Any) -> Pasted:
    """Boxes as in `boxes.place_inside`; weights of these outputs become fractions of pixels.

    corners: [2 · (sources − 1), outputs], read as [outputs, sources − 1, 2].
    """
    others = weights.shape[1] - 1
    # both axes first: NumPy is slow if the last dimension is short
    lengths = np.array(size, weights.dtype)[:, None, None]
    sides = np.rint(np.sqrt(weights[outputs, 1:]) * lengths)
    uniform = corners.reshape(len(weights), others, 2)[outputs].transpose(2, 0, 1)
    first = np.floor(uniform * (lengths - sides + 1))
    edges = np.empty((len(outputs), others, 4), np.int64).transpose(2, 0, 1)
    edges[:2] = first
    edges[2:] = first + sides
    pasted = Pasted(outputs, edges.transpose(1, 2, 0), size)
    area = size[0] * size[1]
    if others == 1:
        second = (sides[0] * sides[1])[:, 0]
        weights[outputs, 0] = (area - second) / area
        weights[outputs, 1] = second / area
    else:
        boxes = torch.from_numpy(pasted.all_boxes(len(weights)))
        weights[outputs] = visible_pixels(boxes, size).numpy()[outputs] / area
    return pasted


def blended_parts(plan: FewPlan, keep_variance: bool, pastes: bool) -> tuple[Tensor, Tensor]:
    """The indices and weights that samples are blended by.

    The weights of `MixPlan.sample_weights`; but if boxes will be pasted over them (`pastes`),
    pasted outputs begin as their first source.
    """
    indices, weights, pasted = plan
    if keep_variance:
        norm = np.sqrt(np.einsum("ij,ij->i", weights, weights))
        if pasted is not None:
            norm[pasted.outputs] = 1
        weights = weights / norm[:, None]
    if pastes and pasted is not None:
        indices = indices.copy()
        indices[pasted.outputs, 1:] = indices[pasted.outputs, :1]
        weights = weights if keep_variance else weights.copy()
        weights[pasted.outputs] = PARTS[indices.shape[1]]
    return torch.from_numpy(indices), torch.from_numpy(weights)


def boxes_to_copy(plan: FewPlan) -> Iterator[tuple[int, int, list[int]]]:
    """(output, batch row, box) of every box to paste, later sources after earlier ones."""
    if plan.pasted is None:
        return iter(())
    outputs, boxes, _ = plan.pasted
    rows = plan.indices[outputs, 1:]
    if rows.shape[1] != 1:
        outputs = np.repeat(outputs, rows.shape[1])
    return zip(outputs.tolist(), rows.ravel().tolist(), boxes.reshape(-1, 4).tolist(), strict=True)


def largest_label(labels: Tensor) -> int:
    """The largest of labels [n], int64, read as unsigned: negative labels are the largest."""
    return int(np.maximum.reduce(labels.numpy().view("u8")))


def mix_labels(labels: Tensor, plan: FewPlan, num_classes: int) -> Tensor:
    """[outputs, num_classes], float32: each source's weight added to its class.

    labels: [batch], int64, in [0, num_classes).
    """
    classes = labels.numpy()[plan.indices]
    outputs = len(classes)
    # float32 adds two of its numbers as exactly as float64
    exact = plan.weights.shape[1] <= 2 and plan.weights.dtype == np.float32
    targets = np.zeros(outputs * num_classes, "f4" if exact else "f8")
    first = _own_rows(outputs, outputs) * num_classes
    for source in range(classes.shape[1]):
        # one source at a time, so that no index occurs twice: `+=` would count it once
        targets[first + classes[:, source]] += plan.weights[:, source]
    return torch.from_numpy(targets.reshape(outputs, num_classes).astype("f4", copy=False))
