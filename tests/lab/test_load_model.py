"""Models of finished runs as they come back."""

import json

import pytest
import torch
from factories import RECIPE, finish, two_crescents, weights
from safetensors.torch import save_file

from zetamix.methods import parse
from zetamix_lab.data import from_tensors
from zetamix_lab.data.loader import Loader, measure_scale
from zetamix_lab.metrics import EVALUATED, SCALED, classify, confusion, fit_temperature
from zetamix_lab.models import initialise
from zetamix_lab.train import Run, load_model
from zetamix_lab.train.run_folder import FolderError


@pytest.mark.parametrize("normalize", ["dataset", "half", "none"])
def test_the_loaded_model_has_the_scores_of_the_record(new, digits, normalize):
    run = new("mixup", RECIPE.change(normalize=normalize))
    record, test = finish(run), digits.test
    model = load_model(run.folder.path)
    calibrated = load_model(run.folder.path, calibrated=True)
    assert model.classes == digits.classes
    assert not model.training
    with torch.no_grad():
        logits = model(test.samples)
        # in the units that a loader yields
        images, _ = next(iter(Loader(test, batch_size=360, shuffle=False)))
        torch.testing.assert_close(model(images), logits, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(calibrated(test.samples) * calibrated.temperature, logits)
        scaled = classify(calibrated(test.samples), test.labels)
        fitted = fit_temperature(model(digits.val.samples), digits.val.labels)
    last = {name: record.last[name] for name in EVALUATED}
    assert classify(logits, test.labels) == pytest.approx(last, abs=1e-6)
    assert confusion(logits, test.labels).tolist() == record.confusion
    for name, plain in SCALED.items():
        assert scaled[plain] == pytest.approx(record.last[name], abs=1e-6)
    # on the validation split, and on nothing else
    assert calibrated.temperature == pytest.approx(fitted)
    if normalize == "dataset":
        plain = initialise("digitnet", 10, (1, 8, 8), 99).eval()
        plain.load_state_dict(weights(run.folder.path))
        samples = measure_scale(digits.train.samples).apply(test.samples, torch.float32)
        with torch.no_grad():
            assert torch.equal(plain(samples), logits)


def test_a_model_of_points_without_a_temperature_and_one_that_is_damaged(tmp_path):
    points, folder = two_crescents(), tmp_path / "points"
    run = Run(points, parse("zeta"), RECIPE.change(model="mlp", epochs=8), seed=0, out=folder)
    with pytest.raises(FolderError, match=r"points has no finished run"):
        load_model(folder)
    record = finish(run)
    assert record.last["error"] < 0.25
    assert set(record.last) == set(EVALUATED)
    with torch.no_grad():
        logits = load_model(folder)(points.test.samples)
    assert confusion(logits, points.test.labels).tolist() == record.confusion
    with pytest.raises(FolderError, match=r"no temperature: its dataset has no validation split"):
        load_model(folder, calibrated=True)
    (folder / "final.pt").write_bytes(b"half")
    with pytest.raises(FolderError, match=r"The model in .*points cannot be read"):
        load_model(folder)


def test_a_model_of_timm_is_trained_and_comes_back(new, digits):
    run = new("mixup", RECIPE.change(model="timm:test_resnet"))
    record, path = finish(run), run.folder.path / "model.json"
    logits = load_model(run.folder.path)(digits.test.samples[:])
    assert classify(logits, digits.test.labels)["error"] == pytest.approx(record.last["error"])
    form = json.loads(path.read_text())
    for changes, message in (
        ({"model": "mlp"}, "The weights in .* do not match mlp: "),
        ({"classes": 3}, "The model in .* cannot be read: "),
        # of an earlier version, with a network of the user's
        ({"model": "net.py:make", "code": {}}, "timm:NAME, got 'net.py:make'"),
    ):
        path.write_text(json.dumps(form | changes))
        with pytest.raises(ValueError, match=message):
            load_model(run.folder.path)


def test_a_model_of_float_images_takes_them_in_their_own_units(new):
    images = 500 * torch.randn(60, 1, 8, 8) - 300
    splits = dict.fromkeys(("train", "test"), (images, torch.arange(60) % 2))
    run = new("none", dataset=from_tensors("ct", splits))
    finish(run)
    model = load_model(run.folder.path)
    scaled = (images - model.mean) / model.std
    assert torch.equal(model(images), model.network(scaled))
    assert abs(float(scaled.mean())) < 0.1


def test_inputs_that_would_give_nonsense_are_refused_and_weights_are_contiguous(
    new, digits, tmp_path
):
    run = new()
    finish(run)
    # trained in the channels-last layout, which safetensors refuses
    save_file(weights(run.folder.path), tmp_path / "model.safetensors")
    model, images = load_model(run.folder.path), digits.test.samples[:4]
    torch.testing.assert_close(model(images / 255), model(images), rtol=1e-4, atol=1e-4)
    for wrong, message in (
        (images.float(), r"in \[0, 1\], got values from 0 to 255\. Do not norm"),
        (torch.randn(4, 1, 8, 8) - 2, "got values from -"),
        (torch.zeros(5, 3, 8, 8), r"of shape \[1, 8, 8\], as in training, got \["),
        (torch.zeros(1, 8, 8), r"of shape \[1, 8, 8\], as in training, got \["),
        (torch.rand(2, 1, 16, 12), r"got \[2, 1, 16, 12\]\. Read files with .*image\(p"),
    ):
        with pytest.raises(ValueError, match=message):
            model(wrong)
