"""ZetaMixup and Mixup where people put them: behind a loader, in it, and among other transforms.

Every sample has a class of its own, so a mixed target names the sources of its output.
"""

import collections
import copy
import io
import pickle
import warnings
from itertools import combinations
from typing import NamedTuple

import by_hand
import pytest
import safetensors.torch
import scipy.stats
import torch
from conftest import assert_close
from timm.utils import ModelEmaV3
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, Dataset
from torchvision import tv_tensors
from torchvision.transforms import v2

from zetamix import Mixup, ZetaMixup, zeta_mixup
from zetamix.rules import Average, Blend, FromAnchor, OneHot

BOTH = pytest.mark.parametrize("kind", [ZetaMixup, Mixup])


class OneClassEach(Dataset):
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.full((2,), float(index)), index


def sharper(epoch):
    """A γ schedule at module level, where a spawned worker can find it."""
    return 2.0 + 2.0 * epoch


def batch_of(n, *shape):
    return torch.randn(n, *(shape or (3,))), torch.arange(n)


def is_unmixed(targets):
    return bool(((targets == 0) | (targets == 1)).all())


def orders(targets):
    """For each output the classes in it, heaviest first."""
    ranked = targets.argsort(1, descending=True).tolist()
    counts = (targets > 0).sum(1).tolist()
    return [tuple(row[:count]) for row, count in zip(ranked, counts, strict=True)]


# after a loader, as collate_fn, beside torchvision


@BOTH
@pytest.mark.parametrize("form", ["arguments", "tuple", "list"])
def test_takes_a_batch_in_every_usual_form(kind, form, generator):
    state = generator.get_state()
    samples, labels = batch_of(6)
    transform = kind(num_classes=6, generator=generator)
    expected = transform(samples, labels)
    generator.set_state(state)
    pair = samples, labels
    given = {"arguments": pair, "tuple": (pair,), "list": ([samples, labels],)}
    mixed, targets = transform(*given[form])
    assert torch.equal(mixed, expected[0])
    assert torch.equal(targets, expected[1])
    assert_close(mixed, targets.double() @ samples.double())
    assert not is_unmixed(targets)


def test_the_module_is_the_function():
    samples, labels = batch_of(6)
    options = {"gamma": 1.9, "sources": 4, "anchor": "random"}
    first = ZetaMixup(num_classes=6, generator=torch.Generator().manual_seed(1), **options)
    second = zeta_mixup(samples, labels, 6, generator=torch.Generator().manual_seed(1), **options)
    assert all(torch.equal(a, b) for a, b in zip(first(samples, labels), second, strict=True))


@BOTH
def test_after_a_loader(kind):
    transform = kind(num_classes=10)
    sizes = []
    for samples, labels in DataLoader(OneClassEach(10), batch_size=4):
        mixed, targets = transform(samples, labels)
        sizes.append(len(mixed))
        assert_close(mixed[:, 0], targets.double() @ torch.arange(10.0, dtype=torch.float64))
    assert sizes == [4, 4, 2]


@BOTH
def test_as_collate_fn(kind):
    transform = kind(num_classes=9)
    loader = DataLoader(OneClassEach(9), batch_size=4, collate_fn=transform.collate)
    batches = list(loader)
    assert [len(samples) for samples, _ in batches] == [4, 4, 1]
    for samples, targets in batches:
        assert_close(samples[:, 0], targets.double() @ torch.arange(9.0, dtype=torch.float64))
    assert not is_unmixed(batches[0][1])
    # the last batch holds one sample, which comes back as it is
    assert batches[2][1].tolist() == [[0.0] * 8 + [1.0]]


class Pair(NamedTuple):
    image: torch.Tensor
    label: torch.Tensor


@BOTH
@pytest.mark.parametrize("p", [1.0, 0.5])
def test_a_named_tuple_stays_one(kind, p):
    batch = Pair(*batch_of(4))
    mixed = kind(num_classes=4, p=p)(batch)
    assert isinstance(mixed, Pair)
    assert mixed.label.shape == (4, 4)
    ruled = kind(rules=(Blend(), OneHot(4)), p=p)(batch)
    assert isinstance(ruled, Pair)
    assert ruled.label.shape == (4, 4)


