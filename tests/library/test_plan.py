"""Plans: what is drawn, from which generator, and with which law."""

import os
import subprocess
import sys
from itertools import permutations

import by_hand
import pytest
import scipy.stats
import torch
from conftest import assert_close

from zetamix import MixPlan, ZetaMix, mixup_plan, sampling, zeta_plan
from zetamix.sampling import MOST_FEW, order_width

# a fixed seed makes the p-values fixed numbers: what fails here fails always
LEAST_P_VALUE = 1e-3

DRAWS = {
    "zeta keys": lambda **kwargs: zeta_plan(9, **kwargs),
    "zeta keys, random anchor": lambda **kwargs: zeta_plan(9, anchor="random", **kwargs),
    "zeta some sources": lambda **kwargs: zeta_plan(9, sources=4, **kwargs),
    "zeta digits": lambda **kwargs: zeta_plan(64, sources=3, **kwargs),
    "zeta permutations": lambda **kwargs: zeta_plan(256, outputs=9, **kwargs),
    "zeta gamma range": lambda **kwargs: zeta_plan(9, (2.0, 4.0), **kwargs),
    "mixup uniform": lambda **kwargs: mixup_plan(9, **kwargs),
    "mixup beta": lambda **kwargs: mixup_plan(9, 0.4, **kwargs),
    "mixup per batch": lambda **kwargs: mixup_plan(9, 0.4, per="batch", **kwargs),
}
every_draw = pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())


def same(first, second):
    return torch.equal(first.indices, second.indices) and torch.equal(first.weights, second.weights)


# shapes, anchors, gamma


@pytest.mark.parametrize("anchor", ["self", "random"])
@pytest.mark.parametrize(
    ("batch", "sources", "outputs"),
    [
        (1, None, None), (2, None, None), (7, None, None), (7, 2, 3), (7, 7, 20), (64, 3, None),
        (300, None, 3), (300, 200, 310),
    ],
)  # fmt: skip
def test_zeta_plan_shape_and_distinct_rows(batch, sources, outputs, anchor):
    plan = zeta_plan(batch, sources=sources, outputs=outputs, anchor=anchor)
    assert (plan.batch_size, plan.outputs, plan.sources) == (
        batch,
        outputs or batch,
        sources or batch,
    )
    assert plan.indices.shape == plan.weights.shape == (plan.outputs, plan.sources)
    assert (plan.indices.dtype, plan.weights.dtype) == (torch.int64, torch.float32)
    assert plan.device == torch.device("cpu")
    for row in plan.indices.tolist():
        assert len(set(row)) == len(row)
        assert all(0 <= index < batch for index in row)


@pytest.mark.parametrize(("batch", "sources"), [(6, None), (6, 3), (64, 2), (256, None)])
def test_anchor_self_gives_rank_one_to_the_own_sample(batch, sources):
    plan = zeta_plan(batch, sources=sources, outputs=2 * batch + 1)
    own = torch.arange(2 * batch + 1) % batch
    assert torch.equal(plan.indices[:, 0], own)
    assert torch.equal(plan.anchors(), own)


def test_anchor_random_leaves_rank_one_to_chance():
    plan = zeta_plan(16, anchor="random")
    assert not torch.equal(plan.anchors(), torch.arange(16))


def test_gamma_one_number_gives_every_output_the_same_weights():
    plan = zeta_plan(5, 2.0, sources=3)
    exact = torch.tensor([1.0, 1 / 4, 1 / 9], dtype=torch.float64)
    assert_close(plan.weights, (exact / exact.sum()).expand(5, 3))


def test_gamma_tensor_gives_each_output_its_own_weights():
    gammas = [0.0, 1.0, 2.5, 40.0]
    plan = zeta_plan(4, torch.tensor(gammas, dtype=torch.float64), dtype=torch.float64)
    expected = [by_hand.weights_from_ranks([1, 2, 3, 4], gamma) for gamma in gammas]
    assert_close(plan.weights, torch.tensor(expected, dtype=torch.float64))


def test_gamma_scalar_tensor_equals_the_number(generator):
    state = generator.get_state()
    tensor = zeta_plan(6, torch.tensor(1.5, dtype=torch.float64), generator=generator)
    generator.set_state(state)
    assert same(tensor, zeta_plan(6, 1.5, generator=generator))


def test_gamma_range_is_uniform(generator):
    plan = zeta_plan(2, (1.0, 3.0), outputs=20_000, generator=generator, dtype=torch.float64)
    gammas = torch.log2(plan.weights[:, 0] / plan.weights[:, 1])
    assert scipy.stats.kstest(gammas.numpy(), "uniform", args=(1, 2)).pvalue > LEAST_P_VALUE


