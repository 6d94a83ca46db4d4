"""The paper's analysis by plain runs: no study, no choice, and so no need for Optuna."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from zetamix.data import Dataset
from zetamix.methods import parse
from zetamix.records import RunRecord
from zetamix.train import Recipe, Run
from zetamix.tune.question import standard_error
from zetamix.tune.result import Trial
from zetamix.tune.space import Parameter, Setting, Space, Value


def random_settings(space: Space, count: int, seed: int = 0) -> list[Setting]:
    """Settings drawn at random from a space; more from the same seed begin with the same.

    >>> from zetamix.tune.space import parse_space
    >>> space = parse_space("gamma=1..6")
    >>> random_settings(space, 5)[:3] == random_settings(space, 3)
    True
    """
    generator = torch.Generator().manual_seed(seed)
    names = [each.name for each in space.searched]
    draws = [torch.rand(len(names), generator=generator, dtype=torch.float64) for _ in range(count)]
    found = []
    for draw in draws:
        pairs = zip(space.searched, draw.tolist(), strict=True)
        found.append(space.setting({each.name: _at(each, share) for each, share in pairs}))
    return found


def _at(parameter: Parameter, share: float) -> Value:
    """The value of a parameter at a share, from 0 to 1, of its range."""
    if parameter.values:
        return parameter.values[int(share * len(parameter.values))]
    if parameter.log:
        return parameter.tidy(parameter.low * (parameter.high / parameter.low) ** share)
    return parameter.tidy(parameter.low + share * (parameter.high - parameter.low))


def make_runs(
    dataset: Dataset,
    recipe: Recipe,
    space: Space,
    settings: Sequence[Setting],
    *,
    seeds: Sequence[int],
    out: Path,
    **how: Any,
) -> list[Run]:
    """A run for every setting and seed, to be trained by `zetamix.train.train`.

    out: a folder for each run is made in it. how: as `Run` takes it: device, compile, ...
    """
    runs = []
    for seed in seeds:
        for setting in settings:
            method, own = space.method(setting), space.recipe(setting, recipe)
            name = "-".join(f"{key}={value}" for key, value in setting.items())
            runs.append(Run(dataset, method, own, seed=seed, out=out / f"{name}-s{seed}", **how))
    return runs


def trials_of(records: Sequence[RunRecord], space: Space, metric: str = "error") -> list[Trial]:
    """Records of ζ-mixup as trials, which the figures and the analysis take."""
    found = []
    for number, record in enumerate(records):
        method = parse(record.cell.method)
        known = {**record.cell.recipe, **{name: method.option(name) for name in ("gamma", "p")}}
        sources = method.option("sources")
        known |= {
            "sources": "all" if sources is None else sources,
            "anchor": method.option("anchor"),
        }
        found.append(
            Trial(
                number=number,
                setting={each.name: known[each.name] for each in space.parameters},
                seed=record.cell.seed,
                state="complete",
                value=record.last[metric],
                error=standard_error(metric, record.confusion),
                scores=record.last,
                seconds=record.wall_s,
            )
        )
    return found
