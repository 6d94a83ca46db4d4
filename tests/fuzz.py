"""`make fuzz`: the tests marked `fuzz`, round after round, each round with another seed.

A test takes its randomness from hypothesis or from the fixture `fuzz_seed`, and calls `count` for
what it tried. The first failure ends the fuzzing; its seed repeats it:

    python tests/fuzz.py --seed 17 --minutes 0
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

# a file for each process of a round, in this folder
COUNTS_FOLDER = "ZETAMIX_FUZZ_COUNTS"
_counts: Counter[str] = Counter()


def count(what: str, number: int = 1) -> None:
    """Count what was tried, for the summary: `count("API calls")`."""
    _counts[what] += number


def write_counts() -> None:
    """Leave this process's counts for the summary, at the end of its tests."""
    folder = os.environ.get(COUNTS_FOLDER)
    if folder and _counts:
        Path(folder, f"{os.getpid()}.json").write_text(json.dumps(_counts))


def run_round(seed: int, arguments: list[str]) -> tuple[int, Counter[str]]:
    """One round of all fuzz tests: pytest's exit status, and what was tried."""
    tests = Path(__file__).parent
    # collecting all files would take longer than many a round
    files = [str(path) for path in tests.rglob("test_*.py") if "mark.fuzz" in path.read_text()]
    pytest = [sys.executable, "-m", "pytest", "-n", "2", "-m", "fuzz", *sorted(files)]
    options = ["--hypothesis-profile=fuzz", f"--hypothesis-seed={seed}", *arguments]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, COUNTS_FOLDER: folder}
        status = subprocess.run([*pytest, *options], cwd=tests.parent, env=environment).returncode
        counts = Counter[str]()
        for path in Path(folder).iterdir():
            counts.update(json.loads(path.read_text()))
    return status, counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10, help="no round begins later")
    parser.add_argument("--seed", type=int, help="of the first round; drawn when left out")
    options, arguments = parser.parse_known_args()
    start, rounds = time.monotonic(), 0
    first = int.from_bytes(os.urandom(3)) if options.seed is None else options.seed
    total, status = Counter[str](), 0
    while status == 0 and (rounds == 0 or time.monotonic() - start < 60 * options.minutes):
        seed = first + rounds
        print(f"\nRound {rounds + 1}, seed {seed}", flush=True)
        status, counts = run_round(seed, arguments)
        rounds, total = rounds + 1, total + counts
    tried = ", ".join(f"{number:,} {what}" for what, number in sorted(total.items()))
    minutes = (time.monotonic() - start) / 60
    print(f"\nRounds: {rounds}, in {minutes:.1f} minutes: {tried or 'nothing was counted'}.")
    if status:
        print(f"Failed. To repeat: {sys.executable} tests/fuzz.py --minutes 0 --seed {seed}")
    return status


if __name__ == "__main__":
    sys.exit(main())
