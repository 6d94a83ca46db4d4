"""The two theorems, from the plans that the library draws and not from their formulas alone."""

import torch

from zetamix.experiments.reproduce.cells import Measuring
from zetamix.experiments.reproduce.experiments.workbench import Found, Workbench
from zetamix.gamma import GAMMA_MIN, dominance_threshold, gamma_from_lam
from zetamix.mix import mix
from zetamix.plan import MixPlan, zeta_plan

SOURCES = (2, 4, 8, 32, 128)
GAMMAS = tuple(round(0.05 * step, 2) for step in range(101))
LAMS = tuple(round(0.05 * step, 2) for step in range(1, 20))
# samples that both methods mix, to compare what comes out
SHAPE = (2, 64)


def cells() -> list[Measuring]:
    dominance = [
        Measuring("dominance", "", "zeta", recipe={"sources": sources}) for sources in SOURCES
    ]
    limit = Measuring("dominance", "", "zeta", recipe={"sources": "all"})
    return [*dominance, limit, Measuring("equivalence", "", "zeta", recipe={"sources": 2})]


def measure_dominance(cell: Measuring, bench: Workbench) -> Found:
    """Theorem 1: the largest weight of drawn plans, and the γ from which it dominates."""
    sources = cell.recipe["sources"]
    if sources == "all":
        # infinitely many: 1 / ζ(γ), which is nothing up to γ = 1
        gammas = torch.tensor([gamma for gamma in GAMMAS if gamma > 1], dtype=torch.float64)
        weights = 1 / torch.special.zeta(gammas, torch.ones_like(gammas))
        return _dominance([0.0] * (len(GAMMAS) - len(gammas)) + weights.tolist(), GAMMA_MIN)
    generator = torch.Generator().manual_seed(cell.seed)
    largest, dominates = [], []
    for gamma in GAMMAS:
        plan = zeta_plan(sources, gamma, generator=generator, dtype=torch.float64)
        largest.append(float(plan.weights.amax(1).min()))
        dominates.append(bool(plan.dominance().all()))
    threshold = dominance_threshold(sources)
    # what the theorem says of a γ has to hold of the plan that was drawn with it
    agree = [(gamma > threshold) == found for gamma, found in zip(GAMMAS, dominates, strict=True)]
    return _dominance(largest, threshold, sum(agree) / len(agree))


def _dominance(weights: list[float], threshold: float, agreement: float | None = None) -> Found:
    return Found(
        {
            "gammas": list(GAMMAS),
            "largest_weight": [round(weight, 9) for weight in weights],
            "threshold": threshold,
            "plans_as_the_theorem_says": agreement,
        }
    )


def measure_equivalence(cell: Measuring, bench: Workbench) -> Found:
    """Theorem 2: two sources mixed by ζ-mixup at γ = log₂(λ / (1 − λ)), and by mixup at λ."""
    generator = torch.Generator().manual_seed(cell.seed)
    samples = torch.randn(SHAPE, generator=generator, dtype=torch.float64)
    weights, largest = [], 0.0
    for lam in LAMS:
        # below 1/2 the partner dominates: the same plan with the two samples swapped
        swap = lam < 0.5
        gamma = gamma_from_lam(1 - lam if swap else lam)
        plan = zeta_plan(2, gamma, generator=generator, dtype=torch.float64)
        pair = samples.flip(0) if swap else samples
        zeta = mix(pair, plan)[0]
        weights.append(float(plan.weights[0, 1 if swap else 0]))
        blend = MixPlan(
            torch.tensor([[0, 1]]), torch.tensor([[lam, 1 - lam]], dtype=torch.float64), batch=2
        )
        largest = max(largest, float((zeta - mix(samples, blend)[0]).abs().max()))
    return Found(
        {
            "lams": list(LAMS),
            "gammas": [gamma_from_lam(lam) for lam in LAMS],
            "weights": weights,
            "largest_difference": largest,
        }
    )
