"""Every error message, word for word: what was expected, what came, what to do."""
# ruff: noqa: E501 (a message is compared in one piece, so it is written in one piece)

import ast
import math
import traceback
from functools import partial
from pathlib import Path

import pytest
import torch
from torchvision import tv_tensors

import zetamix
from zetamix import (
    MixPlan,
    Mixup,
    SoftCrossEntropy,
    ZetaMix,
    ZetaMixup,
    apply_plan,
    describe_gamma,
    mixup,
    mixup_plan,
    soft_cross_entropy,
    zeta_mixup,
    zeta_plan,
)
from zetamix.gamma import dominance_threshold, gamma_from_lam, lam_from_gamma
from zetamix.rules import Average, Blend, FromAnchor, OneHot
from zetamix.transforms import CutMix, MixupOrCutMix, check_transform

SOURCE = Path(zetamix.__file__).parent
CORE = (
    "batches", "boxes", "checks", "gamma", "kernels/dispatch", "losses", "methods", "mix", "plan",
    "rules", "sampling", "transforms",
)  # fmt: skip
X = torch.zeros(4, 3)
IMAGES = torch.zeros(4, 3, 8, 8)
Y = torch.tensor([0, 1, 2, 3])
BOXES = tv_tensors.BoundingBoxes(torch.zeros(4, 4), format="XYXY", canvas_size=(8, 8))
ON_META = torch.zeros(4, device="meta")
ROWS = torch.tensor([[0, 1], [1, 0]])
UNIT = "finite and between 0 and 1"


def bad(name, expected, values, *calls):
    """The cases of an option that is a number or a choice, for every value and every call."""
    return [
        (
            f"{name} must be {expected}, got {value!r}.",
            ValueError,
            *(partial(c, value) for c in calls),
        )
        for value in values
    ]


