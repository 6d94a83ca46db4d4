"""Every error message, word for word: what was expected, what came, what to do."""
# ruff: noqa: E501 (a message is compared in one piece, so it is written in one piece)

import ast
import math
import tempfile
import traceback
from pathlib import Path

import pytest
import torch

import zetamix
from zetamix import (
    MixPlan,
    Mixup,
    SoftCrossEntropy,
    ZetaMixup,
    apply_plan,
    describe_gamma,
    local_plan,
    mixup,
    mixup_plan,
    soft_cross_entropy,
    zeta_mixup,
    zeta_plan,
)
from zetamix.gamma import dominance_threshold, gamma_from_lam, lam_from_gamma
from zetamix.losses import dominant_accuracy, expected_loss, soft_binary_cross_entropy
from zetamix.rules import Average, Blend, FromAnchor, OneHot
from zetamix.transforms import CutMix

SOURCE = Path(zetamix.__file__).parent
CORE = (
    "_checks", "batch_tree", "gamma", "kernels/dispatch", "losses", "methods", "mix", "plan",
    "rules", "sampling", "transforms",
)  # fmt: skip
X = torch.zeros(4, 3)
Y = torch.tensor([0, 1, 2, 3])
OTHER_FILE = Path(tempfile.mkdtemp()) / "other.pt"
torch.save({"weights": X}, OTHER_FILE)
ON_META = torch.zeros(4, device="meta")


def plan_of(indices=((0, 1), (1, 0)), weights=((0.5, 0.5), (0.5, 0.5)), batch_size=2):
    return MixPlan(torch.tensor(indices), torch.tensor(weights), batch_size)


def per_batch(predictions, targets):
    return (predictions - targets).mean()


