"""The report of a search: best setting, flatness, importance, sentences, tables, figures, page."""

import csv
import io
import json
import math
import re

import pytest
import torch
from browser import needs_browser, open_page, screenshot
from tuning import (
    SPACE,
    make_dataset,
    make_grid,
    make_spec,
    make_trial,
    make_tuning,
)

from zetamix.metrics import METRICS
from zetamix.provenance import machine_info
from zetamix.report import Picture
from zetamix.report.tune import (
    as_dict,
    difference_table,
    draw_all,
    draw_gamma,
    draw_parallel,
    method_table,
    results_table,
    trial_table,
    trials_csv,
    write_report,
)
from zetamix.report.tune_text import summarise_tuning
from zetamix.results.search_space import parse_space
from zetamix.results.tuning import best_of, by_setting
from zetamix.results.tuning_analysis import (
    curve,
    flatness,
    has_seeds,
    importance,
    pooled_error,
    trend,
)

MACHINE = {**machine_info(torch.device("cpu")), "command": "zetamix tune --data blobs"}
GRID = make_spec("gamma=1.8:3.0:0.2")
TEN = make_spec("gamma=1.8:3.6:0.2")
ONE = make_spec("gamma=1..6")
# of three seeds on the test split
ERRORS = {"none": [0.10, 0.14, 0.12], "zeta:2.8": [0.1] * 3, "chosen": [0.08, 0.11, 0.10]}
# a valley with its minimum at γ = 2.4, in a grid of seven γ with three seeds each
VALLEY = make_grid([0.10, 0.08, 0.061, 0.06, 0.0605, 0.07, 0.09])


def sweep(count=40, seed=0, noise=0.002):
    """Trials over γ and weight decay: the error is least at γ = 3, weight decay does not matter."""
    generator = torch.Generator().manual_seed(seed)
    trials = []
    for number in range(count):
        draw = torch.rand(2, generator=generator).tolist()
        gamma, decay = 1 + 5 * draw[0], 5e-5 * 20 ** draw[1]
        value = 0.05 + 0.004 * (gamma - 3) ** 2
        value += noise * float(torch.randn((), generator=generator))
        trials.append(make_trial(number, value, gamma=gamma, weight_decay=decay, error=0.003))
    return trials


def summary(tuning):
    return dict(summarise_tuning(tuning))


# the best setting


def test_the_best_setting_has_the_best_mean():
    trials = [
        make_trial(0, 0.1, gamma=2.0, seed=0),
        make_trial(1, 0.3, gamma=2.0, seed=1),
        make_trial(2, 0.19, gamma=3.0, seed=0),
        make_trial(3, 0.19, gamma=3.0, seed=1),
        # one lucky seed is not compared with the mean of two
        make_trial(4, 0.01, gamma=4.0, seed=0),
        make_trial(5, 0.001, gamma=5.0, state="pruned"),
        make_trial(6, None, gamma=6.0, state="diverged"),
    ]
    best = best_of(trials, "error")
    assert (best.setting, best.n) == ({"gamma": 3.0}, 2)
    assert best_of(trials, "accuracy").setting == {"gamma": 2.0}
    assert [result.setting["gamma"] for result in by_setting(trials)] == [2.0, 3.0, 4.0]
    assert best_of(trials[5:], "error") is None
    # a setting that was drawn twice by chance is no better for it
    assert best_of([*trials[:2], make_trial(7, 0.1, gamma=6.0), *trials[4:5]], "error").n == 1


def test_among_equals_the_smaller_loss_is_better():
    trials = [make_trial(k, 0.0, gamma=2.0 + k, nll=nll) for k, nll in enumerate((0.3, 0.1, 0.2))]
    for metric in ("error", "accuracy"):
        assert best_of(trials, metric).setting["gamma"] == 3.0


# analysis


