"""The benchmark: the gate in front of the times, the times themselves, and the command."""

import json

import pytest
import torch
from typer.testing import CliRunner

from benchmarks import run, timing
from benchmarks.contenders import CONTENDERS, COPY, OURS, PEERS
from benchmarks.scaling import Point, measure_point, scaling_points
from zetamix_lab.cli.app import app
from zetamix_lab.provenance import machine_info, machine_summary

CPU = torch.device("cpu")
SMALL = run.Case((6, 3, 8, 8), torch.float32, CPU)


def invoke(*arguments):
    return CliRunner().invoke(app, ["bench", "--device", "cpu", "--rounds", "5", *arguments])


DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.uint8)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_gate_lets_right_results_through(dtype):
    run.check(run.Case((12, 3, 8, 8), dtype, CPU))
    run.check(run.Case((12, 3, 8, 8), dtype, CPU, channels_last=True))


@pytest.mark.parametrize("which", ["samples", "targets"])
@pytest.mark.parametrize("function", ["_zetamix", "mixup", "zeta_mixup"])
def test_the_gate_stops_a_wrong_result(function, which, monkeypatch):
    right = getattr(run, function)

    def wrong(*arguments, **options):
        samples, targets = right(*arguments, **options)
        return (samples * 1.001, targets) if which == "samples" else (samples, targets * 1.001)

    monkeypatch.setattr(run, function, wrong)
    with pytest.raises(run.WrongResultError, match=f"expected {which} with a relative error"):
        run.measure(SMALL, rounds=5)
    result = invoke("--shapes", "6x3x8x8")
    assert result.exit_code == 1
    assert "Nothing was timed" in " ".join(result.output.split())
    assert "median" not in result.output


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_every_installed_contender_is_measured():
    rows = run.measure(SMALL, rounds=5)
    assert [row.contender for row in rows] == [c.name for c in CONTENDERS if c.installed()]
    assert {"torchvision v2.MixUp", "timm Mixup", "kornia RandomMixUpV2"} < set(PEERS)
    by_name = {row.contender: row for row in rows}
    assert by_name[COPY].times_copy == 1
    for row in rows:
        assert 0 < row.p20_us <= row.median_us <= row.p80_us
        assert row.times_copy == pytest.approx(row.median_us / by_name[COPY].median_us)
    peer, factor = run.fastest_peer(rows, PEERS)
    assert factor == pytest.approx(by_name[peer].median_us / by_name[OURS].median_us)
    assert by_name[peer].median_us == min(by_name[name].median_us for name in PEERS)


def test_the_listing_is_the_method(generator):
    listing = next(c for c in CONTENDERS if c.name == "paper listing").build(6)
    mixed, targets = listing(torch.eye(6).view(6, 6, 1, 1), torch.arange(6))
    # with unit vectors as samples, both outputs are the weights
    torch.testing.assert_close(mixed.flatten(1), targets)
    series = torch.arange(1, 7) ** -2.8
    torch.testing.assert_close(
        targets.sort(1, descending=True).values, (series / series.sum()).expand(6, -1)
    )
    assert targets.argmax(1).tolist() == list(range(6))


