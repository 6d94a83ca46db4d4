"""Functions that the two processes of `test_train_ranks` run; each saves what it saw."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed
from folders import RECIPE, small_digits

from zetamix import data
from zetamix.methods import parse
from zetamix.metrics import classify
from zetamix.train import Run, train
from zetamix.train.distributed import Ranks, join, leave
from zetamix.train.trainer import NonFiniteLossError, Trainer

POINTS = RECIPE.change(model="mlp")
# neither can be shared out evenly
TRAIN, TEST = 101, 51


def environment(rank: int, port: int) -> dict[str, str]:
    """The variables that torchrun sets for each of two processes on one machine."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        # the loopback interface is all that is needed, and all that a sandbox may have
        "GLOO_SOCKET_IFNAME": "lo",
    }


@contextmanager
def joined(rank: int, port: int) -> Iterator[Ranks]:
    os.environ.update(environment(rank, port))
    ranks, device = join(torch.device("cpu"))
    assert (ranks, device.type) == (Ranks(rank, 2), "cpu")
    yield ranks
    torch.distributed.barrier()
    leave()


def step_through(rank: int, port: int, folder: Path, root: Path, method: str) -> None:
    """The collectives, and an epoch step by step: which samples, plans, weights and losses."""
    with joined(rank, port) as ranks:
        dataset = small_digits(root, TRAIN, 40, TEST)
        trainer = Trainer(dataset, parse(method), RECIPE, ranks=ranks, seed=3)
        trainer.start_epoch()
        seen = {
            "any": [ranks.any(rank == 1), ranks.any(False), ranks.any(True)],
            "gather": ranks.gather(torch.full((2 - rank, 3), rank)),
            "share": ranks.share({"from": rank}),
            "order": trainer.draws.order.clone(),
            "batch": trainer.loader.batch_size,
        }
        for _ in range(trainer.steps_per_epoch):
            trainer.step()
        trainer.step_metrics[0] = 1.0 + rank
        seen["summary"] = trainer.epoch_metrics()
        trainer.finish_epoch()
        logits, seen["labels"] = trainer.predict(dataset.test)
        seen["scores"] = classify(logits, seen["labels"])
        seen["state"] = trainer.model.state_dict()
        seen["generator"] = trainer.generator.get_state()
        seen["mixed"] = trainer.mix(torch.eye(16), torch.arange(16) % 10)[0]
        trainer.step_metrics[0, 1 if rank else 2] = float("nan")
        try:
            trainer.epoch_metrics()
        except NonFiniteLossError as error:
            seen["error"] = str(error)
        torch.save(seen, folder / f"seen-{rank}.pt")


def train_points(rank: int, port: int, folder: Path, last_batch: str) -> None:
    """Points, without mixing or batch statistics: the same as in one process."""
    with joined(rank, port) as ranks:
        dataset = data.load("crescents")
        dataset = replace(dataset, train=dataset.train.subset(481))
        recipe = POINTS.change(last_batch=last_batch)
        train([Run(dataset, parse("none"), recipe, seed=3, out=folder, ranks=ranks)])


def train_apart(rank: int, port: int, folder: Path, rounds: int) -> None:
    """Each rank with a folder of its own, as on machines that share no files."""
    with joined(rank, port) as ranks:
        out = folder / f"rank{rank}"
        run = Run(data.load("crescents"), parse("mixup"), POINTS, seed=3, out=out, ranks=ranks)
        calls = iter(range(1000))
        # the stop condition holds on one of them only
        records = train([run], stop=lambda: rank == 1 and next(calls) == rounds - 1).records
        torch.save([record.last for record in records], folder / f"records-{rank}.pt")
