"""Whether ζ-mixup wins where the paper says it does, in plain words."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from zetamix.data import CATALOGUE
from zetamix.experiments.reproduce.cells import Variant
from zetamix.measure.statistics import CONFIDENCE, Difference, holm, paired_difference
from zetamix.metrics import METRICS
from zetamix.report.paper.comparison import Row, rows_of, unit_name, variants_of
from zetamix.report.paper.view import NOT_RUN, Answer, View, agreement_so_far
from zetamix.results import paper_values as paper
from zetamix.text import plural

REFERENCES = {"mixup:1.0": "mixup", "none": "ERM"}
UNDECIDED, AHEAD, BEHIND, ONE_SEED = "undecided", "ahead", "behind", "one seed"


@dataclass(frozen=True)
class _Found:
    """One comparison of ζ-mixup with a reference, ours and the paper's."""

    comparison: tuple[str, ...]
    """Dataset, model, method and reference; with several variants of ours it comes again."""
    outcome: str
    ours: float
    """How far ζ-mixup is ahead; below 0 it is behind."""
    theirs: float | None
    refuted: bool
    """Whether all of our interval is worse for ζ-mixup than the paper's difference."""

    @property
    def is_win_of_the_paper(self) -> bool:
        return self.theirs is not None and self.theirs > 0

    @property
    def is_open(self) -> bool:
        """Whether more seeds may show who is ahead."""
        return self.outcome in (ONE_SEED, UNDECIDED)


def judge(view: View, metric: str) -> tuple[list[str], Answer]:
    """The verdict: a sentence for the whole table, then one for each dataset, model and variant.

    And whether all that is as in the paper.
    """
    rows, variants = rows_of(view), variants_of(view.trainings)
    sign = 1 if METRICS[metric].higher_is_better else -1
    outcomes: list[_Found] = []
    words = []
    for dataset, model in dict.fromkeys((row.dataset, row.model) for row in rows):
        group = [row for row in rows if (row.dataset, row.model) == (dataset, model)]
        for variant in variants:
            for reference in REFERENCES:
                found = differences(group, variant, metric, reference)
                if found:
                    words.append(_sentence(view, group[0], variant, metric, found))
                for each in found:
                    printed = _printed(view, group[0], metric, each)
                    theirs = None if printed is None else sign * printed
                    outcome, refuted = _outcome(each, metric), _refutes(each, printed, sign)
                    which = dataset, model, each.method, reference
                    outcomes.append(_Found(which, outcome, sign * each.mean, theirs, refuted))
    if not words:
        return ["Nothing of this table has been run yet."], Answer(NOT_RUN)
    overall = _overall(outcomes)
    return [overall, *words], Answer(_status(outcomes), overall)


def _status(outcomes: Sequence[_Found]) -> str:
    """Whether ζ-mixup wins where the paper says so; what cannot be told apart is open."""
    said = [each for each in outcomes if each.is_win_of_the_paper]
    return agreement_so_far([None if each.is_open else each.outcome == AHEAD for each in said])


def differences(
    group: Sequence[Row], variant: Variant, metric: str, reference: str
) -> list[Difference]:
    """ζ-mixup minus the reference for every γ that was run, in the paper's unit, paired by seed."""
    by_method = {row.method: row.ours(variant, metric) for row in group}
    base = by_method.get(reference)
    found = []
    for method, ours in by_method.items():
        if method.startswith("zeta") and ours is not None and base is not None:
            sizes = [run.test_size for row in group for run in row.runs.get(variant, [])]
            grain = paper.METRICS[metric][1] / max(sizes)
            found.append(
                paired_difference(
                    method, reference, metric, ours.values, base.values, resolution=grain
                )
            )
    return holm([each for each in found if each is not None])


def _outcome(found: Difference, metric: str) -> str:
    if found.n < 2:
        return ONE_SEED
    if not found.significant:
        return UNDECIDED
    return AHEAD if (found.mean > 0) == METRICS[metric].higher_is_better else BEHIND


def _refutes(found: Difference, printed: float | None, sign: int) -> bool:
    """sign: 1 where higher is better, else −1."""
    if found.low is None or found.high is None or printed is None:
        return False
    return max(sign * found.low, sign * found.high) < sign * printed