@BOTH
def test_any_mapping_is_a_dict(kind):
    samples, labels = batch_of(4)
    transform = kind(rules={"samples": Blend(), "labels": OneHot(4)})
    mixed = transform(collections.UserDict(samples=samples, labels=labels))
    assert type(mixed) is dict
    assert_close(mixed["samples"], mixed["labels"] @ samples)
    # and within a batch
    results = []
    for form in (dict, collections.UserDict):
        torch.manual_seed(0)
        mixed, _ = kind(num_classes=4)(form(x=samples.double()), labels)
        results.append(mixed["x"])
    assert results[0].dtype == torch.float64
    assert torch.equal(*results)
    nested = kind(rules={"in": {"x": Blend()}})({"in": collections.UserDict(x=samples)})
    assert nested["in"]["x"].shape == samples.shape


@BOTH
def test_inside_v2_compose(kind):
    samples, labels = torch.rand(4, 3, 8, 8), torch.arange(4)
    pipeline = v2.Compose([v2.Normalize([0.5] * 3, [0.5] * 3), kind(num_classes=4), v2.Identity()])
    mixed, targets = pipeline(samples, labels)
    expected = torch.einsum("on,n...->o...", targets.double(), (samples.double() - 0.5) / 0.5)
    assert_close(mixed, expected)
    assert not is_unmixed(targets)


def test_inside_v2_random_choice_beside_cutmix():
    samples, labels = torch.rand(4, 3, 8, 8), torch.arange(4)
    choice = v2.RandomChoice([ZetaMixup(num_classes=4), v2.CutMix(num_classes=4)])
    sources = set()
    for _ in range(20):
        mixed, targets = choice(samples, labels)
        assert mixed.shape == samples.shape
        assert targets.shape == (4, 4)
        assert_close(targets.sum(1), torch.ones(4))
        sources.add(int((targets > 0).sum(1).max()))
    # ζ-mixup uses all four samples, CutMix two (or one, when its box is empty)
    assert 4 in sources
    assert sources & {1, 2}


def test_torchvision_images_are_mixed_like_tensors():
    images = tv_tensors.Image(torch.rand(4, 3, 8, 8))
    mixed, targets = ZetaMixup(num_classes=4)(images, torch.arange(4))
    plain = images.as_subclass(torch.Tensor).double()
    expected = torch.einsum("on,n...->o...", targets.double(), plain)
    assert_close(mixed.as_subclass(torch.Tensor), expected)


@pytest.fixture
def _fresh_compiler():
    """Graphs of other tests count towards torch's limit for one function."""
    torch.compiler.reset()


@pytest.mark.usefixtures("_fresh_compiler")
def test_compiles_into_one_graph_and_follows_gamma_and_the_switch():
    transform = ZetaMixup(num_classes=4)
    compiled = torch.compile(transform, fullgraph=True, backend="aot_eager")
    samples, labels = batch_of(4)
    mixed, targets = compiled(samples, labels)
    assert not is_unmixed(targets)
    assert_close(mixed, targets.double() @ samples.double())
    # more values than torch compiles graphs for one function: one graph serves all
    for gamma in range(3, 13):
        transform.gamma = gamma
        heaviest = by_hand.weights_from_ranks([1, 2, 3, 4], gamma)[0]
        assert_close(compiled(samples, labels)[1].amax(1), torch.full((4,), heaviest))
    transform.enabled = False
    mixed, targets = compiled(samples, labels)
    assert torch.equal(targets, torch.eye(4))
    assert torch.equal(mixed, samples)


# rules


@BOTH
def test_a_dict_with_every_rule(kind):
    batch = {
        "image": torch.randn(5, 3, 4, 4),
        "views": (torch.randn(5, 2), [torch.randn(5)]),
        "label": torch.arange(5),
        "mask": torch.randint(3, (5, 4, 4)),
        "age": torch.rand(5),
        "id": torch.arange(100, 105),
    }
    rules = {
        "image": Blend(),
        "views": Blend(),
        "label": OneHot(5),
        "mask": OneHot(3, ignore_index=255),
        "age": Average(),
        "id": FromAnchor(),
    }
    batch["mask"][0, 0, 0] = 255
    mixed = kind(rules=rules)(batch)
    assert list(mixed) == list(batch)
    weights = mixed["label"].double()

    def expected(value):
        return torch.einsum("on,n...->o...", weights, value.double())

    assert_close(mixed["image"], expected(batch["image"]))
    assert_close(mixed["views"][0], expected(batch["views"][0]))
    assert_close(mixed["views"][1][0], expected(batch["views"][1][0]))
    assert_close(mixed["age"], expected(batch["age"]))
    for k in range(3):
        assert_close(mixed["mask"][:, k], expected(batch["mask"] == k))
    assert torch.equal(mixed["id"], batch["id"][weights.argmax(1)])