def test_gamma_range_of_width_zero_is_the_number():
    assert_close(zeta_plan(6, (2.0, 2.0)).weights, zeta_plan(6, 2.0).weights)


def test_batch_of_one_is_left_alone():
    for plan in (zeta_plan(1), mixup_plan(1)):
        assert plan.indices.tolist() == [[0]]
        assert plan.weights.tolist() == [[1.0]]


def test_mixup_plan_pairs_each_sample_with_another():
    plan = mixup_plan(5, outputs=200)
    own, partner = plan.indices.unbind(1)
    assert torch.equal(own, torch.arange(200) % 5)
    assert (own != partner).all()
    assert set(partner.tolist()) == set(range(5))


def test_mixup_pairs_by_a_permutation(generator):
    shifts = torch.zeros(10, dtype=torch.int64)
    for _ in range(900):
        own, partner = mixup_plan(10, generator=generator).indices.unbind(1)
        assert partner.sort().values.tolist() == list(range(10))
        steps = ((own - partner) % 10).unique()
        shifts[steps.item()] += 1
    assert shifts[0] == 0
    assert scipy.stats.chisquare(shifts[1:]).pvalue > LEAST_P_VALUE


def test_mixup_per_batch_draws_one_lam():
    assert mixup_plan(50, per="batch").weights.unique(dim=0).shape[0] == 1
    assert mixup_plan(50, per="sample").weights.unique(dim=0).shape[0] == 50


@every_draw
def test_all_streams_take_the_same_amount_of_a_generator(draw):
    """Ranks begin with the state that one of them saved: another amount would set them apart."""
    states = []
    for stream in (0, 5):
        generator = torch.Generator().manual_seed(3)
        draw(generator=generator, stream=stream)
        states.append(generator.get_state())
    assert torch.equal(*states)


# the order is uniform over all permutations


@pytest.mark.parametrize(
    ("batch", "sources", "anchor"),
    [(6, 5, "random"), (5, 5, "random"), (6, 5, "self"), (5, 5, "self")],
)
def test_keys_order_is_uniform(batch, sources, anchor, generator):
    assert order_width(batch, sources) == batch
    check_orders(
        zeta_plan(batch, sources=sources, outputs=60_000, anchor=anchor, generator=generator)
    )


@pytest.mark.parametrize(
    ("batch", "sources", "anchor"),
    [(5, 4, "random"), (4, 3, "self"), (4, 4, "self"), (5, 2, "self"), (2, 2, "random")],
)
def test_order_of_few_sources_is_uniform(batch, sources, anchor, generator):
    assert sources <= MOST_FEW
    check_orders(
        zeta_plan(batch, sources=sources, outputs=60_000, anchor=anchor, generator=generator)
    )


def check_orders(plan):
    """Every order is as frequent as any; with own anchors every row begins its equal share."""
    counts = dict.fromkeys(permutations(range(plan.batch_size), plan.sources), 0)
    for order in plan.indices.tolist():
        counts[tuple(order)] += 1
    assert scipy.stats.chisquare(list(counts.values())).pvalue > LEAST_P_VALUE


@pytest.mark.parametrize("anchor", ["self", "random"])
def test_digits_order_is_uniform(anchor, generator):
    batch, sources = 48, 3
    assert order_width(batch, sources) == sources
    # 48 · 47 · 46 orders, ten draws for each; with own anchors every row has its equal share
    orders = batch * (batch - 1) * (batch - 2)
    plan = zeta_plan(
        batch, sources=sources, outputs=10 * orders, anchor=anchor, generator=generator
    )
    first, second, third = plan.indices.unbind(1)
    counts = torch.bincount((first * batch + second) * batch + third, minlength=batch**3)
    counts = counts.view(batch, batch, batch)
    possible = [
        (i, j, k) for i in range(batch) for j in range(batch) for k in range(batch)
        if i != j and j != k and i != k
    ]  # fmt: skip
    counts = counts[tuple(torch.tensor(possible).unbind(1))]
    assert counts.sum() == plan.outputs
    assert scipy.stats.chisquare(counts).pvalue > LEAST_P_VALUE


@pytest.mark.parametrize("anchor", ["self", "random"])
def test_order_of_large_batches_is_uniform(anchor, generator):
    batch = 256
    plan = zeta_plan(batch, outputs=40 * batch, anchor=anchor, generator=generator)
    for rank in (1, 2, batch - 1):
        counts = torch.bincount(plan.indices[:, rank], minlength=batch)
        assert scipy.stats.chisquare(counts).pvalue > LEAST_P_VALUE
    # the next source says nothing about the one after it
    steps = (plan.indices[:, 2] - plan.indices[:, 1]) % batch
    assert scipy.stats.chisquare(torch.bincount(steps, minlength=batch)[1:]).pvalue > LEAST_P_VALUE