# fmt: off
CASES = {
    # counts
    "batch not an int": (lambda: zeta_plan(4.0), TypeError, "batch_size must be an int, got float."),
    "batch a bool": (lambda: zeta_plan(True), TypeError, "batch_size must be an int, got bool."),
    "batch negative": (lambda: zeta_plan(-1), ValueError, "batch_size must be at least 0, got -1."),
    "batch empty": (lambda: zeta_plan(0), ValueError, "The batch is empty: mixing needs at least one sample."),
    "mixup batch empty": (lambda: mixup_plan(0), ValueError, "The batch is empty: mixing needs at least one sample."),
    "local batch empty": (lambda: local_plan(X[:0]), ValueError, "The batch is empty: mixing needs at least one sample."),
    "outputs zero": (lambda: zeta_plan(4, outputs=0), ValueError, "outputs must be at least 1, got 0."),
    "sources one": (lambda: zeta_plan(4, sources=1), ValueError, "sources must be at least 2, got 1."),
    "sources a float": (lambda: zeta_plan(4, sources=2.0), TypeError, "sources must be an int, got float."),
    "sources more than batch": (
        lambda: zeta_plan(4, sources=5), ValueError,
        "sources=5 is more than the batch holds (4). Ask for fewer, or leave sources=None to use the whole batch."),
    "sources more than a batch of one": (
        lambda: zeta_mixup(X[:1], Y[:1], 4, sources=2), ValueError,
        "sources=2 is more than the batch holds (1). Ask for fewer, or leave sources=None to use the whole batch."),
    "local sources": (
        lambda: local_plan(X, sources=5), ValueError,
        "sources=5 is more than the batch holds (4). Ask for fewer, or leave sources=None to use the whole batch."),
    "transform sources": (lambda: ZetaMixup(sources=1), ValueError, "sources must be at least 2, got 1."),
    "transform classes": (lambda: ZetaMixup(num_classes=0), ValueError, "num_classes must be at least 1, got 0."),
    "rule classes": (lambda: OneHot(0), ValueError, "num_classes must be at least 1, got 0."),
    "epoch": (lambda: ZetaMixup().set_epoch(-1), ValueError, "epoch must be at least 0, got -1."),
    "describe sources": (lambda: describe_gamma(2.8, 1), ValueError, "sources must be at least 2, got 1."),
    "threshold sources": (lambda: dominance_threshold(1), ValueError, "sources must be at least 2, got 1."),

    # numbers
    "gamma NaN": (lambda: zeta_plan(4, math.nan), ValueError, "gamma must be finite and at least 0, got nan."),
    "gamma infinite": (lambda: zeta_plan(4, math.inf), ValueError, "gamma must be finite and at least 0, got inf."),
    "gamma negative": (lambda: zeta_plan(4, -0.5), ValueError, "gamma must be finite and at least 0, got -0.5."),
    "gamma a string": (lambda: zeta_plan(4, "2.8"), TypeError, "gamma must be a number, got str."),
    "gamma a bool": (lambda: zeta_plan(4, True), TypeError, "gamma must be a number, got bool."),
    "gamma None": (lambda: ZetaMixup(gamma=None), TypeError, "gamma must be a number, got NoneType."),
    "gamma of describe": (lambda: describe_gamma(-1.0, 4), ValueError, "gamma must be finite and at least 0, got -1.0."),
    "gamma of a local plan": (lambda: local_plan(X, math.nan), ValueError, "gamma must be finite and at least 0, got nan."),
    "gamma of a transform": (lambda: ZetaMixup(gamma=-1.0), ValueError, "gamma must be finite and at least 0, got -1.0."),
    "gamma of a function": (lambda: zeta_mixup(X, Y, 4, gamma=math.nan), ValueError, "gamma must be finite and at least 0, got nan."),
    "gamma to lam": (lambda: lam_from_gamma(math.nan), ValueError, "gamma must be finite and at least -1000, got nan."),
    "gamma range of three": (
        lambda: zeta_plan(4, (1.0, 2.0, 3.0)), ValueError,
        "gamma as a range must be (low, high), got 3 values. For one gamma per output pass a tensor."),
    "gamma range reversed": (
        lambda: zeta_plan(4, (3.0, 2.0)), ValueError,
        "gamma as a range must be (low, high) with low <= high, got (3.0, 2.0)."),
    "gamma range negative": (lambda: zeta_plan(4, (-1.0, 2.0)), ValueError, "gamma must be finite and at least 0, got -1.0."),
    "gamma range infinite": (lambda: zeta_plan(4, (1.0, math.inf)), ValueError, "gamma must be finite and at least 0, got inf."),
    "gamma int tensor": (lambda: zeta_plan(4, torch.tensor(2)), TypeError, "gamma must be a floating point tensor, got torch.int64."),
    "gamma tensor length": (
        lambda: zeta_plan(4, torch.ones(3)), ValueError, "gamma must have shape [] or [4] (one per output), got [3]."),
    "gamma tensor of one": (
        lambda: zeta_plan(4, torch.ones(1)), ValueError, "gamma must have shape [] or [4] (one per output), got [1]."),
    "gamma tensor rank": (
        lambda: ZetaMixup(gamma=torch.ones(4, 1)), ValueError, "gamma must have shape [] or one per output, got [4, 1]."),
    "gamma tensor NaN": (
        lambda: zeta_plan(2, torch.tensor([2.0, math.nan])), ValueError, "gamma must be finite and at least 0 in every output."),
    "gamma tensor negative": (
        lambda: zeta_plan(2, torch.tensor([2.0, -1.0])), ValueError, "gamma must be finite and at least 0 in every output."),
    "gamma device": (
        lambda: zeta_plan(4, ON_META), ValueError, "gamma is on meta, but the plan is drawn on cpu."),
    "gamma set to a tensor": (
        lambda: setattr(ZetaMixup(), "gamma", torch.tensor(2.0)), TypeError,
        "gamma can be set to a number or a range (low, high), got Tensor, which running loader workers would not see. Pass it to the constructor."),
    "gamma set to a schedule": (
        lambda: setattr(ZetaMixup(), "gamma", per_batch), TypeError,
        "gamma can be set to a number or a range (low, high), got function, which running loader workers would not see. Pass it to the constructor."),
    "gamma set wrong": (lambda: setattr(ZetaMixup(), "gamma", math.nan), ValueError, "gamma must be finite and at least 0, got nan."),
    "alpha zero": (lambda: mixup_plan(4, 0), ValueError, "alpha must be positive, got 0. For no mixing leave mixup out."),
    "alpha negative": (lambda: mixup_plan(4, -1.0), ValueError, "alpha must be positive, got -1.0. For no mixing leave mixup out."),
    "alpha of a transform": (lambda: Mixup(alpha=math.nan), ValueError, "alpha must be finite and at least 0, got nan."),
    "p too large": (lambda: ZetaMixup(p=1.5), ValueError, "p must be finite and between 0 and 1, got 1.5."),
    "p set wrong": (lambda: setattr(Mixup(), "p", -0.1), ValueError, "p must be finite and between 0 and 1, got -0.1."),
    "p a string": (lambda: Mixup(p="half"), TypeError, "p must be a number, got str."),
    "lam one": (lambda: gamma_from_lam(1.0), ValueError, "lam must lie strictly between 0 and 1, got 1.0."),
    "lam outside": (lambda: gamma_from_lam(1.5), ValueError, "lam must be finite and between 0 and 1, got 1.5."),
    "lam tensor": (lambda: gamma_from_lam(torch.tensor([0.5, 0.0])), ValueError, "lam must lie strictly between 0 and 1."),
    "smoothing": (
        lambda: soft_cross_entropy(X, X, label_smoothing=2), ValueError,
        "label_smoothing must be finite and between 0 and 1, got 2."),

    # choices
    "anchor": (lambda: zeta_plan(4, anchor="own"), ValueError, "anchor must be one of 'self', 'random', got 'own'."),
    "anchor of a transform": (lambda: ZetaMixup(anchor=""), ValueError, "anchor must be one of 'self', 'random', got ''."),
    "per": (lambda: mixup_plan(4, per="pair"), ValueError, "per must be one of 'sample', 'batch', got 'pair'."),
    "reduction": (
        lambda: SoftCrossEntropy(reduction="avg"), ValueError, "reduction must be one of 'mean', 'sum', 'none', got 'avg'."),
    "binary reduction": (
        lambda: soft_binary_cross_entropy(X, X, reduction="avg"), ValueError,
        "reduction must be one of 'mean', 'sum', 'none', got 'avg'."),

    # generators
    "generator a seed": (lambda: zeta_plan(4, generator=0), TypeError, "generator must be a torch.Generator, got int."),
    "generator a seed in a transform": (
        lambda: ZetaMixup(num_classes=4, generator=0)(X, Y), TypeError, "generator must be a torch.Generator, got int."),
    "generator device": (
        lambda: zeta_plan(4, generator=torch.Generator(), device="meta"), ValueError,
        "The generator lives on cpu, but the plan is drawn on meta. Make it with torch.Generator(device='meta')."),

    # samples and labels
    "samples a list": (lambda: zeta_mixup([1, 2], Y, 4), TypeError, "samples must be a tensor, got int."),
    "samples nothing": (lambda: zeta_mixup({}, Y, 4), TypeError, "samples must hold at least one tensor, got none."),
    "samples a scalar": (
        lambda: zeta_mixup(torch.tensor(1.0), Y, 4), ValueError, "samples must have a batch dimension first, got a scalar tensor."),
    "samples int64": (
        lambda: zeta_mixup(Y, Y, 4), TypeError,
        "samples must be floating point of 16 bits or more, uint8, int8 or int16, got torch.int64. "
        "Convert them with .float(); token ids cannot be mixed, but their embeddings can."),
    "samples bool": (
        lambda: apply_plan(X.bool(), zeta_plan(4)), TypeError,
        "samples must be floating point of 16 bits or more, uint8, int8 or int16, got torch.bool. "
        "Convert them with .float(); token ids cannot be mixed, but their embeddings can."),
    "samples empty": (
        lambda: zeta_mixup(X[:0], Y[:0], 4), ValueError, "The batch is empty: mixing needs at least one sample."),
    "samples empty in a transform": (
        lambda: ZetaMixup(num_classes=4)(X[:0], Y[:0]), ValueError, "The batch is empty: mixing needs at least one sample."),
    "labels a list": (lambda: mixup(X, [0, 1, 2, 3], 4), TypeError, "labels must be a tensor, got list."),
    "labels a list in a transform": (
        lambda: Mixup(num_classes=4)(X, [0, 1, 2, 3]), TypeError,
        "labels must be a tensor with one entry for each sample, got list. For a dict or tuple of targets pass rules= to ZetaMixup, one per entry."),
    "labels an int": (
        lambda: ZetaMixup(num_classes=4)(X, 3), TypeError,
        "labels must be a tensor with one entry for each sample, got int. Mixing takes batches: do it behind the loader, not on single samples."),
    "NumPy arrays in a transform": (
        lambda: ZetaMixup(num_classes=4)(X.numpy(), Y.numpy()), TypeError,
        "labels must be a tensor with one entry for each sample, got ndarray. Turn NumPy arrays into tensors with torch.from_numpy, samples and labels."),
    "NumPy samples": (
        lambda: ZetaMixup(num_classes=4)(X.numpy(), Y), TypeError, "samples must be a tensor, got ndarray. Turn a NumPy array into one with torch.from_numpy."),
    "labels a scalar": (
        lambda: ZetaMixup(num_classes=4)(X, Y[0]), TypeError,
        "labels must be a tensor with one entry for each sample, got a scalar tensor. Mixing takes batches: do it behind the loader, not on single samples."),
    "a list of single samples": (
        lambda: zeta_mixup(list(X), Y, 4), ValueError,
        "samples and labels must have the same length, got 3 samples and 4 labels. A list is taken as several inputs; torch.stack a list of single samples."),
    "a file without a plan": (
        lambda: MixPlan.load(OTHER_FILE), ValueError, f"{OTHER_FILE} does not hold a plan. Write one with MixPlan.save."),
    "no plan": (lambda: apply_plan(zeta_plan(4), X), TypeError, "plan must be a MixPlan, got Tensor."),
    "no plan for a loss": (
        lambda: expected_loss(per_batch, X, X, None), TypeError, "plan must be a MixPlan, got NoneType."),
    "stream not an int": (lambda: zeta_plan(4, stream="a"), TypeError, "stream must be an int, got str."),
    "ignore_index not an int": (lambda: OneHot(4, "a"), TypeError, "ignore_index must be an int, got str."),
    "ignore_index beside rules": (
        lambda: ZetaMixup(ignore_index=1, rules=(Blend(), OneHot(4))), ValueError,
        "Pass ignore_index or rules, not both: OneHot() holds its own."),
    "a rule's class": (
        lambda: ZetaMixup(rules=(Blend, OneHot(4))), TypeError,
        "A rule must be Blend(), OneHot(...), Average() or FromAnchor(), or a dict or tuple of them, got the class Blend."),
    "enabled not a bool": (
        lambda: setattr(Mixup(), "enabled", "no"), TypeError, "enabled must be True or False, got str."),
    "an Anchor list too short": (
        lambda: FromAnchor().mix(["a"], zeta_plan(4)), ValueError,
        "The plan was made for a batch of 4, but a FromAnchor entry has 1 rows."),
    "labels too few": (
        lambda: zeta_mixup(X, Y[:3], 4), ValueError,
        "samples and labels must have the same length, got 4 samples and 3 labels."),
    "labels too few in a transform": (
        lambda: ZetaMixup(num_classes=4)(X, Y[:3]), ValueError,
        "samples and labels must have the same length, got 4 samples and 3 labels."),
    "labels on another device": (
        lambda: zeta_mixup(X, ON_META, 4), ValueError,
        "samples and labels must be on one device, got cpu and meta."),
    "labels without classes": (
        lambda: zeta_mixup(X, Y), ValueError,
        "labels are integers (torch.int64), so num_classes is needed to make soft targets. "
        "For regression on integers pass labels.float()."),
    "labels too large": (
        lambda: zeta_mixup(X, Y, 3), ValueError, "labels must lie in [0, 3), got 3. Is num_classes right?"),
    "labels negative": (
        lambda: mixup(X, Y - 1, 4), ValueError, "labels must lie in [0, 4), got -1. Is num_classes right?"),
    "labels beside ignore_index": (
        lambda: zeta_mixup(X, Y, 3, ignore_index=255), ValueError,
        "labels must lie in [0, 3) or equal ignore_index=255, got 3. Is num_classes right?"),
    "masks out of range": (
        lambda: OneHot(2).mix(torch.full((2, 3, 3), 2), plan_of()), ValueError,
        "labels must lie in [0, 2), got 2. Is num_classes right?"),
    "labels two-dimensional": (
        lambda: zeta_mixup(X, torch.ones(4, 2, dtype=torch.int64), 4), ValueError,
        "Integer labels of shape [4, 2] could be multi-hot or dense. Pass labels.float() for multi-hot labels, "
        "or rules=(Blend(), OneHot(...)) to ZetaMixup for dense ones."),
    "soft labels of other width": (
        lambda: zeta_mixup(X, torch.zeros(4, 3), 4), ValueError,
        "Soft labels must be [n, num_classes=4], got [4, 3]. For regression leave num_classes out."),
    "classes as bool": (
        lambda: zeta_mixup(X, Y > 1, 2), ValueError,
        "Soft labels must be [n, num_classes=2], got [4]. For two classes as false and true pass labels.long()."),
    "multi-hot bool of other width": (
        lambda: zeta_mixup(X, torch.ones(4, 3, dtype=torch.bool), 4), ValueError,
        "Soft labels must be [n, num_classes=4], got [4, 3]. For regression leave num_classes out."),
    "sparse samples": (
        lambda: zeta_mixup(X.to_sparse(), Y, 4), TypeError,
        "samples must be a dense tensor, got torch.sparse_coo. Pad it, or use .to_dense()."),
    "nested samples": (
        lambda: zeta_mixup(torch.nested.nested_tensor(list(X), layout=torch.jagged), Y, 4), TypeError,
        "samples must be a dense tensor, got a nested one. Pad it, or use .to_dense()."),
    "single samples": (
        lambda: ZetaMixup(num_classes=4)([(X[0], 0), (X[1], 1)]), TypeError,
        "ZetaMixup expects a batch, got a list of single samples. As a collate_fn pass the transform's .collate, "
        "which makes a batch of them first."),
    "class labels as floats": (
        lambda: OneHot(4).mix(Y.float(), zeta_plan(4)), TypeError, "Class labels must be integers, got torch.float32."),
    "complex targets": (
        lambda: Average().mix(Y.to(torch.complex64), zeta_plan(4)), TypeError, "Targets must be real numbers, got torch.complex64."),

    # plans
    "plan for another batch": (
        lambda: apply_plan(X, zeta_plan(5)), ValueError, "The plan was made for a batch of 5, but samples has 4 rows."),
    "plan for other labels": (
        lambda: OneHot(4).mix(Y, zeta_plan(5)), ValueError, "The plan was made for a batch of 5, but labels has 4 rows."),
    "plan for other targets": (
        lambda: Average().mix(X, zeta_plan(5)), ValueError, "The plan was made for a batch of 5, but targets has 4 rows."),
    "plan for other ids": (
        lambda: FromAnchor().mix(X, zeta_plan(5)), ValueError, "The plan was made for a batch of 5, but a FromAnchor entry has 4 rows."),
    "plan on another device": (
        lambda: apply_plan(ON_META, zeta_plan(4)), ValueError, "The plan is on cpu, but samples is on meta. Move one with .to()."),
    "plan of different shapes": (
        lambda: plan_of(weights=((0.5, 0.25, 0.25), (0.5, 0.25, 0.25))), ValueError,
        "indices and weights must both be [outputs, sources], got [2, 2] and [2, 3]."),
    "plan of one row": (
        lambda: plan_of(indices=[0, 1], weights=[0.5, 0.5]), ValueError,
        "indices and weights must both be [outputs, sources], got [2] and [2]."),
    "plan of int32": (
        lambda: MixPlan(torch.zeros(2, 2, dtype=torch.int32), torch.ones(2, 2), 2), TypeError, "indices must be int64, got torch.int32."),
    "plan of int weights": (
        lambda: plan_of(weights=((1, 0), (1, 0))), TypeError, "weights must be floating point, got torch.int64."),
    "plan on two devices": (
        lambda: MixPlan(torch.zeros(2, 2, dtype=torch.int64), torch.ones(2, 2, device="meta"), 2), ValueError,
        "indices and weights must be on one device, got cpu and meta."),
    "plan index too large": (lambda: plan_of(batch_size=1), ValueError, "indices must lie in [0, 1) for this batch, got 1."),
    "plan index negative": (
        lambda: plan_of(indices=((0, -1), (1, 0))), ValueError, "indices must lie in [0, 2) for this batch, got -1."),
    "plan of lists": (lambda: MixPlan([[0]], torch.ones(1, 1), 1), TypeError, "indices must be a tensor, got list."),

    # transforms
    "classes and rules": (
        lambda: ZetaMixup(num_classes=4, rules=(Blend(), OneHot(4))), ValueError,
        "Pass num_classes or rules, not both: OneHot() holds its own."),
    "samples alone": (
        lambda: ZetaMixup(num_classes=4)(X), TypeError,
        "ZetaMixup expects (samples, labels), got 1 entries. For other batches pass rules=, one per entry."),
    "three entries": (
        lambda: Mixup(num_classes=4)(X, Y, Y), TypeError,
        "Mixup expects (samples, labels), got 3 entries. For other batches pass rules=, one per entry."),
    "a dict": (
        lambda: ZetaMixup(num_classes=4)({"x": X}), TypeError,
        "ZetaMixup expects (samples, labels), got dict. For other batches pass rules=, one per entry."),
    "rules for other names": (
        lambda: ZetaMixup(rules={"x": Blend(), "y": Average()})({"x": X, "z": Y}), ValueError,
        "rules name the entries ['x', 'y'], but the batch has ['x', 'z']. Give one rule per entry."),
    "rules for names, batch a tuple": (
        lambda: ZetaMixup(rules={"x": Blend()})((X, Y)), ValueError,
        "rules name the entries ['x'], but the batch has tuple. Give one rule per entry."),
    "too few rules": (
        lambda: ZetaMixup(rules=(Blend(), Average()))(X, Y, Y), ValueError,
        "There are 2 rules, but the batch has 3 entries. Give one rule per entry."),
    "rules for entries, batch a dict": (
        lambda: ZetaMixup(rules=(Blend(), Average()))({"x": X}), ValueError,
        "There are 2 rules, but the batch is a dict. Give one rule per entry."),
    "no rule": (
        lambda: ZetaMixup(rules=(Blend(), "mean"))(X, Y), TypeError,
        "A rule must be Blend(), OneHot(...), Average() or FromAnchor(), or a dict or tuple of them, got str."),

    # losses
    "logits and targets": (
        lambda: soft_cross_entropy(X, X[:, :2]), ValueError,
        "logits and targets must have the same shape, got [4, 3] and [4, 2]."),
    "binary shapes": (
        lambda: soft_binary_cross_entropy(X, X[:, 0]), ValueError,
        "logits and targets must have the same shape, got [4, 3] and [4]."),
    "logits without classes": (
        lambda: soft_cross_entropy(X[0], X[0]), ValueError, "logits must be [n, classes, ...], got [3]."),
    "class weights of wrong length": (
        lambda: soft_cross_entropy(X, X, weight=torch.ones(4)), ValueError,
        "weight must hold one number per class, [3], got [4]."),
    "batch without tensors": (
        lambda: ZetaMixup(rules={})({}), TypeError, "The batch holds no tensor: there is nothing to mix."),
    "gamma range of a local plan": (
        lambda: local_plan(X, (1.0, 2.0)), TypeError, "gamma must be a number, got tuple."),
    "fused on a CPU": (
        lambda: zeta_mixup(X, Y, 4, implementation="fused"), ValueError,
        "implementation='fused' cannot be used here: it needs a CUDA device, not cpu. Use 'auto' or 'reference'."),
    "unknown implementation": (
        lambda: ZetaMixup(implementation="fast"), ValueError,
        "implementation must be one of 'auto', 'fused', 'reference', got 'fast'."),
    "logits a list": (lambda: soft_cross_entropy([[0.0]], X), TypeError, "logits must be a tensor, got list."),
    "targets a scalar": (
        lambda: soft_cross_entropy(X, torch.tensor(1.0)), ValueError, "targets must have a batch dimension first, got a scalar tensor."),
    "accuracy shapes": (
        lambda: dominant_accuracy(X, Y[:3]), ValueError,
        "predicted classes and target classes must have the same shape, got [4] and [3]."),
    "predictions of other length": (
        lambda: expected_loss(per_batch, X[:3], Y, zeta_plan(4)), ValueError, "predictions must have 4 rows for this plan, got 3."),
    "targets of other length": (
        lambda: expected_loss(per_batch, X, Y[:3], zeta_plan(4)), ValueError, "targets must have 4 rows for this plan, got 3."),
    "criterion that averages": (
        lambda: expected_loss(per_batch, X[:, 0], X[:, 0], zeta_plan(4)), ValueError,
        "criterion must return one loss per output, [4], got []. Use reduction='none' and average over other dimensions."),
    "points to cut": (
        lambda: CutMix(num_classes=4)(X, Y), ValueError,
        "CutMix cuts boxes out of images, [batch, channels, height, width], got [4, 3]. Use mixup or zeta for other data."),
}
# fmt: on


def error_of(call):
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    return caught.value


@pytest.mark.parametrize(("call", "kind", "message"), CASES.values(), ids=CASES.keys())
def test_message(call, kind, message):
    error = error_of(call)
    assert (type(error), str(error)) == (kind, message)


def raises_in(path):
    """The (file, line) of every `raise TypeError(...)` and `raise ValueError(...)` of a module."""
    return {
        (str(path), node.lineno)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Raise)
        and node.exc is not None
        and ast.unparse(node.exc).startswith(("TypeE", "ValueE"))
    }


def test_every_raise_in_the_core_has_a_case():
    written = set().union(*(raises_in(SOURCE / f"{name}.py") for name in CORE))
    # the last frame of an error names the statement that raised it
    frames = [traceback.extract_tb(error_of(case[0]).__traceback__)[-1] for case in CASES.values()]
    reached = {(frame.filename, frame.lineno) for frame in frames}
    assert len(written) > 30
    assert written - reached == set()
