"""Models of timm and of the user in a run, and models of finished runs as they come back."""

import json
import math

import pytest
import torch
from factories import RECIPE, finish
from safetensors.torch import save_file

from zetamix_lab.atomic_io import seal, unseal
from zetamix_lab.metrics import classify
from zetamix_lab.models import TrainedModel
from zetamix_lab.train import load_model
from zetamix_lab.train.run_folder import FolderError

OWN = """
from torch import nn

def make(classes):
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.1), nn.Linear(64, classes))
"""


@pytest.mark.parametrize("name", ["timm:test_resnet", "net.py:make"])
def test_models_of_others_are_trained_and_come_back(new, digits, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(OWN)
    run = new(recipe=RECIPE.change(model=name))
    record = finish(run)
    assert (record.cell.recipe["model"], "code" in record.cell.recipe) == (name, ".py" in name)
    monkeypatch.chdir("/")
    model = load_model(run.folder.path, trust_code=True)
    logits = model(digits.test.samples[:])
    assert classify(logits, digits.test.labels)["error"] == pytest.approx(record.last["error"])


VIEW = """
from torch import nn

class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv, self.last = nn.Conv2d(1, 4, 3), nn.Linear(144, classes)

    def forward(self, x):
        assert x.is_contiguous(), "images of the user's network are contiguous"
        return self.last(self.conv(x).view(len(x), -1))
"""


def test_saved_weights_are_contiguous(new, tmp_path):
    """The network is trained in the channels-last layout, which safetensors refuses."""
    run = new()
    finish(run)
    weights = torch.load(run.folder.path / "final.pt", weights_only=True)
    assert all(part.is_contiguous() for part in weights.values())
    save_file(weights, tmp_path / "model.safetensors")


def test_a_network_of_the_user_may_view_its_feature_maps(new, tmp_path):
    """`view` fails on images in the channels-last layout, in which other networks are trained."""
    (tmp_path / "net.py").write_text(VIEW)
    record = finish(new("mixup", RECIPE.change(model=f"{tmp_path}/net.py:Net")))
    assert record.last["error"] < 0.9


def test_a_file_that_moved_is_given_by_name(new, digits, tmp_path):
    (tmp_path / "net.py").write_text(OWN)
    run = new(recipe=RECIPE.change(model=f"{tmp_path}/net.py:make"))
    finish(run)
    (tmp_path / "net.py").rename(tmp_path / "moved.py")
    with pytest.raises(FolderError, match=r"net\.py is not on this machine.*pass model='FILE\.py:"):
        load_model(run.folder.path, trust_code=True)
    moved = load_model(run.folder.path, model=f"{tmp_path}/moved.py:make")
    assert moved(digits.test.samples[:2]).shape == (2, 10)
    (tmp_path / "net.py").write_text(OWN.replace("64", "63"))
    with pytest.raises(FolderError, match=r"net\.py has changed"):
        load_model(run.folder.path, trust_code=True)
    with pytest.raises(FolderError, match="do not match"):
        load_model(run.folder.path, model="mlp")


HARMFUL = """
from pathlib import Path
from torch import nn

def make(classes):
    (Path(__file__).parent / "trace").touch()
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
"""


@pytest.fixture
def harmful(new, tmp_path):
    """The folder of a run whose network comes from a file, and what running this file leaves."""
    (tmp_path / "net.py").write_text(HARMFUL)
    run = new(recipe=RECIPE.change(model=f"{tmp_path}/net.py:make"))
    finish(run)
    (tmp_path / "trace").unlink()
    return run.folder.path, tmp_path / "trace"


def test_code_is_run_only_with_consent(harmful):
    folder, trace = harmful
    with pytest.raises(FolderError, match=r"running .*net\.py\. If you trust .* trust_code=True\."):
        load_model(folder)
    assert not trace.exists()
    load_model(folder, trust_code=True)
    assert trace.exists()


TAMPERED = {
    "no checksum": ({}, "it has no checksum"),
    "no checksum of the code": ({"code": None}, "it has no checksum of net.py:make"),
    "no mean": ({"mean": []}, r"mean must be a finite number .*, got \[\]"),
    "a mean that is NaN": ({"mean": [math.nan]}, "mean must be a finite number"),
    "a deviation of 0": ({"std": [0.0]}, "std must be a finite number above 0"),
    "no shape": ({"shape": []}, ""),
}


@pytest.mark.parametrize("case", TAMPERED)
def test_a_tampered_description_is_refused(harmful, case):
    folder, trace = harmful
    changes, message = TAMPERED[case]
    path = folder / "model.json"
    form = {**unseal(json.loads(path.read_text())), **changes}
    # anyone can write a valid checksum
    path.write_text(json.dumps(seal(form) if changes else form))
    with pytest.raises(FolderError, match=f"^The model in .* cannot be read: .*{message}"):
        load_model(folder, trust_code=True)
    assert not trace.exists()


def test_changed_code_is_another_run(new, tmp_path):
    path = tmp_path / "net.py"
    path.write_text(OWN)
    first = new(recipe=RECIPE.change(model=f"{path}:make")).cell.key
    path.write_text(OWN.replace("0.1", "0.2"))
    assert new(recipe=RECIPE.change(model=f"{path}:make")).cell.key != first


def test_another_size_than_in_training_is_said(new):
    run = new()
    finish(run)
    model = load_model(run.folder.path)
    with pytest.warns(UserWarning, match=r"trained on images of 8 × 8, got 16 × 12\. Resize them"):
        assert model(torch.rand(2, 1, 16, 12)).shape == (2, 10)


def test_inputs_that_would_give_nonsense_are_refused(new, digits, tmp_path):
    run = new()
    finish(run)
    model = load_model(run.folder.path)
    images = digits.test.samples[:4]
    torch.testing.assert_close(model(images / 255), model(images), rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match=r"in \[0, 1\], got values from 0 to 255\. Do not norm"):
        model(images.float())
    with pytest.raises(ValueError, match=r"got values from -"):
        model(torch.randn(4, 1, 8, 8) - 2)
    with pytest.raises(
        TypeError, match=r"got str\. For a file, use model\(zetamix_lab\.data\.read_image\("
    ):
        model("photo.jpg")
    flat = new("none", RECIPE.change(model="mlp"))
    finish(flat)
    with (
        pytest.warns(UserWarning, match="Resize them"),
        pytest.raises(ValueError, match=r"only samples of shape \[1, 8, 8\], got \[1, 9, 9\]"),
    ):
        load_model(flat.folder.path)(torch.rand(2, 1, 9, 9))


def test_a_full_gpu_is_not_taken_for_a_wrong_size():
    class Full(torch.nn.Module):
        def forward(self, samples):
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")

    model = TrainedModel(Full(), ("a", "b"), (1, 8, 8), torch.zeros(1), torch.ones(1))
    with (
        pytest.warns(UserWarning, match="Resize them"),
        pytest.raises(torch.cuda.OutOfMemoryError),
    ):
        model(torch.rand(2, 1, 9, 9))
