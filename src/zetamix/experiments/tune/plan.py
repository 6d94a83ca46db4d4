"""How many trials of which kind."""

from dataclasses import dataclass

from zetamix.experiments.tune.question import Question
from zetamix.results.search_space import Setting, SpaceError

SAMPLERS = ("tpe", "grid", "random")
# as the paper's sweep
TRIALS = 200
GRID_SEEDS = 3

# a trial is stopped when three quarters of the others were better at the same epoch. Optuna's
# median stops half of all trials, however close they are, and here they are close: the paper's
# three γ differ by 0.25 points of error on CIFAR-10
KEEP_PERCENT = 75.0
# finished trials before any is stopped
STARTUP = 5


@dataclass(frozen=True)
class Plan:
    """What is to be trained; `make_plan` checks it."""

    sampler: str
    trials: int
    prune: bool
    grid: tuple[Setting, ...] = ()
    seeds: tuple[int, ...] = ()


def make_plan(
    question: Question,
    sampler: str = "tpe",
    trials: int | None = None,
    prune: bool | None = None,
    seeds: int | None = None,
) -> Plan:
    """What is to be done, checked.

    trials: in all, with those that the study has already; a grid has as many as places.
    prune: None prunes, except in a grid, whose every place is wanted.
    seeds: of each place of a grid.
    """
    if sampler not in SAMPLERS:
        raise SpaceError(f"sampler must be one of {', '.join(SAMPLERS)}, got {sampler!r}.")
    if sampler != "grid":
        if seeds is not None:
            raise SpaceError(
                f"seeds are for a grid, got {seeds} for {sampler}: there every trial has its own."
            )
        if not question.space.searched:
            raise SpaceError(
                f"Nothing to search: every parameter of {question.space.text} has one value."
            )
        trials = TRIALS if trials is None else trials
        if trials < 1:
            raise SpaceError(f"trials must be at least 1, got {trials}.")
        return Plan(sampler, trials, True if prune is None else prune)
    if trials is not None:
        raise SpaceError(
            f"A grid has as many trials as places and seeds, got trials={trials}. Leave it out."
        )
    if prune:
        raise SpaceError("A grid is trained whole, so that its curve can be read; leave prune out.")
    if seeds is not None and seeds < 1:
        raise SpaceError(f"seeds must be at least 1, got {seeds}.")
    grid = tuple(question.space.grid())
    count = GRID_SEEDS if seeds is None else seeds
    numbers = tuple(range(question.seed, question.seed + count))
    return Plan("grid", len(grid) * count, False, grid, numbers)
