"""The layers for Keras with torch and with JAX: the same batches as zetamix makes of a seed.

A process has one backend of Keras, so this file is also a program: for each backend it is run once,
makes every function `check_*`, and prints what became of them as JSON.
"""

import importlib.util
import json
import os
import subprocess
import sys
import traceback

import numpy as np
import pytest
import torch

from zetamix import ZetaMix, rules

CLASSES = 4


def batch(count=6, seed=0):
    """Normalised images, channels last, and labels."""
    random = np.random.default_rng(seed)
    images = random.standard_normal((count, 8, 6, 3)).astype("float32")
    return images, random.integers(CLASSES, size=count)


def as_numpy(tensor):
    import keras

    return keras.ops.convert_to_numpy(tensor)


def assert_close(actual, expected):
    np.testing.assert_allclose(as_numpy(actual), np.asarray(expected), rtol=2e-6, atol=2e-6)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def layers():
    from zetamix.integrations import keras as ours

    return ours


def raises(kind, text, call, *arguments, **options):
    with pytest.raises(kind, match=text):
        call(*arguments, **options)


VARIANTS = {
    "default": {},
    "sources": {"sources": 4, "gamma": 1.5},
    "whole batch": {"sources": None, "gamma": 2.8, "keep_variance": False},
    "some": {"p": 0.5},
    "pasted": {"paste": 1.0, "sources": 3},
    "pasted or blended": {"paste": 0.25},
    "blended": {"paste": 0.0},
}


def check_batches_are_those_of_zetamix():
    for name, options in VARIANTS.items():
        layer = layers().ZetaMix(CLASSES, seed=3, data_format="channels_last", **options)
        first = layers().ZetaMix(CLASSES, seed=3, data_format="channels_first", **options)
        plain = ZetaMix(num_classes=CLASSES, generator=seeded(3), **options)
        for k, count in enumerate((6, 6, 1)):
            images, labels = batch(count, seed=k)
            mixed = layer({"images": images, "labels": labels})
            expected, targets = plain(
                torch.from_numpy(images.transpose(0, 3, 1, 2)), labels_of(labels)
            )
            assert_close(mixed["images"], expected.permute(0, 2, 3, 1))
            assert_close(mixed["labels"], targets)
            again = first({"images": images.transpose(0, 3, 1, 2), "labels": labels})
            assert_close(again["images"], expected)
            if count > 1:
                assert np.abs(as_numpy(mixed["images"]) - images).max() > 0.1, name


def check_by_default_images_are_pasted_and_signals_blended():
    """Signals are images with a side of 1, as `zetamix.ZetaMix` counts them."""
    images, labels = batch(16)
    for given in (images, images[:, :1], images[:, :, :1]):
        layer = layers().ZetaMix(CLASSES, seed=2, keep_variance=False, data_format="channels_last")
        mixed = as_numpy(layer({"images": given, "labels": labels})["images"])
        plain = ZetaMix(num_classes=CLASSES, keep_variance=False, generator=seeded(2))
        expected, _ = plain(torch.from_numpy(given.transpose(0, 3, 1, 2)), labels_of(labels))
        assert_close(mixed, expected.permute(0, 2, 3, 1))
        # a pasted output holds values of the batch and no others
        pasted = np.isin(mixed, given).all((1, 2, 3))
        if min(given.shape[1:3]) > 1:
            assert 0 < pasted.sum() < 16
        else:
            assert not pasted.any()


def labels_of(labels):
    return torch.from_numpy(np.asarray(labels))


def check_mean_and_value_range():
    random = np.random.default_rng(0)
    images, labels = random.random((6, 8, 6, 3), dtype="float32"), np.arange(6) % CLASSES
    mean = [0.4, 0.5, 0.6]
    layer = layers().ZetaMix(CLASSES, mean=mean, value_range=(0, 1), seed=0)
    plain = ZetaMix(num_classes=CLASSES, mean=mean, generator=seeded(0))
    expected, _ = plain(torch.from_numpy(images.transpose(0, 3, 1, 2)), labels_of(labels))
    mixed = layer({"images": images, "labels": labels})["images"]
    assert_close(mixed, expected.permute(0, 2, 3, 1))
    # bytes, in their own units, become floating point numbers
    layer = layers().ZetaMix(CLASSES, mean=127.5, value_range=(0, 255), seed=0)
    mixed = as_numpy(layer({"images": (255 * images).astype("uint8"), "labels": labels})["images"])
    assert mixed.dtype == np.float32
    assert mixed.min() >= 0
    assert 200 < mixed.max() <= 255
    with pytest.warns(UserWarning, match="not normalised"):
        layers().ZetaMix(CLASSES)({"images": images, "labels": labels})


