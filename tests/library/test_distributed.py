"""Two processes of one job: the same seed, different plans, unless they ask for the same."""

import os

import pytest
import torch
import torch.distributed
import torch.multiprocessing
from torch.utils.data import DataLoader

from zetamix import ZetaMixup, mixup_plan, zeta_plan

pytestmark = pytest.mark.slow
PLANS = ["default", "own", "mixup", "transform", "agreed"]
WORKERS = ["fork", "spawn"]


def draw_plans(rank, folder):
    """What each of the two processes does: join the job, seed alike, draw, save."""
    # the loopback interface is all that is needed, and all that a sandbox may have
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting-point", rank=rank, world_size=2
    )
    torch.manual_seed(0)
    own = torch.Generator().manual_seed(0)
    plans = {
        "default": zeta_plan(16),
        "own": zeta_plan(16, generator=own),
        "mixup": mixup_plan(16, generator=own),
        "transform": ZetaMixup(num_classes=2, generator=own).make_plan(16),
        "agreed": zeta_plan(16, stream=0),
    }
    for name, plan in plans.items():
        torch.save(plan, f"{folder}/{name}-{rank}.pt")
    for context in WORKERS:
        torch.manual_seed(0)
        loader = DataLoader(
            [(torch.zeros(1), label) for label in range(16)],
            batch_size=16,
            num_workers=1,
            collate_fn=ZetaMixup(num_classes=16).collate,
            multiprocessing_context=context,
        )
        torch.save(next(iter(loader))[1], f"{folder}/{context}-{rank}.pt")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """The folder with what the two processes saved; they run once for all tests here."""
    folder = tmp_path_factory.mktemp("job")
    torch.multiprocessing.spawn(draw_plans, args=(str(folder),), nprocs=2)
    return folder


@pytest.fixture
def pairs(job):
    """For each name in PLANS the plans that rank 0 and rank 1 drew."""

    def load(name, rank):
        return torch.load(job / f"{name}-{rank}.pt", weights_only=False)

    return {name: [load(name, rank) for rank in (0, 1)] for name in PLANS}


@pytest.mark.parametrize("name", [name for name in PLANS if name != "agreed"])
def test_ranks_draw_different_plans(pairs, name):
    first, second = pairs[name]
    assert first.indices.shape == second.indices.shape
    assert not torch.equal(first.indices, second.indices)


def test_stream_zero_makes_the_ranks_agree(pairs):
    first, second = pairs["agreed"]
    assert torch.equal(first.indices, second.indices)
    assert torch.equal(first.weights, second.weights)


def test_rank_zero_draws_what_a_single_process_draws(pairs):
    alone = zeta_plan(16, generator=torch.Generator().manual_seed(0))
    assert torch.equal(pairs["own"][0].indices, alone.indices)


@pytest.mark.parametrize("context", WORKERS)
def test_loader_workers_of_different_ranks_draw_different_plans(job, context):
    first, second = (torch.load(job / f"{context}-{rank}.pt") for rank in (0, 1))
    assert first.shape == second.shape == (16, 16)
    assert not torch.equal(first, second)
