"""ZetaMixd on collated batches of MONAI: the same batches and weights as a plain loop."""

import doctest
import warnings
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import assert_close
from torch import nn

from zetamix import ZetaMix, ZetaMixup
from zetamix.rules import Average, Blend, OneHot
from zetamix.transforms import CutMix, Mixup

CLASSES = 3


@pytest.fixture(scope="module")
def monai():
    """MONAI's names and ours: imported when the first test runs, in 5 s, not at collection."""
    pytest.importorskip("monai", reason="needs the package monai")
    with warnings.catch_warnings():
        # MONAI and what it imports warn about themselves
        warnings.simplefilter("ignore")
        data, losses, transforms, ours = (
            import_module(name)
            for name in (
                "monai.data",
                "monai.losses",
                "monai.transforms",
                "zetamix.integrations.monai",
            )
        )
    return SimpleNamespace(
        data=data, losses=losses, transforms=transforms, ours=ours, ZetaMixd=ours.ZetaMixd
    )


def volumes(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 1, 4, 4, 4, generator=generator)
    return images, torch.randint(CLASSES, (count, 1, 4, 4, 4), generator=generator)


def plain_mixes(seed, make):
    """A function that mixes batch after batch as ZetaMixd does, written out."""
    state = np.random.RandomState(seed)

    def mix(images, labels):
        generator = torch.Generator().manual_seed(int(state.randint(2**31)))
        return make(num_classes=CLASSES, generator=generator)(images, labels)

    return mix


def loader(monai, count=5, size=2):
    """Five volumes in batches of two, as MetaTensors: the last batch holds one."""
    images, labels = volumes(count)
    items = []
    for k in range(count):
        affine = torch.diag(torch.tensor([1.0 + k, 1, 1, 1]))
        items.append(
            {
                "image": monai.data.MetaTensor(images[k], affine=affine, meta={"file": f"{k}.nii"}),
                "label": monai.data.MetaTensor(labels[k], affine=affine, meta={"file": f"{k}.nii"}),
                "age": float(k),
                "name": f"case {k}",
            }
        )
    return monai.data.DataLoader(monai.data.Dataset(items), batch_size=size)


def network():
    torch.manual_seed(0)
    return nn.Conv3d(1, CLASSES, 3, padding=1)


