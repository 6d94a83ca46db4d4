"""Recipes: by the size of the data, changes by name, rates of PyTorch's schedules."""

import json
import math
from dataclasses import fields
from functools import partial

import pytest
import torch
from factories import two_crescents
from torch.optim.lr_scheduler import CosineAnnealingLR, MultiStepLR

from zetamix.methods import parse
from zetamix_lab.train import Recipe, RecipeError, default_recipe, make_recipe
from zetamix_lab.train.recipe import parse_changes


@pytest.mark.parametrize(
    ("options", "make"),
    [
        ({"schedule": "cosine"}, partial(CosineAnnealingLR, T_max=40)),
        ({"milestones": (1, 9), "decay": 0.3}, partial(MultiStepLR, milestones=(1, 9), gamma=0.3)),
    ],
    ids=["cosine", "steps"],
)
def test_every_epoch_has_the_rate_of_pytorchs_schedule(options, make):
    recipe = Recipe(source="", epochs=40, lr=0.2, **options)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=recipe.lr)
    scheduler = make(optimizer)
    for epoch in range(recipe.epochs):
        assert recipe.rate(epoch) == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()


OTHERS = [
    # shape, samples: model, batch, rate, augmentation
    (((1, 8, 8), 1257), ("digitnet", 64, 0.05, "none")),
    (((1, 8, 8), 999), ("digitnet", 32, 0.025, "none")),
    (((3, 128, 128), 500), ("resnet18", 32, 0.025, "flip")),
    (((3, 32, 32), 9_999), ("resnet18", 64, 0.05, "flip")),
    (((1, 28, 28), 10_000), ("resnet18", 128, 0.1, "none")),
    (((2,), 512), ("mlp", 32, 0.05, "none")),
]


@pytest.mark.parametrize(("data_size", "expected"), OTHERS)
def test_other_datasets_get_a_recipe_by_their_size(data_size, expected):
    recipe = default_recipe(*data_size)
    assert (recipe.source, recipe.schedule) == ("zetamix", "cosine")
    assert (recipe.model, recipe.batch_size, recipe.lr, recipe.augmentation) == expected


CIFAR = Recipe(
    source="a paper", model="resnet18", epochs=200, milestones=(80, 120, 160), evaluate_every=5
)
CHANGED = [
    (("lr=0.05",), {"lr": 0.05}),
    (("lr = 5e-2 ", "augmentation=crop-flip"), {"lr": 0.05, "augmentation": "crop-flip"}),
    (("nesterov=False",), {"nesterov": False}),
    (("milestones=10, 20",), {"milestones": (10, 20)}),
    (("milestones=",), {"milestones": ()}),
    (("model=resnet50", "batch_size=64"), {"model": "resnet50", "batch_size": 64}),
    (("epochs=20",), {"epochs": 20, "milestones": (8, 12, 16), "evaluate_every": 1}),
    (("epochs=20", "milestones=5"), {"epochs": 20, "milestones": (5,), "evaluate_every": 1}),
    (("epochs=80", "evaluate_every=4"), {"epochs": 80, "milestones": (32, 48, 64),
                                         "evaluate_every": 4}),
    (("epochs=400",), {"epochs": 400, "milestones": (160, 240, 320), "evaluate_every": 10}),
]  # fmt: skip


@pytest.mark.parametrize(("texts", "changed"), CHANGED, ids=[" ".join(o[0]) for o in CHANGED])
def test_changes_are_of_what_they_name(texts, changed):
    before, after = CIFAR.as_dict(), CIFAR.change(**parse_changes(texts)).as_dict()
    expected = {**before, **changed}
    assert after == {**expected, "milestones": list(expected["milestones"])}


NAMES = ", ".join(field.name for field in fields(Recipe) if field.name != "source")
REFUSED = [
    ("lrr=0.1", f"A recipe has no 'lrr'. Did you mean lr? It has: {NAMES}."),
    ("wibble=1", f"A recipe has no 'wibble'. It has: {NAMES}."),
    ("source=me", f"A recipe has no 'source'. It has: {NAMES}."),
    ("lr", "Expected name=value, such as lr=0.05, got 'lr'."),
    ("lr=fast", "lr: expected a value of type float, got 'fast'."),
    ("epochs=2.5", "epochs: expected a value of type int, got '2.5'."),
    ("nesterov=1", "nesterov: expected true or false, got '1'."),
    ("milestones=a", "milestones: expected epochs separated by commas, got 'a'."),
    ("milestones=20,10", "milestones must be at least 1 and increase, got (20, 10)."),
    ("milestones=-5", "milestones must be at least 1 and increase, got (-5,)."),
    ("augmentation=rotate", "augmentation must be one of none, flip, crop-flip, "
     "reflect-crop-flip, random-resized-crop, randaugment, trivial-augment, got 'rotate'."),
    ("select=loss", "select must be one of none, error, accuracy, balanced_accuracy, f1_micro, "
     "f1_macro, auc, nll, ece, map, hamming, got 'loss'."),
    ("epochs=0", "epochs must be from 1 to 1,048,575, got 0."),
    ("epochs=1048576", "epochs must be from 1 to 1,048,575, got 1048576."),
    ("batch_size=0", "batch_size must be from 1 to 1,048,575, got 0."),
    ("evaluate_every=0", "evaluate_every must be from 1 to 1,048,575, got 0."),
    ("lr=nan", "lr must be a finite number of at least 0, got nan."),
    ("weight_decay=-1", "weight_decay must be a finite number of at least 0, got -1.0."),
    ("warmup=200", "warmup must be at least 0 and less than the 200 epochs, got 200."),
    ("last_epochs=201", "last_epochs must be from 1 to the 200 epochs, got 201."),
    ("lr=0.1; lr=0.2", "lr is given twice; give it once."),
    ("momentum=0", "nesterov needs momentum above 0. Set nesterov=false."),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[row[0] for row in REFUSED])
