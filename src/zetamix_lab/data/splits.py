"""Stratified splits: every class keeps its share, and the same seed gives the same split.

The procedure is inferred from the paper's numbers for its seven skin datasets without official
splits: 30 % of all samples (rounded up) are taken from the training split; a third of them (rounded
up) are for validation, the rest for testing. It gives the paper's sizes of all seven, and for UDA,
PH2 and MED-NODE the test counts of each class, which follow from the printed metrics.
"""

import os
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from zetamix_lab.data.errors import OnProblem, raise_problems
from zetamix_lab.data.groups import draw_groups, merge_groups
from zetamix_lab.data.source import Source, digest
from zetamix_lab.text import plural

# train : val : test of splits that are created here
SHARES = {"train": 7, "val": 1, "test": 2}


def strata(labels: Tensor) -> Tensor:
    """[n], int64: the classes to stratify by.

    labels: classes [n], or a 0/1 matrix [n, classes]: samples are then stratified by the rarest of
        their labels, so that rare labels get their share of every split.

    >>> strata(torch.tensor([[1, 1], [1, 0], [0, 0]])).tolist()
    [1, 0, 2]
    """
    if labels.ndim == 1:
        return labels
    positive, counts = labels > 0, (labels > 0).sum(0)
    rarity = torch.where(positive, counts, len(labels) + 1)
    return torch.where(positive.any(1), rarity.argmin(1), labels.shape[1])


def count_labels(labels: Tensor, classes: int) -> Tensor:
    """[classes], int64: samples of each class; of a 0/1 matrix, those with each label."""
    if labels.ndim == 2:
        return (labels > 0).sum(0)
    return torch.bincount(labels, minlength=classes)


def stratified(
    labels: Tensor, count: int, generator: torch.Generator, *, least: int = 1, keep: int = 0
) -> tuple[Tensor, Tensor]:
    """Draw `count` rows, the same share of every class; (drawn, left), both ascending.

    Each class gives at least `least` rows and keeps at least `keep`.

    >>> labels = torch.tensor([0, 0, 0, 0, 1, 1])
    >>> drawn, left = stratified(labels, 3, torch.Generator().manual_seed(0))
    >>> labels[drawn].tolist(), labels[left].tolist()
    ([0, 0, 1], [0, 0, 1])
    """
    present, sizes = torch.unique(labels, return_counts=True)
    shares = allocate(sizes.tolist(), count, least=least, keep=keep)
    drawn = torch.zeros(len(labels), dtype=torch.bool)
    for label, share in zip(present.tolist(), shares, strict=True):
        rows = (labels == label).nonzero().squeeze(1)
        drawn[rows[torch.randperm(len(rows), generator=generator)[:share]]] = True
    return drawn.nonzero().squeeze(1), (~drawn).nonzero().squeeze(1)


def allocate(sizes: Sequence[int], count: int, *, least: int, keep: int) -> list[int]:
    """How many of `count` each class gives: proportional, by largest remainder.

    Bounded per class by `least` from below and by its size minus `keep` from above; the sum is
    `count` unless these bounds rule it out. Ties go to the earlier class.

    >>> allocate([408, 193], 181, least=1, keep=1)
    [123, 58]
    """
    quotas = [size * count / sum(sizes) for size in sizes]
    high = [size - keep for size in sizes]
    low = [min(least, top) for top in high]
    shares = [min(max(int(q), lo), hi) for q, lo, hi in zip(quotas, low, high, strict=True)]
    while sum(shares) != count:
        step = 1 if sum(shares) < count else -1
        bound = high if step > 0 else low
        open_ = [k for k in range(len(sizes)) if shares[k] != bound[k]]
        if not open_:
            break
        shares[max(open_, key=lambda k: step * (quotas[k] - shares[k]))] += step
    return shares


def classes_in_turn(labels: Tensor, count: int) -> Tensor:
    """Indices of up to `count` samples: the first of every class, then the second, and so on.

    >>> classes_in_turn(torch.tensor([1, 1, 0, 1, 0]), 4).tolist()
    [2, 0, 4, 1]
    """
    by_label = labels.argsort(stable=True)
    _, counts = torch.unique_consecutive(labels[by_label], return_counts=True)
    starts = counts.cumsum(0) - counts
    ranks = torch.arange(len(labels), device=labels.device) - starts.repeat_interleave(counts)
    return by_label[ranks.argsort(stable=True)][:count]


