"""Whether anything was learned at all: without it, methods have nothing to be compared by."""

import math

from zetamix.measure.statistics import chance_error
from zetamix.metrics import chance_level
from zetamix.results.comparison import Comparison

# standard errors above chance from which on a method counts as better than guessing: 97.7 % of
# guessers stay below
ERRORS = 2.0
# means of equal shares differ by roundings
ROUNDING = 1e-6


def guessing(comparison: Comparison) -> str | None:
    """A sentence where no method is clearly better than guessing; else None."""
    counts = comparison.dataset.splits["test"].counts()
    counts = counts[counts > 0].double()
    classes = len(counts)
    # rare classes may be ranked well and never named, and where AUC is the question that counts
    metric = "auc" if comparison.primary == "auc" else "balanced_accuracy"
    chance = chance_level(metric, counts)
    if chance is None or not comparison.methods:
        return None
    most = chance + ERRORS * chance_error(metric, counts) + ROUNDING
    means = [comparison.summary(label, metric).mean for label in comparison.methods]
    if any(math.isnan(mean) or mean > most for mean in means):
        return None
    among = f"guessing among {classes} classes"
    by = "AUC 0.5" if metric == "auc" else f"{100 * chance:.1f} % balanced accuracy"
    if len(comparison.methods) == 1:
        (label,) = comparison.methods
        return (
            f"{label} does not clearly do better than {among} ({by}): train longer, or look at the "
            "data."
        )
    so_far = "" if comparison.complete else " so far"
    return (
        f"No method{so_far} does clearly better than {among} ({by}): train longer, or look at the "
        "data, before comparing."
    )
