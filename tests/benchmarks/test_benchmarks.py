"""The benchmark scripts that no other test runs: what they measure, on a few small images."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"


def load(name):
    spec = importlib.util.spec_from_file_location(f"{name}_benchmark", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def decode(tmp_path, monkeypatch):
    """The benchmark of decoding, told to measure few files."""
    module = load("decode")
    monkeypatch.setattr(module, "PHOTOS", 2)
    arguments = ["--images", "40", "--rounds", "2", "--json", str(tmp_path / "out.json")]
    monkeypatch.setattr("sys.argv", ["decode.py", *arguments])
    return module


def test_decoding_is_compared_with_pillow(decode, tmp_path, capsys):
    decode.main()
    document = json.loads((tmp_path / "out.json").read_text())
    assert [row["pixels"] for row in document["rows"]] == ["500 × 375", "256 × 256"]
    for row in document["rows"]:
        assert (row["images"], row["side"], row["rounds"]) == (40, 224, 2)
        for share, rate in (("share_of_limit", "images_per_s"), ("decoded_share", "decoded_per_s")):
            assert row[share] == pytest.approx(row[rate] / row["limit_per_s"])
    assert capsys.readouterr().out.count(": 40 files in ") == 2
    # where it was run is nobody's business
    assert str(tmp_path) not in (tmp_path / "out.json").read_text()


def test_no_time_of_decoding_is_printed_for_other_pixels(decode, tmp_path, monkeypatch):
    monkeypatch.setattr(decode, "decode_bare", lambda file: np.zeros((224, 224, 3), np.uint8))
    with pytest.raises(SystemExit, match="has other pixels than Pillow gives"):
        decode.main()
    assert not (tmp_path / "out.json").exists()


@pytest.mark.slow
def test_steps_of_large_images_are_compared_with_one_resident_batch(tmp_path, monkeypatch, capsys):
    out = tmp_path / "out.json"
    arguments = ["--cases", "224", "--tiny", "--steps", "1", "--json", str(out)]
    monkeypatch.setattr("sys.argv", ["training.py", *arguments])
    load("training").main()
    rows = json.loads(out.read_text())["rows"]
    assert [(row["model"], row["methods"][0], row["how"]) for row in rows] == [
        (model, *case)
        for model in ("resnet18", "resnet50")
        for case in (("none", "resident"), ("none", "graph"), ("zetamix", "graph"))
    ]
    for start in (0, 3):
        floor, *steps = rows[start : start + 3]
        assert "times_resident" not in floor
        for row in steps:
            assert row["times_resident"] == row["median_ms"] / floor["median_ms"]
    assert capsys.readouterr().out.count("× resident (target 1.5: ") == 4
