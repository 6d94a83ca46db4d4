"""Stratified splits: every class keeps its share, patients and duplicates stay together.

The procedure is inferred from the paper's numbers for its seven skin datasets without official
splits: 30 % of all samples (rounded up) are taken from the training split; a third of them (rounded
up) are for validation, the rest for testing. It gives the paper's sizes of all seven, and for UDA,
PH2 and MED-NODE the test counts of each class, which follow from the printed metrics.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from zetamix_lab.data.errors import DataError, OnProblem, raise_problems
from zetamix_lab.data.source import Source, count_labels, digest
from zetamix_lab.text import plural

Group: TypeAlias = str | re.Pattern[str] | None
"""The patient or lesion of a sample: a column of its table, or a match in the path of its file."""

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
    groups = None if source.groups is None else [source.groups[row] for row in train.tolist()]
    if groups is None:
        members = first_duplicates(same, kinds, 1 + len(missing))
    else:
        members = merge_groups(groups, same)
    problems = _too_few(source, labels, members, missing, origin)
    on_problem(problems)
    if groups is None:
        leaders = torch.unique(members)
        drawn = {
            name: torch.isin(members, leaders[chosen]).nonzero().squeeze(1)
            for name, chosen in _draw(kinds[leaders], missing).items()
        }
        together = ", duplicates kept in one split" if len(leaders) < len(labels) else ""
    elif problems:
        return source
    else:
        drawn = draw_groups(kinds, members, {s: SHARES[s] for s in (*missing, "train")})
        together = f", {plural(len(set(groups)), 'group')} each in one split"
    splits = source.splits.copy()
    for split, chosen in drawn.items():
        splits[train[chosen.numpy()]] = split
    note = f"No {'/'.join(missing)} split found: created a stratified {ratio} split"
    note += f" (seed 0{together})"
    return replace(source, splits=splits, notes=(*source.notes, note))


def _draw(labels: Tensor, missing: Sequence[str]) -> dict[str, Tensor]:
    """The rows of each missing split."""
    share, generator = sum(SHARES[name] for name in missing), torch.Generator().manual_seed(0)
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
    source: Source, labels: Tensor, members: Tensor, missing: Sequence[str], origin: str
) -> list[str]:
    """What has too few images, or groups, to be in every split: a class, or the whole.

    members: the first duplicate of every row, or its group.
    """
    noun, created = "image" if source.groups is None else "group", " and ".join(missing)
    found, count = len(torch.unique(members)), len(members)
    shares, least = sum(SHARES[name] for name in ("train", *missing)), 1 + len(missing)
    if noun == "group" and found < shares:
        return [
            f"{origin} has {plural(found, noun)} after merging groups that share duplicates. "
            f"Creating {created} needs at least {shares}: split the data yourself into train, val "
            "and test, or use smaller groups."
        ]
    rows, kinds = labels.nonzero().T if labels.ndim == 2 else (torch.arange(count), labels)
    pairs = torch.unique(kinds * count + members[rows])
    sizes = count_labels(pairs // count, len(source.classes)).tolist()
    return [
        f"Class {name!r} of {origin} has {plural(size, noun)} to split. Creating {created} needs "
        f"at least {least} of every class: add {noun}s, remove the class, or split the data "
        "yourself into train, val and test."
        for name, size in zip(source.classes, sizes, strict=True)
        if size < least
    ]


# groups: samples of one patient or lesion, which must not be in more than one split


def find_groups(names: Sequence[str], pattern: re.Pattern[str], origin: str) -> list[str]:
    """The group of every file: the first capture group of the pattern, or the whole match.

    >>> find_groups(["p01_1.png", "p02_1.png"], re.compile(r"(p[0-9]+)_"), "photos")
    ['p01', 'p02']
    """
    if not names or not all(names):
        raise DataError(
            f"{origin} has no file names. Group its samples by a column, with --group, such as "
            "--group patient (of an .npz file: the arrays train_patient, and so on)."
        )
    groups = [match and match[min(1, pattern.groups)] for match in map(pattern.search, names)]
    unmatched = [name for name, group in zip(names, groups, strict=True) if not group]
    if unmatched:
        raise DataError(
            f"{origin}: the group pattern {pattern.pattern!r} matches nothing in {unmatched[0]} "
            f"({plural(len(unmatched), 'such file')}); expected a match in every path."
        )
    return list(map(str, groups))


# names of columns, and beginnings of names in paths, that look like those of patients
WORDS = "patient|subject|subj|lesion|person|participant|individual|donor|animal|specimen|case|pat"
COLUMN = re.compile(rf"(.*_)?({WORDS}|pid)s?([_ ]?(id|no|nr|number|name|code))?", re.IGNORECASE)
IN_PATH = re.compile(rf"(?:^|[/_ -])((?:{WORDS}|p)[_ -]?)[0-9]+", re.IGNORECASE)
HINT = "{} may be of patients or lesions: --group {} keeps the samples of each in one split"


def suggest_column(columns: Mapping[str, Sequence[Hashable]]) -> tuple[str, ...]:
    """A note about a column that looks like the patient of a sample and repeats its values.

    >>> suggest_column({"file": ["a", "b", "c"], "patient_id": [1, 1, 2]})
    ('the column patient_id may be of patients or lesions: --group patient_id ...',)
    """
    for name, values in columns.items():
        if COLUMN.fullmatch(name) and 1 < len(set(values)) < len(values):
            return (HINT.format(f"the column {name}", name),)
    return ()


def suggest_pattern(names: Sequence[str], classes: int) -> tuple[str, ...]:
    """The same about numbered names in the paths of files, if there are more than classes."""
    found = [match for name in names if (match := IN_PATH.search(name))]
    numbers = {match[0] for match in found}
    if len(found) < 0.9 * len(names) or not classes < len(numbers) < len(found):
        return ()
    return (HINT.format(f"paths such as {found[0].string}", f"'({found[0][1]}[0-9]+)'"),)


def merge_groups(groups: Sequence[str], keys: Sequence[Hashable]) -> Tensor:
    """[n], int64: numbers of groups after those with a duplicate in common are merged.

    >>> merge_groups(["a", "a", "b", "c"], [1, 2, 2, 3]).tolist()
    [0, 0, 0, 1]
    """
    # imported here because it takes 0.3 s and only groups need it
    from scipy.cluster.hierarchy import DisjointSet  # type: ignore[import-untyped]

    sets = DisjointSet(range(len(groups)))
    first: dict[object, int] = {}
    for row, names in enumerate(zip(groups, keys, strict=True)):
        for name in enumerate(names):
            sets.merge(row, first.setdefault(name, row))
    numbers: dict[int, int] = {}
    return torch.tensor([numbers.setdefault(sets[row], len(numbers)) for row in range(len(groups))])


def draw_groups(labels: Tensor, groups: Tensor, shares: Mapping[str, int]) -> dict[str, Tensor]:
    """The rows of each split: whole groups, in proportion to `shares`, stratified by class.

    labels: the class of every row. Of several draws the first with every class in every split is
        taken, or else the first.
    """
    # imported here because it takes 0.5 s and only groups need it
    from sklearn.model_selection import StratifiedGroupKFold

    names = np.repeat(list(shares), list(shares.values()))
    draws = []
    for attempt in range(20):
        folds = StratifiedGroupKFold(len(names), shuffle=True, random_state=1000 * attempt)
        split_of = np.empty(len(labels), dtype=names.dtype)
        for name, (_, rows) in zip(names, folds.split(labels, labels, groups), strict=True):
            split_of[rows] = name
        draws.append({s: torch.from_numpy(np.flatnonzero(split_of == s)) for s in shares})
        present = {len(torch.unique(labels[rows])) for rows in draws[-1].values()}
        if present == {len(torch.unique(labels))}:
            return draws[-1]
    return draws[0]
