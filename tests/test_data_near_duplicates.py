"""Near-duplicates: altered copies are found, and different images are not."""

import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from zetamix import data
from zetamix.cli.app import app
from zetamix.data.near_duplicates import NearDuplicates


def scenes(count, side=96, seed=0):
    """Smooth random images, [side, side, 3], unlike each other."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        coarse = random.integers(256, size=(7, 7, 3), dtype=np.uint8)
        yield Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)


def folders(path):
    """Sixteen images; test holds altered copies of the first three, and one of its own."""
    images = list(scenes(16))
    for number, image in enumerate(images):
        folder = path / "train" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        image.save(folder / f"{number:02}.png")
    for label in "ab":
        (path / "test" / label).mkdir(parents=True, exist_ok=True)
    images[0].save(path / "test" / "a" / "encoded.jpg", quality=50)
    images[2].resize((40, 40)).save(path / "test" / "a" / "resized.png")
    brighter = np.clip(np.asarray(images[4]) * 1.1, 0, 255).astype(np.uint8)
    Image.fromarray(brighter).save(path / "test" / "a" / "brighter.png")
    next(scenes(1, seed=1)).save(path / "test" / "b" / "own.png")
    return path


FOUND = {("00.png", "encoded.jpg"), ("02.png", "resized.png"), ("04.png", "brighter.png")}


def pairs(groups):
    return {tuple(sample.name.rsplit("/", 1)[-1] for sample in group) for group in groups}


def test_altered_copies_are_found(tmp_path):
    report = data.check(folders(tmp_path / "mine"), tmp_path)
    assert pairs(report.near_duplicates) == FOUND
    assert report.duplicates == ()
    # a resemblance is no proof: it is listed, and not a problem
    assert report.ok
    assert any(note.startswith("near-duplicates across splits: 3 groups") for note in report.notes)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_arrays_and_floating_point(dtype, tmp_path):
    images = np.stack([np.asarray(image.convert("L")) for image in scenes(12, 32)]).astype(dtype)
    noisy = images[:2] + np.random.default_rng(0).integers(3, size=images[:2].shape).astype(dtype)
    path = tmp_path / "own.npz"
    labels = np.arange(14) % 2
    np.savez(path, train_images=np.concatenate([images, noisy]), train_labels=labels)
    report = data.check(path, tmp_path)
    assert len(report.near_duplicates) == 2
    assert all(a.label == b.label for a, b in report.near_duplicates)


def test_groups_of_three_and_no_image():
    finder = NearDuplicates()
    assert finder.groups() == []
    (image,) = scenes(1)
    other = list(scenes(3, seed=5))
    for picture in (other[0], image, other[1], image.rotate(180), image.resize((50, 50)), image):
        finder.add(np.moveaxis(np.asarray(picture), 2, 0))
    finder.add(np.zeros((1, 20, 20), np.uint8))
    finder.add(np.zeros((1, 30, 30), np.float32))
    assert finder.groups() == [[1, 4, 5]]


def test_small_images_and_points_are_not_compared(tmp_path):
    assert data.check("digits", tmp_path).near_duplicates == ()
    assert data.check("crescents", tmp_path).near_duplicates == ()


def test_all_and_json(tmp_path, monkeypatch):
    folder = folders(tmp_path / "mine")
    for number in range(12):
        image = next(scenes(1, seed=100 + number))
        image.save(folder / "train" / "a" / f"c{number}.png")
        image.save(folder / "test" / "a" / f"c{number}.png")
    run, arguments = CliRunner().invoke, ["data", "check", str(folder), "--data-dir", str(tmp_path)]
    short, long = (run(app, [*arguments, *more]) for more in ([], ["--all"]))
    assert short.exit_code == long.exit_code == 1
    assert "and 2 more" in short.output
    assert "more; --all" not in long.output
    assert long.output.count(" = ") == 12
    written = run(app, [*arguments, "--json", "-"])
    assert written.exit_code == 1
    found = json.loads(written.stdout)
    assert len(found["duplicates"]) == 12
    assert len(found["near_duplicates"]) == 3
    assert found["near_duplicates"][0][0].keys() == {"split", "row", "name", "label"}
    run(app, [*arguments, "--json", str(tmp_path / "report.json")])
    assert json.loads((tmp_path / "report.json").read_text()) == found
