"""`zetamix inspect`: the outputs it measures, the oracle, the report in a browser, the command."""

import json
import math
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from browser import needs_browser, open_page
from golden import check_golden
from PIL import Image
from typer.testing import CliRunner

from zetamix import GAMMA_MIN, data
from zetamix.cli.app import app
from zetamix.data import from_tensors
from zetamix.experiments import inspect
from zetamix.experiments.inspect import InspectionError, choose_originals, inspect_dataset
from zetamix.experiments.oracle import (
    Classifier,
    augment,
    downscale,
    suitable_model,
    train_oracle,
)
from zetamix.measure import Estimate, mean_of
from zetamix.measure.mixed_samples import mix_samples
from zetamix.methods import parse, parse_list
from zetamix.provenance import machine_info
from zetamix.report import Picture
from zetamix.report.inspect import (
    draw_dimension,
    draw_realism,
    make_table,
    row_styles,
    write_report,
)
from zetamix.report.inspect_text import cautions, summarise
from zetamix.results.inspection import Inspection, MeasuredOutputs, Oracle, Settings

CPU = torch.device("cpu")
QUICK = Settings(samples=400, gammas=(1.0, 2.8, 30.0), neighbours=32, oracle_epochs=8)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return data.load("digits", data_dir=tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def result(digits):
    return inspect_dataset(digits, parse_list("mixup,zeta:2.8"), QUICK)


@pytest.fixture(scope="module")
def page(result, tmp_path_factory):
    return write_report(result, tmp_path_factory.mktemp("report"), machine_info(CPU))


def blobs(n=120, classes=3, features=4, seed=0, spread=0.3):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % classes
    centres = 3 * torch.eye(classes, features)
    return centres[labels] + spread * torch.randn(n, features, generator=generator), labels


def outputs_of(text, samples, labels, classes, groups=None):
    groups = [torch.arange(len(labels))] if groups is None else groups
    options = {"batch_size": 16, "generator": torch.Generator().manual_seed(0)}
    return mix_samples(parse(text), samples, labels, classes, groups=groups, **options)


# outputs


@pytest.mark.parametrize("text", ["mixup", "zeta:2.0", "zeta:gamma=2.0,sources=4", "local:2.0"])
def test_weights_are_those_of_the_samples_in_an_output(text):
    # unit vectors: an output is its weights, in the order of the samples
    samples, labels = torch.eye(40), torch.arange(40) % 3
    result = outputs_of(text, samples, labels, 3)
    assert torch.allclose(result.samples.sort(1).values[:, -16:], result.weights.sort(1).values)
    assert torch.allclose(result.targets, result.samples @ torch.eye(3)[labels], atol=1e-6)
    assert torch.allclose(result.weights.sum(1), torch.ones(40))


def test_outputs_keep_the_order_of_their_samples():
    samples, labels = torch.rand(50, 3, 4, 4) * 255, torch.arange(50) % 5
    result = outputs_of("zeta:60", samples, labels, 5)
    assert torch.allclose(result.samples, samples, atol=1e-3)
    assert torch.equal(result.targets.argmax(1), labels)


def test_no_method_is_no_change():
    samples, labels = torch.rand(50, 3), torch.arange(50) % 5
    result = outputs_of("none", samples, labels, 5)
    assert torch.equal(result.samples, samples)
    assert torch.equal(result.targets, torch.eye(5)[labels])
    assert torch.equal(result.weights.amax(1), torch.ones(50))


def test_weights_of_cutmix_are_its_areas():
    samples, labels = torch.rand(32, 1, 8, 8), torch.arange(32) % 4
    result = outputs_of("cutmix", samples, labels, 4)
    kept = (result.samples == samples).flatten(1).double().mean(1)
    assert (kept < 1).any()
    own = result.weights.amax(1).double()
    assert torch.allclose(torch.maximum(kept, 1 - kept), own, atol=1e-6)


def test_zetamix_keeps_the_variance_of_samples_in_any_units():
    generator = torch.Generator().manual_seed(0)
    samples = 120 + 30 * torch.randn(256, 3, 4, 4, generator=generator)
    labels = torch.arange(256) % 4
    kept, lost = (
        outputs_of(text, samples, labels, 4).samples
        for text in ("zetamix:paste=0", "zetamix:paste=0,keep_variance=no")
    )
    assert kept.mean().item() == pytest.approx(samples.mean().item(), abs=1)
    assert kept.std().item() == pytest.approx(30, rel=0.03)
    assert lost.std().item() < 27


def test_smoothing_changes_targets_alone():
    samples, labels = torch.rand(50, 3), torch.arange(50) % 5
    result = outputs_of("smoothing:0.1", samples, labels, 5)
    assert torch.equal(result.samples, samples)
    assert torch.equal(result.weights.amax(1), torch.ones(50))
    assert torch.allclose(result.targets, 0.9 * torch.eye(5)[labels] + 0.02)


def test_groups_are_not_mixed_with_each_other():
    # at a γ below the threshold, without a warning
    samples, labels = torch.eye(60), torch.zeros(60, dtype=torch.long)
    groups = [torch.arange(25), torch.arange(25, 60)]
    result = outputs_of("zeta:0.5", samples, labels, 1, groups)
    assert result.samples[:25, 25:].abs().max() == 0
    assert result.samples[25:, :25].abs().max() == 0
    assert (result.samples[:25, :25] > 0).sum(1).min() > 10


# originals


def test_the_oracle_is_not_trained_on_judged_samples(digits):
    for split in (digits.train, digits.train.subset(500, seed=3)):
        dataset = replace(digits, train=split)
        result = choose_originals(dataset, Settings(samples=300), CPU)
        assert result.samples.shape == (min(300, len(split)), 1, 8, 8)
        assert result.unseen == min(300, len(split) // 2)
        for_oracle = {bytes(sample.numpy()) for sample in split.take(result.rest)}
        judged = [bytes(s.to(torch.uint8).numpy()) for s in result.samples[: result.unseen]]
        assert not for_oracle & set(judged)
        assert len(result.rest) + result.unseen == len(split)
        # stratified
        assert torch.bincount(result.labels[: result.unseen]).min() > 10
        by_sample = {
            bytes(s.numpy()): int(k) for s, k in zip(split.samples, split.labels, strict=True)
        }
        assert [by_sample[key] for key in judged] == result.labels[: result.unseen].tolist()


def test_with_little_data_the_oracles_samples_are_measured_but_not_judged(digits):
    result = choose_originals(digits, Settings(), CPU)
    assert (len(result.labels), result.unseen) == (1257, 628)
    assert [len(group) for group in result.groups] == [628, 629]


# oracle


def test_an_oracle_learns_and_states_its_accuracy():
    samples, labels = blobs(300)
    before = torch.get_rng_state()
    steps = []
    oracle = train_oracle(
        samples, labels, blobs(200, seed=1), 3, epochs=10, watch=lambda *step: steps.append(step)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert oracle.accuracy.value > 0.97
    assert oracle.accuracy.n == 200
    assert steps[-1] == (30, 30)
    assert len(steps) == 30
    value, error = 100 * oracle.accuracy.value, 100 * oracle.accuracy.error
    assert oracle.statement == (
        f"mlp, trained for 10 epochs on 300 other samples, test accuracy {value:.2f} ± {error:.2f} "
        "% (n = 200)"
    )
    again = train_oracle(samples, labels, blobs(200, seed=1), 3, epochs=10)
    assert torch.equal(oracle(samples), again(samples))


@pytest.mark.slow
def test_an_oracle_reads_images_as_they_are_stored(digits):
    train, test = digits.train, digits.test
    unseen = test.samples, test.labels
    oracle = train_oracle(train.samples, train.labels, unseen, 10, epochs=8)
    assert oracle.accuracy.value > 0.9
    # mixed samples are floats in the same units
    assert torch.equal(oracle(digits.test.samples), oracle(digits.test.samples.float()))
    assert not oracle(digits.test.samples).requires_grad
    # in evaluation mode: what it says of one image does not depend on the others
    alone, among = oracle(digits.test.samples[:1]), oracle(digits.test.samples)[:1]
    torch.testing.assert_close(alone, among, rtol=1e-4, atol=1e-4)


def test_an_oracle_of_photos_is_trained_on_downscaled_ones(monkeypatch):
    seen = set()
    real = Classifier.forward

    def watched(self, samples):
        seen.add(tuple(samples.shape[1:]))
        return real(self, samples)

    monkeypatch.setattr(Classifier, "forward", watched)
    dataset = photos(size=40)
    settings = Settings(gammas=(2.8,), oracle_epochs=1, oracle_size=20)
    result = inspect_dataset(dataset, parse_list("mixup"), settings)
    assert result.oracle.description == (
        "lenet5 on images downscaled to 20 × 20, trained for 1 epoch on 32 other samples"
    )
    # trained on small ones, asked about outputs as they are
    assert seen == {(3, 20, 20), (3, 40, 40)}
    assert "downscaled to 20 × 20" in dict(summarise(result))["Realism"]
    as_they_are = inspect_dataset(dataset, parse_list("mixup"), replace(settings, oracle_size=64))
    assert "scaled" not in as_they_are.oracle.description


def test_downscaling_averages_pixels():
    images = torch.arange(64, dtype=torch.uint8).view(1, 1, 8, 8).repeat(2, 3, 1, 1)
    small = downscale(images, 4)
    assert small.dtype == torch.uint8
    assert small[0, 0, 0, :2].tolist() == [4, 6]  # of 0, 1, 8, 9 and of 2, 3, 10, 11
    assert downscale(images.float(), 4)[0, 0, 0, :2].tolist() == [4.5, 6.5]
    assert downscale(images, 8) is images
    assert downscale(images, None) is images
    assert downscale(torch.zeros(5, 300), 64).shape == (5, 300)


@pytest.mark.parametrize(
    ("right", "n", "guess", "trusted"),
    [
        (0.995, 360, 0.1, True),
        (0.27, 100, 0.25, False),
        # good, but most samples are of one class
        (0.92, 1000, 0.9, False),
        # all of so few: the interval begins at 57 %
        (1.0, 5, 0.5, False),
        (1.0, 50, 0.5, True),
        (math.nan, 0, 0.0, False),
    ],
)
def test_which_oracle_is_reliable(right, n, guess, trusted):
    oracle = Oracle(lambda samples: samples, Estimate(right, n, 0.5), "made", majority=guess)
    assert oracle.reliable is trusted

    # 10 of 40, as statsmodels' proportion_confint(10, 40, method="wilson") has it
    oracle = Oracle(lambda samples: samples, Estimate(0.25, 40, 0.4), "made")
    assert oracle.accuracy_low == pytest.approx(0.14187, abs=2e-5)


@pytest.mark.parametrize(
    ("shape", "name"),
    [((1, 8, 8), "digitnet"), ((1, 28, 28), "lenet5"), ((3, 32, 32), "lenet5"), ((12,), "mlp")],
)
def test_the_oracle_suits_the_samples(shape, name):
    assert suitable_model(shape) == name


def test_augmentation_moves_images_a_little(generator):
    images = torch.zeros(64, 1, 28, 28)
    images[:, :, 10:18, 10:18] = 255
    moved = augment(images, generator)
    assert moved.shape == images.shape
    rows = torch.arange(28.0)
    centre = (moved * rows[:, None]).sum((1, 2, 3)) / moved.sum((1, 2, 3))
    assert (centre - 13.5).abs().max() < 3
    assert centre.std() > 0.5
    # a border is continued, not blackened
    assert torch.allclose(augment(torch.full((8, 3, 9, 9), 7.0), generator), torch.tensor(7.0))


# inspection


def test_measures_of_digits(result):
    assert (result.samples, result.judged, result.neighbours) == (400, 400, 32)
    assert [row.label for row in result.methods] == ["mixup:1.0", "zeta:2.8"]
    mixup, zeta = result.methods
    assert zeta.estimates["distance"].value < mixup.estimates["distance"].value
    assert zeta.estimates["classes"].value > mixup.estimates["classes"].value
    assert zeta.estimates["agreement"].value > mixup.estimates["agreement"].value
    for row in result.rows:
        for key, estimate in row.estimates.items():
            if not key.endswith("_certain"):
                assert estimate.n == 400, key
    certain = result.original.estimates["cross_entropy_certain"]
    assert certain.n == int(result.original.judgement.certain.sum())
    assert result.original.examples.shape == (10, 1, 8, 8)
    assert torch.equal(result.original.example_targets, torch.eye(10))


def test_a_large_gamma_has_the_dimension_of_the_originals(result):
    _, last = result.sweep[-1]
    original = result.original.estimates["local_dimension"]
    assert last.value == pytest.approx(original.value, rel=1e-3)
    assert result.preserving_gammas[-1] == 30.0
    # more than the data has, where no sample dominates
    assert result.sweep[0][1].value > 1.1 * original.value
    assert 1.0 not in result.preserving_gammas


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers(digits, result):
    again = inspect_dataset(digits, parse_list("mixup,zeta:2.8"), QUICK)
    assert again.as_dict() == result.as_dict()
    other = inspect_dataset(
        digits, parse_list("mixup"), replace(QUICK, seed=1, oracle="none", gammas=(2.8,))
    )
    assert other.methods[0].estimates["distance"] != result.methods[0].estimates["distance"]


def test_a_users_oracle_is_used(digits):
    asked = []

    def sure_of_three(samples):
        asked.append(len(samples))
        return 50.0 * torch.eye(10)[[3]].expand(len(samples), 10)

    oracle = Oracle(sure_of_three, accuracy=mean_of(torch.tensor([True])), description="mine")
    result = inspect_dataset(digits, parse_list("zeta:2.8"), QUICK, oracle=oracle)
    assert sum(asked) == 800
    share = float((choose_originals(digits, QUICK, CPU).labels == 3).double().mean())
    assert result.original.estimates["agreement"].value == pytest.approx(share)
    assert result.original.estimates["certain_share"].value == 1


@pytest.mark.slow
def test_without_a_test_split_accuracy_is_measured_on_held_out_samples(tmp_path):
    dataset = from_tensors("blobs", {"train": blobs(200)})
    settings = Settings(gammas=(2.8,), oracle_epochs=4)
    result = inspect_dataset(dataset, parse_list("mixup,zeta:2.8"), settings)
    assert result.oracle.accuracy.n == result.judged == 100
    assert result.oracle.measured_on == "held-out"
    assert result.neighbours == 25
    zeta = result.methods[1].estimates
    assert (zeta["local_dimension"].n, zeta["distance"].n) == (200, 200)
    assert (zeta["certain_share"].n, zeta["cross_entropy"].n) == (100, 100)
    page = write_report(result, tmp_path, machine_info(CPU))
    assert "in the plane of the originals" in page.read_text()


def test_large_images_are_shown_small(tmp_path):
    samples = torch.randint(256, (64, 3, 120, 160), dtype=torch.uint8)
    dataset = from_tensors("large", {"train": (samples, torch.arange(64) % 2)})
    settings = Settings(gammas=(2.8,), oracle="none", neighbours=8)
    result = inspect_dataset(dataset, parse_list("zeta:2.8"), settings)
    write_report(result, tmp_path, machine_info(CPU))
    # twenty images of noise, which no format compresses: 77 kB each at full size, in base64
    assert (tmp_path / "figures" / "outputs.svg").stat().st_size < 20 * 58_000


def photos(n=64, size=20, seed=0):
    """Smooth images with more numbers than there are images."""
    generator = torch.Generator().manual_seed(seed)
    coarse = 255 * torch.rand(n, 3, 5, 5, generator=generator)
    images = torch.nn.functional.interpolate(coarse, size=(size, size), mode="bilinear")
    return from_tensors("photos", {"train": (images.to(torch.uint8), torch.arange(n) % 2)})


def test_coordinates_change_no_measure(monkeypatch):
    settings = Settings(gammas=(0.5, 2.8), oracle="none", batch_size=16)
    methods = parse_list("mixup,zeta:2.8,local:2.0,cutmix")
    by_coordinates = inspect_dataset(photos(), methods, settings)
    monkeypatch.setattr(inspect, "WIDE", math.inf)
    directly = inspect_dataset(photos(), methods, settings)
    for one, two in zip(by_coordinates.rows, directly.rows, strict=True):
        for key, estimate in two.estimates.items():
            assert one.estimates[key].value == pytest.approx(estimate.value, rel=1e-5), key
        assert torch.equal(one.examples, two.examples)
    for (_, one), (_, two) in zip(by_coordinates.sweep, directly.sweep, strict=True):
        assert one.value == pytest.approx(two.value, rel=1e-6)


def test_photos_are_measured_by_their_coordinates(monkeypatch):
    seen = []
    real = inspect.local_dimension

    def watched(points, *arguments, **options):
        seen.append(points[0].numel())
        return real(points, *arguments, **options)

    monkeypatch.setattr(inspect, "local_dimension", watched)
    settings = Settings(gammas=(2.8,), oracle="none")
    inspect_dataset(photos(), parse_list("mixup,zeta:2.8,cutmix"), settings)
    assert len(seen) == 5
    # 1200 in each photo; cutmix's outputs span a space with the originals
    assert sorted(seen)[3] < 64
    assert max(seen) < 128


@pytest.mark.gpu
def test_a_gpu_measures_the_same(digits, result):
    there = inspect_dataset(digits, parse_list("mixup,zeta:2.8"), QUICK, device="cuda")
    for key in ("local_dimension", "cross_entropy"):
        assert there.original.estimates[key].n == result.original.estimates[key].n
    # the originals are the same, the draws are not
    here = result.original.estimates["local_dimension"].value
    assert there.original.estimates["local_dimension"].value == pytest.approx(here, abs=1e-3)
    for one, two in zip(there.methods, result.methods, strict=True):
        first, second = (each.estimates["local_dimension"] for each in (one, two))
        assert abs(first.value - second.value) < 4 * (first.error + second.error)


def test_one_class_needs_no_oracle():
    dataset = data.load("helix")
    settings = Settings(samples=200, gammas=(2.8, 15.0), neighbours=8)
    result = inspect_dataset(dataset, parse_list("mixup,zeta:15"), settings)
    assert result.oracle is None
    assert dict(summarise(result))["Summary"] == (
        "zeta:15.0 preserves the local dimension of the data within 10 %; mixup:1.0 does not."
    )


@pytest.mark.slow
def test_progress_is_reported_from_start_to_end(digits):
    calls = []
    inspect_dataset(digits, parse_list("mixup"), QUICK, watch=lambda *stage: calls.append(stage))
    stages = list(dict.fromkeys(stage for stage, _, _ in calls))
    assert stages == ["training the oracle", "measuring methods", "local dimension over γ"]
    # moves within a method
    assert len([stage for stage, _, _ in calls if stage == "measuring methods"]) == 1 + 2 * 4
    for stage in stages:
        steps = [(done, total) for name, done, total in calls if name == stage]
        assert steps[-1][0] == steps[-1][1]
        assert steps == sorted(steps)


def test_a_method_that_cannot_mix_the_data_fails_before_training():
    dataset = from_tensors("blobs", {"train": blobs(200)})
    steps = []
    with pytest.raises(InspectionError, match=r"cutmix:1\.0 cannot mix this data: CutMix pastes"):
        inspect_dataset(
            dataset, parse_list("mixup,cutmix"), QUICK, watch=lambda *stage: steps.append(stage)
        )
    assert steps == []


# sentences


def outputs(label, dimension, **others):
    values = {"local_dimension": dimension, "label_entropy": 0.5, "classes": 2.5, "distance": 0.4}
    values |= others
    estimates = {key: Estimate(value, n=100, spread=1.0) for key, value in values.items()}
    return MeasuredOutputs(label, estimates, None, torch.zeros(1, 1, 2, 2), torch.eye(1))


def inspection(sweep, methods=(), **changes):
    made = Inspection(
        dataset="made",
        classes=("0", "1"),
        shape=(1, 8, 8),
        notes=(),
        settings=Settings(neighbours=32),
        samples=256,
        judged=50,
        neighbours=32,
        oracle=None,
        original=outputs("original", 10.0),
        methods=tuple(methods) or (outputs("mixup:1.0", 13.0), outputs("zeta:2.8", 10.4)),
        sweep=tuple((gamma, Estimate(value, 100, 1.0)) for gamma, value in sweep),
    )
    return replace(made, **changes)


def test_the_text_of_a_report():
    oracle = Oracle(torch.zeros_like, Estimate(0.97, 200, 0.17), "lenet5, trained", majority=0.5)
    judged = {"certain_share": 0.8, "agreement": 0.95}
    made = inspection(
        [(1.0, 10.0), (2.0, 12.0), (4.0, 10.1)],
        [outputs("mixup:1.0", 13.0, **judged), outputs("zeta:2.8", 10.4, **judged)],
        oracle=oracle,
        original=outputs("original", 10.0, **judged),
    )
    uninformative = replace(
        made, original=outputs("original", 30.0, certain_share=0.1, agreement=1)
    )
    parts = [
        f"{heading}: {text}" for one in (made, uninformative) for heading, text in summarise(one)
    ]
    check_golden("inspect.txt", "\n".join([*parts, make_table(made).markdown()]))


@pytest.mark.parametrize(
    ("sweep", "start", "text"),
    [
        (
            [(1.0, 14.0), (2.0, 11.0), (4.0, 10.1)],
            2.0,
            "All γ from 2 up to the largest",
        ),
        # below the threshold it is preserved for another reason
        ([(1.0, 10.0), (2.0, 12.0), (4.0, 10.1)], 4.0, "So does γ = 1, where no sample dominates"),
        ([(1.0, 10.0), (4.0, 8.9)], None, "does not preserve"),
        # every γ passes: nothing follows
        ([(1.0, 10.0), (4.0, 10.1)], 1.0, "No conclusion"),
    ],
)
def test_which_gamma_preserves_the_dimension(sweep, start, text):
    made = inspection(sweep)
    assert made.preserving_from == start
    assert text in dict(summarise(made))["γ"]


@pytest.mark.parametrize(
    ("methods", "text"),
    [
        (
            [outputs("mixup:1.0", 13.0), outputs("zeta:2.8", 10.4)],
            "zeta:2.8 preserves the local dimension of the data within 10 %; mixup:1.0 does not. "
            "Its labels have 2.5 classes above 1 % on average.",
        ),
        (
            [outputs("zeta:2.4", 10.8, label_entropy=0.9, classes=4.0), outputs("zeta:4.0", 10.1)],
            "zeta:2.4 and zeta:4.0 preserve the local dimension of the data within 10 %. zeta:2.4 "
            "has the richest labels: 4.0 classes above 1 % on average.",
        ),
        (
            [outputs("mixup:1.0", 13.0), outputs("mixup:0.2", 7.0)],
            "No method preserves the local dimension of the data within 10 % (mixup:1.0 and "
            "mixup:0.2).",
        ),
    ],
)
def test_which_methods_preserve_the_dimension(methods, text):
    assert dict(summarise(inspection([(1.0, 15.0), (2.0, 10.0)], methods)))["Summary"] == text


def noise(n=160, seed=0):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (n, 1, 16, 16), generator=generator, dtype=torch.uint8)
    return from_tensors("noise", {"train": (images, torch.arange(n) % 4)})


@pytest.mark.slow
def test_noise_proves_nothing(tmp_path):
    settings = Settings(gammas=(2.0, 4.0), oracle_epochs=2)
    result = inspect_dataset(noise(), parse_list("mixup,zeta:2.4"), settings)
    doubts, pairs = cautions(result), summarise(result)
    assert list(doubts) == ["dimension", "oracle"]
    assert "more samples" in doubts["dimension"]
    assert pairs[:2] == [("Caution", text) for text in doubts.values()]
    texts = dict(pairs)
    assert "Summary" not in texts
    assert texts["γ"].startswith("No conclusion")
    for heading in ("Realism", "Labels"):
        assert texts[heading].endswith("Unreliable, see the caution above.")
    page = write_report(result, tmp_path, machine_info(CPU)).read_text()
    # above and below the table
    assert page.count("The local dimension is not informative about γ: ") == 2
    document = json.loads((tmp_path / "inspection.json").read_text())
    assert document["cautions"] == doubts
    assert document["preserving_gammas"] is None
    assert document["local_dimension_uninformative"] is True
    assert document["oracle"]["reliable"] is False
    assert document["oracle"]["majority"] == 0.25


@pytest.mark.parametrize(
    ("dimension", "neighbours", "changes", "advice"),
    [
        (28.0, 32, {}, None),
        (29.5, 32, {}, "Use more --neighbours."),
        (1.5, 32, {"shape": (2,)}, None),
        (2.0, 32, {"shape": (2,)}, "(the number of features)."),
        # 1.09 × 12.7 is below 14, so that outputs can still have too many
        (12.7, 15, {"settings": Settings(neighbours=15, tolerance=0.09)}, None),
        # 8.4 % are left, which is within the tolerance
        (
            12.91,
            15,
            {"settings": Settings(neighbours=15)},
            "Use more --neighbours or a smaller --tolerance.",
        ),
        (
            12.91,
            15,
            {},
            "Use more samples (an eighth of them are neighbours) or a smaller --tolerance.",
        ),
        (12.91, 15, {"settings": Settings(neighbours=15, tolerance=0.05)}, None),
        (
            1.85,
            15,
            {"shape": (2,)},
            "within the tolerance. Use a smaller --tolerance.",
        ),
    ],
)
def test_where_local_dimension_has_no_room_nothing_is_claimed(
    dimension, neighbours, changes, advice
):
    made = inspection([(0.5, 13.9), (2.0, 13.0)], [outputs("mixup:1.0", 13.9)], **changes)
    made = replace(made, neighbours=neighbours, original=outputs("original", dimension))
    assert made.uninformative is (advice is not None)
    assert (made.as_dict()["preserving_gammas"] is None) is made.uninformative
    texts = dict(summarise(made))
    assert ("Summary" in texts) is not made.uninformative
    if advice is not None:
        assert cautions(made)["dimension"].endswith(advice)
        assert texts["γ"] == "No conclusion, see the caution above."


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"sweep": [(1.0, 10.0), (4.0, 10.1)]},
            "every γ measured, from 1 to 4, preserves it within",
        ),
        (
            {"settings": Settings(neighbours=128)},
            "the number of neighbours was reduced from 128 to 32, an eighth of the 256",
        ),
    ],
)
def test_where_every_gamma_passes_or_the_neighbourhood_was_cut_down_nothing_is_claimed(
    changes, reason
):
    given = {"sweep": [(1.0, 15.0), (4.0, 10.1)], **changes}
    made = inspection(**given)
    texts = dict(summarise(made))
    assert texts["Caution"].startswith(f"The local dimension is inconclusive: {reason}")
    assert "Summary" not in texts
    assert texts["γ"] == "No conclusion, see the caution above."
    assert made.as_dict()["preserving_gammas"] is None
    # neither reason holds
    assert "Summary" in dict(summarise(inspection([(1.0, 15.0), (4.0, 10.1)])))


