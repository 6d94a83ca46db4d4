"""What the numbers say, in plain words."""

from zetamix.gamma import GAMMA_MIN
from zetamix.report.inspect_cautions import cautions
from zetamix.results.inspection import Inspection, Subject


def read(inspection: Inspection) -> list[tuple[str, str]]:
    """A few sentences, each under a word, for a reader in a hurry; the table has every number."""
    found = [
        ("In short", _summary(inspection)),
        ("Dimension", _dimension(inspection)),
        ("γ", _gammas(inspection)),
    ]
    if inspection.oracle is not None:
        found += [("Realism", _realism(inspection)), ("Labels", _labels(inspection))]
    return [*found, ("Diversity", _diversity(inspection))]


def keeps_from(inspection: Inspection) -> float | None:
    """The lowest γ from which on every larger one that was tried keeps the dimension."""
    start = None
    for gamma, _ in reversed(inspection.sweep):
        if gamma not in inspection.kept:
            break
        start = gamma
    return start


def _summary(inspection: Inspection) -> str:
    warned = cautions(inspection)
    text = warned["dimension"] if "dimension" in warned else _methods(inspection)
    return f"{text} {warned['oracle']}" if "oracle" in warned else text


def _methods(inspection: Inspection) -> str:
    """Which methods keep the dimension, and the one of them with the richest labels."""
    tolerance = _tolerance(inspection)
    kept = [subject for subject in inspection.subjects if inspection.keeps(subject)]
    lost = [subject.label for subject in inspection.subjects if not inspection.keeps(subject)]
    if not kept:
        return (
            f"None of {_join(lost)} keeps the local dimension of the data within {tolerance}: "
            "outputs fill directions that the data does not, or leave some out."
        )
    richest = max(kept, key=lambda subject: subject.estimates["label_entropy"].value)
    text = f"Within {tolerance} of the data's local dimension: {_join([s.label for s in kept])}"
    text += f"; not {_join(lost)}. " if lost else ". "
    if len(inspection.classes) == 1:
        return text.strip()
    if len(kept) > 1:
        text += f"Of those, {richest.label} has the richest labels, "
    else:
        text += "Its labels have "
    return text + f"{richest.estimates['classes'].value:.1f} classes above 1 % on average."


def _dimension(inspection: Inspection) -> str:
    found = inspection.original.estimates["local_dimension"]
    changes = [
        f"{_change(subject.estimates['local_dimension'].value, found.value)} for {subject.label}"
        for subject in inspection.subjects
    ]
    return (
        f"Around a point the originals vary in {found.value:.1f} ± {found.error:.1f} directions "
        f"(mean of {found.n:,} points with {inspection.neighbours} neighbours each, which show "
        f"{inspection.limit} at most). Outputs: {_join(changes)}."
    )


def _gammas(inspection: Inspection) -> str:
    if inspection.at_limit:
        why = "is at its limit" if inspection.full else "has too little room to grow"
        return f"Nothing follows for γ: local dimension {why}."
    tolerance, start = _tolerance(inspection), keeps_from(inspection)
    tried = [gamma for gamma, _ in inspection.sweep]
    if start is None:
        return (
            f"No γ that was tried, from {tried[0]:g} to {tried[-1]:g}, keeps ζ-mixup's local "
            f"dimension within {tolerance} of the originals' for good."
        )
    text = (
        f"ζ-mixup keeps the local dimension within {tolerance} of the originals' from γ = "
        f"{start:g} on, up to the largest that was tried, {tried[-1]:g}."
    )
    below = [f"{gamma:g}" for gamma in inspection.kept if gamma < min(start, GAMMA_MIN)]
    if below:
        text += (
            f" At γ = {_join(below)} it is within as well, but for another reason: there no sample "
            "dominates, and outputs shrink towards the mean of their batch."
        )
    return text


def _realism(inspection: Inspection) -> str:
    shares = _shares(inspection, "certain_share", 0)
    statement = "" if inspection.oracle is None else inspection.oracle.statement
    text = f"The oracle is certain (entropy below 0.1) about {shares}. It is {statement}."
    return f"{text} {_doubt(inspection)}".strip()


def _labels(inspection: Inspection) -> str:
    shares = _shares(inspection, "agreement", 1)
    text = f"What the oracle sees is the label's heaviest class for {shares}."
    # one that is right, but never certain, can still tell classes apart
    is_right = inspection.oracle is not None and inspection.oracle.trusted
    return text if is_right else f"{text} {_doubt(inspection)}".strip()


def _doubt(inspection: Inspection) -> str:
    return "That says little: see the caution." if "oracle" in cautions(inspection) else ""


def _shares(inspection: Inspection, key: str, digits: int) -> str:
    found = [
        f"{100 * subject.estimates[key].value:.{digits}f} % of {_outputs(subject)}"
        for subject in (inspection.original, *inspection.subjects)
    ]
    return _join(found)


def _diversity(inspection: Inspection) -> str:
    found = [
        f"{subject.estimates['distance'].value:.2f} for {subject.label}"
        for subject in inspection.subjects
    ]
    return (
        "Where 1 is the distance from an original to its nearest other original, outputs lie this "
        f"far from the nearest one: {_join(found)}."
    )


def _tolerance(inspection: Inspection) -> str:
    return f"{100 * inspection.settings.tolerance:g} %"


def _change(value: float, wanted: float) -> str:
    percent = 100 * (value / wanted - 1) if wanted else 0.0
    return f"{value:.1f} ({percent:+.0f} %)".replace("-", "−")


def _outputs(subject: Subject) -> str:
    return "originals" if subject.label == "original" else f"{subject.label}'s outputs"


def _join(parts: list[str]) -> str:
    if len(parts) < 2:
        return "".join(parts)
    return ", ".join(parts[:-1]) + " and " + parts[-1]
