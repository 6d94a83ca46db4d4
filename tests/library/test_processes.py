"""Transforms in loader workers and in the ranks of a job: what they draw, and who may set whom."""

import copy
import multiprocessing
import os
import resource
import subprocess
import sys
from itertools import combinations

import by_hand
import pytest
import torch
import torch.distributed
import torch.multiprocessing
from conftest import assert_close
from torch.utils.data import DataLoader
from transform_kinds import seeded, sharper

from zetamix import ZetaMix, ZetaMixup, mixup_plan, zeta_plan

# Python 3.12 warns about any fork of a process that has threads, as torch's has
pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded, use of fork:DeprecationWarning"
)
# every sample is its class, and no two samples have one: a target names the sources of its output
SAMPLES = [(torch.full((2,), float(k)), k) for k in range(16)]


def loader_of(transform, context="fork", *, length=8, workers=2, persistent=True):
    return DataLoader(
        SAMPLES[:length],
        batch_size=4,
        num_workers=workers,
        collate_fn=transform.collate,
        multiprocessing_context=context if workers else None,
        persistent_workers=persistent and workers > 0,
    )


def heaviest(gamma):
    return torch.full((4,), by_hand.weights_from_ranks([1, 2, 3, 4], gamma)[0])


def unmixed(loader, batches=2):
    """Whether each of the batches is unmixed; what a batch holds is what its targets say."""
    found = []
    for samples, targets in loader:
        assert_close(samples[:, 0], targets.double() @ torch.arange(16, dtype=torch.float64))
        found.append(bool(((targets == 0) | (targets == 1)).all()))
    assert len(found) == batches
    return set(found)


# loader workers


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_the_controls_reach_persistent_workers(context):
    transform = ZetaMixup(num_classes=16, gamma=sharper, until=0.5, generator=seeded())
    loader = loader_of(transform, context)
    for epoch in (0, 2):
        transform.set_epoch(epoch, 10)
        for _, targets in loader:
            assert_close(targets.amax(1), heaviest(sharper(epoch)))
    transform.gamma = 7.0
    for _, targets in loader:
        assert_close(targets.amax(1), heaviest(7.0))
    transform.gamma = (2.0, 3.0)
    assert all(len(targets.amax(1).unique()) == 4 for _, targets in loader)
    for off, on in (
        (lambda: setattr(transform, "p", 0.0), lambda: setattr(transform, "p", 1.0)),
        (lambda: setattr(transform, "enabled", False), lambda: setattr(transform, "enabled", True)),
        (transform.eval, transform.train),
        (lambda: transform.set_progress(0.5), lambda: transform.set_epoch(4, 10)),
    ):
        off()
        assert unmixed(loader) == {True}
        on()
        assert unmixed(loader) == {False}


def test_the_switch_of_a_copy_reaches_its_workers_which_may_be_born_in_eval_mode():
    twin = copy.deepcopy(ZetaMixup(num_classes=16).eval())
    loader = loader_of(twin)
    assert unmixed(loader) == {True}
    twin.train()
    assert unmixed(loader) == {False}
    twin.enabled = False
    assert unmixed(loader) == {True}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("own", [True, False], ids=["own generator", "default generator"])
def test_every_batch_has_a_plan_of_its_own_and_a_seed_repeats_them(own, persistent, workers):
    runs = []
    for _ in range(2):
        torch.manual_seed(11)
        transform = ZetaMixup(num_classes=16, generator=seeded() if own else None)
        loader = loader_of(transform, length=16, workers=workers, persistent=persistent)
        batches = [targets for _ in range(2) for _, targets in loader]
        runs.append([targets[:, targets.sum(0) > 0] for targets in batches])
    assert len(runs[0]) == 8
    assert all(torch.equal(*pair) for pair in zip(*runs, strict=True))
    assert not any(torch.equal(*pair) for pair in combinations(runs[0], 2))


# processes that are no workers


