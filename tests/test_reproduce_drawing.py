"""Records drawn: tables beside the paper, verdicts that claim what was shown, figures, the page."""

import csv
import io
import re

import pytest
import torch
from browser import needs_browser, open_page
from records_by_hand import FACTS, run_record

from zetamix.experiments.reproduce import EXPERIMENTS, Ask, Results
from zetamix.records import Measurement
from zetamix.report.paper.artifacts import draw, look
from zetamix.report.paper.comparison import compare, rows_of
from zetamix.report.paper.distributions import project
from zetamix.report.paper.natural import draw_one
from zetamix.report.paper.verdict import judge
from zetamix.report.paper.write import write_artifact, write_page

# error rates by method: one for each seed
ERRORS = {
    "none": (0.0479, 0.0485, 0.0491),
    "mixup:1.0": (0.0426, 0.0420, 0.0432),
    "zeta:2.4": (0.0480, 0.0476, 0.0486),
    "zeta:2.8": (0.0497, 0.0490, 0.0505),
    "zeta:4.0": (0.0430, 0.0418, 0.0436),
}


def fill(results, artifact="natural", errors=ERRORS, dataset="cifar10", variant="crop-flip"):
    """Records of one dataset, for every method and seed that `errors` has."""
    ask = Ask(seeds=(0, 1, 2), augmentations=None if variant is None else (variant,))
    for cell in EXPERIMENTS[artifact].cells(ask):
        known = errors.get(cell.method, ())
        if cell.dataset == dataset and cell.seed < len(known):
            results.add(artifact, run_record(cell, known[cell.seed]))
    return results


@pytest.fixture
def natural(tmp_path):
    return look("natural", fill(Results(tmp_path / "results")))


def table_rows(table):
    lines = table.markdown().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_a_table_has_the_papers_value_ours_and_the_difference(natural):
    head, _, *rows = table_rows(compare(natural, ["error"], "caption"))
    assert head == [
        "dataset",
        "method",
        "error rate %, paper",
        "ours, crop-flip",
        "ours − paper, crop-flip",
        "ours, flip",
        "ours − paper, flip",
        "see",
    ]
    assert len(rows) == 30
    assert rows[0] == ["CIFAR-10", "ERM", "5.48", "4.85 ± 0.06 (n = 3)", "−0.63", "–", "–", ""]
    assert rows[1][2:5] == ["4.68", "**4.26 ± 0.06 (n = 3)**", "−0.42"]
    assert rows[2][2:5] == ["**4.42**", "4.81 ± 0.05 (n = 3)", "+0.39"]
    assert rows[3][2:5] == ["*4.67*", "4.97 ± 0.08 (n = 3)", "+0.30"]
    assert rows[4][2:5] == ["**4.42**", "*4.28 ± 0.09 (n = 3)*", "−0.14"]
    assert rows[5] == ["CIFAR-100", "ERM", "23.33", "–", "–", "–", "–", "1"]


def test_best_is_marked_only_where_every_method_was_run(tmp_path):
    results = fill(Results(tmp_path), errors={"none": (0.05,), "mixup:1.0": (0.04,)})
    rows = table_rows(compare(look("natural", results), ["error"], ""))[2:]
    assert rows[1][3] == "4.00 (n = 1)"


def test_footnotes_are_numbered_and_named_in_their_rows(natural):
    table = compare(natural, ["error"], "")
    notes = [note for note in table.notes if note.startswith("[")]
    assert notes[0].startswith("[1] CIFAR-100: the paper prints 10 classes")
    marked = {row[0] for row in table_rows(table)[2:] if row[-1] == "3"}
    assert marked == {"STL-10"}


def test_variants_are_never_shown_as_one(tmp_path):
    results = fill(Results(tmp_path))
    fill(results, errors={"none": (0.0726,), "mixup:1.0": (0.0681,)}, variant="flip")
    rows = table_rows(compare(look("natural", results), ["error"], ""))[2:]
    assert (rows[0][3], rows[0][5]) == ("4.85 ± 0.06 (n = 3)", "7.26 (n = 1)")
    assert rows[0][6] == "+1.78"