def test_an_accurate_oracle_that_is_never_certain_is_no_judge_of_realism(result):
    assert "oracle" not in cautions(result)
    share = replace(result.original.estimates["certain_share"], value=0.04)
    estimates = {**result.original.estimates, "certain_share": share}
    made = replace(result, original=replace(result.original, estimates=estimates))
    assert "about only 4.0 % of the originals" in cautions(made)["oracle"]
    texts = dict(summarise(made))
    assert texts["Realism"].endswith("see the caution above.")
    assert not texts["Labels"].endswith("see the caution above.")


# report


@pytest.fixture
def drawn(monkeypatch):
    """Every figure that is drawn, before it becomes a picture."""
    figures = []
    real = Picture.of.__func__

    def of(cls, figure, name, **text):
        figures.append(figure)
        return real(cls, figure, name, **text)

    monkeypatch.setattr(Picture, "of", classmethod(of))
    return figures


def test_the_originals_and_each_method_look_the_same_in_all_figures(result, drawn):
    draw_dimension(result)
    draw_realism(result, result.oracle.statement)
    looks: dict[str, set] = {}
    for figure in drawn:
        for axes in figure.axes:
            for line in axes.get_lines():
                looks.setdefault(line.get_label(), set()).add(line.get_color())
    expected = {label: {style["color"]} for label, style in row_styles(result).items()}
    assert {label: looks[label] for label in expected} == expected
    # the curve over γ is like none of them
    assert not looks["ζ-mixup over γ"] & set().union(*expected.values())


