"""The paper's analysis from plain runs: no study, no choice, and so no need for Optuna."""

from collections.abc import Sequence

import torch

from zetamix.experiments.tune.parameter import Parameter, Value
from zetamix.experiments.tune.parse import parse_space
from zetamix.experiments.tune.space import Setting, Space
from zetamix.measure.statistics import standard_error
from zetamix.methods import parse
from zetamix.records import RunRecord
from zetamix.results.tuning import Trial

# the paper's sweep: 200 models for each dataset
SWEEP, MODELS = parse_space("gamma=1..6,weight_decay=log:5e-5..1e-3"), 200


def random_settings(space: Space, count: int, seed: int = 0) -> list[Setting]:
    """Settings drawn at random from a space; more from the same seed begin with the same.

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