def test_csv_keeps_numbers_in_full_and_columns_apart(natural):
    rows = list(csv.reader(io.StringIO(compare(natural, ["error"], "").csv())))
    assert len(set(rows[0])) == len(rows[0])
    first = dict(zip(rows[0], rows[1], strict=True))
    assert float(first["ours, crop-flip"]) == pytest.approx(4.85)
    assert float(first["ours, crop-flip error"]) == pytest.approx(0.06)
    assert first["ours, crop-flip n"] == "3"


def test_where_a_dataset_validates_the_best_epoch_counts(tmp_path):
    results = Results(tmp_path)
    cell = EXPERIMENTS["medmnist"].cells(Ask())[0]
    results.add("medmnist", run_record(cell, 0.3, best=0.2, test_size=100))
    row = rows_of(look("medmnist", results))[0]
    assert row.ours(cell.variant, "accuracy").mean == pytest.approx(80.0)


def test_a_metric_that_could_not_be_had_is_empty(tmp_path):
    results = Results(tmp_path)
    cell = EXPERIMENTS["medmnist"].cells(Ask())[0]
    record = run_record(cell, 0.3)
    record.last["auc"] = float("nan")
    results.add("medmnist", record)
    row = rows_of(look("medmnist", results))[0]
    assert row.ours(cell.variant, "auc") is None
    assert row.ours(cell.variant, "accuracy").mean == pytest.approx(70.0)


def words(view, metric="error"):
    return judge(view, metric)[0]


def test_a_loss_is_told_plainly_with_its_interval(natural):
    overall, against_mixup, against_erm = words(natural)
    assert overall == (
        "ζ-mixup beside mixup and ERM: in the paper ahead in 6 of the 6 comparisons run here. "
        "Ours, with several seeds: ahead in 1 of 6, behind in 2, not to be told apart in 3 (in 3 "
        "of these all of the interval is worse than the paper's value)."
    )
    assert draw(natural).answer.status == "in part as in the paper"
    assert against_mixup.startswith(
        "CIFAR-10, crop-flip: ζ-mixup does not win: it loses to mixup at 2 γ; the paper has it "
        "ahead at 3 of 3 γ."
    )
    assert (
        "γ = 2.8 +0.71 (95 % interval +0.68 to +0.75, n = 3; the paper has −0.01)" in against_mixup
    )
    assert against_erm.startswith(
        "CIFAR-10, crop-flip: ζ-mixup beats ERM at 1 of 3 γ; the paper has it ahead at 3 of 3 γ."
    )


@pytest.mark.parametrize(
    ("errors", "headline"),
    [
        (
            {"mixup:1.0": (0.05, 0.051, 0.049), "zeta:2.8": (0.04, 0.0411, 0.0392)},
            "ζ-mixup beats mixup at 1 of 1 γ; the paper has it ahead at 1 of 1 γ.",
        ),
        (
            {
                "mixup:1.0": (0.05, 0.051, 0.049),
                "zeta:2.4": (0.06, 0.0611, 0.0592),
                "zeta:2.8": (0.04, 0.0411, 0.0392),
            },
            "ζ-mixup beats mixup at 1 γ and loses to it at 1; the paper has it ahead at 2 of 2 γ.",
        ),
        (
            {"mixup:1.0": (0.05, 0.052, 0.048), "zeta:2.8": (0.051, 0.049, 0.0505)},
            "ζ-mixup does not win: no difference to mixup can be claimed; the paper has it ahead "
            "at 1 of 1 γ.",
        ),
        (
            {"mixup:1.0": (0.0426,), "zeta:2.8": (0.0497,)},
            "in one seed, which proves nothing, ζ-mixup is ahead of mixup at 0 of 1 γ; the paper "
            "has it ahead at 1 of 1 γ.",
        ),
        (
            {"mixup:1.0": (0.0497,), "zeta:2.8": (0.0426,)},
            "in one seed, which proves nothing, ζ-mixup is ahead of mixup at 1 of 1 γ; the paper "
            "has it ahead at 1 of 1 γ.",
        ),
    ],
    ids=["win", "both", "undecided", "one seed behind", "one seed ahead"],
)
def test_headlines(tmp_path, errors, headline):
    found = words(look("natural", fill(Results(tmp_path), errors=errors)))
    assert headline in found[1]


