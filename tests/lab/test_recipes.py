"""Recipes: the values of the paper row by row, changes by name, one step on each dataset."""

import json
import math
from dataclasses import fields

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from miniatures import installed

from zetamix.methods import parse
from zetamix_lab import data
from zetamix_lab.data.catalogue import CATALOGUE
from zetamix_lab.metrics import classify
from zetamix_lab.train import RECIPES, Recipe, RecipeError, default_recipe, make_recipe
from zetamix_lab.train.paper_recipes import SAME_AS
from zetamix_lab.train.trainer import Trainer

NATURAL, SKIN, MED = "paper, Appendix D.1", "paper, Appendix D.2", "paper, Appendix D.3"
# Appendix D as printed: section, epochs, batch, rate, milestones, factor, augmentation.
# D.3 leaves epochs and schedule to "the original paper", MedMNIST v1: 100, constant.
CIFAR = (NATURAL, 200, 128, 0.1, (80, 120, 160), 0.2, "flip")
IMAGENET = (NATURAL, 80, 32, 0.01, (25, 50, 65), 0.2, "flip")
DERM = (SKIN, 50, 32, 0.01, (10, 20, 30, 40), 0.1, "none")
MEDMNIST = (MED, 100, 128, 0.01, (), None, "none")
# and the channels and side of the images
PAPER = {
    "cifar10": (*CIFAR, 3, 32),
    "cifar100": (*CIFAR, 3, 32),
    "fashion_mnist": (NATURAL, 200, 32, 0.1, (80, 120, 160), 0.2, "flip", 1, 28),
    "stl10": (NATURAL, 120, 32, 0.1, (80,), 0.2, "flip", 3, 96),
    "imagenette": (*IMAGENET, 3, 224),
    "imagewoof": (*IMAGENET, 3, 224),
    "isic2016": (*DERM, 3, 256),
    "isic2017": (*DERM, 3, 256),
    "isic2018": (SKIN, 20, 32, 0.01, (4, 8, 12, 16), 0.1, "none", 3, 256),
    **dict.fromkeys(("msk", "uda", "dermofit"), (*DERM, 3, 256)),
    **dict.fromkeys(("derm7pt_clinical", "derm7pt_dermoscopic"), (*DERM, 3, 256)),
    **dict.fromkeys(("ph2", "mednode"), (*DERM, 3, 256)),
    **dict.fromkeys(("pathmnist", "dermamnist"), (*MEDMNIST, 3, 28)),
    **dict.fromkeys(("octmnist", "pneumoniamnist", "breastmnist"), (*MEDMNIST, 1, 28)),
    **dict.fromkeys(("organmnist_axial", "organmnist_coronal"), (*MEDMNIST, 1, 28)),
    "organmnist_sagittal": (*MEDMNIST, 1, 28),
}

# momentum, Nesterov, weight decay, normalisation, what marks the best epoch
BY_SECTION = {
    NATURAL: (0.9, True, 5e-4, "dataset", "accuracy"),
    SKIN: (0.9, True, 5e-4, "dataset", "balanced_accuracy"),
    MED: (0.9, False, 0.0, "half", "auc"),
}


def test_all_24_datasets_have_a_recipe():
    assert list(RECIPES) == list(PAPER)
    assert set(RECIPES) < set(CATALOGUE)


