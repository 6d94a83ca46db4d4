"""The sentences of an inspection report: results and cautions."""

import math

from zetamix.gamma import GAMMA_MIN
from zetamix.measure.realism import CERTAIN
from zetamix.results.inspection import Inspection
from zetamix.text import join

# below this fraction of certain originals, certainty of outputs is not informative (our choice)
MIN_CERTAIN = 0.2
DOUBTFUL = " Unreliable, see the caution above."


def summarise(inspection: Inspection) -> list[tuple[str, str]]:
    """The results as headings with a sentence or two each; cautions come first."""
    doubts, oracle = cautions(inspection), inspection.oracle
    pairs = [("Caution", text) for text in doubts.values()]
    if "dimension" not in doubts:
        pairs.append(("Summary", _methods(inspection)))
    pairs += [("Local dimension", _dimension(inspection)), ("γ", _gammas(inspection))]
    if oracle is not None:
        doubt = DOUBTFUL if "oracle" in doubts else ""
        shares = _by_method(inspection, "certain_share", "{:.0%}")
        text = f"Outputs with an oracle entropy below {CERTAIN}: {shares}."
        pairs.append(("Realism", f"{text} Oracle: {oracle.statement}.{doubt}"))
        shares = _by_method(inspection, "agreement", "{:.1%}")
        text = f"The oracle predicts the label's largest class for {shares}."
        # an accurate oracle that is rarely certain still distinguishes classes
        pairs.append(("Labels", text if oracle.reliable else text + doubt))
    text = (
        "Mean distance to the nearest original, where 1 is the mean distance between an original "
        f"and its nearest other original: {_by_method(inspection, 'distance', '{:.2f}')}."
    )
    scope = (
        "These measures describe the samples, not what a network learns from them: a method whose "
        "outputs are far from the data may train better models. Use zetamix compare for that."
    )
    return [*pairs, ("Diversity", text), ("Scope", scope)]


def cautions(inspection: Inspection) -> dict[str, str]:
    """Why the local dimension ("dimension") or realism ("oracle") is unreliable here, if so."""
    texts, oracle = {}, inspection.oracle
    if inspection.inconclusive:
        texts["dimension"] = _dimension_caution(inspection)
    if oracle is None:
        return texts
    certain = inspection.original.estimates["certain_share"].value
    if not oracle.reliable:
        texts["oracle"] = (
            "Realism and label correctness are unreliable, because the oracle is inaccurate: its "
            f"{oracle.measured_on} accuracy is {_percent(oracle.accuracy.value)} (lower end of "
            f"the 95 % interval {_percent(oracle.accuracy_low)}), and "
            f"{_percent(oracle.accuracy_needed)} is needed, halfway from the majority-class "
            f"baseline ({_percent(oracle.majority)}) to 100 %. Use more samples, more "
            "--oracle-epochs or another --oracle."
        )
    elif certain < MIN_CERTAIN:
        texts["oracle"] = (
            f"Realism is unreliable: the oracle is certain (entropy below {CERTAIN}) about only "
            f"{_percent(certain)} of the originals. Use more --oracle-epochs or another --oracle."
        )
    return texts


def _dimension_caution(inspection: Inspection) -> str:
    """The reason why the local dimension is inconclusive, saturation first."""
    if not inspection.uninformative and inspection.cut_down:
        wanted = inspection.settings.neighbours
        return (
            "The local dimension is inconclusive: the number of neighbours was reduced from "
            f"{wanted} to {inspection.neighbours}, an eighth of the {inspection.samples:,} "
            f"samples. Use {8 * wanted:,} samples or more, or --neighbours "
            f"{inspection.neighbours} to measure at this scale."
        )
    if not inspection.uninformative:
        (first, _), (last, _) = inspection.sweep[0], inspection.sweep[-1]
        return (
            f"The local dimension is inconclusive: every γ measured, from {first:g} to {last:g}, "
            f"preserves it within {_tolerance(inspection)}, so it does not distinguish them. Use a "
            "smaller --tolerance."
        )
    value, limit = inspection.original.estimates["local_dimension"].value, inspection.limit
    reason, advice = "the number of features", []
    if limit < math.prod(inspection.shape):
        reason = f"{inspection.neighbours} neighbours"
        more = "more samples (an eighth of them are neighbours)"
        advice.append(more if inspection.cut_down else "more --neighbours")
    text = (
        f"The local dimension is not informative about γ: the originals vary in {value:.2f} of at "
        f"most {limit} directions ({reason})"
    )
    if not inspection.saturated:
        text += f", and the remaining {_percent(limit / value - 1)} are within the tolerance"
        advice.append("a smaller --tolerance")
    return f"{text}. Use {' or '.join(advice)}." if advice else f"{text}."


def _methods(inspection: Inspection) -> str:
    """The methods that preserve the dimension, and the one of them with the richest labels."""
    preserving = [row for row in inspection.methods if inspection.preserves(row)]
    others = [row.label for row in inspection.methods if not inspection.preserves(row)]
    within = f"the local dimension of the data within {_tolerance(inspection)}"
    if not preserving:
        return f"No method preserves {within} ({join(others)})."
    single = len(preserving) == 1
    text = f"{join([row.label for row in preserving])} preserve{'s' if single else ''} {within}"
    if others:
        text += f"; {join(others)} {'does' if len(others) == 1 else 'do'} not"
    if len(inspection.classes) == 1:
        return f"{text}."
    richest = max(preserving, key=lambda row: row.estimates["label_entropy"].value)
    labels = "Its labels have" if single else f"{richest.label} has the richest labels:"
    return (
        f"{text}. {labels} {richest.estimates['classes'].value:.1f} classes above 1 % on average."
    )


def _dimension(inspection: Inspection) -> str:
    original, changes = inspection.original.estimates["local_dimension"], []
    for row in inspection.methods:
        value = row.estimates["local_dimension"].value
        change = value / original.value - 1 if original.value else 0.0
        changes.append(f"{value:.1f} ({100 * change:+.0f} %) for {row.label}".replace("-", "−"))
    return (
        f"Originals: {original.value:.1f} ± {original.error:.1f} (mean over {original.n:,} points, "
        f"{inspection.neighbours} neighbours, at most {inspection.limit}). Outputs: "
        f"{join(changes)}."
    )


def _gammas(inspection: Inspection) -> str:
    if inspection.inconclusive:
        return "No conclusion, see the caution above."
    start, preserving = inspection.preserving_from, inspection.preserving_gammas
    last, _ = inspection.sweep[-1]
    preserve = f"preserve the local dimension within {_tolerance(inspection)}"
    if start is None:
        return f"ζ-mixup does not {preserve} at the largest γ measured, {last:g}."
    text = f"All γ from {start:g} up to the largest measured, {last:g}, {preserve}."
    below = [f"{gamma:g}" for gamma in preserving if gamma < min(start, GAMMA_MIN)]
    if below:
        text += (
            f" So does γ = {join(below)}, where no sample dominates and outputs shrink towards the "
            "mean of their batch."
        )
    return text


def _by_method(inspection: Inspection, name: str, style: str) -> str:
    """The estimates of all rows: "97 % (original), 60 % (mixup:1.0)"."""
    texts = [
        f"{style.format(row.estimates[name].value)} ({row.label})"
        for row in inspection.rows
        if name in row.estimates
    ]
    return ", ".join(texts).replace("%", " %")


def _tolerance(inspection: Inspection) -> str:
    return f"{100 * inspection.settings.tolerance:g} %"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