# fmt: off
# (message, kind, the calls that raise it)
CASES = [
    # counts, numbers and choices
    *bad("batch_size", "at least 1", (-1, 0), zeta_plan, mixup_plan),
    *bad("outputs", "at least 1", (0,), lambda v: zeta_plan(4, outputs=v)),
    *bad("sources", "at least 2", (1,), lambda v: zeta_plan(4, sources=v), dominance_threshold,
         lambda v: ZetaMixup(sources=v), lambda v: ZetaMix(sources=v), lambda v: describe_gamma(2.8, v)),
    *bad("num_classes", "at least 1", (0,), lambda v: ZetaMixup(num_classes=v), OneHot),
    *bad("epoch", "at least 0", (-1,), lambda v: ZetaMixup().set_epoch(v)),
    *bad("epochs", "at least 1", (0,), lambda v: Mixup().set_epoch(0, v)),
    *bad("gamma", "finite and at least 0", (math.nan, math.inf, -0.5), lambda v: zeta_plan(4, v),
         lambda v: zeta_mixup(X, Y, 4, gamma=v), lambda v: setattr(ZetaMixup(), "gamma", v),
         lambda v: ZetaMix(gamma=v), lambda v: ZetaMixup(gamma=(v, 3.0)), lambda v: describe_gamma(v, 4)),
    *bad("gamma", "finite and at least -1000", (math.nan,), lam_from_gamma),
    *bad("alpha", "finite and above 0", (math.nan, 0), lambda v: Mixup(alpha=v), lambda v: mixup_plan(4, v)),
    *bad("p", UNIT, (1.5, -0.1), lambda v: ZetaMixup(p=v), lambda v: setattr(Mixup(), "p", v)),
    *bad("lam", UNIT, (1.5,), gamma_from_lam),
    *bad("label_smoothing", UNIT, (2,), lambda v: soft_cross_entropy(X, X, label_smoothing=v)),
    *bad("paste", UNIT, (1.5,), lambda v: ZetaMix(paste=v)),
    *bad("switch_prob", UNIT, (-0.5,), lambda v: MixupOrCutMix(switch_prob=v)),
    *bad("mean", UNIT, (127,), lambda v: ZetaMix(mean=v), lambda v: Blend(mean=(0.5, v))),
    *bad("until", "finite and between 0 and 1, not 0", (0, 1.5), lambda v: Mixup(until=v)),
    *bad("anchor", "one of 'self', 'random'", ("own", ""), lambda v: zeta_plan(4, anchor=v),
         lambda v: ZetaMixup(anchor=v)),
    *bad("per", "one of 'sample', 'batch'", ("pair",), lambda v: mixup_plan(4, per=v),
         lambda v: Mixup(per=v), lambda v: CutMix(per=v)),
    *bad("reduction", "one of 'mean', 'sum', 'none'", ("avg",), lambda v: SoftCrossEntropy(reduction=v)(X, X)),
    ("batch_size must be an int, got float.", TypeError, lambda: zeta_plan(4.0)),
    ("gamma must be a number, got str.", TypeError, lambda: zeta_plan(4, "2.8")),
    ("p must be a number, got str.", TypeError, lambda: Mixup(p="half")),
    ("The batch is empty: mixing needs at least one sample.", ValueError,
     lambda: zeta_mixup(X[:0], Y[:0], 4), lambda: ZetaMixup(num_classes=4)(X[:0], Y[:0])),
    ("sources must be at most the batch size, 4, got 5. Use fewer, or sources=None for the whole batch.", ValueError,
     lambda: zeta_plan(4, sources=5)),
    ("A gamma range must be (low, high) with low <= high, got (3.0, 2.0). For one gamma per output, pass a tensor.", ValueError,
     lambda: zeta_plan(4, (3.0, 2.0)), lambda: ZetaMix(gamma=(3.0, 2.0)), lambda: setattr(ZetaMix(), "gamma", (3.0, 2.0))),
    ("gamma must be a floating point tensor, got torch.int64.", TypeError,
     lambda: zeta_plan(4, torch.tensor(2))),
    ("gamma must have shape [] or [4] (one per output), got [3].", ValueError,
     lambda: zeta_plan(4, torch.ones(3))),
    ("gamma must have shape [] or [outputs], got [4, 1].", ValueError,
     lambda: ZetaMixup(gamma=torch.ones(4, 1))),
    ("gamma must be finite and at least 0 in every output.", ValueError,
     lambda: zeta_plan(2, torch.tensor([2.0, math.nan])),
     lambda: zeta_plan(2, torch.tensor([2.0, -1.0]))),
    ("gamma must be on cpu, where the plan is drawn, got meta.", ValueError, lambda: zeta_plan(4, ON_META)),
    ("lam must lie strictly between 0 and 1, got 1.0.", ValueError, lambda: gamma_from_lam(1.0)),
    # generators
    ("generator must be a torch.Generator, got int.", TypeError,
     lambda: zeta_plan(4, generator=0), lambda: ZetaMixup(num_classes=4, generator=0)(X, Y)),
    ("generator must be on meta, where the plan is drawn, got a generator on cpu. Create it with torch.Generator(device='meta').", ValueError,
     lambda: zeta_plan(4, generator=torch.Generator(), device="meta")),
    # samples and labels
    ("samples must be a tensor, got int.", TypeError, lambda: zeta_mixup([1, 2], Y, 4)),
    ("samples must contain at least one tensor, got none.", TypeError, lambda: zeta_mixup({}, Y, 4)),
    ("samples must have a leading batch dimension, got a scalar tensor.", ValueError,
     lambda: zeta_mixup(torch.tensor(1.0), Y, 4)),
    ("samples and labels must have the same length, got 3 samples and 4 labels. A list means several inputs; pass torch.stack(samples) for single samples.", ValueError,
     lambda: zeta_mixup(list(X), Y, 4)),
    ("plan must be a MixPlan, got Tensor.", TypeError, lambda: apply_plan(zeta_plan(4), X)),
    ("stream must be an int, got str.", TypeError, lambda: zeta_plan(4, stream="a")),
    ("ignore_index must be an int, got str.", TypeError, lambda: OneHot(4, "a")),
    ("A rule must be Blend(), OneHot(...), Average() or FromAnchor(), or a dict or tuple of them, got the class Blend.", TypeError,
     lambda: ZetaMixup(rules=(Blend, OneHot(4)))),
    ("enabled must be True or False, got 'no'.", TypeError,
     lambda: setattr(Mixup(), "enabled", "no")),
    ("The plan was made for a batch of 4, but a FromAnchor entry has 1 rows.", ValueError,
     lambda: FromAnchor().mix(["a"], zeta_plan(4))),
    ("samples and labels must have the same length, got 4 samples and 3 labels.", ValueError,
     lambda: zeta_mixup(X, Y[:3], 4), lambda: ZetaMixup(num_classes=4)(X, Y[:3])),
    ("samples and labels must have the same device, got cpu and meta.", ValueError,
     lambda: zeta_mixup(X, ON_META, 4)),
    ("Integer labels (torch.int64) need num_classes to become soft targets. For regression, pass labels.float().", ValueError,
     lambda: zeta_mixup(X, Y)),
    ("labels must lie in [0, 3), got 3. Is num_classes right? If 3 means ignored, pass ignore_index=3.", ValueError,
     lambda: zeta_mixup(X, Y, 3)),
    ("labels must lie in [0, 1), got 1. For one logit per sample, pass labels.float()[:, None]; for two, pass num_classes=2.", ValueError,
     lambda: ZetaMix(num_classes=1)(X, Y % 2)),
    ("labels must lie in [0, 4) or equal ignore_index=-1, got 255. Is num_classes right? If 255 means ignored, pass ignore_index=255.", ValueError,
     lambda: mixup(X, torch.tensor([0, -1, 2, 255]), 4, ignore_index=-1)),
    ("Integer labels of shape [4, 2] are ambiguous: multi-hot or dense. Pass labels.float() for multi-hot labels, or rules=(Blend(), OneHot(...)) for dense ones.", ValueError,
     lambda: zeta_mixup(X, torch.ones(4, 2, dtype=torch.int64), 4)),
    ("samples must be a dense tensor, got torch.sparse_coo. Pad it, or use .to_dense().", TypeError,
     lambda: zeta_mixup(X.to_sparse(), Y, 4)),
    ("samples must be a dense tensor, got a nested tensor. Pad it, or use .to_dense().", TypeError,
     lambda: zeta_mixup(torch.nested.nested_tensor(list(X), layout=torch.jagged), Y, 4)),
    ("ZetaMixup expects a batch, got a list of single samples. For a DataLoader, pass collate_fn=transform.collate, which collates them first.", TypeError,
     lambda: ZetaMixup(num_classes=4)([(X[0], 0), (X[1], 1)]),
     lambda: ZetaMixup(num_classes=4)([(x, 0) for x in X])),
    ("Class labels must be integers, got torch.float32.", TypeError,
     lambda: OneHot(4).mix(Y.float(), zeta_plan(4))),
    ("Targets must be real numbers, got torch.complex64.", TypeError,
     lambda: Average().mix(Y.to(torch.complex64), zeta_plan(4))),
    # plans
    ("The plan was made for a batch of 5, but samples has 4 rows.", ValueError,
     lambda: apply_plan(X, zeta_plan(5))),
    ("plan and samples must have the same device, got cpu and meta.", ValueError,
     lambda: apply_plan(ON_META, zeta_plan(4))),
    # transforms
    ("ZetaMixup expects (samples, labels), got Tensor. For other batches, pass rules= with one rule per entry.", TypeError,
     lambda: ZetaMixup(num_classes=4)(X)),
    ("There is no rule for 'id'. Pass rules= with one rule per entry: Blend() for inputs, OneHot(num_classes) for class indices, Average() for soft labels and regression, FromAnchor() for ids.", ValueError,
     lambda: Mixup(num_classes=4)({"image": IMAGES, "label": Y, "id": Y})),
    ("rules has the keys ['x', 'y'], but the batch has the keys ['x', 'z']. Pass one rule per entry.", ValueError,
     lambda: ZetaMixup(rules={"x": Blend(), "y": Average()})({"x": X, "z": Y})),
    ("rules has 2 entries, but the batch has 3 entries. Pass one rule per entry.", ValueError,
     lambda: ZetaMixup(rules=(Blend(), Average()))(X, Y, Y)),
    # losses
    ("logits and targets must have the same shape, got [4, 3] and [4, 2].", ValueError,
     lambda: soft_cross_entropy(X, X[:, :2])),
    ("logits must be [n, classes, ...], got [3].", ValueError,
     lambda: soft_cross_entropy(X[0], X[0])),
    ("weight must have one number per class, [3], got [4].", ValueError,
     lambda: soft_cross_entropy(X, X, weight=torch.ones(4))),
    ("The batch must contain at least one tensor [batch, ...], got none.", TypeError,
     lambda: ZetaMixup(rules={})({})),
    ("targets must be real numbers or class indices, got torch.complex64.", TypeError,
     lambda: soft_cross_entropy(X, X.to(torch.complex64))),
    # ZetaMix and boxes
    ("keep_variance must be True or False, got 1.", TypeError, lambda: ZetaMix(keep_variance=1)),
    ("BoundingBoxes cannot be mixed: averaged coordinates mark no object. Remove them from the batch, or pass rules= with FromAnchor() for them.", TypeError,
     lambda: ZetaMix()(X, BOXES), lambda: ZetaMix()((X, BOXES)), lambda: mixup(X, BOXES), lambda: zeta_mixup(X, BOXES)),
    ("mean needs samples in [0, 1] or of dtype uint8, got values from -1 to -1. Do not pass mean for normalised samples.", ValueError,
     lambda: ZetaMix(num_classes=4, mean=0.5)(IMAGES - 1, Y)),
    ("mean needs samples in [0, 1] or of dtype uint8, got values from 200 to 200. Divide them by 255.", ValueError,
     lambda: ZetaMix(num_classes=4, mean=0.5)(IMAGES + 200, Y)),
    ("mean must be one number or 3, for each channel, got (0.5, 0.5).", ValueError,
     lambda: ZetaMix(num_classes=4, mean=(0.5, 0.5))(IMAGES, Y)),
    ("Masks must have the height and width of the images, [8, 8], to paste the same boxes, got [4, 9, 9]. Resize them, or use ZetaMix(paste=0).", ValueError,
     lambda: CutMix(num_classes=4)(torch.zeros(4, 3, 8, 8), torch.zeros(4, 9, 9, dtype=torch.int64))),
    ("size must be the (height, width) of the images to paste, got (8, 0).", ValueError,
     lambda: CutMix().make_plan(4, size=(8, 0))),
    ("dtype must be a floating point dtype, which weights need, got torch.int32.", TypeError,
     lambda: zeta_plan(4, dtype=torch.int32), lambda: mixup_plan(4, dtype=torch.int32), lambda: Mixup().make_plan(4, dtype=torch.int32)),
    ("set_epoch needs the number of epochs: ZetaMix mixes in the first 80% of them. Pass set_epoch(epoch, epochs) (to Lightning's Trainer max_epochs), or until=1.", ValueError,
     lambda: ZetaMix().set_epoch(0)),
    ('With anchor="random" an output begins with another sample than its own, so entries behind the labels need a rule: pass rules=.', ValueError,
     lambda: ZetaMixup(num_classes=4, anchor="random")(X, Y, Y)),
    ("gamma cannot be set. What can: enabled, p, and gamma as a number or a range (low, high). All else is fixed when a transform is made, because running loader workers would not see a change: make a new ZetaMixup.", AttributeError,
     lambda: setattr(ZetaMixup(), "gamma", torch.tensor(2.0)), lambda: setattr(ZetaMixup(), "gamma", lambda epoch: 2.0)),
    *(
        ("samples must be floating point of 16 bits or more, uint8, int8 or int16, got torch." + name + ". Convert measurements with .float(), or if they are complex with torch.view_as_real. Token ids cannot be mixed: mix their embeddings.", TypeError,
         partial(mixup, X.to(getattr(torch, name)), Y, 4))
        for name in ("int64", "bool", "complex64", "float8_e4m3fn")
    ),
    *(
        ("labels must be a tensor with one entry for each sample, got " + name + ". Mixing needs a batch: apply it after the DataLoader, and pass torch.as_tensor(labels). For a batch without labels, or a dict or tuple of them, pass rules= with one rule per entry.", TypeError,
         partial(Mixup(num_classes=4), X, labels))
        for name, labels in {"list": [0, 1, 2, 3], "NoneType": None, "int": 3, "a scalar tensor": Y[0]}.items()
    ),
    ("Pass rules, or num_classes, ignore_index and mean, not both. With rules, use OneHot(num_classes, ignore_index) and Blend(mean).", ValueError,
     lambda: ZetaMixup(ignore_index=1, rules=(Blend(), OneHot(4))), lambda: ZetaMixup(num_classes=4, rules=(Blend(), OneHot(4))),
     lambda: ZetaMix(mean=0.5, rules=Blend())),
    *(
        ("Soft labels must be [n, num_classes=" + str(classes) + "], got " + str(list(labels.shape)) + ". For class indices, pass labels.long(); for one logit per sample, labels.float()[:, None] and num_classes=1; for regression, no num_classes.", ValueError,
         partial(zeta_mixup, X, labels, classes))
        for labels, classes in ((Y.float(), 4), (Y.float(), 1), (torch.zeros(4, 3), 4), (Y > 1, 2), (torch.ones(4, 8, 8) > 0, 2))
    ),
    *(
        ("A plan has indices [outputs, sources], int64, of 2 rows, and floating point weights of the same shape; where it pastes, boxes [outputs, sources, 4], int64. Got " + got + ".", ValueError, call)
        for got, call in {
            "[2, 2] torch.int64, [2, 3] torch.float32": lambda: MixPlan(ROWS, torch.ones(2, 3), 2),
            "[2] torch.int64, [2] torch.float32": lambda: MixPlan(ROWS[0], torch.ones(2), 2),
            "[2, 2] torch.int32, [2, 2] torch.float32": lambda: MixPlan(ROWS.int(), torch.ones(2, 2), 2),
            "[2, 2] torch.int64, [2, 2] torch.int64": lambda: MixPlan(ROWS, ROWS, 2),
            "[1, 2] torch.int64, [1, 2] torch.float32": lambda: MixPlan(-ROWS[:1], torch.ones(1, 2), 2),
            "[2, 2] torch.int64, [2, 2] torch.float32, [2, 1, 4] torch.int64":
                lambda: MixPlan(ROWS, torch.ones(2, 2), 2, boxes=ROWS.new_zeros(2, 1, 4), size=(8, 8)),
        }.items()
    ),
    *(
        ("CutMix pastes boxes into images [batch, channels, height, width] of one size, at least 2 × 2, got " + got + ". Resize them, or use ZetaMix, ZetaMixup or Mixup, which blend other data.", ValueError,
         partial(CutMix(rules=(Blend(), Blend())), samples))
        for got, samples in {
            "[4, 3], [4, 3]": (X, X), "[4, 3, 8, 8], [4, 3, 9, 9]": (IMAGES, torch.zeros(4, 3, 9, 9)),
            "[4, 3, 1, 8], [4, 3]": (IMAGES[..., :1, :], X),
        }.items()
    ),
    *(
        ("Keeping the variance needs normalised images, or mean= and images in [0, 1] or of dtype uint8, got torch." + got + ". Or pass keep_variance=False.", TypeError,
         partial(ZetaMix(num_classes=4, mean=mean), samples, Y))
        for got, samples, mean in (("uint8", IMAGES.byte(), None), ("int16", IMAGES.short(), None), ("int16 with mean=", IMAGES.short(), 0.5))
    ),
    ("transform must be one of ZetaMix, ZetaMixup, Mixup, CutMix and MixupOrCutMix, got Linear.", TypeError,
     lambda: check_transform(torch.nn.Linear(1, 1))),
]
# fmt: on


def error_of(call):
    with pytest.raises((TypeError, ValueError, AttributeError)) as caught:
        call()
    return caught.value


CALLS = [(call, kind, message) for message, kind, *calls in CASES for call in calls]
NAMES = [message for *_, message in CALLS]


@pytest.mark.parametrize(("call", "kind", "message"), CALLS, ids=NAMES)
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
    frames = [traceback.extract_tb(error_of(call).__traceback__)[-1] for call, *_ in CALLS]
    reached = {(frame.filename, frame.lineno) for frame in frames}
    assert len(written) > 30
    assert written - reached == set()