@pytest.mark.parametrize(
    ("errors", "status", "told"),
    [
        (
            {"mixup:1.0": (0.0426,), "zeta:2.8": (0.0497,), "zeta:4.0": (0.04,)},
            "still open",
            "ζ-mixup beside mixup and ERM: in the paper ahead in 2 of the 2 comparisons run "
            "here. Ours, with one seed, which proves nothing: ahead in 1 of 2.",
        ),
        (
            {"mixup:1.0": (0.05, 0.051, 0.049), "zeta:2.8": (0.04, 0.0411, 0.0392)},
            "as in the paper",
            "with several seeds: ahead in 1 of 1, behind in 0.",
        ),
        (
            {"mixup:1.0": (0.05, 0.052, 0.048), "zeta:2.8": (0.051, 0.049, 0.0505)},
            "still open",
            "ahead in 0 of 1, behind in 0, not to be told apart in 1.",
        ),
        (
            {"none": (0.05, 0.0502, 0.0498), "zeta:2.8": (0.0501, 0.0503, 0.0497)},
            "still open",
            "not to be told apart in 1 (in 1 of these all of the interval is worse than the "
            "paper's value).",
        ),
        (
            {"mixup:1.0": (0.04, 0.0411, 0.0392), "zeta:2.8": (0.05, 0.051, 0.049)},
            "not as in the paper",
            "ahead in 0 of 1, behind in 1.",
        ),
        (
            {
                "mixup:1.0": (0.05, 0.051, 0.049),
                "zeta:2.4": (0.04, 0.0411, 0.0392),
                "zeta:2.8": (0.051, 0.049, 0.0505),
            },
            "so far as in the paper",
            "ahead in 1 of 2, behind in 0, not to be told apart in 1.",
        ),
        (
            {
                "mixup:1.0": (0.05, 0.051, 0.049),
                "zeta:2.4": (0.06, 0.0611, 0.0592),
                "zeta:2.8": (0.051, 0.049, 0.0505),
            },
            "so far not as in the paper",
            "ahead in 0 of 2, behind in 1, not to be told apart in 1.",
        ),
    ],
    ids=["one seed", "win", "undecided", "no such win", "loss", "win and open", "loss and open"],
)
def test_the_answer_for_a_reader_in_a_hurry(tmp_path, errors, status, told):
    answer = draw(look("natural", fill(Results(tmp_path), errors=errors))).answer
    assert answer.status == status
    assert told in answer.sentence


def test_a_comparison_of_the_paper_counts_once_for_all_augmentations(tmp_path):
    results = fill(Results(tmp_path))
    fill(results, errors={"mixup:1.0": (0.0681,), "zeta:2.8": (0.0752,)}, variant="flip")
    overall = words(look("natural", results))[0]
    assert "in the paper ahead in 6 of the 6 comparisons run here. Ours, once for each " in overall
    assert "augmentation, with several seeds: ahead in 1 of 6" in overall
    assert overall.endswith("With one seed, which proves nothing: ahead in 0 of 1.")


def test_seeds_are_paired(tmp_path):
    """Only those that both have count."""
    errors = {"mixup:1.0": (0.05,), "zeta:2.8": (0.04, 0.01, 0.01)}
    found = words(look("natural", fill(Results(tmp_path), errors=errors)))
    assert "γ = 2.8 −1.00 (one seed, no interval" in found[1]


def test_higher_is_better_for_accuracies(tmp_path):
    results = Results(tmp_path)
    errors = {"mixup:1.0": (0.3, 0.31, 0.29), "zeta:2.4": (0.2, 0.211, 0.192)}
    fill(results, "skin", errors, "ph2", None)
    overall, resnet18, *_ = words(look("skin", results), "balanced_accuracy")
    assert "ahead in 2 of 2, behind in 0" in overall
    assert resnet18.startswith("PH², ResNet-18: ζ-mixup beats mixup at 1 of 1 γ; the paper has it")
    assert "Balanced accuracy %, ζ-mixup minus mixup: γ = 2.4 +9.9" in resnet18


def test_nothing_run_is_nothing_claimed(tmp_path):
    assert words(look("natural", Results(tmp_path))) == ["Nothing of this table has been run yet."]


