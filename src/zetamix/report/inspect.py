"""An inspection as files: one page, one JSON, and every figure as PNG and SVG."""

from collections.abc import Mapping
from pathlib import Path

from zetamix.atomic_io import write_json, write_text
from zetamix.measure.realism import CERTAIN, FLOOR
from zetamix.report import Cell, Column, Picture, Section, Table, render_page
from zetamix.report.inspect_cautions import cautions
from zetamix.report.inspect_figures import distributions, draw_all
from zetamix.report.inspect_text import read
from zetamix.results.inspection import Inspection

# key: (name, what it means)
MEASURES = {
    "local_dimension": ("local dimension", "directions in which a neighbourhood varies"),
    "distance": (
        "distance to the nearest original",
        "1: as far as an original is from its nearest other original",
    ),
    "coverage": (
        "coverage",
        "share of originals with an output nearer than their fifth nearest other original",
    ),
    "classes": ("classes per label", "classes with more than 1 % of a label"),
    "label_entropy": ("label entropy, nats", "0: one class; log(classes): all alike"),
    "effective_samples": ("effective samples", "1 / Σ w²: samples that go into an output"),
    "oracle_entropy": ("oracle's entropy, nats", "lower: looks more like one class"),
    "certain_share": (
        "share the oracle is certain about",
        f"entropy below {CERTAIN}: highly realistic",
    ),
    "cross_entropy": (
        "cross entropy, nats",
        "−Σ prediction log label, lower: the label names what the oracle sees",
    ),
    "cross_entropy_certain": ("… of certain outputs", f"entropy below {CERTAIN} alone"),
    "agreement": ("label agreement", "the oracle's class is the label's heaviest"),
    "agreement_certain": ("… of certain outputs", f"entropy below {CERTAIN} alone"),
}


def write_report(inspection: Inspection, out: Path, facts: Mapping[str, str]) -> Path:
    """Write `report.html`, `inspection.json` and `figures/`; the path of the page.

    facts: the machine, from `zetamix.provenance.machine_info`.
    """
    pictures = draw_all(inspection)
    for picture in pictures:
        picture.save(out / "figures")
    document = {
        "machine": dict(facts),
        **inspection.as_dict(),
        "cautions": cautions(inspection),
        "reading": dict(read(inspection)),
    }
    if inspection.oracle is not None:
        document["distributions"] = distributions(inspection)
    write_json(out / "inspection.json", document)
    page = out / "report.html"
    write_text(page, _page(inspection, pictures, facts))
    return page


def make_table(inspection: Inspection) -> Table:
    """All measures for all methods, with the number of samples and the uncertainty."""
    subjects = [inspection.original, *inspection.subjects]
    rows = []
    for key, (name, meaning) in MEASURES.items():
        found = [subject.estimates.get(key) for subject in subjects]
        known = [estimate for estimate in found if estimate is not None]
        if not known:
            continue
        counts = {estimate.n for estimate in known}
        # one n for the row where it is one, else in every cell
        shared = counts.pop() if len(counts) == 1 else None
        cells = [
            Cell(None)
            if estimate is None
            else Cell(
                estimate.value,
                error=estimate.error,
                n=None if shared is not None else estimate.n,
                note=f"n = {estimate.n:,}, standard deviation {estimate.spread:.3g}",
            )
            for estimate in found
        ]
        rows.append([Cell(name, note=meaning), *cells, shared])
    labels = [Column(subject.label) for subject in subjects]
    columns = [Column("measure"), *labels, Column("n", "outputs measured")]
    notes = [
        "Mean ± standard error over n outputs, taken for independent; point at a cell for the "
        "standard deviation.",
    ]
    if inspection.oracle is not None:
        statement = inspection.oracle.statement
        notes.append(
            f"From “oracle's entropy” on: by the oracle, {statement}. It judges outputs made of "
            "samples that it has not seen."
        )
    notes += [f"Caution: {text}" for text in cautions(inspection).values()]
    caption = f"{inspection.dataset}: {', '.join(subject.label for subject in subjects)}"
    return Table(columns, rows, caption, notes)


def _page(inspection: Inspection, pictures: list[Picture], facts: Mapping[str, str]) -> str:
    by_name = {picture.name: picture for picture in pictures}
    warned: dict[str, list[str | Picture]] = {
        about: [f"Caution: {text}"] for about, text in cautions(inspection).items()
    }
    sections = [
        Section("Originals and outputs", [by_name["outputs"]]),
        Section("Local dimension", [*warned.get("dimension", []), by_name["dimension"]]),
        Section("All measures", [make_table(inspection)]),
        Section("How it was measured", _method(inspection)),
    ]
    if "realism" in by_name:
        blocks = [*warned.get("oracle", []), by_name["realism"]]
        sections.insert(2, Section("Realism and label correctness", blocks))
    title = f"{inspection.dataset}: is the synthetic data any good?"
    return render_page(title, sections, machine=facts, lead=read(inspection))


def _method(inspection: Inspection) -> list[str]:
    settings = inspection.settings
    words = [
        f"{inspection.samples:,} samples of the training split were mixed in random batches of "
        f"about {settings.batch}, the same ones for every method, from seed {settings.seed}; one "
        "output in the place of each sample.",
        f"Local dimension: principal components of the {inspection.neighbours} nearest outputs of "
        "the same method whose variance exceeds 5 % of the largest (Fukunaga and Olsen), as in "
        "Appendix C of the paper and as scikit-dimension computes it. Distances and coverage are "
        "Euclidean, between samples as they are stored.",
    ]
    if inspection.oracle is not None:
        words.append(
            f"Realism and label correctness: the oracle is {inspection.oracle.statement}. It "
            f"judges the {inspection.judged:,} outputs that are made of samples it was not trained "
            "on. In the cross entropy its prediction is the truth and the label is judged; a label "
            f"below {FLOOR:g} counts as {FLOOR:g}."
        )
    return words + [f"About the data: {note}." for note in inspection.notes]