def test_a_curve_has_mean_and_deviation_at_each_gamma():
    points = curve(VALLEY)
    assert [point.gamma for point in points] == [1.8, 2.0, 2.2, 2.4, 2.6, 2.8, 3.0]
    assert round(points[3].value, 4) == 0.06
    assert all(math.isclose(point.band, 0.002) and point.n == 3 for point in points)
    assert has_seeds(VALLEY)
    assert not has_seeds(sweep())
    assert not has_seeds([])
    assert curve([make_trial(0, 0.1)])[0].band is None
    assert math.isclose(pooled_error(points), 0.002 / math.sqrt(3))
    assert pooled_error(curve(sweep(5))) is None


def test_local_means_follow_the_valley():
    points = trend(sweep(200))
    for point in points:
        if 1.5 < point.gamma < 5.5:
            expected = 0.05 + 0.004 * ((point.gamma - 3) ** 2 + 0.16)
            assert abs(point.value - expected) < 0.003
    assert min(points, key=lambda point: point.value).gamma == pytest.approx(3, abs=0.4)
    # nor from few trials, one γ, or where only a fragment could be drawn
    assert trend(sweep(9)) == []
    assert trend([make_trial(k, 0.1 * k) for k in range(15)]) == []
    near = [make_trial(k, 0.1, gamma=2 + k / 100) for k in range(11)]
    assert trend([*near, make_trial(11, 0.1, gamma=6.0)]) == []


def test_the_band_of_a_local_mean_is_its_standard_error():
    generator = torch.Generator().manual_seed(3)
    gammas = (1 + 5 * torch.rand(300, generator=generator)).tolist()
    values = (0.5 + 0.01 * torch.randn(300, generator=generator)).tolist()
    pairs = zip(gammas, values, strict=True)
    points = trend([make_trial(k, value, gamma=gamma) for k, (gamma, value) in enumerate(pairs)])
    for point in points:
        assert point.band == pytest.approx(0.01 / math.sqrt(point.n), rel=0.5)
    off = [abs(point.value - 0.5) / point.band for point in points]
    assert 0.4 < sum(off) / len(off) < 1.5


def test_flatness_of_a_grid():
    flat = flatness(VALLEY, "error")
    assert (flat.best, flat.low, flat.high) == (2.4, 2.2, 2.6)
    assert (flat.within, flat.total, flat.over_seeds) == (3, 7, True)
    assert math.isclose(flat.margin, 0.002 / math.sqrt(3))


def test_flatness_of_a_search():
    trials = [
        make_trial(k, value, gamma=2.0 + k, error=0.02) for k, value in enumerate((0.1, 0.12, 0.13))
    ]
    flat = flatness([*trials, make_trial(3, 0.01, gamma=5.0, state="pruned")], "error")
    assert (flat.low, flat.high, flat.within, flat.total) == (2.0, 3.0, 2, 3)
    assert (flat.margin, flat.over_seeds) == (0.02, False)
    higher = [make_trial(t.number, 1 - t.value, gamma=t.gamma, error=0.02) for t in trials]
    assert flatness(higher, "accuracy").high == 3.0
    # unknown: no trial, no standard error of an AUC, no γ
    assert flatness([], "error") is None
    assert flatness([make_trial(0, 0.9), make_trial(1, 0.8, gamma=3.0)], "auc") is None
    assert flatness([make_trial(0, 0.9, gamma=None, lr=0.1)], "error") is None


def test_importance():
    space = parse_space(SPACE)
    shares = importance(sweep(60), space.searched)
    assert list(shares) == ["gamma", "weight_decay"]
    assert shares["gamma"] > 0.8
    assert sum(shares.values()) == pytest.approx(1)
    assert importance(sweep(60), space.searched) == shares
    steps = parse_space("gamma=1.8:5.0:0.2,sources=2|8|all")
    trials = [
        make_trial(k, 0.1 + (k % 3) / 10, gamma=round(1.8 + 0.2 * (k % 17), 1), sources=sources)
        for k in range(30)
        for sources in [(2, 8, "all")[k % 3]]
    ]
    assert importance(trials, steps.searched)["sources"] > 0.7