def test_a_tuple_of_rules_inside_a_dict():
    rules = {"x": Blend(), "y": (OneHot(4), Average())}
    mixed = ZetaMixup(rules=rules)(
        {"x": torch.randn(4, 2), "y": (torch.arange(4), torch.arange(4.0))}
    )
    classes, values = mixed["y"]
    assert_close(values, classes.double() @ torch.arange(4, dtype=torch.float64))


def test_rules_as_a_tuple_for_an_ambiguous_label():
    tokens = torch.randint(3, (4, 7))
    _, targets = ZetaMixup(rules=(Blend(), OneHot(3)))(torch.randn(4, 7), tokens)
    assert targets.shape == (4, 3, 7)
    assert_close(targets.sum(1), torch.ones(4, 7))


def test_one_rule_for_a_batch_that_is_one_tensor():
    samples = torch.randn(4, 3)
    mixed = ZetaMixup(rules=Blend(), gamma=3000.0)(samples)
    assert torch.equal(mixed, samples)


@pytest.mark.parametrize("first", ["label", "image"])
def test_float64_entries_get_float64_weights_wherever_they_stand(first):
    batch = {"label": torch.arange(4), "image": torch.eye(4, dtype=torch.float64)}
    batch = {first: batch.pop(first), **batch}
    rules = {"image": Blend(), "label": OneHot(4)}
    mixed = ZetaMixup(rules={name: rules[name] for name in batch})(batch)
    series = by_hand.weights_from_ranks([1, 2, 3, 4], 2.8)
    ranked = mixed["image"].sort(dim=1, descending=True).values
    assert_close(ranked, torch.tensor([series] * 4, dtype=torch.float64))


def test_dense_and_ignored_labels_without_rules():
    masks = torch.full((3, 2, 2), 1)
    masks[:, 0, 0] = 255
    _, targets = ZetaMixup(num_classes=2, ignore_index=255)(torch.rand(3, 3, 2, 2), masks)
    assert targets[:, :, 0, 0].tolist() == [[0.0, 0.0]] * 3
    assert_close(targets[:, 1, 1, 1], torch.ones(3))


@BOTH
def test_regression_and_multi_label_without_rules(kind):
    hot = torch.eye(4)
    for labels in (torch.arange(4.0), hot.bool(), hot):
        _, targets = kind()(torch.randn(4, 3), labels)
        assert targets.dtype == torch.float32
        assert targets.shape == labels.shape


# p, enabled, eval, schedule


@BOTH
def test_p_is_drawn_for_each_output(kind):
    few = {"sources": 2} if kind is ZetaMixup else {}
    transform = kind(num_classes=2000, p=0.3, **few)
    _, targets = transform(torch.zeros(2000, 1), torch.arange(2000))
    mixed = (targets.amax(1) < 1).sum().item()
    assert scipy.stats.binomtest(mixed, 2000, 0.3).pvalue > 1e-3
    # what is not mixed is the output's own sample
    (alone,) = torch.where(targets.amax(1) == 1)
    assert torch.equal(targets[alone].argmax(1), alone)


@BOTH
def test_p_can_be_changed_up_to_its_ends(kind):
    samples, labels = batch_of(64)
    # also with a random anchor, what is not mixed is sample k itself
    transform = kind(num_classes=64, **({"anchor": "random"} if kind is ZetaMixup else {}))
    for p in (1.0, 0.0, 1.0):
        transform.p = p
        assert transform.p == p
        mixed, targets = transform(samples, labels)
        assert torch.equal(mixed, samples) == torch.equal(targets, torch.eye(64)) == (p == 0)


