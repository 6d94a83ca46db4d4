"""How other processes get at the data, and that it is the same."""

from pathlib import Path

import pytest
import torch

from zetamix.data import DataError, DatasetRef, check_fingerprint, from_tensors, load_cached


def test_a_worker_loads_the_same_part():
    address = DatasetRef("crescents", train_size=64)
    dataset = address.load()
    again = load_cached(address)
    assert len(dataset.train) == 64
    assert torch.equal(again.train.samples, dataset.train.samples)
    assert load_cached(DatasetRef("crescents", None, 64)) is again


def test_a_path_is_the_same_wherever_a_worker_starts(tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    expected = DatasetRef(str(tmp_path / "photos"), str(tmp_path / "data"), 0.5, 32)
    assert DatasetRef.resolve(Path("photos"), Path("data"), 0.5, 32) == expected
    # a name of the catalogue stays one, whatever lies here
    (tmp_path / "digits").mkdir()
    assert DatasetRef.resolve("digits") == DatasetRef("digits")


def test_no_size_asked_for_is_the_whole():
    dataset = DatasetRef("crescents").load()
    assert dataset.with_train_size(None) is dataset


def test_data_that_changed_meanwhile_is_told():
    samples = torch.rand(4, 2)
    dataset = from_tensors("points", {"train": (samples, torch.tensor([0, 1, 0, 1]))})
    assert check_fingerprint(dataset, dataset.fingerprint) is dataset
    with pytest.raises(DataError, match="expected the fingerprint abc"):
        check_fingerprint(dataset, "abc")