def test_a_panel_without_outputs_says_so(result, drawn):
    judgement = result.original.judgement
    doubtful = replace(judgement, entropies=judgement.entropies + 1)
    original, *methods = [replace(row, judgement=doubtful) for row in result.rows]
    made = replace(result, original=original, methods=tuple(methods))
    draw_realism(made, "made")
    text = [[text.get_text() for text in axes.texts] for axes in drawn[0].axes]
    assert text == [[], [], ["no such outputs"]]


def test_no_two_methods_look_alike():
    methods = [outputs(f"mixup:{alpha}", 10.0) for alpha in range(1, 20)]
    looks = row_styles(inspection([(2.0, 10.0)], methods)).values()
    assert len({(look["color"], look["linestyle"]) for look in looks}) == 20


def test_the_table_has_every_measure_with_n_and_error(result):
    table = make_table(result)
    assert len(table.rows) == 12
    assert [head.name for head in table.heads] == [
        "measure", "original", "mixup:1.0", "zeta:2.8", "n",
    ]  # fmt: skip
    for row in table.cells:
        *cells, shared = row[1:]
        for cell in cells:
            assert cell.value is None or cell.error is not None
            assert (shared.value is None) == (cell.n is not None) or cell.value is None
    by_name = {row[0].text(): row for row in table.cells}
    assert by_name["distance to the nearest original"][1].text() == "–"
    assert by_name["local dimension"][-1].value == 400
    # not the heading again
    assert table.caption == "digits: original, mixup:1.0, zeta:2.8"


