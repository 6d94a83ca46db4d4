"""Groups: samples of one patient or lesion, which must not be in more than one split."""

import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from zetamix_lab.data.errors import DataError
from zetamix_lab.text import plural

Group: TypeAlias = str | re.Pattern[str] | None
"""How samples are grouped: by a column of their table, or by a match in the path of their file."""


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


def suggest_column(columns: Mapping[str, Sequence[Hashable]]) -> tuple[str, ...]:
    """A note about a column that looks like the patient of a sample and repeats its values.

    >>> suggest_column({"file": ["a", "b", "c"], "patient_id": [1, 1, 2]})
    ('the column patient_id looks like patients or lesions: ...',)
    """
    for name, values in columns.items():
        if COLUMN.fullmatch(name) and 1 < len(set(values)) < len(values):
            return (
                f"the column {name} looks like patients or lesions: --group {name} keeps the "
                "samples of each in one split",
            )
    return ()


def suggest_pattern(names: Sequence[str], classes: int) -> tuple[str, ...]:
    """The same about numbered names in the paths of files, if there are more than classes."""
    found = [match for name in names if (match := IN_PATH.search(name))]
    starts = Counter(match[1] for match in found).most_common(1)
    numbers = {match[0] for match in found}
    if not starts or len(found) < 0.9 * len(names) or not classes < len(numbers) < len(found):
        return ()
    return (
        f"paths such as {found[0].string} look like those of patients or lesions: --group "
        f"'({starts[0][0]}[0-9]+)' keeps the samples of each in one split",
    )


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


def draw_groups(
    labels: Tensor, groups: Tensor, shares: Mapping[str, int], seed: int
) -> dict[str, Tensor]:
    """The rows of each split: whole groups, in proportion to `shares`, stratified by class.

    labels: the class of every row. Of several draws the first with every class in every split is
        taken, or else the first.
    """
    # imported here because it takes 0.5 s and only groups need it
    from sklearn.model_selection import StratifiedGroupKFold

    names = np.repeat(list(shares), list(shares.values()))
    draws = []
    for attempt in range(20):
        folds = StratifiedGroupKFold(len(names), shuffle=True, random_state=seed + 1000 * attempt)
        split_of = np.empty(len(labels), dtype=names.dtype)
        for name, (_, rows) in zip(names, folds.split(labels, labels, groups), strict=True):
            split_of[rows] = name
        draws.append({s: torch.from_numpy(np.flatnonzero(split_of == s)) for s in shares})
        present = {len(torch.unique(labels[rows])) for rows in draws[-1].values()}
        if present == {len(torch.unique(labels))}:
            return draws[-1]
    return draws[0]
