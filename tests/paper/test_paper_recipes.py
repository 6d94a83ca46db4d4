"""The paper's recipes: its values row by row, and one step on each dataset."""

import math

import pytest
import torch
from miniatures import installed

from paper import datasets
from paper.datasets import CATALOGUE
from paper.recipes import RECIPES
from zetamix.methods import parse
from zetamix_lab.train.trainer import Trainer

D1, D2, D3 = "paper, Appendix D.1", "paper, Appendix D.2", "paper, Appendix D.3"
# Appendix D as printed: section, epochs, batch, rate, milestones, factor, augmentation.
# D.3 leaves epochs and schedule to "the original paper", MedMNIST v1: 100, constant.
CIFAR = (D1, 200, 128, 0.1, (80, 120, 160), 0.2, "flip")
IMAGENET = (D1, 80, 32, 0.01, (25, 50, 65), 0.2, "flip")
DERM = (D2, 50, 32, 0.01, (10, 20, 30, 40), 0.1, "none")
MEDMNIST = (D3, 100, 128, 0.01, (), None, "none")
SKIN = ("isic2016", "isic2017", "isic2018", "msk", "uda", "dermofit", "derm7pt_clinical")
SKIN += ("derm7pt_dermoscopic", "ph2", "mednode")
GREY = ("octmnist", "pneumoniamnist", "breastmnist")
GREY += ("organmnist_axial", "organmnist_coronal", "organmnist_sagittal")
# and the channels and side of the images
PAPER = {
    "cifar10": (*CIFAR, 3, 32),
    "cifar100": (*CIFAR, 3, 32),
    "fashion_mnist": (D1, 200, 32, 0.1, (80, 120, 160), 0.2, "flip", 1, 28),
    "stl10": (D1, 120, 32, 0.1, (80,), 0.2, "flip", 3, 96),
    "imagenette": (*IMAGENET, 3, 224),
    "imagewoof": (*IMAGENET, 3, 224),
    **dict.fromkeys(SKIN, (*DERM, 3, 256)),
    "isic2018": (D2, 20, 32, 0.01, (4, 8, 12, 16), 0.1, "none", 3, 256),
    **dict.fromkeys(("pathmnist", "dermamnist"), (*MEDMNIST, 3, 28)),
    **dict.fromkeys(GREY, (*MEDMNIST, 1, 28)),
}

# momentum, Nesterov, weight decay, normalisation, what marks the best epoch
BY_SECTION = {
    D1: (0.9, True, 5e-4, "dataset", "accuracy"),
    D2: (0.9, True, 5e-4, "dataset", "balanced_accuracy"),
    D3: (0.9, False, 0.0, "half", "auc"),
}


def test_all_24_datasets_have_a_recipe():
    assert list(RECIPES) == list(PAPER)
    assert set(RECIPES) < set(CATALOGUE)


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
    passed = [sum(epoch >= milestone for milestone in milestones) for epoch in range(epochs)]
    expected = [lr * (decay or 1.0) ** count for count in passed]
    assert [recipe.rate(epoch) for epoch in range(epochs)] == pytest.approx(expected)


METHODS = ["none", "mixup", "cutmix", "zeta:2.8", "switch"]
CASES = [(name, "resnet18", METHODS[k % len(METHODS)]) for k, name in enumerate(PAPER)]
# the paper trains a ResNet-50 on skin images as well
CASES += [(name, "resnet50", "mixup") for name in ("isic2016", "isic2018", "mednode")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "model", "method"), CASES)
def test_every_recipe_takes_a_step_on_its_dataset(name, model, method, tmp_path):
    with installed(name, data_dir=tmp_path):
        dataset = datasets.load(name)
    # on a CPU a few images are enough: two of 224² pixels and more
    recipe = RECIPES[name].change(model=model, batch_size=2 if dataset.shape[-1] > 100 else 16)
    trainer = Trainer(dataset, parse(method), recipe)
    before = {key: value.clone() for key, value in trainer.model.state_dict().items()}
    trainer.start_epoch()
    trainer.step()
    assert trainer.step_in_epoch == 1
    assert trainer.optimizer.param_groups[0]["lr"] == recipe.lr
    # the loss of an untrained network is about the logarithm of the number of classes
    assert 0.1 < trainer.step_metrics[0, 0].item() / math.log(dataset.num_classes) < 4
    after = trainer.model.state_dict()
    assert not any(torch.equal(before[key], after[key]) for key in before if "weight" in key)