@BOTH
@pytest.mark.parametrize("off", ["eval", "enabled", "training"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_off_returns_the_input_with_targets_of_the_same_form_and_draws_nothing(kind, off, dtype):
    transform = kind(num_classes=6)
    if off == "eval":
        transform.eval()
    else:
        setattr(transform, off, False)
    samples, labels = batch_of(6)
    samples = samples.to(dtype)
    before = torch.get_rng_state()
    mixed, targets = transform(samples, labels)
    assert mixed is samples
    assert torch.equal(targets, torch.eye(6))
    assert torch.equal(torch.get_rng_state(), before)
    transform.train()
    transform.enabled = True
    assert not is_unmixed(transform(samples, labels)[1])


@BOTH
def test_an_own_generator_is_the_only_source(kind, generator):
    transform = kind(num_classes=6, p=0.5, generator=generator)
    samples, labels = batch_of(6)
    before = torch.get_rng_state()
    transform(samples, labels)
    assert torch.equal(torch.get_rng_state(), before)


def test_schedule_follows_the_epoch():
    transform = ZetaMixup(num_classes=4, gamma=sharper)
    for epoch in (0, 1, 3):
        transform.set_epoch(epoch)
        assert transform.epoch == epoch
        assert transform.gamma == sharper(epoch)
        heaviest = transform(*batch_of(4))[1].amax(1)
        expected = by_hand.weights_from_ranks([1, 2, 3, 4], sharper(epoch))[0]
        assert_close(heaviest, torch.full((4,), expected))


def test_a_bad_epoch_of_a_schedule_changes_nothing():
    transform = ZetaMixup(num_classes=4, gamma=lambda epoch: 2.0 - epoch * 5)
    with pytest.raises(ValueError, match="gamma must be finite and at least 0, got -3"):
        transform.set_epoch(1)
    assert (transform.epoch, transform.gamma) == (0, 2.0)


@pytest.mark.parametrize(("batch", "used"), [(12, 8), (8, 8), (5, 5), (2, 2), (1, 1)])
def test_sources_are_clipped_for_a_partial_batch(batch, used):
    targets = ZetaMixup(num_classes=batch, sources=8)(*batch_of(batch))[1]
    assert ((targets > 0).sum(1) == used).all()
    series = by_hand.weights_from_ranks(list(range(1, used + 1)), 2.8)
    assert_close(targets.sort(descending=True).values[:, :used], torch.tensor([series] * batch))


# warnings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 1.5}, "gamma=1.5 is below 1.72865, the threshold for any number of sources"),
        (
            {"gamma": (1.0, 3.0)},
            "gamma=1 is below 1.72865, the threshold for any number of sources",
        ),
        ({"gamma": 1.0, "sources": 4}, "gamma=1 is below 1.08213, the threshold for 4 sources"),
        ({"gamma": 1.73}, None),
        ({"gamma": 1.1, "sources": 4}, None),
        ({"gamma": (1.8, 2.0)}, None),
        ({}, None),
    ],
    ids=str,
)
def test_warns_once_below_the_threshold(options, message):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        transform = ZetaMixup(num_classes=4, **options)
        transform(*batch_of(4))
        transform.set_epoch(1)
        copy.deepcopy(transform).set_epoch(2)
    expected = []
    if message is not None:
        tail = ": the anchor may weigh less than the other samples together (Theorem 1)."
        expected = [(message + tail, __file__)]
    assert [(str(warning.message), warning.filename) for warning in caught] == expected


def test_a_schedule_warns_when_it_falls_below():
    transform = ZetaMixup(num_classes=4, gamma=lambda epoch: 2.0 - epoch / 2)
    with pytest.warns(UserWarning, match=r"gamma=1\.5 is below"):
        transform.set_epoch(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        transform.set_epoch(2)


# copies and state


COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda value: pickle.loads(pickle.dumps(value))}


def test_a_shallow_copy_has_a_switch_of_its_own():
    first = ZetaMixup(num_classes=4)
    copy.copy(first).enabled = False
    assert first.enabled


