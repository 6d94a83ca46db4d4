"""A start from a file of weights: what is loaded, what is refused, what the record says."""

import hashlib
import json

import pytest
import torch
import torchvision
from factories import RECIPE, finish
from safetensors.torch import save_file
from typer.testing import CliRunner

from zetamix_lab.atomic_io import write_bytes
from zetamix_lab.cli.app import app
from zetamix_lab.models import WeightsError, initialise
from zetamix_lab.provenance import FileChangedError, FileRef
from zetamix_lab.seeds import seeded
from zetamix_lab.train import Recipe, make_recipe, train

SHAPE = (3, 96, 96)


def imagenet(path, name="resnet18", **options):
    """A state dict as torchvision's, with 1,000 classes."""
    with seeded(5):
        state = torchvision.models.get_model(name, weights=None, **options).state_dict()
    torch.save(state, path)
    return state


def start(path, name="resnet18", shape=SHAPE, classes=4, **options):
    return initialise(name, classes, shape, 0, weights=FileRef.read(path), **options)


def test_a_classifier_of_another_size_starts_anew_and_says_so(tmp_path):
    state, fresh = imagenet(tmp_path / "r18.pth"), initialise("resnet18", 4, SHAPE, 0).state_dict()
    with pytest.warns(UserWarning, match=r"^r18.pth has 1,000 classes, but this data has 4: fc.w"):
        own = start(tmp_path / "r18.pth").state_dict()
    for name, tensor in own.items():
        expected = fresh if name.startswith("fc.") else state
        assert torch.equal(tensor, expected[name]), name


@pytest.mark.filterwarnings("error")
def test_equal_classes_load_the_classifier_too_from_any_kind_of_file(tmp_path):
    state = imagenet(tmp_path / "r18.pth", num_classes=4)
    torch.save({"state_dict": {f"module.{k}": v for k, v in state.items()}}, tmp_path / "ddp.pth")
    save_file(state, tmp_path / "r18.safetensors")
    for name in ("r18.pth", "ddp.pth", "r18.safetensors"):
        assert torch.equal(start(tmp_path / name).fc.weight, state["fc.weight"])


@pytest.mark.filterwarnings("ignore:r18.pth has")
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small"])
def test_grey_images_give_what_their_rgb_copies_give(tmp_path, name):
    imagenet(tmp_path / "r18.pth", name)
    grey = start(tmp_path / "r18.pth", name, (1, 96, 96)).eval()
    colour = start(tmp_path / "r18.pth", name).eval()
    images = torch.rand(2, 1, 96, 96)
    with torch.no_grad():
        torch.testing.assert_close(grey(images), colour(images.expand(-1, 3, -1, -1)))


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (None, {"name": "resnet50"}, r"w\.pt does not match this model: Missing key.* \[\.\.\.\]"),
        (None, {"shape": (3, 32, 32)}, r"conv1.weight: .* For the ImageNet stem add --set stem=im"),
        ("text", {}, r"w\.pt cannot be read"),
        ([1, 2], {}, r"w\.pt has no state dict"),
        ({"epoch": 3}, {}, r"w\.pt has no state dict"),
    ],
)
def test_files_without_the_weights_of_the_network_are_refused(tmp_path, content, options, message):
    path = tmp_path / "w.pt"
    if content is None:
        imagenet(path)
    else:
        path.write_text(content) if isinstance(content, str) else torch.save(content, path)
    with pytest.raises(WeightsError, match=message):
        start(path, **options)


def test_the_key_depends_on_the_content_and_not_on_the_place(tmp_path, new):
    for path, content in (("a/w.pt", b"same"), ("b/w.pt", b"same"), ("w.pt", b"other")):
        write_bytes(tmp_path / path, content)
    a, b, other = (RECIPE.change(weights=tmp_path / path) for path in ("a/w.pt", "b/w.pt", "w.pt"))
    keys = [new(recipe=recipe).cell.key for recipe in (RECIPE, a, b, other)]
    assert keys[1] == keys[2]
    assert len(set(keys)) == 3
    assert Recipe.from_dict(json.loads(json.dumps(a.as_dict()))) == a


def test_a_file_that_changes_meanwhile_fails_the_run(tmp_path, new):
    path = tmp_path / "w.pt"
    path.write_bytes(b"before")
    run = new(recipe=RECIPE.change(weights=path))
    path.write_bytes(b"after")
    assert f"{path} has changed" in train([run])[run]
    path.unlink()
    assert f"{path} is not a file on this machine" in train([run])[run]


def test_training_starts_from_the_file_and_the_record_names_it(tmp_path, new, digits):
    trained = new()
    finish(trained)
    path = trained.folder.path / "final.pt"
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    record = finish(new(recipe=RECIPE.change(weights=path, lr=0, weight_decay=0)))
    assert record.extra["weights"] == f"final.pt (sha256 {sha256})"
    # batch norm alone has moved
    assert record.last["error"] < 1.5 * trained.record.last["error"] < 0.8


def test_a_recipe_with_weights_is_gentler(tmp_path, digits):
    path = tmp_path / "w.pt"
    torch.save({}, path)
    assert make_recipe(digits, weights=path).lr == pytest.approx(make_recipe(digits).lr / 10)
    assert make_recipe(digits, weights=path, lr=0.3).lr == 0.3
    with pytest.raises(FileChangedError, match=r"nowhere\.pt is not a file on this machine"):
        make_recipe(digits, weights="nowhere.pt")


@pytest.mark.slow
@pytest.mark.filterwarnings("default:seven.pt has")
def test_compare_says_what_it_starts_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(initialise("digitnet", 7, (1, 8, 8), 3).state_dict(), tmp_path / "seven.pt")
    options = (
        "--set weights=seven.pt --train-size 100 --epochs 1 --methods none --seeds 1 --device cpu"
    )
    result = CliRunner().invoke(app, ["compare", *options.split()])
    text = " ".join(result.output.split())
    assert result.exit_code == 0, text
    assert "digitnet from seven.pt" in text
    assert text.count("seven.pt has 7 classes, but this data has 10") == 1
    result = CliRunner().invoke(app, ["compare", "--set", "weights=no.pt", "--device", "cpu"])
    assert result.exit_code == 1
    assert "no.pt is not a file" in " ".join(result.output.split())
