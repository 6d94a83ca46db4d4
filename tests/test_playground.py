"""The playground mixes as the library does, in a real browser, with anyone's images."""

import base64
import hashlib
import inspect
import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from browser import needs_browser, open_page

from zetamix import ZetaMix, ZetaMixup
from zetamix.gamma import GAMMA_MIN, describe_gamma, dominance_threshold
from zetamix.transforms import CutMix, Mixup

PAGE = Path(__file__).parents[1] / "docs" / "playground" / "index.html"
PASTE = inspect.signature(ZetaMix).parameters["paste"].default
DEFAULT = {"gamma": 2.8, "sources": None, "keep_variance": True, "paste": 0.0, "p": 1.0}
DEFAULT |= {"batch_size": 8, "seed": 0, "images": 0, "alpha": 1.0, "per": "sample"}
SETTINGS = [
    DEFAULT | change
    for change in (
        {},
        {"gamma": [0.0, 4.0], "sources": 2},
        {"gamma": [0.0, 4.0], "sources": 2, "keep_variance": False, "seed": 1},
        {"gamma": 1.0, "sources": 4, "batch_size": 4, "seed": 2},
        {"gamma": 0.0, "sources": 5, "batch_size": 12, "alpha": 0.2, "seed": 2**32 - 1},
        {"gamma": 1.5, "sources": 3, "batch_size": 9, "images": 3, "alpha": 2.5, "seed": 123456},
        {"gamma": 1.2, "sources": 6, "paste": 0.5, "batch_size": 10, "seed": 4, "per": "batch"},
        {"gamma": [0.5, 2.0], "sources": 2, "paste": 1.0, "batch_size": 7, "seed": 5},
        {"gamma": [0.5, 1.0], "paste": 1.0, "batch_size": 11, "alpha": 0.1, "per": "batch"},
        {"gamma": [0.0, 6.0], "sources": 3, "p": 0.5, "batch_size": 12, "seed": 7},
        {"gamma": 2.0, "sources": 4, "p": 0.6, "paste": 0.7, "batch_size": 12, "seed": 8},
        {"gamma": [1.0, 3.0], "keep_variance": False, "p": 0.0, "paste": 0.4, "seed": 9},
        # of areas within 1e-7 of 1 the last bit of the square root depends on the machine
        {"gamma": 0.3, "batch_size": 5, "keep_variance": False, "alpha": 0.05, "seed": 12},
    )
]


PAGE_TEXT = PAGE.read_text(encoding="utf-8")
# the data that the page holds
(DATA,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', PAGE_TEXT)
BLOCK = json.loads(DATA)


def read_images():
    """Images [n, channels, height, width] in [0, 1], and labels."""
    pixels = torch.tensor(list(base64.b64decode(BLOCK["pixels"])), dtype=torch.uint8)
    labels = torch.tensor(BLOCK["labels"])
    return pixels.view(len(labels), BLOCK["channels"], *BLOCK["size"]).float() / 255, labels


def batch_of(setting):
    images, labels = read_images()
    count = setting["batch_size"]
    rows = [(setting["images"] * count + k) % len(labels) for k in range(count)]
    return images[rows], labels[rows]


def library_mixes(setting):
    """What the library makes of the same batch: (plan, pixels, targets) by the name of a method."""
    (images, labels), gamma = batch_of(setting), setting["gamma"]
    ours = {name: setting[name] for name in ("sources", "keep_variance", "paste", "p")}
    ours |= {"gamma": tuple(gamma) if isinstance(gamma, list) else gamma, "mean": BLOCK["mean"]}
    alpha = {"alpha": setting["alpha"]}
    methods = {
        "zetamix": (ZetaMix, ours),
        "mixup": (Mixup, alpha),
        "cutmix": (CutMix, alpha | {"per": setting["per"]}),
    }
    made = {}
    for name, (kind, options) in methods.items():
        generator = torch.Generator().manual_seed(setting["seed"])
        mix = kind(num_classes=len(BLOCK["classes"]), generator=generator, **options)
        plan = mix.make_plan(setting["batch_size"], size=tuple(BLOCK["size"]))
        generator.manual_seed(setting["seed"])
        made[name] = (plan, *mix(images, labels))
    return made


@pytest.fixture
def page(tmp_path):
    """A copy: the browser's listeners are written beside it."""
    return Path(shutil.copy(PAGE, tmp_path))


# of plans that the page shows, as JSON: typed arrays have no form of their own there
COMPUTE = """SETTINGS.map(setting => {
  const all = zetamix.compute(setting);
  return Object.fromEntries(["zetamix", "mixup", "cutmix"].map(name => {
    const {indices, weights, boxes, pixels, targets} = all[name];
    return [name, {indices, weights, boxes, pixels: pixels.map(p => Array.from(p)), targets}];
  }));
})"""


@needs_browser
def test_the_numbers_are_the_librarys(page):
    script = COMPUTE.replace("SETTINGS", json.dumps(SETTINGS))
    results = open_page(page, script=script).check().result
    for setting, result in zip(SETTINGS, results, strict=True):
        for name, (plan, pixels, targets) in library_mixes(setting).items():
            found, case = result[name], f"{name} of {setting}"
            assert found["indices"] == plan.indices.tolist(), case
            assert found["boxes"] == (None if plan.boxes is None else plan.boxes.tolist()), case
            expected = {"weights": plan.weights, "pixels": pixels.flatten(1), "targets": targets}
            for key, values in expected.items():
                actual = torch.tensor(found[key])
                assert actual.shape == values.shape, case
                assert (actual - values).abs().max() <= 1e-5, f"{key}: {case}"
    assert sum(bool(result["zetamix"]["boxes"]) for result in results) >= 4


# files as a visitor chooses them: squares of one colour, and one that is no image
OWN = """(async () => {
  const file = (colour, k) => new Promise(done => {
    const canvas = document.createElement("canvas");
    canvas.width = 90; canvas.height = 70;
    const context = canvas.getContext("2d");
    context.fillStyle = colour;
    context.fillRect(0, 0, 90, 70);
    canvas.toBlob(blob => done(new File([blob], `<b>${k}</b>.png`)));
  });
  const files = await Promise.all(COLOURS.map(file));
  await zetamix.showOwn([...files, new File(["no image"], "notes.png")]);
  const mixed = zetamix.compute({ gamma: 2.8, sources: null, batch_size: 4, paste: 0 });
  return { hint: document.getElementById("own-hint").textContent,
    credit: document.getElementById("credit").textContent,
    code: document.getElementById("code").textContent,
    cards: document.querySelectorAll("#cards > li").length,
    images: mixed.images.map(image => [0, 4096, 8192].map(i => image[i])) };
})()"""


@needs_browser
@pytest.mark.parametrize(("count", "read"), [(5, True), (3, False)])
def test_own_images(page, count, read):
    colours = ["#ff0000", "#00ff00", "#0000ff", "#ffffff", "#000000"][:count]
    found = open_page(page, script=OWN.replace("COLOURS", json.dumps(colours))).check().result
    if not read:
        assert "at least 4 images" in found["hint"]
        assert "10" in found["code"]
        return
    assert found["credit"] == "Images: 5 of yours."
    assert found["images"] == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]]
    assert (found["cards"], "num_classes=5" in found["code"]) == (5, True)


