"""The names of methods: one parser, one label, one value for each way to mix."""

import pytest

from zetamix.methods import BUILDERS, OPTIONS, Method, UnknownMethodError, parse, parse_list
from zetamix.transforms import CutMix, LabelSmoothing, Mixup, MixupOrCutMix, ZetaMix, ZetaMixup

# what a user may write, the label that comes back, and the options that differ from the defaults
WRITTEN = [
    ("none", "none", {}),
    ("mixup", "mixup:1.0", {}),
    ("mixup:0.2", "mixup:0.2", {"alpha": 0.2}),
    ("mixup:alpha=0.2", "mixup:0.2", {"alpha": 0.2}),
    ("mixup:per=batch", "mixup:alpha=1.0,per=batch", {"per": "batch"}),
    ("mixup:p=0.5,alpha=2", "mixup:alpha=2.0,p=0.5", {"alpha": 2.0, "p": 0.5}),
    ("cutmix", "cutmix:1.0", {}),
    ("cutmix:per=sample", "cutmix:alpha=1.0,per=sample", {"per": "sample"}),
    ("switch", "switch", {}),
    ("switch:0.5,per=sample", "switch:per=sample", {"per": "sample"}),
    ("smoothing", "smoothing:0.1", {}),
    ("smoothing:0.2", "smoothing:0.2", {"amount": 0.2}),
    ("zetamix", "zetamix", {}),
    ("zetamix:keep_variance=yes,until=0.8", "zetamix", {}),
    ("zetamix:until=1", "zetamix:until=1.0", {"until": 1.0}),
    ("zetamix:0..3,sources=3", "zetamix:gamma=0.0..3.0,sources=3", {"sources": 3}),
    ("zetamix:2", "zetamix:gamma=2.0", {"gamma": 2.0}),
    (
        "zetamix:keep_variance=no,paste=1,until=0.9",
        "zetamix:keep_variance=no,paste=1.0,until=0.9",
        {"keep_variance": False, "paste": 1.0, "until": 0.9},
    ),
    ("zeta", "zeta:2.8", {}),
    (" zeta:2.8 ", "zeta:2.8", {}),
    ("zetamixup:2.4", "zeta:2.4", {"gamma": 2.4}),
    ("zeta:gamma=0..4,sources=4", "zeta:gamma=0.0..4.0,sources=4", {"gamma": (0, 4), "sources": 4}),
    ("zeta:sources=4, gamma = 2.4", "zeta:gamma=2.4,sources=4", {"gamma": 2.4, "sources": 4}),
    ("zeta:sources=all", "zeta:2.8", {}),
    ("zeta:anchor=random,p=0.5", "zeta:gamma=2.8,anchor=random,p=0.5", {"anchor": "random"}),
]
KINDS = {
    "mixup": Mixup, "cutmix": CutMix, "switch": MixupOrCutMix, "smoothing": LabelSmoothing,
    "zetamix": ZetaMix, "zeta": ZetaMixup,
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:gamma=0 is below")
@pytest.mark.parametrize(("text", "label", "options"), WRITTEN, ids=[row[0] for row in WRITTEN])
def test_text_becomes_a_method_with_one_label_and_its_transform(text, label, options):
    method = parse(text)
    assert (method.label, str(method)) == (label, label)
    assert dict(method.options) == {**dict(method.options), **options}
    for name, default in OPTIONS[method.name].items():
        assert method.values[name] == dict(method.options).get(name, default)
    again = parse(method.label)
    assert (again, hash(again)) == (method, hash(method))
    # the full label spells every option
    again = parse(method.full_label)
    assert again.full_label == method.full_label
    assert method.full_label.count("=") == len(OPTIONS[method.name])
    # a record of zetamix says what was run, whatever the default is when it is read
    assert again.label == (method.full_label if method.name == "zetamix" else method.label)
    transform = method.transform(3)
    assert type(transform) is KINDS.get(method.name, type(None))
    assert {name: getattr(transform, name) for name in options} == options


def test_until_and_sources_of_a_method():
    given = ("none", "smoothing", "zeta", "zetamix:until=0.8")
    assert [parse(text).until for text in given] == [1.0, 1.0, 1.0, 0.8]
    assert (parse("zeta").values["sources"], parse("zetamix").values["sources"]) == (None, 2)
    assert parse("zeta") == parse("zeta:2.8") == parse("zeta:sources=all,gamma=2.80")
    assert Method("zeta") == parse("zeta")
    assert set(OPTIONS) == {"none", *BUILDERS}


# and a part of what is said of it
UNKNOWN = [
    ("zetta", "got 'zetta'. Did you mean zeta?"),
    ("", "Expected a method such as none, mixup:1.0, cutmix, switch, zetamix or zeta:2.8, got ''."),
    ("none:1", "none has no option '1'"),
    ("mixup:gamma=2", "mixup has no option 'gamma=2'; its options: alpha, per, p, until."),
    ("zeta:2:sources=8", "zeta has no option '2:sources=8'; its options: gamma,"),
    ("zeta:2,gamma=3", "zeta has the option gamma twice, in 'zeta:2,gamma=3'."),
    # the checks of the transforms
    ("zeta:a", "zeta:a: gamma must be a number, got str."),
    ("zeta:sources=2.5", "zeta:gamma=2.8,sources=2.5: sources must be an int, got str."),
    ("mixup:per=epoch", "per must be one of 'sample', 'batch', got 'epoch'."),
    ("zetamix:keep_variance=1", "keep_variance must be True or False, got 1.0."),
    ("zeta:sources=1", "zeta:gamma=2.8,sources=1: sources must be at least 2"),
    ("zeta:nan", "zeta:nan: gamma must be finite and at least 0"),
    ("mixup:until=0", "mixup:alpha=1.0,until=0.0: until must be"),
]


@pytest.mark.parametrize(("text", "message"), UNKNOWN, ids=[row[0] for row in UNKNOWN])
def test_a_text_that_is_no_method_is_an_error(text, message):
    with pytest.raises(UnknownMethodError) as caught:
        parse(text)
    assert message in str(caught.value)


LISTS = [
    ("none", ["none"]),
    ("none,mixup,zeta", ["none", "mixup:1.0", "zeta:2.8"]),
    ("none, zeta:gamma=2.4 , sources=8,", ["none", "zeta:gamma=2.4,sources=8"]),
    ("zeta:2.8,zeta:2.4,zeta:0..4", ["zeta:2.8", "zeta:2.4", "zeta:gamma=0.0..4.0"]),
    ("", "Expected at least one method"),
    (",,", "Expected at least one method"),
    ("zeta,zeta:2.8", "zeta:2.8 is given twice; give each method once."),
    ("none,zeta:2.8,2.4", "got '2.4'."),
    ("sources=4,zeta", "got 'sources=4'."),
]


@pytest.mark.parametrize(("text", "expected"), LISTS, ids=[row[0] for row in LISTS])
def test_lists(text, expected):
    if isinstance(expected, list):
        assert [method.label for method in parse_list(text)] == expected
        return
    with pytest.raises(UnknownMethodError) as caught:
        parse_list(text)
    assert expected in str(caught.value)
