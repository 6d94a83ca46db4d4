"""ZetaMixCallback inside fastai's Learner: the same batches and weights as a plain loop."""

import copy
import doctest
import warnings
from importlib import import_module
from types import SimpleNamespace

import pytest
import torch
from conftest import assert_close
from torch import nn

from zetamix import Mixup, ZetaMix, ZetaMixup, soft_cross_entropy
from zetamix.transforms import CutMix, LabelSmoothing

# load_learner warns that it uses pickle
pytestmark = pytest.mark.filterwarnings("ignore:load_learner:UserWarning")

CLASSES = 3


@pytest.fixture(scope="module")
def fa():
    """fastai's names and ours: imported when the first test runs, in 2 s, not at collection."""
    pytest.importorskip("fastai", reason="needs the package fastai")
    with warnings.catch_warnings():
        # fastai scripts functions, which torch calls deprecated
        warnings.simplefilter("ignore")
        basics = import_module("fastai.basics")
        training = import_module("fastai.callback.training")
        ours = import_module("zetamix.integrations.fastai")
    names = {**vars(basics), "GradientAccumulation": training.GradientAccumulation}
    return SimpleNamespace(
        **{**names, "losses": import_module("fastai.losses"), "ours": ours},
        Mix=ours.ZetaMixCallback,
    )


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def data(count):
    """Normalised images and labels, plain tensors."""
    return torch.randn(count, 1, 4, 4, generator=seeded(count)), torch.arange(count) % CLASSES


def linear_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, CLASSES))


class Samples(list):
    """A dataset that a learner can be exported with."""

    def new_empty(self):
        return Samples()


def make_learner(fa, *cbs, loss_func=None, make_labels=None, size=4, **options):
    """13 samples in batches of 4: the last batch holds one."""

    def loader(count):
        images, labels = data(count)
        if make_labels:
            labels = make_labels(labels)
        else:
            labels = [fa.TensorCategory(label) for label in labels]
        images = [fa.TensorImage(image) for image in images]
        return fa.DataLoader(Samples(zip(images, labels, strict=True)), bs=size)

    return fa.Learner(
        fa.DataLoaders(loader(13), loader(9)),
        linear_model(),
        loss_func or fa.losses.CrossEntropyLossFlat(),
        opt_func=fa.SGD,
        lr=0.1,
        cbs=cbs,
        **options,
    )


def plain_loop(transform, epochs=2, loss=soft_cross_entropy, make_labels=None):
    model = linear_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    images, labels = data(13)
    labels = make_labels(labels) if make_labels else labels
    for epoch in range(epochs):
        transform.set_epoch(epoch)
        for batch in zip(images.split(4), labels.split(4), strict=True):
            mixed, targets = transform(*batch)
            value = loss(model(mixed), targets)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
    return model


def assert_same(ours, plain):
    for one, other in zip(ours.parameters(), plain.parameters(), strict=True):
        assert_close(one, other)


def schedule(epoch):
    return 2.0 + 3 * epoch


def seeded_mixup():
    return Mixup(num_classes=CLASSES, generator=seeded())


@pytest.mark.parametrize(
    "make",
    [
        lambda: ZetaMix(num_classes=CLASSES, generator=seeded()),
        lambda: ZetaMixup(num_classes=CLASSES, gamma=schedule, generator=seeded()),
        seeded_mixup,
        lambda: CutMix(num_classes=CLASSES, generator=seeded()),
    ],
    ids=["zetamix", "schedule", "mixup", "cutmix"],
)
def test_two_epochs_equal_a_plain_loop(fa, make):
    transform = make()
    learn = make_learner(fa, fa.Mix(transform))
    with learn.no_logging(), learn.no_bar():
        learn.fit(2)
    assert transform.epoch == 1
    assert_same(learn.model, plain_loop(make()))


@pytest.mark.parametrize("until", [0.8, None])
def test_mixing_ends_with_until_or_where_a_callback_switches_it_off(fa, until):
    transform, seen = ZetaMix(num_classes=CLASSES, generator=seeded()), []

    class EndMixing(fa.Callback):
        def before_epoch(self):
            if until is None:
                transform.enabled = self.epoch < 0.8 * self.n_epoch

        def after_pred(self):
            if self.training:
                seen.append((self.epoch, self.xb[0].as_subclass(torch.Tensor)))

    learn = make_learner(fa, fa.Mix(transform, until=until), EndMixing())
    with learn.no_logging(), learn.no_bar():
        learn.fit(5)
    images, _ = data(13)
    batches = [torch.cat([x for epoch, x in seen if epoch == k]) for k in range(5)]
    assert [torch.equal(batch, images) for batch in batches] == [False] * 4 + [True]


def test_until_is_for_transforms_that_mix(fa):
    with pytest.raises(TypeError, match="got LabelSmoothing"):
        fa.Mix(LabelSmoothing(num_classes=CLASSES), until=0.8)
    assert fa.Mix(LabelSmoothing(num_classes=CLASSES)).until is None


def fit(learn, **options):
    with learn.no_logging(), learn.no_bar():
        learn.fit(1, **options)


def test_class_weights_and_smoothing_are_those_of_the_learner(fa):
    options = {"weight": torch.tensor([1.0, 4.0, 2.0]), "label_smoothing": 0.1}
    loss_func = fa.losses.CrossEntropyLossFlat(**options)
    learn = make_learner(fa, fa.Mix(seeded_mixup()), loss_func=loss_func)
    fit(learn)

    def loss(logits, targets):
        return soft_cross_entropy(logits, targets, **options)

    assert_same(learn.model, plain_loop(seeded_mixup(), 1, loss))


