"""The two theorems, checked on the plans that the library draws and not only on their formulas."""

import torch

from paper.reproduce.measure_context import MeasureContext, Measured
from paper.results.paper_cells import MeasurementCell
from zetamix.gamma import GAMMA_MIN, dominance_threshold, gamma_from_lam
from zetamix.mix import apply_plan
from zetamix.plan import MixPlan, zeta_plan

SOURCES = (2, 4, 8, 32, 128)
GAMMAS = tuple(round(0.05 * step, 2) for step in range(101))
LAMS = tuple(round(0.05 * step, 2) for step in range(1, 20))
# samples that both methods mix
SHAPE = (2, 64)


def cells() -> list[MeasurementCell]:
    dominance = [
        MeasurementCell("dominance", "", "zeta", recipe={"sources": sources})
        for sources in (*SOURCES, "all")
    ]
    return [*dominance, MeasurementCell("equivalence", "", "zeta", recipe={"sources": 2})]


def measure_dominance(cell: MeasurementCell, context: MeasureContext) -> Measured:
    """Theorem 1: the largest weight of drawn plans, and the γ from which it dominates."""
    sources = cell.recipe["sources"]
    if sources == "all":
        # infinitely many: 1 / ζ(γ), which is 0 up to γ = 1
        gammas = torch.tensor([gamma for gamma in GAMMAS if gamma > 1], dtype=torch.float64)
        weights = 1 / torch.special.zeta(gammas, torch.ones_like(gammas))
        return _dominance([0.0] * (len(GAMMAS) - len(gammas)) + weights.tolist(), GAMMA_MIN)
    threshold = dominance_threshold(sources)
    generator = torch.Generator().manual_seed(cell.seed)
    largest, agrees = [], []
    for gamma in GAMMAS:
        plan = zeta_plan(sources, gamma, generator=generator, dtype=torch.float64)
        largest.append(float(plan.weights.amax(1).min()))
        agrees.append(bool(plan.dominates().all()) == (gamma > threshold))
    return _dominance(largest, threshold, sum(agrees) / len(agrees))


def _dominance(weights: list[float], threshold: float, agreement: float | None = None) -> Measured:
    return Measured(
        {
            "gammas": list(GAMMAS),
            "largest_weight": [round(weight, 9) for weight in weights],
            "threshold": threshold,
            "plans_as_the_theorem_says": agreement,
        }
    )


def measure_equivalence(cell: MeasurementCell, context: MeasureContext) -> Measured:
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
        zeta = apply_plan(pair, plan)[0]
        weights.append(float(plan.weights[0, 1 if swap else 0]))
        blend = MixPlan(
            torch.tensor([[0, 1]]),
            torch.tensor([[lam, 1 - lam]], dtype=torch.float64),
            batch_size=2,
        )
        largest = max(largest, float((zeta - apply_plan(samples, blend)[0]).abs().max()))
    return Measured(
        {
            "lams": list(LAMS),
            "gammas": [gamma_from_lam(lam) for lam in LAMS],
            "weights": weights,
            "largest_difference": largest,
        }
    )
