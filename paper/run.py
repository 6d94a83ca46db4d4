"""`python -m paper`: run the cells without a record, store the records, list and render them."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor

from paper.artifacts import ARTIFACTS, MEASURES, make_view, select_cells
from paper.context import Context
from paper.datasets import CATALOGUE, load, status, with_reported_split
from paper.page import write_artifact, write_page
from paper.records import Measurement, MeasurementCell, PaperCell, RecordStore, TrainingCell, View
from zetamix.methods import parse, parse_list
from zetamix_lab.cli import options
from zetamix_lab.cli.errors import make_stop, report_errors, stop_status
from zetamix_lab.cli.live import Display, print_line
from zetamix_lab.data import Dataset, DatasetNotFoundError
from zetamix_lab.data.load_dataset import DataDir
from zetamix_lab.progress import Progress
from zetamix_lab.provenance import machine_info
from zetamix_lab.records import Cell, RunRecord
from zetamix_lab.runs.run_cells import run_cells, run_name
from zetamix_lab.text import did_you_mean
from zetamix_lab.train.run import make_cell
from zetamix_lab.train.stop import Stop

CPU = torch.device("cpu")
PAGE = "page"
OUT = Path("out/paper")


@dataclass
class Session:
    """Runs cells on one device and adds their records to a store.

    Runs are kept in the folder `runs` of the store; a later session resumes unfinished ones.
    """

    store: RecordStore
    data_dir: DataDir = None
    device: torch.device = CPU
    jobs: int | None = None
    """Number of parallel runs, as in `run_cells`."""
    stop: Stop = field(default_factory=Stop)
    log: Callable[[str], None] = lambda text: None
    """Called with the name of each measurement."""
    display: Callable[[], AbstractContextManager[Progress | None]] = nullcontext
    """Makes the `watch` of `run_cells`."""
    load_dataset: Callable[[str, DataDir], Dataset] = load

    def __post_init__(self) -> None:
        self.machine = machine_info(self.device)
        self.context = Context(self.store, self.device)

    def run(self, artifact: str, cells: Sequence[PaperCell]) -> list[str]:
        """Run the cells without a record in their order, until stopped.

        Consecutive cells of the same dataset form a group, whose training runs are parallel.
        Returns sentences that say why cells have no record, other than the stop.
        """
        reasons = list[str]()
        for _, group in groupby(cells, lambda cell: (cell.dataset, getattr(cell, "subset", None))):
            reasons += self._run_group(artifact, list(group))
        return reasons

    def _run_group(self, artifact: str, cells: list[PaperCell]) -> Iterator[str]:
        name, here = cells[0].dataset, self.device.type
        empty = [cell for cell in cells if self.store.find(cell) is None]
        trainings = [cell for cell in empty if isinstance(cell, TrainingCell)]
        measured = [cell for cell in empty if isinstance(cell, MeasurementCell)]
        suited = [cell for cell in measured if cell.recipe.get("device", here) == here]
        if elsewhere := len(measured) - len(suited):
            yield f"{elsewhere} of the cells need --device {'cpu' if here == 'cuda' else 'cuda'}."
        if not (trainings or suited) or self.stop():
            return
        try:
            dataset = self._load(cells) if name else None
        except DatasetNotFoundError as error:
            yield str(error)
            return
        for cell in suited:
            if not self.stop():
                self._measure(artifact, cell, dataset)
        if trainings and dataset is not None:
            yield from self._train(artifact, trainings, dataset)

    def _load(self, cells: list[PaperCell]) -> Dataset:
        name, subset = cells[0].dataset, getattr(cells[0], "subset", None)
        self.log(f"loading {name}")
        dataset = self.load_dataset(name, self.data_dir)
        if all(isinstance(cell, TrainingCell) for cell in cells):
            dataset = with_reported_split(dataset)
        dataset = dataset if subset is None else subset.apply(dataset)
        others = {
            record.cell.fingerprint if isinstance(record, RunRecord) else record.fingerprint
            for cell in cells
            if (record := self.store.find(cell)) is not None
        }
        if others - {dataset.fingerprint}:
            # results of different data must not be averaged
            raise ValueError(
                f"{self.store.folder} has records of {name} with fingerprint "
                f"{', '.join(others)}, but the data here has {dataset.fingerprint}. Choose "
                "another --out, or remove those records."
            )
        return dataset

    def _measure(self, artifact: str, cell: MeasurementCell, dataset: Dataset | None) -> None:
        # without a nested training recipe, which would be six lines long
        settings = [f"{k} {v}" for k, v in cell.recipe.items() if not isinstance(v, dict)]
        name = " ".join(filter(None, (cell.kind, cell.dataset, cell.method, ", ".join(settings))))
        self.log(name)
        if dataset is not None:
            self.context.dataset = dataset
        began = time.perf_counter()
        found = MEASURES[cell.kind](cell, self.context)
        arrays = {name: value for name, value in found.items() if isinstance(value, Tensor)}
        record = Measurement(
            **vars(cell),
            fingerprint="" if dataset is None else dataset.fingerprint,
            values={name: value for name, value in found.items() if name not in arrays},
            wall_s=round(time.perf_counter() - began, 3),
            machine=self.machine,
        )
        self.store.add(artifact, record, arrays)

    def _train(self, artifact: str, cells: list[TrainingCell], dataset: Dataset) -> Iterator[str]:
        def store(record: RunRecord) -> None:
            if record.key not in self.store.records:
                extra = {**record.extra, "notes": list(dataset.notes), **cells[0].extra}
                self.store.add(artifact, dataclasses.replace(record, extra=extra))

        made = [make_cell(dataset, parse(cell.method), cell.recipe, cell.seed) for cell in cells]
        with self.display() as watch:
            results = run_cells(
                made,
                dataset,
                out=self.store.folder / "runs",
                jobs=self.jobs,
                device=str(self.device),
                keep_model=False,
                watch=watch,
                name_of=_run_name,
                # at once, in case the session is killed
                finished=store,
                stop=self.stop,
            )
        for record in results.records.values():
            store(record)
        for cell in made:
            if cell.key in results.failures:
                yield f"{dataset.name}, {run_name(cell)} failed: {results.failures[cell.key]}"


def _run_name(cell: Cell) -> str:
    augmentation = cell.recipe["augmentation"].replace("none", "")
    parts = (cell.dataset, cell.recipe["model"], augmentation, run_name(cell))
    return " ".join(filter(None, parts))


def run(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="IDs from --list, or page, for one HTML page."),
    ] = None,
    show_list: Annotated[
        bool,
        typer.Option("--list", help="List the artifacts: absent data, done and missing cells."),
    ] = False,
    datasets: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated datasets to run, such as cifar10,breastmnist. Default: all of "
            "the artifact."
        ),
    ] = None,
    methods: options.Methods = None,
    seeds: options.Seeds = None,
    device: options.Device = None,
    jobs: options.Jobs = None,
    data_dir: options.DataDir = None,
    time_limit: options.TimeLimit = None,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=options.parse_folder,
            metavar="FOLDER",
            help="Folder of records and reports. Default: out/paper.",
        ),
    ] = None,
) -> None:
    """The figures and tables of the paper: run the missing cells, then render.

    A cell is one training run or measurement. Its result is a record in OUT/ID/records.jsonl;
    figures and tables are written to the same folder. Rerun the same command to resume. In a
    checkout, --out results extends the committed records. Datasets: python -m paper data.
    """
    began = time.monotonic()
    console = Console()
    with report_errors():
        store = RecordStore(out or OUT)
        if data_dir is not None and not data_dir.is_dir():
            raise typer.BadParameter(f"{data_dir} is not a folder", param_hint="--data-dir")
        cells = _choose(ids or [], datasets, methods, seeds)
        views = [make_view(id, store, own) for id, own in cells.items()]
        if show_list or not ids:
            _print_list(console, views, data_dir)
            return
        if ids == [PAGE]:
            path = store.folder / "index.html"
            write_page(views, path, machine_info(CPU))
            print_line(console, f"Report written to {path}")
            return
        empty = {view.artifact: len(view.empty) for view in views}
        stop = make_stop(time_limit, began, console)
        session = Session(
            store,
            data_dir=data_dir,
            device=options.parse_device(device),
            jobs=jobs,
            stop=stop,
            log=lambda text: print_line(console, text, style="dim"),
            display=lambda: Display(console),
        )
        with stop:
            reasons = {id: session.run(id, own) for id, own in cells.items()}
        ran = left = 0
        for id, own in cells.items():
            rest = sum(store.find(cell) is None for cell in own)
            done = empty[id] - rest
            ran, left = ran + done, left + rest
            counts = f"{done} cells run, {len(own) - empty[id]} had a record, {rest} left"
            print_line(console, f"{id}: {counts}", style="bold")
            # the report has all cells of the artifact
            result = write_artifact(make_view(id, store), store.folder / id)
            report = f"Report written to {store.folder / id / 'report.html'}"
            for text in (*reasons[id], *result.findings, report):
                print_line(console, f"  {text}")
        if left and stop():
            print_line(console, f"{stop.reason} Rerun the same command to resume.")
            raise typer.Exit(stop_status(stop))
        if left and not ran:
            raise typer.Exit(1)


def _choose(
    ids: Sequence[str], datasets: str | None, methods: str | None, seeds: str | None
) -> dict[str, list[PaperCell]]:
    """The cells to list or run by artifact; raises for invalid requests before anything runs."""
    choices = [*ARTIFACTS, PAGE]
    for id in ids:
        if id not in choices:
            raise typer.BadParameter(
                f"expected one of {', '.join(choices)}, got {id!r}.{did_you_mean(id, choices)}",
                param_hint="ID",
            )
    if PAGE in ids or not ids:
        if len(ids) > 1 or (datasets, methods, seeds) != (None, None, None):
            raise typer.BadParameter(
                "page and the list of all artifacts cannot be combined with other IDs or filters",
                param_hint="ID",
            )
        ids = list(ARTIFACTS)
    try:
        names = [] if datasets is None else datasets.replace(" ", "").split(",")
        labels = [] if methods is None else [method.label for method in parse_list(methods)]
        numbers = () if seeds is None else options.parse_seeds(seeds, 1)
        return {id: select_cells(id, names, labels, numbers) for id in ids}
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _print_list(console: Console, views: Sequence[View], data_dir: Path | None) -> None:
    table = Table("id", "artifact", box=None, header_style="bold", pad_edge=False)
    for head in ("done", "missing"):
        table.add_column(head, justify="right", no_wrap=True)
    for view in views:
        names = filter(None, dict.fromkeys(cell.dataset for cell in view.cells))
        absent = ", ".join(name for name in names if not status(CATALOGUE[name], data_dir))
        text = f"{view.title}\n[dim]missing data: {absent}[/dim]" if absent else view.title
        done = len(view.cells) - len(view.empty)
        table.add_row(view.artifact, text, str(done), str(len(view.empty)))
    console.print(table, highlight=False)
    console.print(
        f"\nRecords are read from {views[0].store.folder} (--out). "
        "python -m paper data NAME shows how to get missing data.",
        highlight=False,
    )