def complete_splits(
    source: Source,
    *,
    seed: int,
    origin: str,
    keys: Callable[[], Sequence[Hashable]] | None = None,
    on_problem: OnProblem = raise_problems,
) -> Source:
    """The source with three splits: those that are missing are taken from train.

    If both val and test are missing the ratio is 7:1:2; if one is, train and the missing one keep
    their shares of it. A class too small for all splits is a problem; if `on_problem` continues,
    it stays in train. The groups of a source, such as patients, stay in one split.

    origin: names the data in messages.
    keys: returns a key for every row, equal for duplicates. Duplicates stay in one split, so that
        no test sample is a training sample. None means no duplicates.
    """
    train = source.rows["train"]
    missing = [split for split in ("val", "test") if split not in source.rows]
    if not missing:
        return source
    every = range(len(source.labels)) if keys is None else keys()
    same = [every[row] for row in train.tolist()]
    labels = torch.from_numpy(source.labels[train])
    kinds = strata(labels)
    ratio = ":".join(str(SHARES[name]) for name in ("train", *missing))
    if source.groups is None:
        first = first_duplicates(same, kinds, 1 + len(missing))
        leaders = torch.unique(first)
        counts = count_labels(labels[leaders], len(source.classes)).tolist()
        on_problem(_too_few(source, counts, "image", missing, origin))
        drawn = {
            name: torch.isin(first, leaders[chosen]).nonzero().squeeze(1)
            for name, chosen in _draw(kinds[leaders], missing, seed).items()
        }
        together = ", duplicates kept in one split" if len(leaders) < len(labels) else ""
    else:
        groups = [source.groups[row] for row in train.tolist()]
        merged = merge_groups(groups, same)
        if problems := _too_few_groups(source, labels, merged, missing, origin):
            on_problem(problems)
            return source
        drawn = draw_groups(kinds, merged, {s: SHARES[s] for s in (*missing, "train")}, seed)
        together = f", {plural(len(set(groups)), 'group')} each in one split"
    splits = source.splits.copy()
    for split, chosen in drawn.items():
        splits[train[chosen.numpy()]] = split
    note = f"No {'/'.join(missing)} split found: created a stratified {ratio} split"
    note += f" (seed {seed}{together})"
    return replace(source, splits=splits, notes=(*source.notes, note))


def _draw(labels: Tensor, missing: Sequence[str], seed: int) -> dict[str, Tensor]:
    """The rows of each missing split."""
    share, generator = sum(SHARES[name] for name in missing), torch.Generator().manual_seed(seed)
    count = -(-len(labels) * share // (SHARES["train"] + share))
    out, _ = stratified(labels, count, generator, least=len(missing), keep=1)
    if len(missing) == 1:
        return {missing[0]: out}
    val, test = stratified(labels[out], -(-len(out) // 3), generator, keep=1)
    return {"val": out[val], "test": out[test]}


def first_duplicates(keys: Sequence[Hashable], labels: Tensor, least: int) -> Tensor:
    """[n], int64: for every row the first with an equal key, of any class.

    In a class with fewer than `least` distinct rows, duplicates are not merged: it must be split.

    >>> first_duplicates(["a", "b", "a", "c", "b"], torch.tensor([0, 0, 0, 1, 1]), 1)
    tensor([0, 1, 0, 3, 1])
    >>> first_duplicates(["a", "b", "a", "c", "b"], torch.tensor([0, 0, 0, 1, 1]), 2)
    tensor([0, 1, 0, 3, 4])
    """
    seen: dict[Hashable, int] = {}
    first = torch.tensor([seen.setdefault(key, row) for row, key in enumerate(keys)])
    distinct = torch.bincount(labels[torch.unique(first)], minlength=int(labels.max()) + 1)
    return torch.where(distinct[labels] < least, torch.arange(len(labels)), first)


def content_keys(images: Sequence[Path | bytes]) -> list[Hashable]:
    """Keys that are equal for the same bytes; of files only those of one size are read."""
    # a pipe would block
    files = [image for image in images if isinstance(image, Path) and os.path.isfile(image)]
    sizes = {file: os.path.getsize(file) for file in files}
    counts = Counter(sizes.values())

    def key(image: Path | bytes) -> Hashable:
        if isinstance(image, bytes):
            return digest(image)
        # decoding reports a file that cannot be read
        with suppress(OSError):
            if image in sizes and counts[sizes[image]] > 1:
                return digest(image.read_bytes())
        return image

    return [key(image) for image in images]


def _too_few(
    source: Source, counts: Sequence[int], noun: str, missing: Sequence[str], origin: str
) -> list[str]:
    """The classes that have too few images, or groups, to be in every split."""
    least = 1 + len(missing)
    return [
        f"Class {name!r} of {origin} has {plural(count, noun)} to split. Creating "
        f"{' and '.join(missing)} needs at least {least} of every class: add {noun}s, remove the "
        "class, or split the data yourself into train, val and test."
        for name, count in zip(source.classes, counts, strict=True)
        if count < least
    ]


def _too_few_groups(
    source: Source, labels: Tensor, groups: Tensor, missing: Sequence[str], origin: str
) -> list[str]:
    found = len(torch.unique(groups))
    shares = SHARES["train"] + sum(SHARES[name] for name in missing)
    if found < shares:
        return [
            f"{origin} has {plural(found, 'group')} after merging groups that share duplicates. "
            f"Creating {' and '.join(missing)} needs at least {shares}: split the data yourself "
            "into train, val and test, or use smaller groups."
        ]
    hot = labels if labels.ndim == 2 else F.one_hot(labels, len(source.classes))
    counts = [len(torch.unique(groups[column > 0])) for column in hot.T]
    return _too_few(source, counts, "group", missing, origin)