# every control by its id: what it is called, and whether it can be reached by keyboard
CONTROLS = """[...document.querySelectorAll("button, input")].map(control => ({
  name: control.getAttribute("aria-label")
    || (control.labels && [...control.labels].map(label => label.textContent).join(" ").trim())
    || control.textContent.trim(),
  reached: control.tabIndex >= 0,
}))"""
OVERFLOW = "document.documentElement.scrollWidth - innerWidth"


def at_each(fragments, value):
    """A script that gives the value of an expression at each address."""
    return """FRAGMENTS.map(fragment => {
      history.replaceState(null, "", fragment);
      dispatchEvent(new HashChangeEvent("hashchange"));
      return VALUE;
    })""".replace("FRAGMENTS", json.dumps(fragments)).replace("VALUE", value)


@needs_browser
def test_on_a_phone_by_keyboard(page):
    # the widest states: many sources, boxes, a range, all presets
    fragments = [
        "#gamma=0..4&sources=all&batch_size=12&paste=1",
        "#gamma=0..6&sources=3&batch_size=4&p=0.5&seed=4294967295",
        "#gamma=0&sources=2&keep_variance=0",
    ]
    overflows = at_each(fragments, OVERFLOW)
    script = f"({{controls: {CONTROLS}, overflows: {overflows}, width: innerWidth}})"
    opened = open_page(page, width=390, script=script).check()
    assert opened.result["width"] == 390
    assert max(opened.result["overflows"]) <= 0
    controls = opened.result["controls"]
    assert len(controls) >= 25
    assert [control for control in controls if not control["name"]] == []
    assert all(control["reached"] for control in controls)


# moves every control as a user does; timers run at once, so that the address is up to date
MOVE = """(() => {
  window.setTimeout = run => run();
  const set = (id, value, kind = "input") => {
    const control = document.getElementById(id);
    if (control.type === "checkbox") control.checked = value; else control.value = value;
    control.dispatchEvent(new Event(kind));
  };
  set("range", true, "change"); set("low", 0.5); set("high", 3); set("batch_size", 10);
  set("sources", 3); set("keep_variance", false, "change"); set("paste", 0.4); set("p", 0.8);
  set("seed", 77); set("alpha", 0.5);
  document.getElementById("other-images").click();
  document.getElementById("next").click();
  return location.hash;
})()"""
SHOWN = """({
  link: zetamix.toHash(zetamix.fromHash(location.hash)),
  values: Object.fromEntries(["low", "high", "sources", "paste", "p", "batch_size", "seed", "alpha"]
    .map(id => [id, Number(document.getElementById(id).value)])),
  shown: document.getElementById("shown").textContent,
  code: document.getElementById("code").textContent,
  drawn: (() => {
    const canvas = document.querySelector(".result canvas");
    const rgba = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    return Array.from(rgba).filter((_, i) => i % 4 === 0);
  })(),
  captions: [...document.querySelectorAll(".term figcaption")].map(one => one.textContent),
})"""