def test_files(result, page):
    files = sorted(path.relative_to(page.parent).as_posix() for path in page.parent.rglob("*.*"))
    names = ("dimension", "outputs", "realism")
    figures = [f"figures/{name}.{kind}" for name in names for kind in ("png", "svg")]
    assert files == [*figures, "inspection.json", "report.html"]
    document = json.loads(
        (page.parent / "inspection.json").read_text(),
        parse_constant=lambda text: pytest.fail(f"{text} is not JSON"),
    )
    assert document["measures"]["zeta:2.8"]["local_dimension"]["n"] == 400
    assert document["oracle"]["accuracy"]["n"] == 360
    assert document["preserving_gammas"] == list(result.preserving_gammas)
    assert document["machine"]["torch"] == torch.__version__
    assert document["settings"]["seed"] == 0
    panel = document["distributions"]["oracle entropy"]
    assert list(panel["shares"]) == ["original", "mixup:1.0", "zeta:2.8"]
    for shares in panel["shares"].values():
        assert shares == sorted(shares)
    below = next(k for k, value in enumerate(panel["grid"]) if value >= 0.1) - 1
    certain = document["measures"]["mixup:1.0"]["certain_share"]["value"]
    assert panel["shares"]["mixup:1.0"][below] == pytest.approx(certain, abs=0.02)
    assert document["cautions"] == {}
    assert document["oracle"]["reliable"] is True
    assert document["local_dimension_limit"] == 31