@BOTH
@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES.keys())
def test_copies_carry_everything_and_share_nothing(kind, copied, generator):
    transform = kind(num_classes=6, p=0.9, generator=generator)
    transform.set_epoch(3)
    twin = copied(transform)
    assert (twin.p, twin.enabled, twin.epoch) == (0.9, True, 3)
    samples, labels = batch_of(6)
    assert torch.equal(twin(samples, labels)[1], transform(samples, labels)[1])
    twin.enabled = False
    twin.p = 0.1
    twin.set_epoch(7)
    assert (transform.p, transform.enabled, transform.epoch) == (0.9, True, 3)


@BOTH
def test_state_dict_resumes_a_run(kind):
    def made(seed):
        return kind(num_classes=6, generator=torch.Generator().manual_seed(seed))

    first = made(1)
    samples, labels = batch_of(6)
    first(samples, labels)
    first.p, first.enabled = 0.75, True
    first.set_epoch(5)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    went_on = [first(samples, labels)[1] for _ in range(3)]

    file.seek(0)
    second = made(2)
    second.load_state_dict(torch.load(file, weights_only=True))
    # options and switches belong to the program, not to a checkpoint
    assert (second.p, second.enabled, second.epoch) == (1.0, True, 5)
    second.p = 0.75
    assert all(torch.equal(targets, second(samples, labels)[1]) for targets in went_on)


@BOTH
def test_a_saved_state_does_not_follow_later_changes(kind):
    transform, other = kind(num_classes=6), kind(num_classes=6)
    transform.set_epoch(3)
    state = transform.state_dict()
    transform.set_epoch(4)
    other.load_state_dict(state)
    assert other.epoch == 3
    # checkpoints of older versions have more
    other.load_state_dict({**state, "p": torch.tensor(0.5), "enabled": torch.tensor(0.0)})
    assert (other.p, other.enabled) == (1.0, True)


def test_a_state_of_something_else_is_refused():
    state = ZetaMixup(num_classes=6).state_dict()
    for wrong in ({**state, "weight": torch.ones(1)}, {"weight": torch.ones(1)}, {}):
        with pytest.raises(RuntimeError, match="key"):
            ZetaMixup(num_classes=6).load_state_dict(wrong)
    # as in torch, what fits can be taken alone
    keys = Mixup(num_classes=6).load_state_dict({}, strict=False)
    assert keys.missing_keys == ["epoch"]


# inside a model


class MixingModel(torch.nn.Module):
    """A model that mixes its own batches, as users of Lightning or Keras write them."""

    def __init__(self, mix):
        super().__init__()
        self.body = torch.nn.Linear(3, 6)
        if mix is not None:
            self.mix = mix


def own_mix(kind):
    return kind(num_classes=6, generator=torch.Generator().manual_seed(0))


@BOTH
def test_a_model_is_saved_and_loaded_with_and_without_its_transform(kind, tmp_path):
    with_mix, without = MixingModel(own_mix(kind)), MixingModel(None)
    assert with_mix.state_dict().keys() == without.state_dict().keys()
    for saved, loaded in [(with_mix, without), (without, with_mix), (with_mix, with_mix)]:
        file = str(tmp_path / "model.safetensors")
        safetensors.torch.save_model(saved, file)
        assert safetensors.torch.load_model(loaded, file, strict=True) == (set(), [])
        loaded.load_state_dict(saved.state_dict(), strict=True)
    file = str(tmp_path / "mix.safetensors")
    safetensors.torch.save_file(with_mix.mix.state_dict(), file)
    resumed = own_mix(kind)
    samples, labels = batch_of(6)
    expected = with_mix.mix(samples, labels)[1]
    resumed.load_state_dict(safetensors.torch.load_file(file))
    assert torch.equal(resumed(samples, labels)[1], expected)


@BOTH
@pytest.mark.parametrize("average", [ModelEmaV3, AveragedModel])
def test_a_model_is_averaged_with_its_transform(kind, average):
    model = MixingModel(own_mix(kind))
    averaged = average(model)
    with torch.no_grad():
        model.body.weight.add_(1)
    update = averaged.update if average is ModelEmaV3 else averaged.update_parameters
    update(model)
    assert averaged.module.mix.p == 1


@BOTH
def test_controls_of_a_transform_made_in_inference_mode_can_be_set(kind):
    with torch.inference_mode():
        made = kind(num_classes=4)
        transforms = [made, copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))]
    for transform in transforms:
        transform.p = 0.5
        transform.eval().enabled = False
        assert (transform.p, transform.enabled) == (0.5, False)