def test_outputs_of_one_plan_are_ordered_independently(generator):
    plan = zeta_plan(3, outputs=30_000, generator=generator)
    # with own anchors an output has two orders; those of consecutive outputs must not be related
    flips = (plan.indices[:, 1] - plan.indices[:, 0]) % 3 - 1
    pairs = torch.bincount(2 * flips[::2] + flips[1::2], minlength=4)
    assert scipy.stats.chisquare(pairs).pvalue > LEAST_P_VALUE


# the law of λ


@pytest.mark.parametrize("alpha", [0.05, 0.2, 1.0, 4.0])
@pytest.mark.parametrize("stream", [0, 5])
def test_lam_follows_the_beta_law(alpha, stream, generator):
    plan = mixup_plan(
        2, alpha, outputs=20_000, generator=generator, stream=stream, dtype=torch.float64
    )
    lam = plan.weights[:, 0]
    # by halves: for α = 0.05 one λ in twelve lies so close to 1 that no float64 can tell
    low = lam[lam < 0.5]
    assert scipy.stats.binomtest(len(low), 20_000, 0.5).pvalue > LEAST_P_VALUE
    law = scipy.stats.beta(alpha, alpha)
    assert scipy.stats.kstest(low.numpy(), lambda x: 2 * law.cdf(x)).pvalue > LEAST_P_VALUE
    high = 1 - lam[(lam >= 0.5) & (lam < 1 - 1e-9)]
    tail = law.cdf(1e-9)
    span = law.cdf(0.5) - tail
    fitted = scipy.stats.kstest(high.numpy(), lambda x: (law.cdf(x) - tail) / span)
    assert fitted.pvalue > LEAST_P_VALUE


@pytest.mark.parametrize("alpha", [1e-3, 1e-2, 1e3])
def test_lam_of_extreme_alpha_is_a_weight(alpha):
    weights = mixup_plan(2, alpha, outputs=10_000).weights
    assert torch.isfinite(weights).all()
    assert (weights >= 0).all()
    assert_close(weights.sum(1), torch.ones(10_000))
    # Beta(α, α) has mean 1/2 and variance 1/(4(2α + 1))
    assert weights[:, 0].mean() == pytest.approx(0.5, abs=0.02)
    assert weights[:, 0].var() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.1)


# generators and streams


@every_draw
def test_same_seed_same_plan(draw):
    first = draw(generator=torch.Generator().manual_seed(3))
    second = draw(generator=torch.Generator().manual_seed(3))
    third = draw(generator=torch.Generator().manual_seed(4))
    assert same(first, second)
    assert not same(first, third)


@every_draw
def test_default_generator_is_the_source_when_none_is_given(draw):
    torch.manual_seed(3)
    first = draw()
    torch.manual_seed(3)
    second = draw()
    assert same(first, second)
    assert not same(second, draw())


@every_draw
def test_an_own_generator_and_the_default_one_leave_each_other_alone(draw):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = draw(generator=torch.Generator().manual_seed(3))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert same(first, draw(generator=torch.Generator().manual_seed(3)))


@every_draw
def test_generator_state_saves_and_resumes(draw, generator):
    draw(generator=generator)
    state = generator.get_state()
    went_on = [draw(generator=generator) for _ in range(3)]
    resumed = torch.Generator()
    resumed.set_state(state)
    assert all(same(plan, draw(generator=resumed)) for plan in went_on)


@every_draw
def test_streams_of_one_generator_differ(draw):
    plans = [draw(generator=torch.Generator().manual_seed(3), stream=stream) for stream in range(4)]
    assert same(plans[1], draw(generator=torch.Generator().manual_seed(3), stream=1))
    for first, second in permutations(plans, 2):
        assert not same(first, second)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_lams_of_different_streams_are_not_correlated(alpha):
    lams = [
        mixup_plan(
            2,
            alpha,
            outputs=10_000,
            generator=torch.Generator().manual_seed(3),
            stream=stream,
            dtype=torch.float64,
        ).weights[:, 0]
        for stream in (0, 1)
    ]
    assert scipy.stats.pearsonr(*lams).pvalue > LEAST_P_VALUE