@pytest.mark.parametrize("mixer", [ZetaMix, ZetaMixup, Mixup])
def test_two_epochs_equal_a_plain_loop(monai, mixer):
    criterion = monai.losses.DiceCELoss(softmax=True)

    def train(mix, batches):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for images, labels in batches:
            images, targets = mix(images, labels)
            loss = criterion(model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return model

    mixd = monai.ZetaMixd("image", "label", CLASSES, mixer=mixer).set_random_state(seed=7)

    def of_batch(images, labels):
        batch = mixd({"image": images, "label": labels})
        return batch["image"], batch["label"]

    collated = [(b["image"], b["label"]) for _ in range(2) for b in loader(monai)]
    images, labels = volumes(5)
    plain = [pair for _ in range(2) for pair in zip(images.split(2), labels.split(2), strict=True)]
    ours = train(of_batch, collated)
    expected = train(plain_mixes(7, mixer), plain)
    for one, other in zip(ours.parameters(), expected.parameters(), strict=True):
        assert_close(one, other)


def test_the_same_plan_mixes_every_key(monai):
    images, labels = volumes(4)
    mix = monai.ZetaMixd(
        ["image", "second"],
        ["label", "diagnosis", "age"],
        [CLASSES, 5, None],
        mixer=Mixup,
    ).set_random_state(seed=1)
    batch = {
        "image": images,
        "second": 2 * images,
        "label": labels,
        "diagnosis": torch.tensor([4, 0, 1, 2]),
        "age": torch.tensor([10.0, 20.0, 30.0, 40.0]),
        "name": ["a", "b", "c", "d"],
    }
    mixed = mix(batch)
    seed = int(np.random.RandomState(1).randint(2**31))
    plan = Mixup(generator=torch.Generator().manual_seed(seed)).make_plan(4)
    assert_close(mixed["image"], Blend().mix(images, plan))
    assert_close(mixed["second"], 2 * mixed["image"])
    assert_close(mixed["label"], OneHot(CLASSES).mix(labels, plan))
    assert_close(mixed["diagnosis"], OneHot(5).mix(batch["diagnosis"], plan))
    assert_close(mixed["age"], Average().mix(batch["age"], plan))
    assert mixed["name"] is batch["name"]
    assert batch["image"] is images


def test_metadata_survives_and_batches_decollate(monai):
    batch = next(iter(loader(monai)))
    mixed = monai.ZetaMixd("image", "label", CLASSES).set_random_state(seed=0)(batch)
    for key, channels in (("image", 1), ("label", CLASSES)):
        assert isinstance(mixed[key], monai.data.MetaTensor)
        assert mixed[key].dtype == torch.float32
        assert mixed[key].meta["file"] == ["0.nii", "1.nii"]
        assert torch.equal(mixed[key].affine, batch[key].affine)
        items = monai.data.decollate_batch(mixed[key])
        assert [item.meta["file"] for item in items] == ["0.nii", "1.nii"]
        assert items[1].shape == (channels, 4, 4, 4)
        assert float(items[1].affine[0, 0]) == 2
    # the metadata is a copy: changing it does not reach the batch that came in
    mixed["image"].meta["file"] = None
    assert batch["image"].meta["file"] == ["0.nii", "1.nii"]


def test_labels_of_floating_point_and_arrays(monai):
    images, labels = volumes(3)

    def mixed(images, labels):
        mix = monai.ZetaMixd("image", "label", CLASSES).set_random_state(seed=2)
        return mix({"image": images, "label": labels})

    expected = mixed(images, labels)
    # LoadImaged reads label volumes as float32
    assert torch.equal(mixed(images, labels.float())["label"], expected["label"])
    arrays = mixed(images.numpy(), labels.numpy())
    assert isinstance(arrays["label"], np.ndarray)
    assert_close(torch.from_numpy(arrays["image"]), expected["image"])
    with pytest.raises(ValueError, match=r"must contain class indices \(integers\), got"):
        mixed(images, labels + 0.5)


def test_dice_loss_of_one_hot_volumes_is_that_of_labels(monai):
    images, labels = volumes(2)
    mix = monai.ZetaMixd("image", "label", CLASSES, p=0.0)
    soft = mix({"image": images, "label": labels})["label"]
    logits = network()(images)
    for kind in (monai.losses.DiceLoss, monai.losses.DiceCELoss):
        hard = kind(softmax=True, to_onehot_y=True)(logits, labels)
        assert_close(kind(softmax=True)(logits, soft), hard)


def test_random_state(monai):
    images, labels = volumes(4)
    batch = {"image": images, "label": labels}

    def mixed(mix):
        return torch.cat([mix(batch)["image"] for _ in range(2)])

    mix = monai.ZetaMixd("image", "label", CLASSES)
    first = mixed(mix.set_random_state(seed=3))
    assert torch.equal(first, mixed(mix.set_random_state(seed=3)))
    assert torch.equal(first, mixed(mix.set_random_state(state=np.random.RandomState(3))))
    assert not torch.equal(first, mixed(mix.set_random_state(seed=4)))
    assert not torch.equal(first[:4], first[4:])
    # Compose seeds it, as it seeds MONAI's own
    composed = monai.transforms.Compose([mix])
    results = [composed.set_random_state(seed=5)(batch)["image"] for _ in range(2)]
    assert torch.equal(*results)


def test_missing_keys_and_eval_mode(monai):
    images, labels = volumes(2)
    mix = monai.ZetaMixd("image", "label", CLASSES, allow_missing_keys=True)
    assert set(mix({"image": images})) == {"image"}
    assert mix({"other": 1}) == {"other": 1}
    with pytest.raises(KeyError, match="label"):
        monai.ZetaMixd("image", "label", CLASSES)({"image": images})
    mix.mixer.eval()
    batch = mix({"image": images, "label": labels})
    assert torch.equal(batch["image"], images)
    assert torch.equal(batch["label"].argmax(1, keepdim=True), labels)


def test_images_that_are_not_normalised_are_warned_about_or_have_a_mean(monai):
    images, labels = torch.rand(3, 1, 4, 4, 4), torch.arange(3)
    with pytest.warns(UserWarning, match="not normalised"):
        monai.ZetaMixd("image", "label", 3)({"image": images, "label": labels})
    mixed = monai.ZetaMixd("image", "label", 3, mean=0.5)({"image": images, "label": labels})
    assert mixed["image"].min() >= 0
    assert mixed["image"].max() <= 1


def test_images_of_two_dimensions_are_pasted_with_their_masks_and_volumes_blended(monai):
    """Half of them, by default, and by the plan of ZetaMix alone."""
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(16, 1, 8, 8, generator=generator)
    masks = torch.randint(CLASSES, (16, 1, 8, 8), generator=generator)
    labels = torch.arange(16) % 5
    batch = {"image": images, "mask": masks, "diagnosis": labels}
    mixd = monai.ZetaMixd("image", ["mask", "diagnosis"], [CLASSES, 5])
    mixed = mixd.set_random_state(seed=6)(batch)
    seed = int(np.random.RandomState(6).randint(2**31))
    same = ZetaMix(num_classes=5, generator=torch.Generator().manual_seed(seed))
    plan = same.make_plan(16, size=(8, 8))
    pasted = plan.pasted
    assert 0 < int(pasted.sum()) < 16
    assert_close(mixed["image"], Blend().mix(images, plan))
    assert_close(mixed["mask"], OneHot(CLASSES).mix(masks, plan))
    assert_close(mixed["diagnosis"], OneHot(5).mix(labels, plan))
    # in pasted outputs each pixel is of one image, and so has one class
    whole = (mixed["mask"].amax(1) == 1).flatten(1).all(1)
    assert bool(whole[pasted].all())
    assert not bool(whole[~pasted].all())
    deep, volume_masks = volumes(16)
    mixed = mixd.set_random_state(seed=6)({**batch, "image": deep, "mask": volume_masks})
    same.generator.manual_seed(seed)
    blend = same.make_plan(16)
    assert blend.boxes is None
    assert_close(mixed["image"], Blend().mix(deep, blend))
    assert_close(mixed["mask"], OneHot(CLASSES).mix(volume_masks, blend))


def test_boxes_are_for_images_of_two_dimensions(monai):
    images, masks = torch.randn(4, 1, 8, 8), torch.randint(CLASSES, (4, 1, 8, 8))
    mix = monai.ZetaMixd("image", "label", CLASSES, mixer=CutMix).set_random_state(seed=0)
    mixed = mix({"image": images, "label": masks})
    assert set(mixed["label"].unique().tolist()) == {0.0, 1.0}
    volumes_batch = dict(zip(("image", "label"), volumes(4), strict=True))
    with pytest.raises(ValueError, match="Masks must have the height and width"):
        mix(volumes_batch)


def test_wrong_labels_name_their_entry(monai):
    images, labels = volumes(2)
    with pytest.raises(ValueError, match="need num_classes") as caught:
        monai.ZetaMixd("image", "label")({"image": images, "label": labels})
    assert caught.value.__notes__ == ["In batch['label']."]
    with pytest.raises(ValueError, match="length 2"):
        monai.ZetaMixd("image", ["a", "b"], [1, 2, 3])


def test_the_example_of_the_docstring_runs(monai):
    assert doctest.testmod(monai.ours) == (0, 3)
