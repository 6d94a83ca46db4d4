"""Points of two classes: the smallest data, in memory and as a file that commands accept."""

import atexit
import shutil
import tempfile
from pathlib import Path

import numpy as np

from paper.datasets.manifolds import crescents, draw_splits
from zetamix_lab.data import from_tensors


def two_crescents():
    """512 training and 512 test samples, without a validation split."""
    return from_tensors("crescents", draw_splits("crescents", 0), ("upper", "lower"))


def _write():
    """As `two_crescents`, with a validation split of 64."""
    folder = Path(tempfile.mkdtemp(prefix="zetamix-points-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    parts = {"train": crescents(), "val": crescents(64, seed=2), "test": crescents(seed=1)}
    arrays = {f"{split}_images": points.samples.numpy() for split, points in parts.items()}
    arrays |= {f"{split}_labels": points.labels.numpy() for split, points in parts.items()}
    np.savez(folder / "crescents.npz", **arrays)
    return str(folder / "crescents.npz")


CRESCENTS = _write()