@pytest.mark.parametrize(
    "make",
    [
        lambda losses: losses.CrossEntropyLossFlat(),
        lambda losses: losses.CrossEntropyLossFlat(weight=torch.arange(1.0, 4), reduction="sum"),
        lambda losses: nn.CrossEntropyLoss(ignore_index=1),
        lambda losses: losses.LabelSmoothingCrossEntropyFlat(eps=0.3),
        lambda losses: losses.LabelSmoothingCrossEntropy(),
    ],
)
def test_soft_losses_agree_with_the_hard_ones_on_one_hot_targets(fa, make):
    loss_func = make(fa.losses)
    logits, labels = torch.randn(6, CLASSES, generator=seeded()), torch.tensor([0, 1, 2, 2, 1, 0])
    one_hot = nn.functional.one_hot(labels, CLASSES).float()
    hard = loss_func(logits, labels).as_subclass(torch.Tensor)
    assert_close(fa.ours.soft_loss(loss_func)(logits, one_hot), hard)


def test_multi_label_targets_keep_their_loss(fa):
    def multi_hot(labels):
        return nn.functional.one_hot(labels, CLASSES).float()

    loss_func = fa.losses.BCEWithLogitsLossFlat()
    mix = fa.Mix(Mixup(generator=seeded()))
    learn = make_learner(fa, mix, loss_func=loss_func, make_labels=multi_hot)
    fit(learn)
    plain = plain_loop(Mixup(generator=seeded()), 1, loss_func, multi_hot)
    assert_same(learn.model, plain)


def test_validation_is_not_mixed_and_metrics_see_the_labels(fa):
    seen = []

    class Watch(fa.Callback):
        def before_batch(self):
            seen.append((self.learn.training, self.learn.xb[0]))

    learn = make_learner(fa, fa.Mix(seeded_mixup()), Watch(), metrics=fa.accuracy)
    learn.recorder.train_metrics = True
    fit(learn)
    images, labels = data(9)
    plain = [value.as_subclass(torch.Tensor) for training, value in seen if not training]
    assert torch.equal(torch.cat(plain), images)
    trained = [value for training, value in seen if training]
    assert all(isinstance(value, fa.TensorImage) for value in trained)
    assert [len(value) for value in trained] == [4, 4, 4, 1]
    assert not torch.equal(trained[0].as_subclass(torch.Tensor), data(13)[0][:4])
    values = dict(zip(learn.recorder.metric_names[1:-1], learn.recorder.values[-1], strict=True))
    expected = (learn.model(images).argmax(1) == labels).float().mean()
    assert values["valid_accuracy"] == pytest.approx(float(expected))
    assert 0 <= values["train_accuracy"] <= 1


def test_the_recorded_loss_is_that_of_the_soft_targets(fa):
    learn = make_learner(fa, fa.Mix(seeded_mixup()), size=13)
    fit(learn)
    images, targets = seeded_mixup()(*data(13))
    expected = soft_cross_entropy(linear_model()(images), targets).detach()
    assert float(learn.recorder.losses[0]) == pytest.approx(float(expected), rel=1e-5)


def test_gradient_accumulation_scales_the_loss_of_mixed_batches(fa):
    learn = make_learner(fa, fa.Mix(seeded_mixup()), fa.GradientAccumulation(n_acc=8))
    fit(learn)
    # fastai: mean losses times batch size over n_acc, and a step once n_acc samples were seen
    model, transform, seen = linear_model(), seeded_mixup(), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images, labels in zip(*(part.split(4) for part in data(13)), strict=True):
        mixed, targets = transform(images, labels)
        (soft_cross_entropy(model(mixed), targets) * len(images) / 8).backward()
        seen += len(images)
        if seen >= 8:
            optimizer.step()
            optimizer.zero_grad()
            seen = 0
    assert_same(learn.model, model)


def test_a_learner_is_exported_and_loaded(fa, tmp_path):
    learn = make_learner(fa, fa.Mix(ZetaMix(num_classes=CLASSES, generator=seeded())))
    learn.path = tmp_path
    fit(learn)
    expected = copy.deepcopy(learn.model)
    learn.export("model.pkl")
    again = fa.load_learner(tmp_path / "model.pkl")
    assert_same(again.model, expected)
    assert any(isinstance(callback, fa.Mix) for callback in again.cbs)


def test_an_interrupted_fit_leaves_the_learner_as_it_was(fa):
    class Stop(fa.Callback):
        def after_pred(self):
            raise KeyboardInterrupt

    loss_func = fa.losses.CrossEntropyLossFlat()
    learn = make_learner(fa, fa.Mix(seeded_mixup()), loss_func=loss_func)
    with pytest.raises(KeyboardInterrupt):
        fit(learn, cbs=Stop())
    learn.remove_cb(Stop)
    assert learn.loss_func is loss_func
    with learn.no_logging(), learn.no_bar():
        images, labels = data(9)
        expected = nn.functional.cross_entropy(learn.model(images), labels).detach()
        assert float(learn.validate()[0]) == pytest.approx(float(expected), rel=1e-5)
    fit(learn)


def test_losses_and_arguments_that_do_not_fit(fa):
    with pytest.raises(TypeError, match="FocalLossFlat takes class indices only"):
        fit(make_learner(fa, fa.Mix(seeded_mixup()), loss_func=fa.losses.FocalLossFlat()))
    own = fa.Mix(seeded_mixup(), loss_func=soft_cross_entropy)
    learn = make_learner(fa, own, loss_func=fa.losses.FocalLossFlat())
    fit(learn)
    assert_same(learn.model, plain_loop(seeded_mixup(), 1))
    with pytest.raises(TypeError, match="transform must be one of ZetaMix"):
        fa.Mix(0.4)


def test_the_example_of_the_docstring_runs(fa):
    assert doctest.testmod(fa.ours) == (0, 2)
