"""Comparisons with a known truth, and how often their intervals hold.

    PYTHONPATH=src:tests python -m lab.intervals

prints the table of docs/understand/intervals.md.
"""

from itertools import product

import numpy as np
import pandas as pd
from scipy import stats

from zetamix_lab.statistics import combine, holm_corrected, pooled_variance, sample_variance

COMPARISONS, SEEDS, SAMPLES, METHODS = 1000, (3, 5, 10), (200, 1000, 10_000), 4
# error rates of the methods, and the variances of what decides whether a sample is misclassified:
# the sample, the sample under a method, the seed, the seed under a method, and the rest
SITUATIONS = {
    "both count": ((0.05, 0.05, 0.04, 0.05), (0.60, 0.04, 3e-4, 3e-4, 0.25)),
    "seeds decide": ((0.20, 0.20, 0.20, 0.20), (0.60, 0.00, 3e-3, 1e-2, 0.10)),
    "samples decide": ((0.10, 0.10, 0.12, 0.10), (0.50, 0.30, 0.0, 0.0, 0.05)),
}


def draw(dice, comparisons, seeds, samples, situation):
    """[comparisons, methods, seeds, samples]: 1 for an error."""
    rates, variances = SITUATIONS[situation]
    rates = np.array(rates)
    shapes = (1, 1, samples), (METHODS, 1, samples), (1, seeds, 1), (METHODS, seeds, 1)
    shapes += ((METHODS, seeds, samples),)
    score = 0
    for shape, variance in zip(shapes, variances, strict=True):
        drawn = dice.standard_normal((comparisons, *shape), dtype=np.float32)
        score = score + np.float32(np.sqrt(variance)) * drawn
    limits = stats.norm.ppf(rates) * np.sqrt(sum(variances))
    errors = score < limits.astype(np.float32)[:, None, None]
    return errors.astype(np.float32), rates[1:] - rates[0]


def judge(errors, *, sampled=True):
    """Differences from method 0, standard errors and degrees of freedom, [comparisons, methods]."""
    count, methods, seeds, samples = errors.shape
    rows = pd.DataFrame(product(range(methods), range(seeds)), columns=["method", "seed"])
    values = errors.mean(3, dtype=float).reshape(count, -1).T
    variance, freedom = pooled_variance(rows["method"], rows["seed"], values)
    variance = np.maximum(variance, 1 / samples**2 / 6)
    found = []
    for method in range(1, methods):
        pairs = errors[:, method] - errors[:, 0]
        added = sample_variance(pairs) if sampled else 0 * variance
        error, effective = combine(np.sqrt(variance / seeds), np.sqrt(added), freedom)
        found.append((pairs.mean((1, 2), dtype=float), error, effective))
    return np.stack(found, 2)


def simulate(situation, seeds, samples, *, comparisons=COMPARISONS, sampled=True):
    """The coverage of 95 % intervals, and the share of comparisons with a false claim."""
    dice, parts = np.random.default_rng([seeds, samples]), []
    at_once = max(1, 10_000_000 // (METHODS * seeds * samples))
    for first in range(0, comparisons, at_once):
        number = min(at_once, comparisons - first)
        errors, truth = draw(dice, number, seeds, samples, situation)
        parts.append(judge(errors, sampled=sampled))
    mean, error, freedom = np.concatenate(parts, 1)
    covered = np.abs(mean - truth) <= error * stats.t.ppf(0.975, freedom)
    p = 2 * stats.t.sf(np.abs(mean) / error, freedom)
    corrected = np.stack([holm_corrected(pd.Series(row)) for row in p])
    wrong = (corrected < 0.05) & ((truth == 0) | (np.sign(mean) != np.sign(truth)))
    return covered.mean(), wrong.any(1).mean()


if __name__ == "__main__":
    print("| situation | seeds | test samples | coverage | false claims | seeds alone |")  # noqa: T201
    print("|---|---:|---:|---:|---:|---:|")  # noqa: T201
    for name, seeds, samples in product(SITUATIONS, SEEDS, SAMPLES):
        held, wrong = simulate(name, seeds, samples)
        alone, _ = simulate(name, seeds, samples, sampled=False)
        print(  # noqa: T201
            f"| {name} | {seeds} | {samples:,} | {held:.1%} | {wrong:.1%} | {alone:.1%} |"
        )
