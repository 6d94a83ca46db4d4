"""Networks by name: for any shape, from a seed; errors for those that do not fit."""

import pytest
import torch
from torch import nn

from zetamix_lab.models import default_model, initialise, is_random
from zetamix_lab.seeds import seeded


def count_parameters(model):
    return nn.utils.parameters_to_vector(model.parameters()).numel()


# ten classes; parameters of ResNets counted by hand from torchvision's (11,689,512 for ResNet-18 on
# ImageNet): its head has 513,000, ours 5,130; the small stem has 1,728 instead of 9,408
SHAPES = [
    ("digitnet", (1, 8, 8), 21_482),
    ("lenet5", (1, 28, 28), 61_750),
    ("lenet5", (3, 32, 32), None),
    ("smallnet", (3, 20, 33), None),
    ("mlp", (2,), 18_186),
    ("mlp", (1, 4, 4), None),
    ("resnet18", (3, 32, 32), 11_173_962),
    ("resnet18", (1, 28, 28), 11_172_810),
    ("resnet18", (3, 96, 96), 11_181_642),
    ("resnet50", (3, 64, 64), 23_520_842),
    ("mobilenet_v3_small", (3, 64, 64), None),
    ("squeezenet1_1", (1, 40, 40), None),
    ("convnext_tiny", (3, 64, 64), None),
    ("vit_b_32", (3, 64, 64), None),
    # built for this size: 2 × 3 patches
    ("timm:test_vit", (1, 32, 48), None),
    ("timm:test_resnet", (3, 100, 80), None),
]


@pytest.mark.parametrize(
    ("name", "shape", "parameters"), SHAPES, ids=[f"{row[0]}-{row[1]}" for row in SHAPES]
)
def test_logits_come_out(name, shape, parameters):
    model = initialise(name, 10, shape)
    assert model.training
    samples, before = torch.rand(2, *shape), torch.get_rng_state()
    with torch.no_grad():
        assert model(samples).shape == (2, 10)
    # the default generator advances for models with dropout or stochastic depth
    draws = name in ("mobilenet_v3_small", "squeezenet1_1", "convnext_tiny")
    assert torch.equal(torch.get_rng_state(), before) is not draws
    assert is_random(model) is draws
    if parameters is not None:
        assert count_parameters(model) == parameters


def test_small_images_get_a_small_stem():
    for shape, stem, is_small in (
        ((3, 64, 64), "auto", True),
        ((3, 64, 65), "auto", False),
        ((1, 96, 96), "small", True),
        ((3, 32, 32), "imagenet", False),
    ):
        model = initialise("resnet18", 2, shape, stem=stem)
        size, stride, pool = (3, 1, nn.Identity) if is_small else (7, 2, nn.MaxPool2d)
        first = model.conv1
        assert (first.kernel_size, first.stride, first.bias) == ((size,) * 2, (stride,) * 2, None)
        assert isinstance(model.maxpool, pool)
        # Kaiming, fan out, as torchvision's ResNets
        assert first.weight.std().item() == pytest.approx((2 / (64 * size**2)) ** 0.5, rel=0.1)


def test_the_default_is_chosen_by_shape():
    for shape, with_gpu, without in (
        ((5, 7), "mlp", "mlp"),
        ((3, 15, 15), "digitnet", "digitnet"),
        ((3, 8, 16), "resnet18", "smallnet"),
        ((3, 256, 256), "resnet18", "resnet18"),
    ):
        assert (default_model(shape), default_model(shape, gpu=False)) == (with_gpu, without)


REFUSED = [
    ("resnet81", (3, 32, 32), "a model such as smallnet, .* got 'resnet81'. Did you mean resn"),
    ("mobilevit_xxss", (3, 32, 32), "Did you mean timm:mobilevit_xxs"),
    ("timm:resnet81", (3, 32, 32), "Did you mean timm:resnet18"),
    ("fcn_resnet50", (3, 32, 32), "got 'fcn_resnet50'"),
    ("net.py:make", (3, 32, 32), r"A network of your own .*: --train train\.py:run\."),
    ("timm:resnet18", (2,), r"images, .* got samples of shape \(2,\)\. For points, use mlp\."),
    ("lenet5", (1, 8, 8), r"lenet5 needs images of at least 16 × 16, got 8 × 8\."),
    ("alexnet", (2, 64, 64), "alexnet does not accept images of 2 × 64 × 64: "),
    ("alexnet", (3, 32, 32), "32: Given input size.* Add --size 224 for image files of your own"),
    ("vit_b_16", (3, 40, 40), "images of 3 × 40 × 40: Input shape indivisible by patch size"),
    ("timm:test_vit", (1, 28, 28), "patches of 16 × 16 do not fill them"),
]


@pytest.mark.parametrize(("name", "shape", "message"), REFUSED)
def test_models_that_do_not_fit_are_refused(name, shape, message):
    with pytest.raises(ValueError, match=message):
        initialise(name, 10, shape)


@pytest.mark.parametrize("name", ["mlp", "mobilenet_v3_small"])
def test_a_seed_fixes_a_model_and_nothing_else(name):
    before = torch.get_rng_state()
    first, again, other = (
        nn.utils.parameters_to_vector(initialise(name, 3, (1, 32, 32), seed).parameters())
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    with pytest.raises(ValueError, match="no such seed"), seeded(5):
        raise ValueError(f"no such seed {torch.rand(1)}")
    assert torch.equal(torch.get_rng_state(), before)