@pytest.mark.parametrize(
    ("trials", "space", "message"),
    [
        (sweep(40), "gamma=1..6", "Only one parameter was searched"),
        (sweep(11), SPACE, "at least 12 trials are needed, 11 are complete"),
        (
            [make_trial(k, 0.1, gamma=1 + k / 4, weight_decay=1e-4) for k in range(20)],
            SPACE,
            "All complete trials have the same value",
        ),
    ],
)
def test_importance_is_refused(trials, space, message):
    assert message in importance(trials, parse_space(space).searched)


# sentences


def test_the_first_screen_of_a_grid():
    """The golden text of a report."""
    assert summary(make_tuning(VALLEY, GRID, errors=ERRORS, sampler="grid")) == {
        "Chosen": "ζ-mixup with γ = 2.4: validation error rate 6.00 ± 0.20 % (± standard "
        "deviation, 3 seeds), the best of 21 complete trials.",
        "Flatness": "3 of 7 γ of the grid are within one standard error (0.12 points, over seeds) "
        "of the best, with γ from 2.2 to 2.6. 7 values of γ are too few to tell how flat the "
        "optimum is.",
        "Test": "Over 3 new seeds, the chosen setting (zeta:2.4) has a test error rate of 9.67 ± "
        "1.53 %. It is significantly better than no mixing (−2.33 points) and does not differ "
        "significantly from zeta:2.8 (95 %, Holm-corrected).",
    }


def test_an_unfinished_search():
    trials = [*sweep(30), make_trial(30, 0.4, weight_decay=1e-4, state="pruned")]
    trials.append(make_trial(31, None, weight_decay=1e-4, state="diverged"))
    text = summary(make_tuning(trials, total=40))
    assert list(text) == ["Chosen", "Flatness", "Unfinished"]
    assert "(± standard error, 60 samples)" in text["Chosen"]
    assert text["Chosen"].endswith("30 complete trials, 1 pruned, 1 diverged, 8 remaining.")
    assert text["Unfinished"].endswith("8 remaining. The test split has not been used.")
    assert summary(make_tuning([make_trial(0, None, state="diverged")], total=5)) == {
        "Summary": "No trial is complete. 0 complete trials, 1 diverged, 4 remaining."
    }


def drawn(*gammas, best=0):
    """Trials with these γ, all of them near the best."""
    return [
        make_trial(k, 0.1 if k == best else 0.101, gamma=gamma, error=0.01)
        for k, gamma in enumerate(gammas)
    ]


EVEN = [1.5 + 0.4 * k for k in range(10)]
CHOICES = f"gamma={'|'.join(map(str, range(1, 22)))}"


@pytest.mark.parametrize(
    ("space", "gammas", "best", "width", "edge"),
    [
        # the best is the largest γ, but not at the end of the range
        ("gamma=1..6", EVEN, 9, "flat: 72 %", None),
        ("gamma=1..6", [*EVEN, 5.8], 10, "flat: 86 %", 6),
        ("gamma=1..6", [1.2, *EVEN], 0, "flat: 78 %", 1),
        ("gamma=1..6", [1.3, *EVEN], 0, "flat: 76 %", None),
        ("gamma=log:1..100", [*(2 + k / 10 for k in range(9)), 30.0], 0, "flat: 59 %", None),
        (CHOICES, [2.0 + k for k in range(10)], 1, "broad: 45 %", None),
        (CHOICES, [12.0 + k for k in range(10)], 9, "broad: 45 %", 21),
        # few γ say nothing about the shape
        ("gamma=1..6", [1.969, 3.1, 5.356, 5.9], 2, None, None),
    ],
)
def test_flatness_and_edge_are_measured_by_the_space(space, gammas, best, width, edge):
    text = summary(make_tuning(drawn(*gammas, best=best), make_spec(space)))["Flatness"]
    if width is None:
        assert "too few to tell how flat the optimum is" in text
    else:
        assert f"The optimum is {width} of the searched range." in text
    assert ("edge" in text) == (edge is not None)
    assert edge is None or f"edge of the search, {edge}: extend the range" in text


