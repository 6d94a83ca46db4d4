"""Records as a training run would leave them, with the numbers a test wants."""

from comparisons import metrics

from zetamix_lab.records import Cell, Measurement, RunRecord

FACTS = {
    "processor": "a processor",
    "cores": "2",
    "threads": "2",
    "python": "3.12",
    "torch": "2.11",
    "gpu": "a GPU",
    "commit": "abc1234",
    "command": "zetamix reproduce",
}


def run_record(cell, error, *, best=None, test_size=10_000, **changes):
    """A finished run of a `Training` cell; `best`: the same for the best validation epoch."""
    return RunRecord(
        cell=Cell(
            dataset=cell.dataset,
            fingerprint="f",
            method=cell.method,
            seed=cell.seed,
            recipe=cell.recipe.as_dict(),
            train_size=cell.train_size,
        ),
        last=scores(error),
        best=None if best is None else scores(best) | {"epoch": 3, "val_score": 0.5},
        confusion=[[round((1 - error) * test_size), round(error * test_size)], [0, 0]],
        test_size=test_size,
        wall_s=100.0,
        step_ms=3.0,
        machine=FACTS,
        **changes,
    )


def scores(error):
    return metrics({"error": error, "auc": 1 - error, "nll": 0.2, "ece": 0.05})


def measurement(**changes):
    """A measurement of kind "overview"; any field can be changed."""
    values = {
        "kind": "overview",
        "dataset": "crescents",
        "fingerprint": "f",
        "method": "mixup:1.0",
        "seed": 0,
        "recipe": {"sources": 8},
        "values": {"x": 1.5},
        "wall_s": 0.1,
        "machine": FACTS,
    }
    return Measurement(**(values | changes))
