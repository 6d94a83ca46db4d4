"""What the numbers cannot say, and what to do about it."""

import math

from zetamix.measure.realism import CERTAIN
from zetamix.results.inspection import Inspection

# an oracle that is certain about fewer originals has little certainty to lose; a judgement of ours
CERTAIN_LEAST = 0.2


def cautions(inspection: Inspection) -> dict[str, str]:
    """Sentences about "dimension" and "oracle", where one of them says little; else none."""
    found = {}
    if inspection.at_limit:
        found["dimension"] = _dimension(inspection)
    if inspection.oracle is not None:
        certain = inspection.original.estimates["certain_share"].value
        if not inspection.oracle.trusted:
            found["oracle"] = _oracle(inspection)
        elif certain < CERTAIN_LEAST:
            found["oracle"] = _uncertain(certain)
    return found


def _dimension(inspection: Inspection) -> str:
    value, limit = inspection.original.estimates["local_dimension"].value, inspection.limit
    if not inspection.full:
        return _within_tolerance(inspection)
    if limit == math.prod(inspection.shape):
        return (
            f"Local dimension is at its limit: samples have {limit} numbers, and the originals "
            f"vary in {value:.1f} directions, so outputs have none to add. Nothing follows from it "
            "for γ."
        )
    return (
        f"Local dimension is at its limit: {inspection.neighbours} neighbours show "
        f"{limit} directions at most, and the originals vary in {value:.1f}. Nothing follows from "
        f"it for γ. {_more_room(inspection)}."
    )


def _within_tolerance(inspection: Inspection) -> str:
    """There is some room left, but less than what counts as kept."""
    value, limit = inspection.original.estimates["local_dimension"].value, inspection.limit
    if limit == math.prod(inspection.shape):
        most, advice = f"samples have {limit} numbers", "Ask for a smaller --tolerance"
    else:
        most = f"{inspection.neighbours} neighbours show {limit} directions at most"
        advice = f"{_more_room(inspection)}. A smaller --tolerance would do as well"
    return (
        f"Local dimension has too little room to grow: {most}, and the originals vary in "
        f"{value:.2f}. Outputs can have {100 * (limit / value - 1):.1f} % more at most, which is "
        f"within the tolerance of {100 * inspection.settings.tolerance:g} %, so it cannot say "
        f"which γ keeps it. {advice}."
    )


def _more_room(inspection: Inspection) -> str:
    if inspection.neighbours < inspection.settings.neighbours:
        return "It takes more samples: neighbours are an eighth of them at most"
    return "Ask for more neighbours (--neighbours)"


def _uncertain(share: float) -> str:
    return (
        f"Realism says little: the oracle is certain (entropy below {CERTAIN}) about "
        f"{100 * share:.0f} % of the originals themselves, so little is left for outputs to lose. "
        "It takes a longer training (--oracle-epochs) or another --oracle."
    )


def _oracle(inspection: Inspection) -> str:
    oracle = inspection.oracle
    if oracle is None:
        return ""
    right, least, guess, needed = (
        f"{100 * share:.1f} %"
        for share in (oracle.accuracy.value, oracle.least, oracle.guess, oracle.needed)
    )
    return (
        f"Realism and label correctness say little: the oracle is right about {right} of unseen "
        f"samples (95 % interval from {least}), and always naming their most frequent class would "
        f"be about {guess}. To be trusted it takes more than {needed}, halfway from there to "
        "always right: more samples, a longer training (--oracle-epochs) or another --oracle."
    )