THREE = make_spec("gamma=1.8:2.6:0.4")


@pytest.mark.parametrize(
    ("means", "present", "absent"),
    [
        ([0.1] * 10, "The optimum is flat: 100 %", "edge"),
        ([0.2, 0.2, 0.1, 0.2, 0.2, 0.2, 0.2], "None of the other 6 γ of the grid is", "edge"),
        ([0.05, 0.1, 0.2, 0.2, 0.2, 0.2, 0.2], "edge of the search, 1.8: extend", "default"),
        ([0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.2], "The default, 2.8, is in this range.", "edge"),
        ([0.2, 0.1, 0.1, 0.1, *[0.2] * 6], "The optimum is broad: 22 %", "edge"),
        ([0.2, 0.1, 0.1, *[0.2] * 7], "The optimum is narrow: 11 %", "edge"),
        # of several best γ none is at the edge
        ([0.1, 0.1, *[0.2] * 8], "narrow", "edge"),
        ([0.1, 0.2, *[0.2] * 8], "edge of the search, 1.8", "default"),
    ],
)
def test_flatness_of_grids_in_sentences(means, present, absent):
    spec = GRID if len(means) == 7 else TEN
    text = summary(make_tuning(make_grid(means), spec))["Flatness"]
    assert present in text
    assert absent not in text


@pytest.mark.parametrize("seeds", [2, 5])
def test_a_grid_of_few_gammas_has_no_shape(seeds):
    trials = make_grid([0.1, 0.1005, 0.101], seeds=seeds, step=0.4)
    text = summary(make_tuning(trials, THREE))["Flatness"]
    assert text.startswith("3 of 3 γ of the grid are within one standard error")
    assert text.endswith("3 values of γ are too few to tell how flat the optimum is.")


def test_a_fixed_gamma_has_no_flatness():
    spec = make_spec("gamma=2.8,weight_decay=log:5e-5..1e-3")
    trials = [make_trial(k, 0.1, weight_decay=1e-4, error=0.01) for k in range(12)]
    assert "Flatness" not in summary(make_tuning(trials, spec))


def tied(value=2 / 3, **options):
    """Three γ with two seeds each and the same value."""
    trials = make_grid([value] * 3, seeds=2, step=0.4, spread=0.0)
    return make_tuning(trials, make_spec("gamma=1.8:2.6:0.4", **options), sampler="grid")


def test_a_tie_supports_no_claim():
    text = summary(tied())
    assert list(text) == ["Tie", "Chosen"]
    assert "the searched parameters cannot be distinguished" in text["Tie"]
    assert "no better than the majority-class baseline" in text["Tie"]
    assert text["Chosen"] == "γ = 1.8, the first tied setting."
    assert as_dict(tied(), "none")["flatness"] is None
    # a tie of perfect models is not chance
    assert "baseline" not in summary(tied(0.0))["Tie"]
    (picture,) = draw_all(tied(), "").values()
    assert "best" not in picture.caption


def test_a_tie_is_broken_by_the_loss():
    trials = [make_trial(k, 0.1, gamma=1 + k, nll=1 - k / 10, error=0.01) for k in range(4)]
    trials.append(make_trial(4, 0.5, gamma=3.3, state="pruned"))
    text = summary(make_tuning(trials, ONE))
    assert text["Tie"].startswith("4 complete trials, 1 pruned.")
    assert text["Chosen"] == "γ = 4, the tied setting with the lowest loss."
    # several seeds of one setting are no tie between settings
    seeds = [make_trial(k, 0.1, gamma=2.4, error=0.01) for k in range(3)]
    assert "Tie" not in summary(make_tuning(seeds, ONE))


