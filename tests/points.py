"""Points of two classes: the smallest data, in memory and as a file that commands accept."""

import hashlib
import io
import os
import tempfile
from pathlib import Path

import numpy as np

from paper.datasets.manifolds import crescents, draw_splits
from zetamix_lab.atomic_io import write_bytes
from zetamix_lab.data import from_tensors


def two_crescents():
    """512 training and 512 test samples, without a validation split."""
    return from_tensors("crescents", draw_splits("crescents", 0), ("upper", "lower"))


def _write():
    """As `two_crescents`, with a validation split of 64.

    All processes of xdist must agree on the path, which is part of the names of tests.
    """
    parts = {"train": crescents(), "val": crescents(64, seed=2), "test": crescents(seed=1)}
    arrays = {f"{split}_images": points.samples.numpy() for split, points in parts.items()}
    arrays |= {f"{split}_labels": points.labels.numpy() for split, points in parts.items()}
    content = io.BytesIO()
    np.savez(content, **arrays)
    digest = hashlib.sha256(content.getvalue()).hexdigest()[:12]
    path = Path(tempfile.gettempdir(), f"zetamix-points-{os.getuid()}-{digest}", "crescents.npz")
    if not path.exists():
        write_bytes(path, content.getvalue())
    return str(path)


CRESCENTS = _write()
