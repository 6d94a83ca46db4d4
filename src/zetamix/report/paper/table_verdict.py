"""Whether ζ-mixup wins where the paper's tables say so: paired differences over seeds."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from zetamix.measure.statistics import CONFIDENCE, Difference, holm, paired_difference
from zetamix.metrics import METRICS, resolution
from zetamix.report.paper.style import gamma_of
from zetamix.report.paper.table_rows import Row, column_title, groups_of, rows_of, variants_of
from zetamix.report.paper.verdict import Verdict, status_of
from zetamix.results import paper_values as paper
from zetamix.results.paper_cells import Variant
from zetamix.results.paper_view import PaperView
from zetamix.text import plural

BASELINES = {"mixup:1.0": "mixup", "none": "ERM"}
AHEAD, BEHIND, UNDECIDED, ONE_SEED = "ahead", "behind", "not significant", "one seed"


@dataclass(frozen=True)
class Comparison:
    """ζ-mixup minus a baseline at one γ, in the paper's unit: our difference and the paper's."""

    row: Row
    difference: Difference
    printed: float | None
    """The difference of the paper's two values."""

    @property
    def sign(self) -> int:
        return METRICS[self.difference.metric].sign

    @property
    def outcome(self) -> str:
        if self.difference.n < 2:
            return ONE_SEED
        if not self.difference.significant:
            return UNDECIDED
        return AHEAD if self.sign * self.difference.mean > 0 else BEHIND

    @property
    def is_win_in_paper(self) -> bool:
        return self.printed is not None and self.sign * self.printed > 0

    @property
    def claim_holds(self) -> bool | None:
        """Whether a win of the paper is one here; None: more seeds are needed."""
        return None if self.outcome in (ONE_SEED, UNDECIDED) else self.outcome == AHEAD

    @property
    def excludes_printed(self) -> bool:
        """Whether our whole interval is worse for ζ-mixup than the paper's difference."""
        low, high = self.difference.low, self.difference.high
        if low is None or high is None or self.printed is None:
            return False
        return max(self.sign * low, self.sign * high) < self.sign * self.printed


def judge(view: PaperView, metric: str) -> Verdict:
    """A sentence for the whole table, then one per dataset, model, variant and baseline."""
    families = [
        (variant, family)
        for group in groups_of(rows_of(view))
        for variant in variants_of(view)
        for baseline in BASELINES
        if (family := compare(group, variant, metric, baseline))
    ]
    if not families:
        return Verdict(sentences=("No cell of this table has been run yet.",))
    comparisons = [comparison for _, family in families for comparison in family]
    status = status_of([c.claim_holds for c in comparisons if c.is_win_in_paper])
    has_models = len({cell.model for cell in view.trainings}) > 1
    sentences = [_sentence(family, variant, has_models) for variant, family in families]
    return Verdict(status, [_summary(comparisons), *sentences])


def compare(group: Sequence[Row], variant: Variant, metric: str, baseline: str) -> list[Comparison]:
    """ζ-mixup against a baseline at every γ, paired by seed, with Holm's correction over γ."""
    rows = {row.method: row for row in group}
    summaries = {row.method: row.summary(variant, metric) for row in group}
    base = summaries.get(baseline)
    differences = []
    for method, summary in summaries.items():
        if method.startswith("zeta") and summary is not None and base is not None:
            confusion = torch.tensor(rows[method].runs[variant][0].confusion)
            step = paper.METRICS[metric].scale * resolution(metric, confusion.sum(1))
            differences.append(
                paired_difference(
                    method, baseline, metric, summary.values, base.values, resolution=step
                )
            )
    comparisons = []
    for difference in holm([each for each in differences if each is not None]):
        ours, theirs = rows[difference.method].printed(metric), rows[baseline].printed(metric)
        printed = None if ours is None or theirs is None else ours - theirs
        comparisons.append(Comparison(rows[difference.method], difference, printed))
    return comparisons


def _summary(comparisons: Sequence[Comparison]) -> str:
    # a comparison of the paper counts once, also where we ran several variants of the recipe
    wins = {
        (c.row.dataset, c.row.model, c.difference.method, c.difference.baseline): c.is_win_in_paper
        for c in comparisons
    }
    variants = "" if len(wins) == len(comparisons) else ", each augmentation counted separately"
    parts = [
        f"ζ-mixup against mixup and ERM: the paper reports it ahead in {sum(wins.values())} of "
        f"the {plural(len(wins), 'comparison')} run here."
    ]
    several = [c for c in comparisons if c.outcome != ONE_SEED]
    single = [c for c in comparisons if c.outcome == ONE_SEED]
    if several:
        counts = Counter(c.outcome for c in several)
        text = (
            f"Ours with several seeds{variants}: significantly ahead in {counts[AHEAD]} of "
            f"{len(several)}, significantly behind in {counts[BEHIND]}"
        )
        if counts[UNDECIDED]:
            text += f", no significant difference in {counts[UNDECIDED]}"
            excluded = sum(c.excludes_printed for c in several if c.outcome == UNDECIDED)
            if excluded:
                text += f" (in {excluded} of these the whole interval is below the paper's gain)"
        parts.append(f"{text}.")
    if single:
        ahead = sum(c.sign * c.difference.mean > 0 for c in single)
        parts.append(f"With one seed, which is not evidence: ahead in {ahead} of {len(single)}.")
    return " ".join(parts)


def _sentence(family: Sequence[Comparison], variant: Variant, has_models: bool) -> str:
    row, metric = family[0].row, family[0].difference.metric
    model = paper.MODELS[row.model] if has_models else ""
    scope = ", ".join(filter(None, (row.title, model, variant.label)))
    baseline = BASELINES[family[0].difference.baseline]
    title = column_title(metric)
    return (
        f"{scope}: {_headline(family, baseline)}; the paper reports it ahead at "
        f"{sum(c.is_win_in_paper for c in family)} of {len(family)} γ. "
        f"{title[0].upper()}{title[1:]}, ζ-mixup minus {baseline}: "
        f"{'; '.join(_detail(c, paper.METRICS[metric].digits) for c in family)}."
    )


def _headline(family: Sequence[Comparison], baseline: str) -> str:
    outcomes = Counter(c.outcome for c in family)
    total = len(family)
    if outcomes[ONE_SEED] == total:
        ahead = sum(c.sign * c.difference.mean > 0 for c in family)
        return f"with one seed ζ-mixup is ahead of {baseline} at {ahead} of {total} γ"
    parts = [
        f"significantly {adverb} {baseline} at {outcomes[outcome]} of {total} γ"
        for outcome, adverb in ((AHEAD, "better than"), (BEHIND, "worse than"))
        if outcomes[outcome]
    ]
    return f"ζ-mixup is {' and '.join(parts) or f'not significantly different from {baseline}'}"


def _detail(comparison: Comparison, digits: int) -> str:
    def signed(value: float) -> str:
        return f"{value:+.{digits}f}".replace("-", "−")

    difference = comparison.difference
    text = f"γ = {gamma_of(difference.method)} {signed(difference.mean)}"
    if difference.low is None or difference.high is None:
        text += " (one seed"
    else:
        interval = f"{signed(difference.low)} to {signed(difference.high)}"
        text += f" ({100 * CONFIDENCE:.0f} % interval {interval}, n = {difference.n}"
    if comparison.printed is not None:
        text += f"; paper {signed(comparison.printed)}"
    return text + ")"