def set_apart(rank, transform, meet, results):
    """Rank 0 evaluates while rank 1 trains; what each of them sees then."""
    if rank == 0:
        transform.eval()
        transform.enabled = False
        transform.set_epoch(9, 10)
    else:
        transform.p = 0.25
    meet.wait(60)
    samples = torch.randn(64, 3, generator=seeded())
    mixed, _ = transform(samples, torch.arange(64))
    seen = transform.training, transform.enabled, transform.p, transform.epoch
    results.put((rank, (*seen, torch.equal(mixed, samples))))


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_rank_that_evaluates_changes_nothing_in_another(context):
    """All ranks stopped mixing when one of them called `eval()`."""
    context = multiprocessing.get_context(context)
    model = torch.nn.ModuleList([ZetaMix(num_classes=64)])
    # a parent that has had workers shares memory with them
    assert unmixed(loader_of(ZetaMix(num_classes=16))) == {False}
    meet, results = context.Barrier(2), context.SimpleQueue()
    ranks = [
        context.Process(target=set_apart, args=(rank, model[0], meet, results)) for rank in (0, 1)
    ]
    for rank in ranks:
        rank.start()
    seen = dict(results.get() for _ in ranks)
    for rank in ranks:
        rank.join(60)
    assert seen == {0: (False, False, 1.0, 9, True), 1: (True, True, 0.25, 0, False)}
    assert (model[0].training, model[0].enabled, model[0].p, model[0].epoch) == (True, True, 1.0, 0)


def test_a_thousand_transforms_open_no_files():
    """Each took a file descriptor and shared memory, and 251 were too many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    kept = len(os.listdir("/proc/self/fd")) + 20
    resource.setrlimit(resource.RLIMIT_NOFILE, (kept, hard))
    try:
        made = [ZetaMix(num_classes=2) for _ in range(1000)]
        assert [mix.set_epoch(1, 10) for mix in made] == [None] * 1000
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
def test_the_rank_in_the_environment_chooses_the_stream():
    program = (
        "import torch; from zetamix import zeta_plan; "
        "print(zeta_plan(9, generator=torch.Generator().manual_seed(3)).indices.tolist())"
    )
    environment = os.environ | {"RANK": "3"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(zeta_plan(9, generator=seeded(3), stream=3).indices.tolist())


PLANS = ["default", "own", "mixup", "transform", "agreed"]


def draw_plans(rank, folder):
    """What each of two processes does: join the job, seed alike, draw, save."""
    # the loopback interface is all that is needed, and all that a sandbox may have
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting-point", rank=rank, world_size=2
    )
    torch.manual_seed(0)
    own = seeded()
    drawn = {
        "default": zeta_plan(16),
        "own": zeta_plan(16, generator=own),
        "mixup": mixup_plan(16, generator=own),
        "transform": ZetaMixup(num_classes=2, generator=own).make_plan(16),
        "agreed": zeta_plan(16, stream=0),
    }
    for context in ("fork", "spawn"):
        torch.manual_seed(0)
        loader = loader_of(ZetaMixup(num_classes=16), context, workers=1, persistent=False)
        drawn[context] = next(iter(loader))[1]
    torch.save(drawn, f"{folder}/{rank}.pt")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_ranks_of_a_job_and_their_workers_draw_different_plans_unless_told(tmp_path):
    torch.multiprocessing.spawn(draw_plans, args=(str(tmp_path),), nprocs=2)
    first, second = (torch.load(tmp_path / f"{k}.pt", weights_only=False) for k in (0, 1))
    same = [name for name in PLANS if torch.equal(first[name].indices, second[name].indices)]
    assert same == ["agreed"]
    assert torch.equal(first["agreed"].weights, second["agreed"].weights)
    assert not any(torch.equal(first[name], second[name]) for name in ("fork", "spawn"))
    # rank 0 draws what a single process draws
    assert torch.equal(first["own"].indices, zeta_plan(16, generator=seeded()).indices)