def check_code(code, setting):
    """The code that is shown makes what is shown."""
    names = dict(zip(("images", "labels"), batch_of(setting), strict=True))
    exec(code, names)
    _, pixels, targets = library_mixes(setting)["zetamix"]
    assert torch.equal(names["images"], pixels)
    assert torch.equal(names["targets"], targets)


@needs_browser
def test_the_link_holds_the_state(page):
    link = open_page(page, script=MOVE).check().result
    assert link == (
        "#gamma=0.5..3&sources=3&keep_variance=0&paste=0.4&p=0.8&batch_size=10&seed=77&images=1"
        "&alpha=0.5&output=2"
    )
    shown = open_page(page, fragment=link[1:], script=SHOWN).check().result
    values = {"low": 0.5, "high": 3, "sources": 3, "paste": 0.4, "p": 0.8}
    assert shown["values"] == values | {"batch_size": 10, "seed": 77, "alpha": 0.5}
    assert (shown["link"], shown["shown"]) == (link, "Output 3 of 10")
    setting = DEFAULT | {"gamma": [0.5, 3.0], "sources": 3, "keep_variance": False, "paste": 0.4}
    setting |= {"p": 0.8, "batch_size": 10, "seed": 77, "images": 1}
    check_code(shown["code"], setting)
    # what is painted is what was computed
    plan, pixels, _ = library_mixes(setting)["zetamix"]
    expected = 255 * pixels[2].flatten()
    assert (torch.tensor(shown["drawn"]) - expected).abs().max() <= 0.51
    heaviest = round(100 * plan.weights[2, 0].item())
    assert shown["captions"][0] == f"{heaviest} %"
    damaged = "gamma=x..&sources=-3&seed=1e99&batch_size=500&images=NaN&p=<b>&output=40&zzz"
    shown = open_page(page, fragment=damaged, script=SHOWN).check().result
    assert (shown["shown"], shown["values"]["seed"]) == ("Output 12 of 12", 2**32 - 1)


CODE = 'document.getElementById("code").textContent'


@needs_browser
def test_the_code_leaves_out_defaults_alone(page):
    """With every share of pasted outputs, of which the default alone is left out of the code."""
    setting = DEFAULT | {"gamma": [0.0, 4.0], "sources": 2, "batch_size": 12, "seed": 3}
    settings = [setting | {"paste": share} for share in (0.0, 0.25, PASTE, 1.0)]
    settings.append(settings[2] | {"p": 0.5, "keep_variance": False})
    fragments = [
        f"#gamma=0..4&sources=2&batch_size=12&seed=3&paste={setting['paste']:g}&p={setting['p']:g}"
        f"&keep_variance={setting['keep_variance']:d}"
        for setting in settings
    ]
    codes = open_page(page, script=at_each(fragments, CODE)).check().result
    assert ["paste=" in code for code in codes] == [True, True, False, True, False]
    for code, setting in zip(codes, settings, strict=True):
        check_code(code, setting)


@needs_browser
def test_the_sentence_about_gamma_is_true(page):
    fragment = "gamma=2.8&sources=all&batch_size=8"
    opened = open_page(page, fragment=fragment, script="({presets: zetamix.PRESETS})").check()
    threshold, weight = dominance_threshold(8), describe_gamma(2.8, sources=8).dominant_weight
    for number in (f"{100 * weight:.0f} %", f"{threshold:.3f}", f"{GAMMA_MIN:.5f}"):
        assert number in opened.text
    presets = opened.result["presets"]
    ours = {
        name: parameter.default
        for name, parameter in inspect.signature(ZetaMix).parameters.items()
        if name in presets["ZetaMix (recommended)"]
    }
    ours["gamma"] = list(ours["gamma"]) if isinstance(ours["gamma"], tuple) else ours["gamma"]
    assert presets["ZetaMix (recommended)"] == ours
    paper = inspect.signature(ZetaMixup).parameters
    assert presets["ζ-mixup, the paper’s"]["gamma"] == paper["gamma"].default
    assert presets["ζ-mixup, the paper’s"]["sources"] is paper["sources"].default is None


def test_the_page_stands_alone_and_its_policy_allows_its_one_script():
    (script,) = re.findall(r"<script>(.*?)</script>", PAGE_TEXT, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (allowed,) = re.findall(r"default-src 'none'; script-src 'sha256-(.*?)';", PAGE_TEXT)
    assert allowed == digest, "the script has changed: write its new hash into the policy"
    assert len(PAGE_TEXT.replace(BLOCK["pixels"], "")) < 60_000
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", PAGE_TEXT) == []


def test_the_digits_of_the_page_are_those_of_the_dataset():
    _, labels = read_images()
    assert torch.bincount(labels).tolist() == [8] * 10
    # neighbours differ in class: each ten images are one of each
    assert [sorted(ten) for ten in labels.view(-1, 10).tolist()] == [list(range(10))] * 8