def check_labels():
    images, labels = batch()

    def targets(given, num_classes=CLASSES):
        layer = layers().ZetaMix(num_classes, seed=2)
        return as_numpy(layer({"images": images, "labels": given})["labels"])

    soft = targets(labels)
    assert soft.shape == (6, CLASSES)
    np.testing.assert_allclose(soft.sum(1), 1, rtol=1e-6)
    # a column of integers is one label each, where keras.layers.MixUp makes [n, n] of [n]
    np.testing.assert_array_equal(targets(labels[:, None]), soft)
    np.testing.assert_allclose(targets(np.eye(CLASSES, dtype="float32")[labels], None), soft, 1e-6)
    assert targets(np.linspace(0, 1, 6, dtype="float32"), None).shape == (6,)
    raises(ValueError, "need num_classes", targets, labels, None)
    raises(ValueError, r"labels must lie in \[0, 4\), got", targets, labels + 9)


def check_segmentation_masks():
    images, labels = batch()
    masks = np.random.default_rng(1).integers(CLASSES, size=(6, 8, 6, 1))
    for options in ({}, {"paste": 0.0}, {"paste": 1.0}):
        layer = layers().ZetaMix(CLASSES, seed=4, **options)
        data = {"images": images, "labels": labels, "segmentation_masks": masks, "ids": labels}
        mixed = layer(data)
        plan = ZetaMix(generator=seeded(4), **options).make_plan(6, size=(8, 6))
        expected = rules.OneHot(CLASSES).mix(torch.from_numpy(masks[..., 0]), plan)
        assert_close(mixed["segmentation_masks"], expected.permute(0, 2, 3, 1))
        np.testing.assert_array_equal(as_numpy(mixed["ids"]), labels)
        layer = layers().ZetaMix(CLASSES, seed=4, **options)
        again = layer({**data, "segmentation_masks": masks[..., 0]})
        assert_close(again["segmentation_masks"], expected.permute(0, 2, 3, 1))


def check_a_mean_in_other_units_is_refused():
    images = np.full((4, 8, 6, 3), 200.0, dtype="float32")
    layer = layers().ZetaMix(CLASSES, mean=[0.485, 0.456, 0.406])
    data = {"images": images, "labels": np.arange(4)}
    raises(ValueError, "in the units of the images, which reach 200", layer, data)


def check_configuration_and_seeds():
    import keras

    images, labels = batch()
    data = {"images": images, "labels": labels}
    mean = [0.1, 0.2, 0.3]
    for layer in (
        layers().ZetaMix(CLASSES, gamma=(1.0, 2.0), paste=0.25, mean=mean, p=0.5, seed=5),
        layers().ZetaMix(CLASSES, seed=5),
    ):
        config = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
        again = keras.saving.deserialize_keras_object(config)
        assert again.get_config() == layer.get_config()
        one, other = layer(data), again(data)
        np.testing.assert_array_equal(as_numpy(one["images"]), as_numpy(other["images"]))
        later = layer(data)
        assert not np.array_equal(as_numpy(later["images"]), as_numpy(one["images"]))
    first, second = (layers().ZetaMix(CLASSES)(data)["images"] for _ in range(2))
    assert not np.array_equal(as_numpy(first), as_numpy(second))


def check_without_training_nothing_is_mixed():
    images, labels = batch()
    data = {"images": images, "labels": labels}
    mixed = layers().ZetaMix(CLASSES)(data, training=False)
    np.testing.assert_array_equal(as_numpy(mixed["images"]), images)
    np.testing.assert_array_equal(as_numpy(mixed["labels"]), np.eye(CLASSES)[labels])
    assert set(data) == {"images", "labels"}
    assert data["images"] is images


def model():
    import keras

    keras.utils.set_random_seed(0)
    net = keras.Sequential(
        [keras.layers.Input((8, 6, 3)), keras.layers.Flatten(), keras.layers.Dense(CLASSES)]
    )
    loss = keras.losses.CategoricalCrossentropy(from_logits=True)
    net.compile(optimizer=keras.optimizers.SGD(0.1), loss=loss)
    return net