@pytest.mark.parametrize(
    ("metric", "value", "chance"),
    [
        ("error", 0.67, True),
        ("error", 0.65, False),
        ("accuracy", 0.33, True),
        ("balanced_accuracy", 1 / 3 + 1e-8, True),
        ("balanced_accuracy", 0.35, False),
        ("auc", 0.5, True),
        ("nll", 1.1, True),
        ("nll", 1.0, False),
        ("ece", 0.9, False),
    ],
)
def test_a_score_at_chance_level_is_called_so(metric, value, chance):
    worse = value - 0.1 * METRICS[metric].sign
    trials = [make_trial(0, value, gamma=2.0), make_trial(1, worse, gamma=3.0)]
    text = summary(make_tuning(trials, make_spec("gamma=1..6", metric=metric)))["Chosen"]
    assert ("no better than the majority-class baseline" in text) == chance


@pytest.mark.parametrize(("errors", "at_chance"), [((0.66, 0.65), True), ((0.66, 0.4), False)])
def test_a_test_at_chance_level_is_doubted(errors, at_chance):
    chosen = make_trial(0, 0.1, gamma=2.4, weight_decay=1e-4)
    tested = {"none": [errors[0]] * 3, "chosen": [errors[1]] * 3}
    found = summary(make_tuning([chosen], errors=tested))
    assert ("Caution" in found) == at_chance
    if at_chance:
        text = "No setting is significantly better than chance (balanced accuracy 33.33 % with 3"
        assert found["Caution"].startswith(text)


def test_a_range_with_worse_values_in_it_is_none():
    errors = {1.8: 0.10, 2.4: 0.30, 2.6: 0.31, 4.0: 0.105}
    trials = [
        make_trial(k, error, gamma=gamma, error=0.02)
        for k, (gamma, error) in enumerate(errors.items())
    ]
    text = summary(make_tuning(trials, make_spec("gamma=1..6")))["Flatness"]
    assert "with γ from 1.8 to 4. 2 other γ in between scored worse." in text
    assert "2.8, is in this range" not in text


def test_claims():
    chosen = make_trial(0, 0.1, gamma=2.4, weight_decay=1e-4)
    worse = {"none": [0.1, 0.11, 0.1], "zeta:2.8": [0.1, 0.1, 0.1], "chosen": [0.2, 0.21, 0.2]}
    text = summary(make_tuning([chosen], errors=worse))["Test"]
    assert text.endswith(
        "It is significantly worse than no mixing (+10.00 points) and zeta:2.8 (+10.33 points) "
        "(95 %, Holm-corrected)."
    )
    one = {name: values[:1] for name, values in worse.items()}
    text = summary(make_tuning([chosen], errors=one))["Test"]
    assert text == (
        "Over 1 new seed, the chosen setting (zeta:2.4) has a test error rate of 20.00 %. "
        "Differences cannot be tested with one seed."
    )
    text = summary(make_tuning([chosen], errors=worse, settings_tested=3))["Test"]
    assert "used for 3 chosen settings" in text
    auc = {"none": [0.1, 0.12], "zeta:2.8": [0.1, 0.1], "chosen": [0.1, 0.13]}
    trial = make_trial(0, 0.9, gamma=2.4, weight_decay=1e-4)
    higher = make_tuning([trial], make_spec(metric="auc"), errors=auc)
    assert (
        "It does not differ significantly from no mixing or zeta:2.8 (95 %,"
        in (summary(higher)["Test"])
    )
    table = difference_table(higher)
    assert [[cell.text() for cell in row][:2] for row in table.cells] == [
        ["no mixing", "−0.0050 (−0.0685 to +0.0585)"],
        ["zeta:2.8", "−0.0150 (−0.2056 to +0.1756)"],
    ]
    assert "Positive is better" in table.notes[0]
    failed = make_tuning([chosen], test_failures=("zeta:2.4 seed 3 diverged.",))
    assert "zeta:2.4 seed 3 diverged." in summary(failed)["Test"]