def test_orders_of_different_streams_are_not_correlated():
    first, second = (
        zeta_plan(
            3, outputs=30_000, generator=torch.Generator().manual_seed(3), stream=stream
        ).indices[:, 1]
        for stream in (0, 1)
    )
    agree = (first == second).sum().item()
    assert scipy.stats.binomtest(agree, 30_000, 0.5).pvalue > LEAST_P_VALUE


def test_rank_in_the_environment_chooses_the_stream(monkeypatch):
    draw = DRAWS["zeta keys"]
    program = "from zetamix import sampling; print(sampling.process_rank(7))"
    for environment, rank in ({"RANK": "3"}, "3"), ({"RANK": ""}, "7"):
        command = [sys.executable, "-c", program]
        done = subprocess.run(
            command, env=os.environ | environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == rank
    monkeypatch.setattr(sampling, "LAUNCHED_RANK", 3)
    plan = draw(generator=torch.Generator().manual_seed(3))
    assert same(plan, draw(generator=torch.Generator().manual_seed(3), stream=3))


# local plans


def test_matrix_holds_every_weight_in_its_column():
    plan = zeta_plan(6, sources=4, outputs=9)
    matrix = plan.matrix()
    assert matrix.shape == (9, 6)
    for output in range(9):
        ranks = by_hand.ranks_from_order(plan.indices[output].tolist(), 6)
        assert_close(matrix[output], torch.tensor(by_hand.weights_from_ranks(ranks, 2.8)))


def test_matrix_adds_up_a_row_that_is_named_twice():
    plan = MixPlan(torch.tensor([[0, 0, 1]]), torch.tensor([[0.5, 0.25, 0.25]]), 2)
    assert plan.matrix().tolist() == [[0.75, 0.25]]


def test_anchors_and_dominance_go_by_weight_not_by_column():
    plan = MixPlan(torch.tensor([[2, 0], [1, 2]]), torch.tensor([[0.25, 0.75], [0.5, 0.5]]), 3)
    assert plan.anchors()[0] == 0
    assert plan.dominates().tolist() == [True, False]


def test_a_plan_cannot_be_changed():
    plan = zeta_plan(3)
    with pytest.raises(AttributeError):
        plan.batch_size = 4


def test_to_moves_both_tensors():
    moved = zeta_plan(4, sources=2).to("meta")
    assert moved.indices.device.type == moved.weights.device.type == moved.device.type == "meta"
    assert (moved.batch_size, moved.outputs, moved.sources) == (4, 4, 2)
    plan = zeta_plan(4)
    assert same(plan, plan.to("cpu"))


def test_plan_device_follows_the_generator_or_the_argument(generator):
    assert zeta_plan(4, generator=generator).device.type == "cpu"
    assert zeta_plan(4, device="meta").device.type == "meta"
    assert mixup_plan(4, 0.3, device="meta").device.type == "meta"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_weights_have_the_dtype_asked_for(dtype):
    assert zeta_plan(4, dtype=dtype).weights.dtype == dtype
    assert mixup_plan(4, dtype=dtype).weights.dtype == dtype


@pytest.mark.gpu
@every_draw
def test_plan_on_cuda_replays_from_its_seed(draw):
    first = draw(generator=torch.Generator("cuda").manual_seed(3))
    second = draw(generator=torch.Generator("cuda").manual_seed(3))
    assert first.device.type == "cuda"
    assert same(first, second)


def test_a_plan_is_shown_in_a_line():
    plan = zeta_plan(64, sources=8)
    assert repr(plan) == "MixPlan(64 outputs of 8 sources each, batch_size=64, torch.float32, cpu)"


def test_a_plan_as_numpy_arrays_is_a_copy(generator):
    plan = zeta_plan(6, sources=3, generator=generator)
    indices, weights, boxes, scale = plan.numpy()
    assert (indices == plan.indices.numpy()).all()
    assert (weights == plan.weights.numpy()).all()
    assert boxes is None
    assert scale is None
    # the weights of a fixed γ are one row, expanded: a write must reach neither them nor the plan
    weights[0, 0] = 7
    assert (weights[1:, 0] != 7).all()
    assert (plan.weights != 7).all()


def test_boxes_and_scale_come_as_numpy_arrays_too(generator):
    mix = ZetaMix(num_classes=2, paste=0.5, generator=generator)
    plan = mix.make_plan(16, size=(8, 8), dtype=torch.bfloat16)
    arrays = plan.numpy()
    assert (arrays.boxes == plan.boxes.numpy()).all()
    assert arrays.weights.dtype == arrays.scale.dtype == "float32"
    assert (arrays.scale == plan.scale.float().numpy()).all()
    assert (arrays.scale[plan.pasted.numpy()] == 1).all()
