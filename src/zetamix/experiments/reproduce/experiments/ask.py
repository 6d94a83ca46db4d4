"""What a user may change about the runs of an artifact."""

from dataclasses import dataclass

from zetamix.experiments.reproduce.cells import Variant


@dataclass(frozen=True)
class Ask:
    """None stands for what the artifact takes by itself."""

    seeds: tuple[int, ...] | None = None
    augmentations: tuple[str, ...] | None = None
    epochs: int | None = None

    def seeds_or(self, default: tuple[int, ...]) -> tuple[int, ...]:
        return default if self.seeds is None else self.seeds

    def variants_or(self, default: tuple[str | None, ...]) -> list[Variant]:
        """The variants to train; None in `default` stands for the recipe's own augmentation."""
        chosen = default if self.augmentations is None else self.augmentations
        return [Variant(augmentation, self.epochs) for augmentation in chosen]
