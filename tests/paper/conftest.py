import pytest


@pytest.fixture(autouse=True)
def _other_checksums(monkeypatch):
    """torchvision compares CIFAR's files with the published checksums."""
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)