def assert_rates(recipe, scheduler, **options):
    """Every epoch has the rate of one of PyTorch's schedulers."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=recipe.lr)
    scheduler = scheduler(optimizer, **options)
    for epoch in range(recipe.epochs):
        assert recipe.rate(epoch) == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize("name", PAPER)
def test_a_recipe_has_the_values_of_the_paper(name):
    source, epochs, batch, lr, milestones, decay, augmentation, channels, side = PAPER[name]
    recipe = RECIPES[name]
    assert (recipe.source, recipe.model) == (source, "resnet18")
    assert (recipe.epochs, recipe.batch_size, recipe.lr) == (epochs, batch, lr)
    assert (recipe.schedule, recipe.milestones) == ("steps", milestones)
    assert decay is None or recipe.decay == decay
    assert recipe.augmentation == augmentation
    momentum, nesterov, weight_decay, normalize, select = BY_SECTION[source]
    assert (recipe.momentum, recipe.nesterov) == (momentum, nesterov)
    assert recipe.weight_decay == weight_decay
    assert (recipe.normalize, recipe.select, recipe.stem) == (normalize, select, "auto")
    assert CATALOGUE[name].shape == (channels, side, side)
    # the last epoch, and every one that the schedule counts in, is evaluated
    assert recipe.epochs % recipe.evaluate_every == 0
    schedule = torch.optim.lr_scheduler.MultiStepLR
    assert_rates(recipe, schedule, milestones=milestones, gamma=decay or 1.0)


def test_cosine_annealing():
    recipe = Recipe(source="", epochs=40, lr=0.2, schedule="cosine")
    assert_rates(recipe, torch.optim.lr_scheduler.CosineAnnealingLR, T_max=40)
    assert recipe.rate(40) == pytest.approx(0)


@pytest.mark.parametrize(("today", "paper"), SAME_AS.items())
def test_the_current_organ_datasets_use_the_recipes_of_the_paper(today, paper):
    assert default_recipe(today, (1, 28, 28), 100) == RECIPES[paper]


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
    recipe = default_recipe("yours", *data_size)
    assert (recipe.source, recipe.schedule) == ("zetamix", "cosine")
    assert (recipe.model, recipe.batch_size, recipe.lr, recipe.augmentation) == expected


OVERRIDES = [
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


@pytest.mark.parametrize(("texts", "changed"), OVERRIDES, ids=[" ".join(o[0]) for o in OVERRIDES])
def test_overrides_change_what_they_name(texts, changed):
    before, after = RECIPES["cifar10"].as_dict(), RECIPES["cifar10"].override(*texts).as_dict()
    expected = {**before, **changed}
    assert after == {**expected, "milestones": list(expected["milestones"])}


NAMES = ", ".join(field.name for field in fields(Recipe) if field.name not in ("source", "code"))
REFUSED = [
    ("lrr=0.1", f"A recipe has no 'lrr'. Did you mean lr? It has: {NAMES}."),
    ("wibble=1", f"A recipe has no 'wibble'. It has: {NAMES}."),
    ("source=me", f"A recipe has no 'source'. It has: {NAMES}."),
    ("lr", "Expected name=value, such as lr=0.05, got 'lr'."),
    ("lr=fast", "lr: expected a value of type float, got 'fast'."),
    ("epochs=2.5", "epochs: expected a value of type int, got '2.5'."),
    ("nesterov=1", "nesterov: expected true or false, got '1'."),
    ("milestones=a", "milestones: expected epochs separated by commas, got 'a'."),
    ("milestones=20,10", "milestones must increase, got [20, 10]."),
    ("augmentation=rotate", "augmentation must be one of none, flip, crop-flip, got 'rotate'."),
    ("select=loss", "select must be one of error, accuracy, balanced_accuracy, f1_micro, f1_macro, "
     "auc, nll, ece, map, hamming, got 'loss'."),
    ("epochs=0", "epochs must be at least 1, got 0."),
    ("batch_size=0", "batch_size must be at least 1, got 0."),
    ("evaluate_every=0", "evaluate_every must be at least 1, got 0."),
    ("lr=nan", "lr must be a finite number of at least 0, got nan."),
    ("weight_decay=-1", "weight_decay must be a finite number of at least 0, got -1.0."),
    ("lr=0.1; lr=0.2", "lr is given twice; give it once."),
    ("momentum=0", "nesterov needs momentum above 0. Set nesterov=false."),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[row[0] for row in REFUSED])
def test_invalid_values_are_refused(text, message):
    with pytest.raises(RecipeError) as caught:
        RECIPES["cifar10"].override(*text.split(";"))
    assert str(caught.value) == message


def test_recipes_survive_json():
    for recipe in RECIPES.values():
        assert Recipe.from_dict(json.loads(json.dumps(recipe.as_dict()))) == recipe


@given(st.integers(1, 400), st.sampled_from(sorted(PAPER)))
def test_any_number_of_epochs_keeps_the_shape_of_the_schedule(epochs, name):
    recipe = RECIPES[name].change(epochs=epochs)
    rates = [recipe.rate(epoch) for epoch in range(epochs)]
    assert rates[0] == recipe.lr
    assert rates == sorted(rates, reverse=True)
    assert all(1 <= milestone <= max(1, epochs) for milestone in recipe.milestones)
    if epochs >= 40:
        assert len(recipe.milestones) == len(RECIPES[name].milestones)
        assert rates[-1] == pytest.approx(RECIPES[name].rate(RECIPES[name].epochs - 1))


# on a CPU a few images are enough: two of 224² pixels and more
FEW, SOME = 2, 16
METHODS = ["none", "mixup", "cutmix", "zeta:2.8", "local"]
# the paper trains a ResNet-50 on skin images as well
DEEPER = ["isic2016", "isic2018", "mednode"]


def cases():
    for number, name in enumerate(PAPER):
        method = METHODS[number % len(METHODS)]
        yield pytest.param(name, "resnet18", method, id=f"{name}-{method}")
        if name in DEEPER:
            yield pytest.param(name, "resnet50", method, id=f"{name}-resnet50-{method}")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "model", "method"), list(cases()))
def test_every_recipe_takes_a_step_on_its_dataset(name, model, method, tmp_path):
    with installed(name, data_dir=tmp_path):
        dataset = data.load(name)
    recipe = default_recipe(dataset.name, dataset.shape, len(dataset.train))
    large = dataset.shape[-1] > 100
    recipe = recipe.change(model=model, batch_size=FEW if large else SOME)
    trainer = Trainer(dataset, parse(method), recipe)
    before = {key: value.clone() for key, value in trainer.model.state_dict().items()}
    trainer.start_epoch()
    trainer.step()
    assert trainer.step_in_epoch == 1
    assert trainer.optimizer.param_groups[0]["lr"] == recipe.lr
    loss = trainer.step_metrics[0, 0].item()
    # the loss of an untrained network is about the logarithm of the number of classes
    assert 0.1 < loss / math.log(dataset.num_classes) < 4
    after = trainer.model.state_dict()
    assert not any(torch.equal(before[key], after[key]) for key in before if "weight" in key)
    if not large:
        few = dataset.test.keep(torch.arange(len(dataset.test))[:SOME])
        assert 0 <= classify(*trainer.predict(few))["error"] <= 1


def test_a_method_that_mixes_more_samples_than_a_batch_has_is_refused():
    recipe = Recipe(source="", batch_size=32)
    for fits in ("none", "mixup", "zeta", "zeta:sources=32", "local:sources=2"):
        recipe.check_sources(parse(fits), 1000)
    with pytest.raises(RecipeError, match=r"mixes 33 samples, but a batch has 32\. Use"):
        recipe.check_sources(parse("zeta:sources=33"), 1000)
    with pytest.raises(RecipeError, match="a batch has 20"):
        # a batch is never larger than what there is
        recipe.check_sources(parse("zeta:sources=30"), 20)
    with pytest.raises(RecipeError, match="a batch has 16 in each process"):
        recipe.check_sources(parse("local:sources=32"), 1000, processes=2)


def test_options_of_a_command_change_the_recipe():
    dataset = data.load("crescents")
    recipe = make_recipe(
        dataset, model="mlp", epochs=20, changes=["milestones=5,10", "schedule=steps"]
    )
    # epochs scale the milestones of the recipe, but not those that are given
    assert (recipe.model, recipe.epochs, recipe.milestones) == ("mlp", 20, (5, 10))
    assert make_recipe(dataset) == default_recipe(dataset.name, dataset.shape, len(dataset.train))
    with pytest.raises(RecipeError, match="epochs is given twice"):
        make_recipe(dataset, epochs=20, changes=["epochs=30"])


def test_warm_up_then_cosine():
    """Step by step up, as LinearLR per step, then as CosineAnnealingLR over the epochs left."""
    recipe = Recipe(source="", epochs=12, lr=0.2, schedule="cosine", warmup=2)
    steps = 5
    rates = [recipe.rate(e, (s + 1) / steps) for e in range(2) for s in range(steps)]
    assert rates == pytest.approx([0.2 * (n + 1) / 10 for n in range(10)])
    plain = Recipe(source="", epochs=10, lr=0.2, schedule="cosine")
    assert [recipe.rate(e) for e in range(2, 12)] == [plain.rate(e) for e in range(10)]
    assert recipe.change(epochs=6).warmup == 1
    assert recipe.change(epochs=1).warmup == 0
    with pytest.raises(RecipeError, match="warmup must be at least 0 and less than the 3 epochs"):
        Recipe(source="", epochs=3, warmup=3)


def test_sgd_without_warm_up_leaves_keys_as_they_were(digits):
    assert not {"optimizer", "warmup", "code", "weights"} & set(RECIPES["cifar10"].as_dict())
    adamw = make_recipe(digits, optimizer="adamw")
    assert {"optimizer", "warmup"} <= set(adamw.as_dict())
    assert Recipe.from_dict(json.loads(json.dumps(adamw.as_dict()))) == adamw


def test_adamw_brings_rates_and_a_schedule_that_suit_it(digits):
    recipe = make_recipe(digits, optimizer="adamw")
    assert recipe == make_recipe(digits, changes=["optimizer=adamw"])
    assert (recipe.schedule, recipe.weight_decay, recipe.warmup) == ("cosine", 0.05, 3)
    assert recipe.lr == pytest.approx(5e-4 * math.sqrt(recipe.batch_size / 128))
    changed = make_recipe(digits, optimizer="adamw", epochs=10, changes=["lr=0.003", "warmup=4"])
    assert (changed.lr, changed.warmup, changed.epochs) == (0.003, 4, 10)


@pytest.mark.parametrize(
    ("model", "optimizer"),
    [("timm:test_vit", "adamw"), ("timm:test_resnet", "sgd"), ("digitnet", "sgd")],
)
def test_networks_with_layer_normalisation_get_adamw(digits, model, optimizer):
    assert make_recipe(digits, model=model).optimizer == optimizer
    assert make_recipe(digits, model=model, optimizer="sgd").optimizer == "sgd"


def test_a_recipe_says_how_it_optimises(digits):
    assert make_recipe(digits).optimisation == (
        "SGD with momentum 0.9 (Nesterov), learning rate 0.025 (cosine), weight decay 0.0005"
    )
    assert make_recipe(digits, optimizer="adamw").optimisation == (
        "AdamW, learning rate 0.00025 (cosine after 3 epochs of warm-up), weight decay 0.05"
    )
    assert make_recipe(digits).start == "from scratch"


@pytest.mark.parametrize(
    ("shape", "classes", "source"),
    [((3, 32, 32), 10, NATURAL), ((3, 32, 32), 3, "zetamix"), ((8,), 10, "zetamix")],
)
def test_data_that_only_has_the_name_of_a_dataset_gets_its_own_recipe(shape, classes, source):
    labels = torch.arange(30) % classes
    splits = dict.fromkeys(("train", "test"), (torch.zeros(30, *shape), labels))
    names = [str(k) for k in range(classes)]
    made = data.from_tensors("cifar10", splits, names)
    assert make_recipe(made).source == source
