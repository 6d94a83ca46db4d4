"""Search spaces: how they are written, what they mean, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zetamix.results.search_space import SpaceError, format_setting, parse_space
from zetamix.train import Recipe

PAPER_GRID = "gamma=1.8:5.0:0.2"
RECIPE = Recipe(source="", lr=0.1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gamma=1..6", {"low": 1.0, "high": 6.0, "log": False, "values": ()}),
        ("weight_decay=log:5e-5..1e-3", {"low": 5e-5, "high": 1e-3, "log": True}),
        ("batch_size=16..64", {"low": 16.0, "high": 64.0}),
        ("gamma=2.0:3.0:0.5", {"values": (2.0, 2.5, 3.0), "step": 0.5}),
        # a step that does not end at the last
        ("gamma=2.0:3.1:0.5", {"values": (2.0, 2.5, 3.0)}),
        # the paper's grid has seventeen values
        (PAPER_GRID, {"values": tuple(round(1.8 + 0.2 * k, 1) for k in range(17))}),
        ("sources=2:8:3", {"values": (2, 5, 8), "step": 3.0}),
        ("sources=2|8|all", {"values": (2, 8, "all"), "step": None}),
        ("gamma=2|2.8", {"values": (2.0, 2.8)}),
        ("augmentation=none|flip", {"values": ("none", "flip")}),
        ("lr=0.05", {"values": (0.05,)}),
    ],
)
def test_each_way_to_write_values(text, expected):
    (parameter,) = parse_space(text).parameters
    assert {name: getattr(parameter, name) for name in expected} == expected
    assert parse_space(text).text == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expected name=values separated by commas, such as gamma=1..6"),
        ("gamma", "got 'gamma'."),
        ("gamma=", "got 'gamma='."),
        ("gama=1..6", "There is no parameter 'gama'. Did you mean gamma? Expected one of gamma, "),
        ("colour=1..6", "There is no parameter 'colour'. Expected one of gamma, "),
        ("epochs=10..30", "epochs cannot be searched"),
        ("gamma=1..6,gamma=2", "gamma is given twice"),
        ("gamma=2..2", "gamma: expected the smaller end of a range first, got '2..2'."),
        ("gamma=6..1", "gamma: expected the smaller end of a range first, got '6..1'."),
        ("gamma=1..2..3", "gamma: expected a range such as 1..6, got '1..2..3'."),
        ("gamma=log:3", "gamma: expected a range such as 1..6, got 'log:3'."),
        ("gamma=a..6", "gamma: expected a range such as 1..6, got 'a..6'."),
        ("gamma=1..inf", "gamma: expected a range such as 1..6, got '1..inf'."),
        ("gamma=log:0..1", "smaller end of a range first, above 0, got 'log:0..1'."),
        ("sources=2..4.5", "sources: expected integers, got '2..4.5'."),
        ("sources=2:3:0.5", "sources: expected integers, got '2:3:0.5'."),
        ("gamma=1:2", "gamma: expected first:last:step, such as 1.8:5.0:0.2, got '1:2'."),
        ("gamma=3:2:0.1", "gamma: expected first:last:step"),
        ("gamma=2:3:0", "gamma: expected first:last:step"),
        ("gamma=1:1e9:0.001", "gamma: expected at most 10,000 values"),
        ("gamma=2|2.0", "gamma=2|2.0 contains a value twice."),
        ("nesterov=yes", "nesterov: expected true or false, got 'yes'."),
        ("lr=fast", "lr: expected a value of type float, got 'fast'."),
        ("batch_size=16.5", "batch_size: expected a value of type int, got '16.5'."),
        ("lr=-1..1", "Not every value of the space can be trained. lr must be a finite number"),
        ("gamma=-1..6", "Not every value of the space can be trained. zeta:"),
        ("p=0..2", "Not every value of the space can be trained. zeta:"),
        ("sources=1..4", "Not every value of the space can be trained. zeta:"),
        ("augmentation=none|mirror", "augmentation must be one of none, flip, crop-flip"),
        ("sources=few", "zeta: expected sources=a whole number or all, got 'few'."),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused(text, message):
    with pytest.raises(SpaceError) as caught:
        parse_space(text)
    assert message in str(caught.value)


def test_a_setting_becomes_a_method_and_a_recipe():
    space = parse_space("gamma=1..6,sources=2|all,weight_decay=log:5e-5..1e-3,nesterov=true|false")
    drawn = {"gamma": 2.123456, "sources": "all", "weight_decay": 1.23456e-4, "nesterov": "false"}
    setting = space.setting(drawn)
    # four digits of what was drawn
    assert setting == {
        "gamma": 2.123,
        "sources": "all",
        "weight_decay": 1.235e-4,
        "nesterov": "false",
    }
    assert space.method(setting).label == "zeta:2.123"
    assert space.method({**setting, "sources": 2}).label == "zeta:gamma=2.123,sources=2"
    recipe = space.recipe(setting, RECIPE)
    assert (recipe.weight_decay, recipe.nesterov, recipe.lr) == (1.235e-4, False, 0.1)


def test_what_is_set_is_not_searched_but_used():
    space = parse_space("gamma=1..6,lr=0.05,sources=8")
    assert [each.name for each in space.searched] == ["gamma"]
    setting = space.setting({"gamma": 3.0})
    assert setting == {"gamma": 3.0, "lr": 0.05, "sources": 8}
    assert space.recipe(setting, RECIPE).lr == 0.05


def test_without_gamma_the_default_is_taken():
    space = parse_space("weight_decay=log:5e-5..1e-3")
    assert space.method({"weight_decay": 1e-4}).option("gamma") == 2.8


def test_a_grid_is_every_combination():
    space = parse_space("gamma=2:3:0.5,sources=2|all,lr=0.1")
    assert [tuple(setting.values()) for setting in space.grid()] == [
        (gamma, sources, 0.1) for gamma in (2.0, 2.5, 3.0) for sources in (2, "all")
    ]


def test_a_grid_of_a_range_is_told():
    with pytest.raises(SpaceError, match=r"^A grid needs values of gamma, got the range 1\.\.6"):
        parse_space("gamma=1..6").grid()
    with pytest.raises(SpaceError, match="at most 10,000 settings in a grid"):
        parse_space("gamma=1:6:0.001,lr=1:9:1").grid()


@given(share=st.floats(0, 1))
def test_what_is_tidied_stays_inside(share):
    for text in ("gamma=1.72865..3.14159", "weight_decay=log:5.0001e-5..1e-3"):
        (each,) = parse_space(text).parameters
        value = each.low + share * (each.high - each.low)
        assert each.low <= each.round(min(value, each.high)) <= each.high


def test_steps_that_a_sampler_adds_up_are_the_values_again():
    (each,) = parse_space(PAPER_GRID).parameters
    sums = [1.8 + k * 0.2 for k in range(17)]
    assert sums != list(each.values)
    assert [each.round(value) for value in sums] == list(each.values)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("gamma=1..6", [1.0, 3.3, 6.0], [0.9, 6.1]),
        ("weight_decay=log:5e-5..1e-3", [5e-5, 1e-3], [4e-5]),
        ("batch_size=16..64", [16, 64], [15, 65]),
        ("gamma=1.8:5.0:0.2", [1.8, 3.4, 5.0], [1.9]),
        ("sources=2:8:3", [2, 5, 8], [3, 11]),
        ("sources=2|8|all", [2, 8, "all"], []),
    ],
)
def test_optuna_means_the_same(text, inside, outside):
    (each,) = parse_space(text).parameters
    distribution = each.distribution()
    for value in inside:
        kept = distribution.to_external_repr(distribution.to_internal_repr(value))
        assert each.round(kept) == value
        assert distribution._contains(distribution.to_internal_repr(value))
    for value in outside:
        assert not distribution._contains(distribution.to_internal_repr(value))
    assert getattr(distribution, "log", False) == each.log


def test_a_setting_is_printed_with_gamma_as_we_write_it():
    assert format_setting({"gamma": 2.0, "sources": "all"}) == "γ = 2, sources = all"
