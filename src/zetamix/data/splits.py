"""Stratified splits: every class keeps its share, and the same seed gives the same split.

The recipe is the one that the paper's printed numbers imply for its seven skin datasets without
official splits: 30 % of all (rounded up) leave the training split, a third of those (rounded up)
become validation, the rest test. It gives the paper's sizes of all seven, and for UDA, PH2 and
MED-NODE the test counts of each class, which the printed metrics fix.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from zetamix.data.errors import Complain, refuse
from zetamix.text import plural

# train : val : test, wherever splits have to be made
TRAIN, VAL, TEST = 7, 1, 2


def stratified(
    labels: Tensor, count: int, generator: torch.Generator, *, least: int = 1, keep: int = 0
) -> tuple[Tensor, Tensor]:
    """Draw `count` rows, the same share of every class; (drawn, left), both ascending.

    Each class that occurs gives at least `least` rows and keeps at least `keep`.

    >>> labels = torch.tensor([0, 0, 0, 0, 1, 1])
    >>> drawn, left = stratified(labels, 3, torch.Generator().manual_seed(0))
    >>> labels[drawn].tolist(), labels[left].tolist()
    ([0, 0, 1], [0, 0, 1])
    """
    found, sizes = torch.unique(labels, return_counts=True)
    shares = allocate(sizes.tolist(), count, least=least, keep=keep)
    drawn = torch.zeros(len(labels), dtype=torch.bool)
    for label, share in zip(found.tolist(), shares, strict=True):
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


def make_splits(
    labels: Tensor,
    present: Sequence[str],
    classes: Sequence[str],
    *,
    seed: int,
    where: str,
    complain: Complain = refuse,
    first: Tensor | None = None,
) -> Mapping[str, Tensor]:
    """Rows of the training split to keep and to hand to each split that is not `present`.

    Where both val and test are missing the ratio is 7:1:2; where one is, train and that one keep
    theirs. `where` names the data in messages; a class that is too small to be in all splits stays
    in train, if `complain` lets it.

    first: for every row the first that is a copy of it; copies stay in one split, so that a score
        is not on samples that were trained on. None stands for no copies.
    """
    missing = [name for name in ("val", "test") if name not in present]
    if not missing:
        return {"train": torch.arange(len(labels))}
    if first is not None:
        first = apart_where_few(first, labels, 1 + len(missing))
        leaders = torch.unique(first)
        parts = make_splits(
            labels[leaders], present, classes, seed=seed, where=where, complain=complain
        )
        chosen = {name: torch.isin(first, leaders[rows]) for name, rows in parts.items()}
        return {name: mask.nonzero().squeeze(1) for name, mask in chosen.items()}
    complain(_too_small(labels, classes, missing, where))
    generator = torch.Generator().manual_seed(seed)
    share = sum({"val": VAL, "test": TEST}[name] for name in missing)
    away = _round_up(len(labels) * share, TRAIN + share)
    out, left = stratified(labels, away, generator, least=len(missing), keep=1)
    if len(missing) == 1:
        return {"train": left, missing[0]: out}
    val, test = stratified(labels[out], _round_up(len(out), 3), generator, keep=1)
    return {"train": left, "val": out[val], "test": out[test]}


def apart_where_few(first: Tensor, labels: Tensor, least: int) -> Tensor:
    """Copies as samples of their own in classes that have fewer different ones than splits."""
    different = torch.bincount(labels[torch.unique(first)], minlength=int(labels.max()) + 1)
    return torch.where(different[labels] < least, torch.arange(len(labels)), first)


def made_note(made: list[str], seed: int, first: Tensor | None = None) -> tuple[str, ...]:
    """What a reader of results has to know about splits that are not official."""
    if not made:
        return ()
    has_copies = first is not None and len(torch.unique(first)) < len(first)
    of = " of the different samples" if has_copies else ""
    if len(made) > 1:
        return (f"val and test are split off train by us: stratified, 7:1:2{of}, seed {seed}",)
    (name,) = made
    # 7:1 or 7:2, as train keeps its share against the one that is missing
    share = {"val": "one in eight", "test": "two in nine"}[name]
    return (f"{name} is split off train by us: {share}{of}, stratified, seed {seed}",)


def _too_small(
    labels: Tensor, classes: Sequence[str], missing: Sequence[str], where: str
) -> list[str]:
    """One image of every class for each split: a stratified split can give no class less."""
    least = 1 + len(missing)
    counts = torch.bincount(labels, minlength=len(classes)).tolist()
    return [
        f"Class {name!r} of {where} has {plural(count, 'image')} to split. Making "
        f"{' and '.join(missing)} needs at least {least} of every class: add images, leave the "
        "class out, or split the data yourself into train, val and test."
        for name, count in zip(classes, counts, strict=True)
        if count < least
    ]


def _round_up(part: int, whole: int) -> int:
    return -(-part // whole)