def test_one_dataset_for_a_readme(natural):
    rows = table_rows(draw_one(natural, "cifar10"))
    assert rows[0] == ["error %", "paper", "ours, crop-flip", "ours, flip"]
    assert rows[5] == ["ζ-mixup (2.8)", "4.67", "4.97 ± 0.08 (n = 3)", "–"]
    assert len(rows) == 7


@pytest.mark.parametrize(
    ("angles", "expected"),
    [
        ((0, 0), [2.0, 3.0]),
        ((90, 0), [2.0, -1.0]),
        ((0, 90), [-1.0, 3.0]),
    ],
)
def test_projections_are_those_of_the_captions(angles, expected):
    found = project(torch.tensor([[1.0, 2.0, 3.0]]), *angles)
    torch.testing.assert_close(found, torch.tensor([expected]), atol=1e-6, rtol=0)


def dimension_record(dataset, method, neighbours, value):
    return Measurement(
        kind="dimension",
        dataset=dataset,
        fingerprint="f",
        method=method,
        seed=0,
        recipe={"neighbours": neighbours, "batch": 128},
        values={"n": 100, "value": value, "spread": 0.5, "standard_error": 0.05},
        wall_s=1.0,
        machine=FACTS,
    )


def test_dimension_tells_whether_mixup_inflates_it_and_where_zeta_mixup_is_lower(tmp_path):
    results = Results(tmp_path)
    levels = {"none": 10.0, "mixup:1.0": 14.0}
    for method, value in (levels | {"zeta:2.0": 15.0, "zeta:2.8": 9.0, "zeta:4.0": 10.0}).items():
        results.add("dimension", dimension_record("cifar10", method, 128, value))
    for method, value in {"none": 1.0, "mixup:1.0": 3.0, "zeta:2.8": 3.0}.items():
        results.add("dimension", dimension_record("helix", method, 8, value))
    for method, value in {"none": 6.99, "mixup:1.0": 6.8, "zeta:2.8": 7.0}.items():
        results.add("dimension", dimension_record("cifar10", method, 8, value))
    drawn = draw(look("dimension", results))
    assert drawn.verdict == [
        "1-D helix in R³, k = 8: originals 1.00, mixup 3.00: inflated, as in the paper. ζ-mixup's "
        "is lower than mixup's at no γ; the paper has it so from 1.72865 on.",
        "CIFAR-10, k = 8: originals 6.99, mixup 6.80: not inflated, unlike in the paper. "
        "ζ-mixup's is lower than mixup's at no γ; the paper has it so from 1.72865 on. 8 "
        "neighbours can tell 7 dimensions at most, and the originals have nearly all of them: "
        "nothing follows from this case.",
        "CIFAR-10, k = 128: originals 10.00, mixup 14.00: inflated, as in the paper. ζ-mixup's is "
        "lower than mixup's from γ = 2.8 on; the paper has it so from 1.72865 on.",
    ]
    assert drawn.answer.status == "in part as in the paper"
    assert drawn.answer.sentence == (
        "With mixup the dimension is inflated in 2 of 2 cases, as the paper has it; ζ-mixup's is "
        "lower than mixup's in 1, from γ = 2.8 on, and the paper has it so from 1.72865 on; "
        "nothing follows from CIFAR-10, k = 8."
    )
    rows = table_rows(drawn.tables["dimension"])
    by_name = {row[0]: row for row in rows}
    assert by_name["CIFAR-10, k = 128"][1:4] == ["10.00 ± 0.50", "14.00 ± 0.50", "15.00 ± 0.50"]
    assert by_name["CIFAR-100, k = 8"][1] == "–"


def test_a_dimension_that_is_run_in_part_is_open(tmp_path):
    results = Results(tmp_path)
    for method, value in {"none": 1.0, "mixup:1.0": 3.0, "zeta:15.0": 1.0}.items():
        results.add("dimension", dimension_record("helix", method, 8, value))
    answer = draw(look("dimension", results)).answer
    # inflated, as in the paper; lower, at the one γ that was run
    assert answer.status == "so far as in the paper"
    results.add("dimension", dimension_record("helix", "zeta:2.8", 8, 3.5))
    assert draw(look("dimension", results)).answer.status == "in part as in the paper"


