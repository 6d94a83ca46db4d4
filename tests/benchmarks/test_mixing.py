"""The benchmark: the check in front of the times, the times themselves, the command."""

import json

import pytest
import torch

from benchmarks import mixing
from benchmarks.__main__ import main
from benchmarks.contenders import CONTENDERS, COPY
from zetamix.transforms import CutMix

CPU = torch.device("cpu")
SMALL = mixing.Case((6, 3, 9, 8), "float32", CPU)
# of libraries that are measured beside ours
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "uint8"])
def test_the_check_lets_right_results_through(dtype):
    mixing.check(mixing.Case((12, 3, 9, 8), dtype, CPU))


@pytest.mark.parametrize("which", ["samples", "targets"])
def test_the_check_stops_a_wrong_result(which, monkeypatch):
    right = CutMix.forward

    def wrong(self, samples, labels):
        mixed, targets = right(self, samples, labels)
        return (mixed * 1.001, targets) if which == "samples" else (mixed, targets * 1.001)

    monkeypatch.setattr(CutMix, "forward", wrong)
    with pytest.raises(mixing.WrongResultError, match=rf"CutMix.*expected {which} .*relative"):
        mixing.measure(SMALL, rounds=5)
    with pytest.raises(SystemExit, match="Nothing was timed"):
        main(["--device", "cpu", "--shapes", "6x3x9x8", "--dtypes", "float32", "--rounds", "5"])


def test_every_contender_is_measured():
    rows = mixing.measure(SMALL, rounds=5)
    fits = [c.name for c in CONTENDERS]
    assert [row["contender"] for row in rows] == [*fits, mixing.MASKS_COPY, mixing.MASKS]
    copy = next(row["median_us"] for row in rows if row["contender"] == COPY)
    for row in rows:
        assert 0 < row["p20_us"] <= row["median_us"] <= row["p80_us"]
        assert row["times_copy"] == pytest.approx(row["median_us"] / copy)


def test_the_command_writes_its_times(tmp_path, capsys):
    path = tmp_path / "rows.json"
    before = torch.get_num_threads()
    main(["--device", "cpu", "--shapes", "4x1x5x6", "--rounds", "5", "--json", str(path)])
    rows = json.loads(path.read_text())["rows"]
    cases = {(row["dtype"], row["threads"]) for row in rows}
    assert cases == {(dtype, count) for dtype in ("float32", "uint8") for count in (1, 2)}
    assert capsys.readouterr().out.count("median µs") == 4
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    "words", [["--shapes", "6x3x8"], ["--shapes", "photos"], ["--dtypes", "int4"]], ids=" ".join
)
def test_what_is_refused(words, capsys):
    with pytest.raises(SystemExit) as end:
        main(["--device", "cpu", *words])
    assert end.value.code == 2
    assert words[0] in capsys.readouterr().err
