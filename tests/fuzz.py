"""`make fuzz`: the tests marked `fuzz`, round after round, each round with another seed.

A test takes its randomness from hypothesis or from the fixture `fuzz_seed`. The first failure ends
the fuzzing; its seed repeats it:

    python tests/fuzz.py --seed 17 --minutes 0
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10, help="no round begins later")
    parser.add_argument("--seed", type=int, help="of the first round; drawn when left out")
    options, arguments = parser.parse_known_args()
    tests = Path(__file__).parent
    # collecting all files would take longer than many a round
    files = [str(path) for path in tests.rglob("test_*.py") if "mark.fuzz" in path.read_text()]
    command = [sys.executable, "-m", "pytest", "-n", "2", "-m", "fuzz", *sorted(files)]
    command += ["--hypothesis-profile=fuzz", *arguments]
    start, rounds, status = time.monotonic(), 0, 0
    seed = int.from_bytes(os.urandom(3)) if options.seed is None else options.seed
    while status == 0 and (rounds == 0 or time.monotonic() - start < 60 * options.minutes):
        seed, rounds = seed + (rounds > 0), rounds + 1
        print(f"\nRound {rounds}, seed {seed}", flush=True)
        status = subprocess.run(
            [*command, f"--hypothesis-seed={seed}"], cwd=tests.parent
        ).returncode
    print(f"\nRounds: {rounds}, in {(time.monotonic() - start) / 60:.1f} minutes.")
    if status:
        print(f"Failed. To repeat: {sys.executable} tests/fuzz.py --minutes 0 --seed {seed}")
    return status


if __name__ == "__main__":
    sys.exit(main())
