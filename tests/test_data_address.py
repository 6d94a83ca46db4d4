"""How other processes get at the data, and that it is the same."""

from pathlib import Path

import pytest
import torch

from zetamix.data import DataError, from_tensors
from zetamix.data.dataset_ref import Address, address_of, cut, expect, load_once


def test_a_worker_loads_the_same_part():
    address = Address("crescents", train_size=64)
    dataset = address.load()
    again = load_once(address)
    assert len(dataset.train) == 64
    assert torch.equal(again.train.samples, dataset.train.samples)
    assert load_once(Address("crescents", None, 64)) is again


def test_a_path_is_the_same_wherever_a_worker_starts(tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    expected = Address(str(tmp_path / "photos"), str(tmp_path / "data"), 0.5, 32)
    assert address_of(Path("photos"), Path("data"), 0.5, 32) == expected
    # a name of the catalogue stays one, whatever lies here
    (tmp_path / "digits").mkdir()
    assert address_of("digits") == Address("digits")


def test_no_size_asked_for_is_the_whole():
    dataset = Address("crescents").load()
    assert cut(dataset, None) is dataset


def test_data_that_changed_meanwhile_is_told():
    samples = torch.rand(4, 2)
    dataset = from_tensors("points", {"train": (samples, torch.tensor([0, 1, 0, 1]))})
    assert expect(dataset, dataset.fingerprint) is dataset
    with pytest.raises(DataError) as caught:
        expect(dataset, "abc")
    assert str(caught.value) == (
        "points is not the same in all processes: expected the fingerprint abc, got "
        f"{dataset.fingerprint}. Did its files change meanwhile?"
    )