# tables


def test_the_table_of_test_results():
    errors = {"none": [0.10, 0.14], "zeta:2.8": [0.1, 0.1], "chosen": [0.08, 0.11]}
    chosen = make_trial(0, 0.1, gamma=2.4, weight_decay=1e-4)
    table = results_table(make_tuning([chosen], errors=errors))
    rows = [[cell.text() for cell in row] for row in table.cells]
    assert [row[:2] for row in rows] == [
        ["no mixing", "12.00 ± 2.83"],
        ["zeta:2.8", "10.00 ± 0.00"],
        ["chosen: zeta:2.4", "9.50 ± 2.12"],
    ]
    assert [row[-1] for row in rows] == ["2", "2", "2"]
    heads = ["error %", "balanced accuracy %", "macro F1 %", "AUC", "NLL", "ECE %"]
    assert [head.name for head in table.heads][1:-1] == heads
    assert table.notes[1] == (
        "Each was chosen by its own search: no mixing with weight decay = 0.0005; zeta:2.8 "
        "with weight decay = 0.0005; chosen: zeta:2.4 with weight decay = 0.0001."
    )
    alone = make_tuning([chosen], make_spec("gamma=1..6"), errors=errors)
    assert len(results_table(alone).notes) == 1


def test_the_method_names_the_optimiser_and_the_start():
    recipe = dict(row for row in method_table(make_tuning([make_trial(0, 0.1)])).rows)["recipe"]
    assert "from scratch" in recipe
    assert "SGD with momentum 0.9 (Nesterov), learning rate" in recipe


def test_the_table_of_trials_shows_the_best_and_the_file_all():
    trials = [*sweep(40), make_trial(40, 0.5, weight_decay=1e-4, state="pruned")]
    tuning = make_tuning(trials)
    shown = trial_table(tuning)
    assert len(shown.rows) == 30
    assert shown.cells[0][0].value == min(trials[:40], key=lambda trial: trial.value).number
    rows = list(csv.DictReader(io.StringIO(trials_csv(tuning))))
    assert [int(row["trial"]) for row in rows] == list(range(41))
    assert float(rows[3]["gamma"]) == pytest.approx(trials[3].gamma, rel=1e-5)
    assert rows[40]["state"] == "pruned"


def test_csv_files_have_plain_names_and_short_numbers():
    trial = make_trial(0, 3.888888888888886 / 100, gamma=2.4, weight_decay=1e-4, error=1 / 700)
    tuning = make_tuning([trial, make_trial(1, None, state="failed", gamma=None)])
    assert trials_csv(tuning).splitlines() == [
        "trial,gamma,weight_decay,seed,val_error,val_error_se,state,seconds",
        "0,2.4,0.0001,0,0.0388889,0.00142857,complete,2.5",
        "1,,,1,,,failed,2.5",
    ]


# figures


def test_figures_are_those_there_are_numbers_for():
    def names(tuning):
        return list(draw_all(tuning, importance(tuning.trials, tuning.spec.space.searched)))

    assert names(make_tuning(sweep(20))) == ["gamma", "parallel", "importance"]
    assert names(make_tuning(sweep(5))) == ["gamma", "parallel"]
    assert names(make_tuning(VALLEY, GRID)) == ["gamma"]
    assert names(make_tuning([make_trial(0, None, state="diverged")])) == []
    only_decay = make_spec("weight_decay=log:5e-5..1e-3")
    assert names(make_tuning([make_trial(0, 0.1, gamma=None, weight_decay=1e-4)], only_decay)) == []