@needs_browser
def test_the_report_opens_in_a_browser(result, page):
    seen = open_page(page).check()
    assert seen.title == "digits: quality of mixed samples"
    assert seen.headings[1:] == [
        "Originals and outputs",
        "Local dimension",
        "Realism and label correctness",
        "All measures",
        "Method",
    ]
    assert len(seen.images) == 3
    for image in seen.images:
        assert image["width"] > 300
        assert len(image["caption"]) > 40
    assert [len(table) for table in seen.tables] == [13]
    assert seen.tables[0][0][1:4] == ["original", "mixup:1.0", "zeta:2.8"]
    value = result.methods[0].estimates["local_dimension"]
    assert float(seen.tables[0][1][2].split()[0]) == pytest.approx(value.value, abs=0.005)
    # beside every result of the oracle: lead, figure, table, and how it was measured
    assert seen.text.count(result.oracle.statement) == 4
    for _, sentence in summarise(result):
        assert sentence in seen.text
    open_page(page, width=500).check()


@needs_browser
def test_without_an_oracle_there_is_no_realism(digits, tmp_path):
    settings = replace(QUICK, oracle="none")
    made = inspect_dataset(digits, parse_list("zeta:2.8"), settings)
    page = write_report(made, tmp_path, {**machine_info(CPU), "command": "zetamix inspect"})
    seen = open_page(page).check()
    assert len(seen.images) == 2
    assert "oracle" not in seen.text.replace(str(page), "")
    assert len(seen.tables[0]) == 7
    assert json.loads((tmp_path / "inspection.json").read_text())["oracle"] is None


