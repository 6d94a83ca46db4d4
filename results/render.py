"""Render the tables of the README and of the documentation from the committed records.

    python results/render.py

A page has a place for each: `<!-- name -->`, the table, `<!-- /name -->`. A test fails when a page
and the records disagree.
"""

import re
from collections.abc import Callable
from pathlib import Path

from paper.report import make_report
from paper.report.tables import Comparison, compare_all, readme_table
from paper.report.zetamix_proof import readme_section
from paper.reproduce import make_view
from paper.results.record_store import RecordStore
from zetamix.gamma import GAMMA_MIN, describe_gamma
from zetamix.methods import parse
from zetamix_lab.records import RunRecord
from zetamix_lab.report import Cell, Table
from zetamix_lab.statistics import CONFIDENCE
from zetamix_lab.text import join, plural

HERE = Path(__file__).parent
ROOT = HERE.parent
PAGES = {
    "README.md": ("zetamix", "cifar10-verdict"),
    "docs/results/zetamix.md": ("zetamix",),
    "docs/results/paper.md": ("cifar10", "cifar10-verdict", "anchor"),
    "docs/understand/theorems.md": ("thresholds",),
    "docs/how-to/choosing-gamma.md": ("gamma",),
}
"""The places of each page, which it must have once and no others."""
VARIANT = "crop-flip"
OUTCOMES = {
    "ahead": "significantly ahead of",
    "behind": "significantly behind",
    "not significant": "not significantly different from",
    "one seed": "not comparable with one seed to",
}
BASELINES = {"mixup:1.0": "mixup", "none": "no mixing"}


def main() -> None:
    for page in PAGES:
        path = ROOT / page
        path.write_text(render(path.read_text(), page))


def render(text: str, page: str = "README.md", folder: Path = HERE) -> str:
    """The text of a page with the tables of the records."""
    store = RecordStore(folder)
    for name in PAGES[page]:
        block = f"<!-- {name} -->\n{BLOCKS[name](store)}\n<!-- /{name} -->"
        pattern = f"<!-- {name} -->.*?<!-- /{name} -->"
        text, count = re.subn(pattern, lambda _, block=block: block, text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(
                f"{page} must contain <!-- {name} --> and <!-- /{name} --> exactly once."
            )
    return text


def cifar10_table(store: RecordStore) -> str:
    return readme_table(make_view("natural", store), "cifar10").markdown()


def cifar10_verdict(store: RecordStore) -> str:
    """ζ-mixup against mixup and no mixing on CIFAR-10, as far as seeds allow a claim."""
    comparisons = [
        comparison
        for comparison in compare_all(make_view("natural", store), "error")
        if comparison.row.dataset == "cifar10" and comparison.variant.label == VARIANT
    ]
    wins = sum(comparison.is_win_in_paper for comparison in comparisons)
    parts = [
        sentence
        for baseline, name in BASELINES.items()
        for sentence in _against(
            [c for c in comparisons if c.difference.baseline == baseline], name
        )
    ]
    seeds = plural(max(comparison.difference.n for comparison in comparisons), "seed")
    return (
        f"On CIFAR-10 (ResNet-18, crops and flips, {seeds}, Holm's correction over γ) ζ-mixup is "
        f"{join(parts)}. The paper reports it ahead in {wins} of these {len(comparisons)} "
        "comparisons."
    )


def _against(comparisons: list[Comparison], baseline: str) -> list[str]:
    """One phrase for each outcome, with the values of γ and the differences in points."""
    phrases = []
    for outcome, words in OUTCOMES.items():
        group = [comparison for comparison in comparisons if comparison.outcome == outcome]
        if group:
            gammas = join([c.difference.method.removeprefix("zeta:") for c in group])
            phrase = f"{words} {baseline} at γ = {gammas}"
            if outcome in ("ahead", "behind"):
                changes = join([f"{abs(c.difference.mean):.2f}" for c in group])
                ranges = join([_interval(c) for c in group])
                phrase += f" (by {changes} points; {100 * CONFIDENCE:.0f} % intervals {ranges})"
            phrases.append(phrase)
    return phrases


def _interval(comparison: Comparison) -> str:
    low, high = comparison.difference.low or 0.0, comparison.difference.high or 0.0
    near, far = sorted((abs(low), abs(high)))
    return f"{near:.2f} to {far:.2f}"


def anchor_table(store: RecordStore) -> str:
    """The same seed and recipe with the anchor of the authors' code and of the equation."""
    runs: dict[tuple[float, str], RunRecord] = {}
    for record in store.records.values():
        if isinstance(record, RunRecord) and record.cell.dataset == "cifar10":
            method = parse(record.cell.method)
            recipe = record.cell.recipe
            plain = recipe["augmentation"] == VARIANT and recipe["epochs"] == 200
            if method.name == "zeta" and plain and record.cell.seed == 0:
                runs[method.option("gamma"), method.option("anchor")] = record
    gammas = sorted(gamma for gamma, anchor in runs if anchor == "random")
    rows: list[list[Cell | str]] = [
        [
            f"{gamma}",
            *(Cell(100 * runs[gamma, anchor].last["error"], digits=2) for anchor in ANCHORS),
        ]
        for gamma in gammas
    ]
    return Table(["γ", *(f"error %, {words}" for words in ANCHORS.values())], rows).markdown()


ANCHORS = {"self": "the authors' code", "random": "the paper's equation"}


def thresholds_table(store: RecordStore) -> str:
    return make_report(make_view("theorems", store)).tables["thresholds"].markdown()


def gamma_table(_: RecordStore) -> str:
    """What some values of γ do to a batch of 128."""
    rows: list[list[Cell | str]] = []
    for gamma in (GAMMA_MIN, 2.4, 2.8, 4.0):
        found = describe_gamma(gamma, sources=128)
        name = f"{gamma:.5f}" if gamma == GAMMA_MIN else f"{gamma}"
        weight, effective = found.dominant_weight, found.effective_samples
        rows.append([name, Cell(weight, digits=3), Cell(effective, digits=2)])
    heads = ["γ, 128 sources", "weight of the anchor", "effective number of samples"]
    return Table(heads, rows).markdown()


BLOCKS: dict[str, Callable[[RecordStore], str]] = {
    "zetamix": lambda store: readme_section(make_view("zetamix", store)),
    "cifar10": cifar10_table,
    "cifar10-verdict": cifar10_verdict,
    "anchor": anchor_table,
    "thresholds": thresholds_table,
    "gamma": gamma_table,
}


if __name__ == "__main__":
    main()
