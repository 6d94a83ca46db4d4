"""A measured number that is not a training run: the same provenance, another kind of record."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

SCHEMA = "zetamix/measurement/1"


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What was measured, of what, how, where, and what came out."""

    kind: str
    """Which measure: a name of `zetamix.experiments.reproduce.experiments.MEASURES`."""
    dataset: str
    """"" where none is needed."""
    fingerprint: str
    method: str
    seed: int
    recipe: dict[str, Any]
    """Everything else that decides the result."""
    values: dict[str, Any]
    wall_s: float
    machine: dict[str, str]
    arrays: str | None = None
    """An `.npz`, by its path beside the records, for what is too long for a line."""
    schema: str = SCHEMA
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """A short name for exactly this cell, the same on any machine."""
        parts = [self.kind, self.dataset, self.fingerprint, self.method, self.seed, self.recipe]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]

    def as_dict(self) -> dict[str, Any]:
        return {"key": self.key, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Measurement":
        return cls(**{name: value for name, value in values.items() if name != "key"})