def test_repr_shows_the_hyperparameters():
    assert repr(ZetaMixup(gamma=2.0, sources=4)) == (
        "ZetaMixup(gamma=2.0, sources=4, anchor='self', num_classes=None, p=1.0, until=1.0, "
        "enabled=True)"
    )
    assert repr(Mixup(num_classes=3, alpha=0.2, per="batch", p=0.5)) == (
        "Mixup(alpha=0.2, per='batch', num_classes=3, p=0.5, until=1.0, enabled=True)"
    )


@pytest.mark.parametrize("first", [2.8, (2.0, 4.0), sharper], ids=["number", "range", "schedule"])
def test_gamma_can_be_set(first):
    transform = ZetaMixup(num_classes=4, gamma=first)
    assert transform.gamma == (sharper(0) if first is sharper else first)
    transform.gamma = 3
    assert transform.gamma == 3.0
    assert "gamma=3.0" in repr(transform)
    heaviest = by_hand.weights_from_ranks([1, 2, 3, 4], 3.0)[0]
    assert_close(transform(*batch_of(4))[1].amax(1), torch.full((4,), heaviest))
    transform.gamma = (5.0, 6.0)
    assert transform.gamma == (5.0, 6.0)
    targets = transform(*batch_of(4))[1].amax(1)
    low, high = (by_hand.weights_from_ranks([1, 2, 3, 4], gamma)[0] for gamma in (5.0, 6.0))
    assert ((targets > low) & (targets < high)).all()
    assert len(targets.unique()) == 4


def test_gamma_that_was_set_is_checked_warned_about_and_saved():
    transform = ZetaMixup(num_classes=4)
    with pytest.raises(ValueError, match="gamma must be finite and at least 0"):
        transform.gamma = -1.0
    assert transform.gamma == 2.8
    with pytest.warns(UserWarning, match=r"gamma=1\.5 is below") as caught:
        transform.gamma = 1.5
    assert caught[0].filename == __file__
    assert copy.deepcopy(transform).gamma == copy.copy(transform).gamma == 1.5


@pytest.mark.parametrize("own", [True, False])
def test_a_generator_on_one_side_only_gives_a_warning(own):
    with_one = ZetaMixup(generator=torch.Generator())
    saved, loaded = (with_one, ZetaMixup()) if own else (ZetaMixup(), with_one)
    with pytest.warns(UserWarning, match="will not resume with the same random plans"):
        loaded.load_state_dict(saved.state_dict())


def test_names_follow_their_anchor():
    mix = ZetaMixup(rules={"x": Blend(), "file": FromAnchor()}, gamma=4.0, anchor="random")
    batch = mix({"x": torch.eye(5), "file": [f"{k}.png" for k in range(5)]})
    assert batch["file"] == [f"{k}.png" for k in batch["x"].argmax(1).tolist()]


def test_built_under_another_default_device():
    with torch.device("meta"):
        mix = ZetaMixup(num_classes=3)
    assert mix.enabled


@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize(
    ("kind", "dtype"), [(ZetaMixup, torch.bfloat16), (Mixup, torch.float32)], ids=str
)
def test_compiled_by_inductor_with_batches_of_changing_size(kind, dtype):
    compiled = torch.compile(kind(num_classes=12), fullgraph=True, dynamic=True)
    for batch in (12, 7):
        samples = torch.randn(batch, 3, 4, 4).to(dtype)
        mixed, targets = compiled(samples, torch.arange(batch))
        assert_close(targets.sum(1), torch.ones(batch))
        expected = targets[:, :batch].double() @ samples.double().flatten(1)
        assert_close(mixed, expected.view_as(samples))


SIZES = (2, 3, 5, 8, 13, 16, 31, 32, 64, 100, 128, 200)
COMPILED = {
    "zeta": (lambda: ZetaMixup(num_classes=200), SIZES),
    # a batch of fewer rows than sources has another graph
    "zeta, few sources": (lambda: ZetaMixup(num_classes=208, sources=8), [n + 8 for n in SIZES]),
    "zeta, range and p": (lambda: ZetaMixup(num_classes=200, gamma=(2.0, 4.0), p=0.5), SIZES),
    "mixup": (lambda: Mixup(num_classes=200, alpha=0.4), SIZES),
    "off": (lambda: ZetaMixup(num_classes=200).eval(), SIZES),
}


