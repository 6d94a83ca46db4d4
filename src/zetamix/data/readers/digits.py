"""The handwritten digits that come with scikit-learn: real data on a machine without a network."""

import numpy as np
import torch

from zetamix.data.source import Source, array_part
from zetamix.data.splits import made_note, make_splits

# scikit-learn keeps 17 levels of grey
LEVELS = 16


def digits_source(seed: int) -> Source:
    """1,797 digits of 8 × 8 pixels, grey levels 0 to 16 stretched to 0 to 255."""
    # takes 0.9 s, which only the first load pays
    from sklearn.datasets import load_digits

    found = load_digits()
    samples = np.rint(found.images * (255 / LEVELS)).astype(np.uint8)[:, None]
    labels = found.target.astype(np.int64)
    classes = tuple(str(digit) for digit in range(10))
    rows = make_splits(torch.from_numpy(labels), ["train"], classes, seed=seed, where="digits")
    return Source(
        name="digits",
        classes=classes,
        shape=(1, 8, 8),
        dtype="uint8",
        parts={
            split: array_part(labels[chosen.numpy()], lambda: samples, chosen.numpy())
            for split, chosen in rows.items()
        },
        origin="handwritten digits of scikit-learn (UCI, optical recognition, 8 × 8)",
        notes=made_note(["val", "test"], seed),
    )