def test_captions_name_what_is_drawn():
    grid = draw_gamma(VALLEY, "error").caption
    assert grid.startswith("Mean over 3 seeds at 7 values of γ; band: ± 1 standard deviation.")
    assert "Grey band: within one standard error, over seeds, of the best." in grid
    assert "GAMMA_MIN" in grid
    cloud = draw_gamma([*sweep(20), make_trial(20, 0.9, state="pruned")], "error").caption
    assert "1 far worse trial outside the axis." in cloud
    assert "local mean ± 1 standard error" in cloud
    high = make_grid([0.1, 0.2, 0.1], first=3.0)
    assert "GAMMA_MIN" not in draw_gamma(high, "error").caption
    assert "the chosen γ, 3.2" in draw_gamma(high, "error", chosen={"gamma": 3.2}).caption


def axes_of(monkeypatch, *args, **options):
    """The axes of the figure against γ, as they are saved."""
    axes = []
    original = Picture.of

    def of(figure, *rest, **more):
        axes.extend(figure.axes)
        return original(figure, *rest, **more)

    monkeypatch.setattr(Picture, "of", of)
    draw_gamma(*args, **options)
    return axes[0]


def test_the_axis_spans_the_space_and_the_chosen_line_has_a_label(monkeypatch):
    trials = drawn(1.97, 2.05, 2.1, 2.2, 5.36)
    axes = axes_of(monkeypatch, trials, "error", chosen={"gamma": 5.36}, span=(1.0, 6.0))
    low, high = axes.get_xlim()
    assert 0.8 < low < 1 < 6 < high < 6.2
    labels = [text.get_text() for text in axes.figure.legends[0].get_texts()]
    assert "chosen γ = 5.36" in labels
    # five trials make no curve
    assert "local mean" not in labels


# balanced accuracies of few samples: four steps apart is about one standard error
COARSE = [0.963, 0.963, 0.944, 0.963, 0.926, 0.944, 0.8704, 0.963, 0.8704, 0.944, 0.963, 0.944]


@pytest.mark.parametrize("metric", ["balanced_accuracy", "error"])
def test_the_axis_shows_three_standard_errors_from_the_best(monkeypatch, metric):
    values = COARSE if metric == "balanced_accuracy" else [1 - value for value in COARSE]
    trials = [make_trial(k, v, gamma=1.2 + 0.4 * k, error=0.0808) for k, v in enumerate(values)]
    assert "outside the axis" not in draw_gamma(trials, metric).caption
    far = 0.3 if metric == "balanced_accuracy" else 0.7
    trials.append(make_trial(12, far, gamma=2.1, error=0.0808))
    trials.append(make_trial(13, abs(far - 0.44), gamma=2.2, state="pruned"))
    trials.append(make_trial(14, far, gamma=2.3, state="pruned"))
    assert " far worse trials outside the axis" in draw_gamma(trials, metric).caption
    low, high = axes_of(monkeypatch, trials, metric).get_ylim()
    if metric == "balanced_accuracy":
        assert 65 < low < 96.3 - 3 * 8.08
    else:
        assert 3.7 + 3 * 8.08 < high < 35
    ties = [make_trial(k, 0.1, gamma=1 + k / 2, error=0.05) for k in range(9)]
    ties.append(make_trial(9, 0.15, gamma=5.7, state="pruned"))
    assert "outside the axis" not in draw_gamma(ties, "error").caption


@pytest.mark.parametrize("metric", ["error", "accuracy"])
def test_one_standard_error_from_the_best_is_drawn(monkeypatch, metric):
    values = [0.1, 0.12, 0.2] if metric == "error" else [0.9, 0.88, 0.8]
    trials = [make_trial(k, v, gamma=2.0 + k, error=0.03) for k, v in enumerate(values)]
    axes = axes_of(monkeypatch, trials, metric)
    (band,) = [patch for patch in axes.patches if patch.get_label() == "1 s.e. from best"]
    box = band.get_extents().transformed(axes.transData.inverted())
    assert (box.y0, box.y1) == pytest.approx((10, 13) if metric == "error" else (87, 90))