@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize(("make", "sizes"), COMPILED.values(), ids=COMPILED.keys())
def test_one_compiled_graph_serves_all_batch_sizes(make, sizes):
    graphs = []

    def count_graphs(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(make(), fullgraph=True, dynamic=True, backend=count_graphs)
    for batch in sizes:
        samples = torch.randn(batch, 3, 4, 4)
        mixed, targets = compiled(samples, torch.arange(batch))
        expected = targets[:, :batch].double() @ samples.double().flatten(1)
        assert_close(mixed, expected.view_as(samples))
    assert len(graphs) == 1


# loader workers: Python 3.12 warns about any fork of a process that has threads, as torch's has
workers_may_fork = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded, use of fork:DeprecationWarning"
)


def loader_of(transform, context, *, length=8, persistent=True):
    return DataLoader(
        OneClassEach(length),
        batch_size=4,
        num_workers=2,
        collate_fn=transform.collate,
        multiprocessing_context=context,
        persistent_workers=persistent,
    )


@workers_may_fork
@pytest.mark.parametrize(
    ("context", "own"),
    [("fork", True), ("spawn", True), ("spawn", False)],
    ids=["fork, own generator", "spawn, own generator", "spawn, default generator"],
)
def test_the_controls_reach_persistent_workers(context, own):
    generator = torch.Generator().manual_seed(0) if own else None
    transform = ZetaMixup(num_classes=8, gamma=sharper, generator=generator)
    loader = loader_of(transform, context)
    seen = []
    for epoch in (0, 2):
        transform.set_epoch(epoch)
        heaviest = by_hand.weights_from_ranks([1, 2, 3, 4], sharper(epoch))[0]
        for samples, targets in loader:
            assert_close(targets.amax(1), torch.full((4,), heaviest))
            assert_close(samples[:, 0], targets.double() @ torch.arange(8, dtype=torch.float64))
            seen.append(targets[:, targets.sum(0) > 0])
    # two workers and two epochs, from one seed: four different plans
    assert len(seen) == 4
    assert all(orders(a) != orders(b) for a, b in combinations(seen, 2))

    transform.gamma = 7.0
    heaviest = by_hand.weights_from_ranks([1, 2, 3, 4], 7.0)[0]
    for _, targets in loader:
        assert_close(targets.amax(1), torch.full((4,), heaviest))
    transform.gamma = (2.0, 3.0)
    assert all(len(targets.amax(1).unique()) == 4 for _, targets in loader)

    transform.p = 0.0
    assert all(is_unmixed(targets) for _, targets in loader)
    transform.p = 1.0
    transform.enabled = False
    assert all(is_unmixed(targets) for _, targets in loader)
    transform.enabled = True
    assert not any(is_unmixed(targets) for _, targets in loader)
    transform.eval()
    assert all(is_unmixed(targets) for _, targets in loader)
    transform.train()
    assert not any(is_unmixed(targets) for _, targets in loader)


@workers_may_fork
def test_workers_born_in_eval_mode_can_be_set_to_train():
    transform = ZetaMixup(num_classes=8).eval()
    loader = loader_of(transform, "fork")
    assert all(is_unmixed(targets) for _, targets in loader)
    transform.train()
    assert not any(is_unmixed(targets) for _, targets in loader)


@workers_may_fork
@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES.keys())
def test_the_switch_of_a_copy_reaches_its_workers(copied):
    twin = copied(ZetaMixup(num_classes=8))
    loader = loader_of(twin, "fork")
    assert not any(is_unmixed(targets) for _, targets in loader)
    twin.enabled = False
    assert all(is_unmixed(targets) for _, targets in loader)


@workers_may_fork
@pytest.mark.parametrize("own", [True, False], ids=["own generator", "default generator"])
@BOTH
def test_new_workers_of_every_epoch_draw_new_plans(kind, own):
    generator = torch.Generator().manual_seed(0) if own else None
    transform = kind(num_classes=16, generator=generator)
    loader = loader_of(transform, "fork", length=16, persistent=False)
    seen = [targets[:, targets.sum(0) > 0] for _ in range(2) for _, targets in loader]
    assert len(seen) == 8
    assert all(not torch.equal(a, b) for a, b in combinations(seen, 2))


