"""Which cells of an artifact a user asks for."""

from dataclasses import dataclass

from zetamix.results.paper_cells import Variant


@dataclass(frozen=True)
class CellRequest:
    """None stands for the artifact's own choice."""

    seeds: tuple[int, ...] | None = None
    augmentations: tuple[str, ...] | None = None
    epochs: int | None = None
    datasets: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None

    @property
    def changes_training(self) -> bool:
        return (self.seeds, self.augmentations, self.epochs) != (None, None, None)

    def seeds_or(self, default: tuple[int, ...]) -> tuple[int, ...]:
        return default if self.seeds is None else self.seeds

    def variants_or(self, default: tuple[str | None, ...]) -> list[Variant]:
        """Variants to train; None in `default` is the recipe's own augmentation."""
        augmentations = default if self.augmentations is None else self.augmentations
        return [Variant(augmentation, self.epochs) for augmentation in augmentations]