def test_a_figure_from_which_nothing_follows_is_folded(result, tmp_path):
    machine = {**machine_info(CPU), "command": "zetamix inspect"}
    title = "Figure (inconclusive)</summary>"
    assert not result.inconclusive
    assert title not in write_report(result, tmp_path, machine).read_text()
    settings = replace(result.settings, tolerance=0.9)
    made = replace(result, settings=settings)
    assert made.inconclusive
    assert title in write_report(made, tmp_path, machine).read_text()


def test_the_dotted_line_is_at_gamma_min(drawn):
    draw_dimension(inspection([(1.0, 11.0), (3.0, 10.0)]))
    (dotted,) = [line for line in drawn[0].axes[0].get_lines() if line.get_linestyle() == ":"]
    assert list(dotted.get_xdata()) == [GAMMA_MIN] * 2


# command


def invoke(*arguments):
    return CliRunner().invoke(app, ["inspect", "--device", "cpu", *arguments])


@pytest.mark.slow
def test_the_command_writes_and_prints_the_report(tmp_path, monkeypatch):
    monkeypatch.setenv("ZETAMIX_DATA", str(tmp_path / "data"))
    out = tmp_path / "new" / "report"
    result = invoke(
        "--methods", "mixup,zeta:2.8", "--out", str(out), "--samples", "200", "--neighbours", "16",
        "--gammas", "4,2", "--oracle-epochs", "2",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    # no terminal: a line for each stage; the data is not cached yet
    stages = ["reading the data", "decoding", "training the oracle", "measuring methods"]
    stages += ["local dimension over γ", "drawing the report"]
    assert re.findall(r"^(.*) …$", result.output, re.MULTILINE) == stages
    assert re.search(r"Local dimension .*γ .*Realism .*Labels .*Diversity", text)
    assert f"Report written to {out / 'report.html'}" in result.output
    document = json.loads((out / "inspection.json").read_text())
    assert [row["gamma"] for row in document["gamma_sweep"]] == [2.0, 4.0]
    assert document["samples"] == 200
    assert document["neighbours"] == 16


def test_the_size_of_a_users_images_is_an_option(tmp_path):
    pixels = torch.Generator().manual_seed(0)
    for index in range(80):
        folder = tmp_path / "photos" / "ab"[index % 2]
        folder.mkdir(parents=True, exist_ok=True)
        image = torch.randint(256, (40, 44, 3), generator=pixels, dtype=torch.uint8)
        Image.fromarray(image.numpy()).save(folder / f"{index}.png")
    result = invoke(
        "--data", str(tmp_path / "photos"), "--size", "20", "--methods", "mixup", "--gammas", "2",
        "--oracle", "none", "--out", str(tmp_path / "out"), "--data-dir", str(tmp_path / "root"),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    document = json.loads((tmp_path / "out" / "inspection.json").read_text())
    assert document["shape"] == [3, 20, 20]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--gammas", "1,x"], 2, "expected positive numbers separated by commas, got '1,x'"),
        (["--gammas", "0,1"], 2, "expected positive numbers separated by commas, got '0,1'"),
        (["--size", "20"], 1, "digits has images of 8 pixels."),
        (["--device", "tpu"], 2, "expected cpu or cuda, got 'tpu'"),
        (["--out", f"{__file__}/report"], 2, "cannot write to"),
        (
            ["--methods", "zeta:x"],
            1,
            "zeta: expected gamma=a number or a range such as 0..4, got 'x'.",
        ),
        (["--methods", "none"], 1, "Expected a method that mixes"),
        (["--data", "nowhere"], 1, "'nowhere' is neither a dataset"),
        (["--oracle", "nonet", "--samples", "100"], 1, "nonet cannot be used as the oracle: "),
        (["--oracle", "lenet5"], 1, "lenet5 needs images of at least 16 × 16, got 8 × 8."),
        (["--samples", "20"], 1, "Expected at least 32 samples to measure, two of each class"),
    ],
)
def test_errors_of_the_command(arguments, code, message, tmp_path, monkeypatch):
    monkeypatch.setenv("ZETAMIX_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    result = invoke(*arguments)
    assert result.exit_code == code, result.output
    assert message in " ".join(result.output.replace("│", " ").split())
    assert not list(tmp_path.glob("out/*"))


@pytest.mark.slow
def test_the_help_is_quick_to_import():
    # heavy parts are imported inside the command
    program = (
        "import sys, zetamix.cli.inspect; "
        "print([m for m in ('matplotlib', 'sklearn', 'torchvision') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_estimates_of_nothing_are_shown_as_missing():
    made = inspection([(2.0, 10.0)], [outputs("zeta:2.8", 10.0, agreement_certain=math.nan)])
    table = make_table(made)
    row = next(row for row in table.cells if row[2].value is not None and math.isnan(row[2].value))
    assert row[2].text().startswith("–")