@workers_may_fork
@pytest.mark.parametrize("own", [True, False], ids=["own generator", "default generator"])
def test_the_same_seeds_give_the_same_epoch_in_workers(own):
    epochs = []
    for _ in range(2):
        torch.manual_seed(11)
        generator = torch.Generator().manual_seed(0) if own else None
        loader = loader_of(ZetaMixup(num_classes=8, generator=generator), "fork")
        epochs.append([targets for _, targets in loader])
    assert all(torch.equal(a, b) for a, b in zip(*epochs, strict=True))


# errors name the entry


AGE = "In batch['age']."
WRONG_LENGTH = "The plan was made for a batch of 8, but targets has {} rows."
WRONG_NAMES = (
    "rules has the keys ['name'], but the batch has the keys ['id']. Pass one rule per entry."
)


@pytest.mark.parametrize(
    ("entry", "rule", "message", "note"),
    [
        (torch.rand(7), Average(), WRONG_LENGTH.format(7), AGE),
        ([1.0] * 8, Average(), "targets must be a tensor, got list.", AGE),
        ({"id": torch.rand(8)}, {"name": Average()}, WRONG_NAMES, AGE),
        (
            torch.full((8, 2, 2), 7),
            OneHot(5),
            "labels must lie in [0, 5), got 7. Is num_classes right?",
            AGE,
        ),
        (
            {"id": torch.arange(8)},
            FromAnchor(),
            "a FromAnchor entry must be a tensor, got dict.",
            f"{AGE} A dict needs a dict of rules.",
        ),
        (
            {"id": (torch.rand(8), torch.rand(3))},
            {"id": (Average(), Average())},
            WRONG_LENGTH.format(3),
            "In batch['age']['id'][1].",
        ),
    ],
    ids=["length", "type", "names", "values", "one rule for a dict", "nested"],
)
def test_an_error_names_its_entry(entry, rule, message, note):
    transform = ZetaMixup(rules={"x": Blend(), "age": rule})
    with pytest.raises((TypeError, ValueError)) as caught:
        transform({"x": torch.rand(8, 3), "age": entry})
    assert (str(caught.value), caught.value.__notes__) == (message, [note])


def test_the_first_entry_and_a_bad_rule_are_named_too():
    transform = ZetaMixup(rules={"meta": {"x": Blend()}})
    with pytest.raises(ValueError, match="samples must have a leading batch dim") as caught:
        transform({"meta": {"x": torch.tensor(1.0)}})
    assert caught.value.__notes__ == ["In batch['meta']['x']."]
    with pytest.raises(TypeError, match="A rule must be Blend") as caught:
        ZetaMixup(rules={"y": (Average(), FromAnchor)})
    assert caught.value.__notes__ == ["In rules['y'][1]."]


@pytest.mark.parametrize("p", [1.0, 0.5])
def test_of_a_pair_without_rules_an_error_says_labels_and_no_entry(p):
    with pytest.raises(ValueError, match=r"^labels must lie in \[0, 4\), got 7"):
        ZetaMixup(num_classes=4, p=p)(torch.rand(8, 3), torch.full((8,), 7))


def test_an_error_of_a_custom_rule_keeps_its_type_and_its_parts():
    class Refuses:
        def mix(self, value, plan):
            raise UnicodeDecodeError("utf-8", b"x", 0, 1, "no name")

    with pytest.raises(UnicodeDecodeError, match="no name") as caught:
        ZetaMixup(rules={"x": Blend(), "name": Refuses()})({"x": torch.rand(2), "name": "ab"})
    assert caught.value.__notes__ == ["In batch['name']."]


@pytest.mark.usefixtures("_fresh_compiler")
def test_rules_compile_into_one_graph():
    transform = ZetaMixup(rules={"x": Blend(), "meta": {"y": OneHot(4)}})
    compiled = torch.compile(transform, fullgraph=True, backend="aot_eager")
    samples = torch.rand(4, 3)
    mixed = compiled({"x": samples, "meta": {"y": torch.arange(4)}})
    assert_close(mixed["x"], mixed["meta"]["y"] @ samples)
