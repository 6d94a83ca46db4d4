"""What every test shares: one tolerance table, seeds, and the rule for tests that need a GPU."""

import atexit
import os
import shutil
import signal
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from torch import Tensor

# relative and absolute tolerance by dtype: a few roundings of numbers of order one.
# Half precision rounds once, on the way out, because mixing itself happens in float32.
TOLERANCES = {
    torch.float64: (1e-12, 1e-13),
    torch.float32: (2e-6, 1e-6),
    torch.float16: (1e-3, 1e-4),
    torch.bfloat16: (8e-3, 1e-3),
    # integers: the same rounding to nearest, up to sums that fall on a half
    torch.uint8: (0.0, 1.0),
    torch.int8: (0.0, 1.0),
    torch.int16: (0.0, 1.0),
}

# files whose tests train, start processes, compile kernels or render pages for seconds each
SLOW_FILES = {
    "test_compare_cli", "test_compare_report", "test_executor", "test_kernels", "test_kills",
    "test_multi_label", "test_ray_cluster", "test_run_cells",
}  # fmt: skip

# the same examples on every machine and in every run
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True, database=None)
# `make fuzz`: other examples in every round, by the seed of the round (see fuzz.py)
hypothesis.settings.register_profile(
    "fuzz", deadline=None, database=None, max_examples=2000, print_blob=True
)
hypothesis.settings.load_profile("suite")


def pytest_configure(config: pytest.Config) -> None:
    # a shell lets jobs in the background ignore Ctrl-C, and nohup a hang-up: so would all processes
    # of the tests. A signal that is handled is not ignored in a new program
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)
    # the Triton kernels run in its interpreter where there is no GPU; read when triton is imported
    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")
    # xdist runs one process per core already; a pool of threads in each only slows both down
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    # nor does a pool that compiles kernels pay off
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    # prepared data of tests goes to a folder of its own, never to the user's
    if "ZETAMIX_DATA" not in os.environ:
        folder = tempfile.mkdtemp(prefix="zetamix-tests-")
        os.environ["ZETAMIX_DATA"] = folder
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if config.option.markexpr == "gpu":
        # other files import libraries that a machine with a GPU may lack
        root = Path(__file__).parents[1]
        files = [file for part in ("tests", "src", "paper") for file in (root / part).rglob("*.py")]
        others = [str(file) for file in files if "mark.gpu" not in file.read_text()]
        config.option.ignore = [*(config.option.ignore or []), *others]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.stem in SLOW_FILES:
            item.add_marker(pytest.mark.slow)
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device, and there is none"))


def assert_close(actual: Tensor, expected: Tensor) -> None:
    """Equal up to the tolerance of the dtype of `actual`; dtypes and shapes must agree exactly."""
    rtol, atol = TOLERANCES[actual.dtype]
    torch.testing.assert_close(actual, expected.to(actual.dtype), rtol=rtol, atol=atol)


def assert_same(results: Iterable[Any], expected: Iterable[Any]) -> None:
    """Exactly equal tensors, also in nested lists and tuples."""
    torch.testing.assert_close(list(results), list(expected), rtol=0, atol=0)


@pytest.fixture(autouse=True)
def _seed() -> None:
    """Every test starts from the same state of torch's default generator."""
    torch.manual_seed(20240229)


@pytest.fixture(scope="session")
def fuzz_seed(request) -> int:
    """The seed of the round: 0 in `make test`, another one in every round of `make fuzz`."""
    return int(request.config.getoption("--hypothesis-seed") or 0)


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """The digits of the tests of training: 100 to train on, 40 and 50 to evaluate."""
    from factories import small_digits

    return small_digits(tmp_path_factory.mktemp("data"))


@pytest.fixture
def new(digits, tmp_path):
    """Makes small runs (`factories.Runs`)."""
    from factories import Runs

    return Runs(digits, tmp_path)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(7)