def test_invalid_values_are_refused(text, message):
    with pytest.raises(RecipeError) as caught:
        CIFAR.change(**parse_changes(text.split(";")))
    assert str(caught.value) == message


def test_a_method_that_mixes_more_samples_than_a_batch_has_is_refused():
    recipe = Recipe(source="", batch_size=32)
    for fits in ("none", "mixup", "zeta", "zeta:sources=32"):
        recipe.check_sources(parse(fits), 1000)
    with pytest.raises(RecipeError, match=r"mixes 33 samples, but a batch has 32\. Use"):
        recipe.check_sources(parse("zeta:sources=33"), 1000)
    with pytest.raises(RecipeError, match="a batch has 20"):
        # a batch is never larger than what there is
        recipe.check_sources(parse("zeta:sources=30"), 20)


def test_options_of_a_command_change_the_recipe():
    dataset = two_crescents()
    assert make_recipe(dataset) == default_recipe(dataset.shape, len(dataset.train))
    # epochs scale the milestones of the recipe, but not those that are given
    recipe = make_recipe(dataset, **parse_changes(["milestones=5,10"], model="mlp", epochs=20))
    assert (recipe.model, recipe.epochs, recipe.milestones) == ("mlp", 20, (5, 10))


def test_warm_up_then_cosine():
    """Step by step up, then as CosineAnnealingLR over the epochs left."""
    recipe = Recipe(source="", epochs=12, lr=0.2, schedule="cosine", warmup=2)
    rates = [recipe.rate(e, (s + 1) / 5) for e in range(2) for s in range(5)]
    assert rates == pytest.approx([0.2 * (n + 1) / 10 for n in range(10)])
    plain = Recipe(source="", epochs=10, lr=0.2, schedule="cosine")
    assert [recipe.rate(e) for e in range(2, 12)] == [plain.rate(e) for e in range(10)]
    assert [recipe.change(epochs=epochs).warmup for epochs in (1, 6)] == [0, 1]


def test_sgd_without_warm_up_leaves_keys_as_they_were(digits):
    later = {"optimizer", "warmup", "class_weights"}
    assert not {*later, "weights", "last_epochs"} & set(CIFAR.as_dict())
    adamw = make_recipe(digits, optimizer="adamw", class_weights="balanced")
    assert later <= set(adamw.as_dict())
    assert Recipe.from_dict(json.loads(json.dumps(adamw.as_dict()))) == adamw
    # of an earlier version, with a network of the user's
    with pytest.raises(RecipeError, match=r"^A recipe has no 'code'\."):
        Recipe.from_dict({**CIFAR.as_dict(), "code": {"file": "net.py"}})


def test_adamw_brings_rates_and_a_schedule_that_suit_it(digits):
    recipe = make_recipe(digits, optimizer="adamw")
    assert (recipe.schedule, recipe.weight_decay, recipe.warmup) == ("cosine", 0.05, 3)
    assert recipe.lr == pytest.approx(5e-4 * math.sqrt(recipe.batch_size / 128))
    assert recipe.optimisation == (
        "AdamW, learning rate 0.00025 (cosine after 3 epochs of warm-up), weight decay 0.05"
    )
    changed = make_recipe(digits, optimizer="adamw", epochs=10, lr=0.003, warmup=4)
    assert (changed.lr, changed.warmup, changed.epochs) == (0.003, 4, 10)
    # networks with layer normalisation get it, unless another optimiser is asked for
    for model, optimizer in (("timm:test_efficientnet_ln", "adamw"), ("timm:test_resnet", "sgd")):
        assert make_recipe(digits, model=model).optimizer == optimizer
    plain = make_recipe(digits, model="timm:test_efficientnet_ln", optimizer="sgd")
    assert plain.optimisation == (
        "SGD with momentum 0.9 (Nesterov), learning rate 0.025 (cosine), weight decay 0.0005"
    )