def test_a_missing_library_is_left_out(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    rows = run.measure(SMALL, rounds=5)
    assert "timm Mixup" not in {row.contender for row in rows}
    assert OURS in {row.contender for row in rows}


def test_quantiles_are_in_order():
    found = timing.Timing.of([float(k) for k in range(101)])
    assert (found.p20, found.median, found.p80) == (20.0, 50.0, 80.0)


def test_turns_rotate_and_warm_up():
    seen = []
    steps = {name: lambda turn, name=name: seen.append((turn, name)) for name in "abc"}
    found = timing.time_alternating(steps, 20)
    assert list(found) == ["a", "b", "c"]
    rounds = [seen[k : k + 3] for k in range(0, len(seen), 3)]
    assert [{turn for turn, _ in group} for group in rounds] == [{k} for k in range(22)]
    assert all({name for _, name in group} == set("abc") for group in rounds)
    # not always in the same order
    assert len({tuple(name for _, name in group) for group in rounds}) > 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_the_command_prints_and_writes(tmp_path):
    file = tmp_path / "new" / "rows.json"
    result = invoke("--shapes", "6x3x8x8,4x1x5x7", "--json", str(file))
    assert result.exit_code == 0, result.output
    assert "6 × 3 × 8 × 8, float32" in result.output
    assert "4 × 1 × 5 × 7, float32" in result.output
    assert "4 × 1 × 5 × 7, float32, channels last" in result.output
    assert f"torch {torch.__version__}" in result.output.replace("\n", "")
    document = json.loads(file.read_text())
    assert {tuple(row["shape"]) for row in document["rows"]} == {(6, 3, 8, 8), (4, 1, 5, 7)}
    assert document["machine"]["torch"] == torch.__version__
    assert [path.name for path in file.parent.iterdir()] == ["rows.json"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shapes", "32x3"], "expected batch x channels x height x width"),
        (["--shapes", "axb"], "expected batch x channels x height x width"),
        (
            ["--scaling", "--shapes", "4x3x8x8"],
            "cannot be combined with --shapes, --dtypes or --layouts",
        ),
        (["--layouts", "rows"], "expected names from contiguous, channels_last, got 'rows'"),
        (["--dtypes", "int8"], "expected names from float32, bfloat16, float16, uint8, got 'int8'"),
        (["--device", "tpu"], "expected cpu or cuda, got 'tpu'"),
    ],
)
def test_bad_arguments_get_a_sentence(arguments, message):
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())


def test_the_machine_summary_has_commit_and_command(monkeypatch):
    monkeypatch.setenv("ZETAMIX_COMMIT", "abc123")
    monkeypatch.setattr("sys.argv", ["/somewhere/bin/zetamix", "bench", "--device", "cpu"])
    facts = machine_info(CPU)
    assert machine_summary(facts).endswith("commit abc123")
    assert facts["command"] == "zetamix bench --device cpu"


def test_the_points_of_the_figure_span_what_grows():
    points = scaling_points()
    batches = [point.at for point in points if point.axis == "batch"]
    assert (batches[0], batches[-1]) == (16, 8192)
    sources = [point.at for point in points if point.axis == "sources"]
    assert (sources[0], sources[-1]) == (2, 128)


def test_time_and_memory_of_a_point():
    rows = list(measure_point(Point("batch", 64, 16), CPU, rounds=5))
    by_method = {row.method: row for row in rows}
    assert set(by_method) == {COPY, "ZetaMix", "ζ-mixup, all sources"}
    result = 64 * 3 * 16 * 16 * 4
    assert by_method[COPY].peak_bytes == result
    for row in rows:
        assert row.median_us > 0
        assert result <= row.peak_bytes < 4 * result
    # the whole plan of all sources is 64 × 64
    assert by_method["ζ-mixup, all sources"].peak_bytes > by_method["ZetaMix"].peak_bytes


def test_the_command_draws_how_cost_grows(tmp_path, monkeypatch):
    few = [Point("batch", 4, 8), Point("batch", 8, 8), Point("sources", 8, 8, 2)]
    monkeypatch.setattr("benchmarks.scaling.scaling_points", lambda: few)
    result = invoke("--scaling", "--out", str(tmp_path / "new"))
    assert result.exit_code == 0, result.output
    assert "scaling.png" in result.output.replace("\n", "")
    document = json.loads((tmp_path / "new" / "scaling.json").read_text())
    assert [row["at"] for row in document["rows"]] == [4, 4, 4, 8, 8, 8, 2, 2, 2]
    assert (tmp_path / "new" / "scaling.svg").read_text().rstrip().endswith("</svg>")