def time_record(kind, dataset, method, recipe, values):
    return Measurement(
        kind=kind,
        dataset=dataset,
        fingerprint="f",
        method=method,
        seed=0,
        recipe=recipe,
        values=values,
        wall_s=1.0,
        machine=FACTS,
    )


def test_times_stand_beside_the_papers_and_devices_apart(tmp_path):
    results = Results(tmp_path)
    medians = {
        "copy": 10.0,
        "zetamix": 80.0,
        "zetamix Mixup": 82.0,
        "paper listing": 700.0,
        "mixup, original": 120.0,
        "local synthetic instances": 900.0,
    }
    for cell in EXPERIMENTS["timing"].cells(Ask()):
        if cell.kind == "training-time" and cell.dataset == "cifar10":
            seconds = {"none": 1.0, "mixup:1.0": 1.2, "zeta:2.8": 1.26}[cell.method]
            values = {"epoch_s": seconds, "epoch_s_std": 0.01, "timed": 5, "compiled": True}
        elif cell.kind == "batch-time" and cell.device == "cuda":
            values = {
                "rows": [
                    {
                        "contender": name,
                        "mode": "eager",
                        "median_us": us,
                        "p20_us": us,
                        "p80_us": us,
                    }
                    for name, us in medians.items()
                ]
            }
        else:
            continue
        results.add(
            "timing", time_record(cell.kind, cell.dataset, cell.method, cell.recipe, values)
        )
    drawn = draw(look("timing", results))
    training = table_rows(drawn.tables["training"])
    assert training[3] == [
        "CIFAR-10",
        "mixup",
        "79.00 ± 0.50",
        "4.00 ± 0.03",
        "−75.00",
        "1.200 ± 0.010 (n = 5)",
        "cuda",
    ]
    batch = table_rows(drawn.tables["batch"])[2:]
    gpu = [row for row in batch if row[0] == "cuda"]
    cpu = [row for row in batch if row[0] == "cpu"]
    ours = ["cuda", "ζ-mixup, zetamix", "eager", "345.0 ± 2.5", "80.0", "−265.0", "80.0", "80.0"]
    assert ours in gpu
    assert gpu[-1][1:4] == ["local synthetic instances, zetamix", "eager", "38,700.0 ± 1,330.0"]
    assert len(cpu) == len(gpu) == 6
    assert all(row[4] == "–" for row in cpu)
    assert drawn.verdict[0].startswith(
        "CUDA, one batch: ζ-mixup by the paper's own listing, with the weights that it leaves out "
        "drawn as its equation says, takes 700 µs and mixup as its authors wrote it 120, so "
        "ζ-mixup takes 5.83 times as long; in the paper, on a GPU, 0.46 times. Our "
        "ζ-mixup takes 80, our mixup 82, local synthetic instances 900 (11.2 times our ζ-mixup; "
        "the paper has 112"
    )
    # 1.26 / 1.2, and 1.05 √((0.01 / 1.26)² / 5 + (0.01 / 1.2)² / 5); the paper: 81 and 79 minutes
    assert drawn.verdict[1].endswith(
        "an epoch with ζ-mixup takes 1.050 ± 0.005 times as long as one with mixup (± standard "
        "error over the epochs of one run each); the paper has 1.025."
    )
    assert drawn.answer.status == "not as in the paper"
    # its times are of a GPU
    assert {row[3] for row in cpu} == {"–"}


def test_sensitivity_has_a_column_for_each_recipe_that_was_run(tmp_path):
    results = Results(tmp_path)
    ask = Ask(augmentations=("crop-flip",), epochs=30)
    for cell in EXPERIMENTS["sensitivity"].cells(ask):
        if cell.dataset == "cifar10" and not cell.of_sweep:
            gamma = float(cell.method.removeprefix("zeta:"))
            results.add("sensitivity", run_record(cell, 0.05 + 0.01 * (gamma - 3) ** 2))
    drawn = draw(look("sensitivity", results))
    head, _, *rows = table_rows(drawn.tables["sensitivity"])
    short = "CIFAR-10, crop-flip, shortened to 30 epochs"
    assert head == ["γ", "CIFAR-10, flip", short, "CIFAR-100, flip"]
    assert len(rows) == 17
    assert rows[0] == ["1.8", "–", "6.44 (n = 1)", "–"]
    assert drawn.verdict == [
        f"{short}: error from 5.00 % at γ = 3.0 to 9.00 % at γ = 5.0. Within one standard "
        "error of the best (0.22 points, of one run over its test samples) lie γ = 2.6, 2.8, 3.0, "
        "3.2, 3.4. One seed does not show the chance between runs, which comes on top."
    ]
    assert [picture.name for picture in drawn.pictures] == ["sensitivity"]


