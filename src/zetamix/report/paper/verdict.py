"""Whether a claim of the paper was reproduced: a status per artifact, and its reasons."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from zetamix.report import Picture, Table

REPRODUCED, PARTLY, NOT_REPRODUCED = "reproduced", "partly reproduced", "not reproduced"
INCONCLUSIVE, NOT_RUN = "inconclusive", "not run"
INCOMPLETE = "(incomplete)"


@dataclass(frozen=True)
class Verdict:
    """Status of an artifact and its reasons."""

    status: str = NOT_RUN
    sentences: Sequence[str] = ("Nothing has been measured yet.",)
    """The first one summarises the others."""


@dataclass(frozen=True)
class ArtifactReport:
    """Everything that is shown of an artifact."""

    pictures: Sequence[Picture] = ()
    tables: Mapping[str, Table] = field(default_factory=dict)
    """By file name without suffix."""
    verdict: Verdict = Verdict()


def status_of(claims: Sequence[bool | None]) -> str:
    """The status of several claims of the paper: held, failed, or None for undecided.

    >>> status_of([True, True]), status_of([True, False, None]), status_of([False])
    ('reproduced', 'partly reproduced', 'not reproduced')
    >>> status_of([True, None]), status_of([None])
    ('reproduced (incomplete)', 'inconclusive')
    """
    decided = [claim for claim in claims if claim is not None]
    if not decided:
        return INCONCLUSIVE
    if any(decided) and not all(decided):
        # undecided claims cannot change that
        return PARTLY
    status = REPRODUCED if all(decided) else NOT_REPRODUCED
    return status if len(decided) == len(claims) else f"{status} {INCOMPLETE}"