@pytest.mark.parametrize("metric", ["error", "accuracy"])
def test_parallel_coordinates(metric):
    trials = sweep(20)
    space = parse_space("gamma=1..6,weight_decay=log:5e-5..1e-3")
    picture = draw_parallel(trials, space.searched, metric)
    assert "Parallel coordinates of 20 trials: validation" in picture.alt
    assert picture.alt.endswith("γ, weight decay.")
    # the same numbers give the same file
    again = draw_parallel(trials, space.searched, metric)
    assert again.svg == picture.svg


# files


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    trials = [*sweep(60), make_trial(60, 0.2, weight_decay=1e-4, state="pruned")]
    tuning = make_tuning(trials, errors=ERRORS, prune=True)
    return tuning, write_report(tuning, folder, MACHINE)


def test_all_files_are_written(written):
    tuning, page = written
    files = {str(path.relative_to(page.parent)) for path in page.parent.rglob("*.*")}
    names = ("gamma", "importance", "parallel")
    figures = {f"figures/{name}.{kind}" for name in names for kind in ("png", "svg")}
    assert files == figures | {"report.html", "results.json", "trials.csv"}
    results = json.loads((page.parent / "results.json").read_text())
    assert [trial["value"] for trial in results["trials"]] == [t.value for t in tuning.trials]
    assert results["trials"][0]["curve"]["1"] == 0.5
    assert results["chosen"]["setting"] == tuning.chosen.setting
    assert results["study"]["space"] == SPACE
    assert results["flatness"]["within"] == flatness(tuning.trials, "error").within
    assert len(results["test"]) == 3
    assert results["differences"][0]["baseline"] == "none"
    assert results["summary"] == summary(tuning)
    assert results["importance"]["gamma"] > 0.8


def test_json_has_no_nan(tmp_path):
    trial = make_trial(0, 0.1, gamma=2.4, weight_decay=1e-4)
    tuning = make_tuning([trial], errors={"none": [0.1], "zeta:2.8": [0.1], "chosen": [0.1]})
    tuning.tested[0].records[0].last["auc"] = math.nan
    write_report(tuning, tmp_path, MACHINE)
    results = json.loads((tmp_path / "results.json").read_text(), parse_constant=pytest.fail)
    assert results["test"][0]["records"][0]["last"]["auc"] is None


@needs_browser
@pytest.mark.parametrize("width", [1200, 390], ids=["desktop", "phone"])
def test_the_page_in_a_browser(written, width):
    tuning, page = written
    opened = open_page(page, width=width).check()
    assert opened.title == "blobs: which γ for ζ-mixup?"
    assert opened.headings[1:] == [
        "Test results",
        "Score against γ",
        "All parameters",
        "Parameter importance",
        "Trials",
        "Method",
    ]
    assert len(opened.images) == 3
    assert [len(table) for table in opened.tables] == [4, 3, 31, 11]
    text = re.sub(r"\s+", " ", opened.text)
    for _, sentence in summarise_tuning(tuning):
        assert sentence in text
    assert "zetamix tune --data blobs" in text
    assert "All trials are in trials.csv." in text
    assert "if 75 % of the trials are better" in text


@needs_browser
def test_an_unfinished_grid_in_a_browser(tmp_path):
    spec = make_spec("gamma=1.8:3.0:0.2", dataset=make_dataset(val=False))
    tuning = make_tuning(VALLEY, spec, total=30, sampler="grid")
    opened = open_page(write_report(tuning, tmp_path, MACHINE)).check()
    assert opened.title == "blobs: which γ for ζ-mixup? (unfinished)"
    assert opened.headings[1:] == ["Score against γ", "Trials", "Method"]
    text = re.sub(r"\s+", " ", opened.text)
    assert "every setting with seeds 0, 1, 2" in text
    assert "10 % of the training split, held out" in text
    screenshot(tmp_path / "report.html", tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 10_000
