"""Functions that the two processes of `test_train_ranks` run; each saves what it saw."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed

from zetamix import data
from zetamix.methods import parse
from zetamix.metrics import classify
from zetamix.train import RECIPES, Run, train
from zetamix.train.distributed import Ranks, join, leave
from zetamix.train.trainer import NonFiniteLossError, Trainer

DIGITS = RECIPES["cifar10"].change(
    model="digitnet", epochs=2, batch_size=32, lr=0.05, milestones=(1,), augmentation="none"
)
POINTS = DIGITS.change(model="mlp")


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


def ask(rank: int, port: int, folder: Path) -> None:
    """All collectives."""
    with joined(rank, port) as ranks:
        answers = {
            "any": [ranks.any(rank == 1), ranks.any(False), ranks.any(True)],
            "gather": ranks.gather(torch.full((2 - rank, 3), rank)),
            "share": ranks.share({"from": rank}),
        }
        torch.save(answers, folder / f"answers-{rank}.pt")


def small_digits(root: Path) -> data.Dataset:
    whole = data.load("digits", data_dir=root)
    # 101 and 51: neither can be shared out evenly
    return replace(whole, train=whole.train.subset(101), test=whole.test.subset(51))


def step_through(rank: int, port: int, folder: Path, root: Path, method: str) -> None:
    """An epoch, step by step: which samples, which plans, which weights."""
    with joined(rank, port) as ranks:
        dataset = small_digits(root)
        trainer = Trainer(dataset, parse(method), DIGITS, ranks=ranks, seed=3)
        trainer.start_epoch()
        samples = trainer.draws.order.clone()
        for _ in range(trainer.steps_per_epoch):
            trainer.step()
        summary = trainer.finish_epoch()
        logits, labels = trainer.predict(dataset.test)
        seen = {
            "order": samples,
            "batch": trainer.loader.batch_size,
            "steps": trainer.steps_per_epoch,
            "generator": trainer.generator.get_state(),
            "mixed": trainer.mix(torch.eye(16), torch.arange(16) % 10)[0],
            "state": trainer.model.state_dict(),
            "summary": summary,
            "labels": labels,
            "scores": classify(logits, labels),
        }
        torch.save(seen, folder / f"seen-{rank}.pt")


def train_points(rank: int, port: int, folder: Path, last_batch: str) -> None:
    """Points, without mixing or batch statistics: the same as in one process."""
    with joined(rank, port) as ranks:
        dataset = data.load("crescents")
        dataset = replace(dataset, train=dataset.train.subset(481))
        recipe = POINTS.change(last_batch=last_batch)
        run = Run(dataset, parse("none"), recipe, seed=3, out=folder, ranks=ranks)
        train([run])


def train_apart(rank: int, port: int, folder: Path, rounds: int) -> None:
    """Each rank with a folder of its own, as on machines that share no files."""
    with joined(rank, port) as ranks:
        dataset = data.load("crescents")
        out = folder / f"rank{rank}"
        run = Run(dataset, parse("mixup"), POINTS, seed=3, out=out, ranks=ranks)
        calls = iter(range(1000))
        # the stop condition holds on one of them only
        records = train([run], stop=lambda: rank == 1 and next(calls) == rounds - 1).records
        torch.save([record.last for record in records], folder / f"records-{rank}.pt")


def diverge(rank: int, port: int, folder: Path) -> None:
    """Losses that differ, and that are not finite in the fifth step of one rank."""
    with joined(rank, port) as ranks:
        trainer = Trainer(data.load("crescents"), parse("none"), POINTS, ranks=ranks)
        trainer.start_epoch()
        for _ in range(trainer.steps_per_epoch):
            trainer.step()
        trainer.step_metrics[0] = 1.0 + rank
        losses = [trainer.finish_epoch()["train_loss"]]
        trainer.step_metrics[0, 4 if rank else 6] = float("nan")
        try:
            trainer.finish_epoch()
        except NonFiniteLossError as error:
            losses.append(str(error).split("step ")[1].split(" of")[0])
        torch.save(losses, folder / f"losses-{rank}.pt")
