"""Reports of the paper's figures and tables, made from `results.record_store.PaperView`."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from paper.report import (
    dimension,
    mnist,
    point_clouds,
    sensitivity,
    tables,
    theorems,
    timing,
    zetamix_proof,
    zetamix_search,
)
from paper.report.artifact_report import NOT_RUN, SMOKE_TEST, ArtifactReport, Verdict
from paper.results.record_store import PaperView

REPORTS: Mapping[str, Callable[[PaperView], ArtifactReport]] = {
    "overview": point_clouds.overview,
    "distributions": point_clouds.distributions,
    "mnist": mnist.report,
    "dimension": dimension.report,
    "natural": tables.report,
    "skin": tables.report,
    "skin-detailed": tables.report,
    "medmnist": tables.report,
    "timing": timing.report,
    "sensitivity": sensitivity.report,
    "theorems": theorems.report,
    "zetamix-search": zetamix_search.report,
    "zetamix": zetamix_proof.report,
}
# measured within seconds or minutes, and drawn only as a whole
COMPLETE_ONLY = ("overview", "distributions", "mnist", "theorems")


def make_report(view: PaperView) -> ArtifactReport:
    """Figures, tables and verdict of an artifact; a smoke test gets a warning and no verdict."""
    if view.artifact in COMPLETE_ONLY and view.empty:
        sentence = f"{len(view.empty)} of {len(view.cells)} cells have no record yet."
        return ArtifactReport(verdict=Verdict(NOT_RUN, [sentence]))
    report = REPORTS[view.artifact](view)
    if not view.smoke_label:
        return report
    label = f"{view.smoke_label.capitalize()}."
    captioned = {
        name: replace(table, caption=f"{label} {table.caption}")
        for name, table in report.tables.items()
    }
    return replace(report, tables=captioned, verdict=Verdict(SMOKE_TEST, [label]))