def _overall(outcomes: Sequence[_Found]) -> str:
    says = {each.comparison: each.is_win_of_the_paper for each in outcomes}
    parts = [
        f"ζ-mixup beside mixup and ERM: in the paper ahead in {sum(says.values())} of the "
        f"{plural(len(says), 'comparison')} run here."
    ]
    ours = "Ours" if len(says) == len(outcomes) else "Ours, once for each augmentation"
    single = [each for each in outcomes if each.outcome == ONE_SEED]
    several = [each for each in outcomes if each.outcome != ONE_SEED]
    if several:
        counts = Counter(each.outcome for each in several)
        told = f"ahead in {counts[AHEAD]} of {len(several)}, behind in {counts[BEHIND]}"
        if counts[UNDECIDED]:
            told += f", not to be told apart in {counts[UNDECIDED]}"
            # a pair that shows no difference may still show that it is not the paper's
            refuted = sum(each.refuted for each in several if each.outcome == UNDECIDED)
            worse = f"in {refuted} of these all of the interval is worse than the paper's value"
            told += f" ({worse})" if refuted else ""
        parts.append(f"{ours}, with several seeds: {told}.")
    if single:
        ahead = sum(each.ours > 0 for each in single)
        which = "With one seed" if several else f"{ours}, with one seed"
        parts.append(f"{which}, which proves nothing: ahead in {ahead} of {len(single)}.")
    return " ".join(parts)


def _sentence(
    view: View, row: Row, variant: Variant, metric: str, found: Sequence[Difference]
) -> str:
    where = CATALOGUE[row.dataset].title
    if len({cell.model for cell in view.trainings}) > 1:
        where += f", {paper.MODELS[row.model]}"
    where += f", {variant.label}" if variant.label else ""
    reference = found[0].baseline
    parts = [_part(view, row, metric, each) for each in found]
    return (
        f"{where}: {_headline(view, row, metric, found)} {unit_name(metric)[0].upper()}"
        f"{unit_name(metric)[1:]}, ζ-mixup minus {REFERENCES[reference]}: {'; '.join(parts)}."
    )


def _headline(view: View, row: Row, metric: str, found: Sequence[Difference]) -> str:
    """Does ζ-mixup win here, and where the paper says that it does?"""
    other = REFERENCES[found[0].baseline]
    outcomes = [_outcome(each, metric) for each in found]
    sign = 1 if METRICS[metric].higher_is_better else -1
    printed = [_printed(view, row, metric, each) for each in found]
    says = sum(difference is not None and sign * difference > 0 for difference in printed)
    paper_has = f"the paper has it ahead at {says} of {len(found)} γ"
    if set(outcomes) == {ONE_SEED}:
        ahead = sum(sign * each.mean > 0 for each in found)
        counts = f"ahead of {other} at {ahead} of {len(found)} γ"
        return f"in one seed, which proves nothing, ζ-mixup is {counts}; {paper_has}."
    wins, losses = outcomes.count(AHEAD), outcomes.count(BEHIND)
    if wins and losses:
        return f"ζ-mixup beats {other} at {wins} γ and loses to it at {losses}; {paper_has}."
    if wins:
        return f"ζ-mixup beats {other} at {wins} of {len(found)} γ; {paper_has}."
    if losses:
        return f"ζ-mixup does not win: it loses to {other} at {losses} γ; {paper_has}."
    return f"ζ-mixup does not win: no difference to {other} can be claimed; {paper_has}."


def _part(view: View, row: Row, metric: str, found: Difference) -> str:
    digits = paper.METRICS[metric][2]
    gamma = found.method.removeprefix("zeta:")
    text = f"γ = {gamma} {_signed(found.mean, digits)}"
    if found.low is None or found.high is None:
        text += " (one seed, no interval"
    else:
        low, high = _signed(found.low, digits), _signed(found.high, digits)
        text += f" ({100 * CONFIDENCE:.0f} % interval {low} to {high}, n = {found.n}"
    printed = _printed(view, row, metric, found)
    if printed is not None:
        text += f"; the paper has {_signed(printed, digits)}"
    return text + ")"


def _printed(view: View, row: Row, metric: str, found: Difference) -> float | None:
    """The same difference from the paper's table."""
    ours, theirs = (
        paper.printed(view.artifact, row.dataset, row.model, method, metric)
        for method in (found.method, found.baseline)
    )
    return None if ours is None or theirs is None else ours - theirs


def _signed(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")