def test_a_sweep_is_drawn_from_as_many_models_as_were_run(tmp_path):
    results = Results(tmp_path)
    sweep = [
        cell
        for cell in EXPERIMENTS["sensitivity"].cells(Ask())
        if cell.of_sweep and cell.dataset == "cifar10"
    ]
    assert len(sweep) == 200
    for cell in sweep[:20]:
        # better with more weight decay, whatever γ
        results.add("sensitivity", run_record(cell, 0.08 - 30 * cell.recipe.weight_decay))
    drawn = draw(look("sensitivity", results))
    assert [picture.name for picture in drawn.pictures] == ["sensitivity", "sweep-cifar10-flip"]
    assert "20 of 200 models" in drawn.pictures[1].caption
    (row,) = table_rows(drawn.tables["sweep"])[2:]
    strongest = max(sweep[:20], key=lambda cell: cell.recipe.weight_decay)
    assert row[:2] == ["CIFAR-10, flip", "20"]
    assert row[3] == f"{float(strongest.method.removeprefix('zeta:')):g}"
    assert row[4] == f"{strongest.recipe.weight_decay:g}"
    assert row[6] == "−1.00"
    (told,) = [word for word in drawn.verdict if "sweep" in word]
    assert "It does not clearly follow γ" in told
    assert "It falls with weight decay (ρ = -1.00, p < 0.001)" in told
    # the grid is another thing, and empty
    assert all(row[1] == "–" for row in table_rows(drawn.tables["sensitivity"])[2:])


def test_an_artifact_is_written_in_every_form(natural, tmp_path):
    folder = tmp_path / "files"
    write_artifact(natural, draw(natural), folder)
    assert {path.name for path in folder.iterdir()} == {
        "README.md",
        "natural.md",
        "natural.tex",
        "natural.csv",
        "natural.html",
    }
    readme = (folder / "README.md").read_text()
    assert "15 of 180 cells" in readme
    assert (
        "zetamix data prepare cifar100 && zetamix reproduce natural --datasets cifar100" in readme
    )
    assert "Measured on a GPU · torch 2.11 · commit abc1234." in readme
    assert "Measured on a GPU" in (folder / "natural.html").read_text()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    write_artifact(natural, draw(natural), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert r"4.85 $\pm$ 0.06 (n = 3)" in (folder / "natural.tex").read_text()


@needs_browser
def test_the_page_opens_and_shows_what_is_empty(tmp_path):
    results = fill(Results(tmp_path / "results"))
    fill(results, variant="flip", errors={"zeta:2.8": (0.07,)})
    results.add("dimension", dimension_record("helix", "none", 8, 1.0))
    path = tmp_path / "results" / "index.html"
    ids = ["natural", "dimension", "sensitivity", "timing"]
    write_page(results, path, FACTS, ids=ids)
    opened = open_page(path).check()
    assert opened.headings[0] == "ζ-mixup, reproduced"
    assert [heading.split(":")[0] for heading in opened.headings[1:]] == ids
    assert [image["alt"].split()[0] for image in opened.images] == ["Panels", "Error"]
    natural = opened.tables[0]
    assert natural[1][:4] == ["CIFAR-10", "ERM", "5.48", "4.85 ± 0.06 n = 3"]
    assert natural[6][3] == "–"
    commands = [cell for table in opened.tables for row in table for cell in row]
    assert "zetamix reproduce sensitivity --datasets cifar10" in " ".join(commands)
    assert re.search(r"ζ-mixup does not win: it loses to mixup", opened.text)
    narrow = open_page(path, width=500)
    assert narrow.overflow <= 0