def check_fit_equals_a_plain_loop():
    batches = [batch(count, seed=k) for k, count in enumerate((6, 6, 2))]

    def mixed_batches():
        layer = layers().ZetaMix(CLASSES, seed=6)
        while True:
            for images, labels in batches:
                mixed = layer({"images": images, "labels": labels})
                yield mixed["images"], mixed["labels"]

    ours = model()
    ours.fit(mixed_batches(), steps_per_epoch=3, epochs=2, verbose=0)
    plain, mix = model(), ZetaMix(num_classes=CLASSES, generator=seeded(6))
    for images, labels in 2 * batches:
        # with the channels first, where the transform looks for height and width
        mixed, targets = mix(torch.from_numpy(images.transpose(0, 3, 1, 2)), labels_of(labels))
        plain.train_on_batch(mixed.permute(0, 2, 3, 1).numpy(), targets.numpy())
    for one, other in zip(ours.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def check_mixing_ends_where_a_callback_switches_it_off():
    import keras

    images, labels = batch(8)
    layer, seen = layers().ZetaMix(CLASSES, seed=1), []

    class Data(keras.utils.PyDataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            rows = slice(4 * index, 4 * index + 4)
            mixed = layer({"images": images[rows], "labels": labels[rows]})
            seen.append(as_numpy(mixed["images"]))
            return mixed["images"], mixed["labels"]

    def end_mixing(epoch, logs=None):
        seen.clear()
        layer.transform.enabled = epoch < 4

    unmixed = []
    model().fit(
        Data(),
        epochs=5,
        verbose=0,
        callbacks=[
            keras.callbacks.LambdaCallback(
                on_epoch_begin=end_mixing,
                on_epoch_end=lambda *_: unmixed.append(
                    np.array_equal(np.concatenate(seen), images)
                ),
            )
        ],
    )
    assert unmixed == [False] * 4 + [True]


def check_a_traced_call_is_refused():
    import keras

    images, labels = batch()
    layer = layers().ZetaMix(CLASSES)
    inputs = {"images": keras.Input((8, 6, 3)), "labels": keras.Input((), dtype="int32")}
    raises(RuntimeError, "but a traced function", layer, inputs)
    if keras.backend.backend() == "jax":
        import jax

        raises(
            RuntimeError,
            "but a traced function",
            jax.jit(layer),
            {"images": images, "labels": labels},
        )


def check_errors():
    images, labels = batch()
    layer = layers().ZetaMix(CLASSES)
    raises(TypeError, "expects a dict with the keys images and labels", layer, images)
    raises(TypeError, r"got \['images'\]", layer, {"images": images})
    raises(ValueError, "rank 4", layer, {"images": images[0], "labels": labels})
    boxes = {"images": images, "labels": labels, "bounding_boxes": {}}
    raises(ValueError, "Bounding boxes cannot be mixed", layer, boxes)
    raises(ValueError, "data_format must be", layers().ZetaMix, CLASSES, data_format="NHWC")


CHECKS = [name for name in globals() if name.startswith("check_")]


def main():
    """Make every check, and print their tracebacks; a check that passed has none."""
    results = {}
    for name in CHECKS:
        try:
            globals()[name]()
            results[name] = ""
        except Exception:
            results[name] = traceback.format_exc()
    sys.stdout.write("\n" + json.dumps(results))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """The outcomes of all checks by backend, each made in a process of its own."""
    found = {}

    def of(backend):
        if backend not in found:
            home = str(tmp_path_factory.mktemp("keras"))
            env = {**os.environ, "KERAS_BACKEND": backend, "KERAS_HOME": home}
            env |= {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
            done = subprocess.run(
                [sys.executable, __file__], env=env, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            found[backend] = json.loads(done.stdout.splitlines()[-1])
        return found[backend]

    return of


def find(*packages):
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs the package {package}")


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_keras(backend, check, outcomes):
    find("keras", backend)
    failure = outcomes(backend)[check]
    assert not failure, failure


def test_keras_with_tensorflow(outcomes):
    find("keras", "tensorflow")
    failures = [failure for failure in outcomes("tensorflow").values() if failure]
    assert not failures, "\n".join(failures)


if __name__ == "__main__":
    main()
