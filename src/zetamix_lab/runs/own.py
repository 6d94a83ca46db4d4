"""Comparisons of training that is not ours: a function of one's own, or a table of its results."""

import inspect
import math
import os
import re
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from zetamix.methods import BUILDERS, Method, parse, parse_list
from zetamix_lab.comparison import Comparison, Key, metric_of
from zetamix_lab.metrics import classify, count_confusion
from zetamix_lab.models.networks import load_function
from zetamix_lab.provenance import FileRef, machine_info
from zetamix_lab.records import Cell, RunRecord, SampleResults
from zetamix_lab.runs import METHODS, SEEDS, UNTIL
from zetamix_lab.runs.executor import Send, Stop
from zetamix_lab.runs.run_cells import Job, Settings
from zetamix_lab.statistics import KEYS
from zetamix_lab.text import join, reason
from zetamix_lab.train.run import describe_failure
from zetamix_lab.train.run_folder import RunFolder, hold

# in the folder of a run: what it printed, and a folder of its own
LOG, FILES = "log.txt", "files"
RETURNS = "predictions [samples, classes] and targets [samples], or a dict of metrics"
COLUMNS, FILE_COLUMNS = ("method", "seed", "metric", "value"), ("method", "seed", "predictions")
TABLE = f"a CSV table with the columns {', '.join(COLUMNS)}, or {', '.join(FILE_COLUMNS)}"
Result: TypeAlias = tuple[dict[str, float], tuple[Tensor, Tensor] | None]


class OwnTrainingError(ValueError):
    """A function, its result or a table that cannot be compared."""


class NoMixing(nn.Module):
    """The transform of `none`: returns its batch, and accepts the calls of a training loop."""

    def set_epoch(self, epoch: int, epochs: int | None = None) -> None:
        """As of the transforms."""

    def set_progress(self, done: float, epoch: int = 0) -> None:
        """As of the transforms."""

    def forward(self, samples: Any, labels: Any) -> tuple[Any, Any]:
        return samples, labels


@dataclass(frozen=True, eq=False)
class OwnGrid:
    """Methods × seeds, as `zetamix_lab.runs.compare.Grid`, trained by a user's function."""

    name: str
    """FILE.py:FUNCTION, which is called as `run(mix, seed, out)`."""
    code: FileRef
    """The file as it was: a changed one makes other runs."""
    methods: tuple[Method, ...]
    seeds: tuple[int, ...]
    out: Path
    until: float = UNTIL

    @classmethod
    def read(
        cls,
        name: str,
        methods: Sequence[Method] | None = None,
        *,
        out: Path | None = None,
        seeds: Sequence[int] = range(SEEDS),
        until: float = UNTIL,
    ) -> "OwnGrid":
        """Raises if there is no such function; methods, out and until as in `make_grid`."""
        if re.fullmatch(r".+\.py:\w+", name) is None:
            raise OwnTrainingError(
                f"Expected FILE.py:FUNCTION, such as train.py:run, got {name!r}."
            )
        code = FileRef.read(name.rpartition(":")[0])
        try:
            inspect.signature(load_function(name, code)).bind(None, 0, Path())
        except TypeError as error:
            raise OwnTrainingError(f"{name} must take (mix, seed, out): {error}.") from None
        methods = parse_list(METHODS, until) if methods is None else methods
        if any(method.name == "smoothing" for method in methods):
            raise OwnTrainingError(
                "smoothing needs the number of classes, which is not known here. Use the "
                "label_smoothing of your loss."
            )
        folder = (out or Path("out") / f"compare-{code.path.stem}").absolute()
        return cls(name, code, tuple(methods), tuple(seeds), folder, until)

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        recipe = {"train": {**self.code.as_dict(), "function": self.name.rpartition(":")[2]}}
        make = partial(
            Cell, dataset=self.code.path.stem, fingerprint="", train_size=0, recipe=recipe
        )
        return tuple(make(method=m.label, seed=s) for s in self.seeds for m in self.methods)

    def run(self, cell: Cell, out: Path) -> Any:
        """What the function returns for a cell."""
        out.mkdir(exist_ok=True)
        method = parse(cell.method)
        # for soft targets: the number of classes is not known
        mix = BUILDERS.get(method.name, NoMixing)(**method.values)
        return load_function(self.name, self.code)(mix, cell.seed, out)


def call(job: Job, settings: Settings, send: Send, stopped: Stop) -> None:
    """Call a user's function for one cell; workers run this, a process for each."""
    began = time.monotonic()
    (cell,), grid = job.cells, settings.data
    folder = RunFolder(settings.out / cell.folder, cell)

    def end_when_stopped() -> None:
        # the function cannot be asked to save
        while not stopped():
            time.sleep(settings.poll_seconds)
        os._exit(1)

    threading.Thread(target=end_when_stopped, daemon=True).start()
    kind, _, index = (job.device or "").partition(":")
    if kind == "cpu" or index:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        chosen = visible.split(",")[int(index)] if visible and index else index
        os.environ["CUDA_VISIBLE_DEVICES"] = chosen
    try:
        with hold([folder.path], wait=settings.orphan_seconds):
            folder.open(cell, 0)
            send(("progress", cell.key, (0.0, 0.0, {})))
            log = os.open(folder.path / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for stream in (1, 2):
                os.dup2(log, stream)
            found = grid.run(cell, folder.path / FILES)
            metrics, predicted = read_result(found, f"{grid.name} must return {RETURNS}")
            record = RunRecord(
                cell=cell,
                last=metrics,
                best=None,
                confusion=count_confusion(*predicted) if predicted else [],
                test_size=len(predicted[0]) if predicted else 0,
                wall_s=round(time.monotonic() - began, 2),
                machine=machine_info(torch.device("cuda" if torch.cuda.is_available() else "cpu")),
            )
            samples = SampleResults.of(*predicted) if predicted else None
            folder.finish(record, {}, None, samples)
            send(("record", cell.key, (record, [], samples)))
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        log_file = "/".join((*folder.path.parts[-2:], LOG))
        send(("failure", cell.key, _describe(error, grid.code.path, log_file)))


def _describe(error: BaseException, file: Path, log: str) -> str:
    """An error of the user's code, with its line."""
    failure = describe_failure(error)
    if failure is not None or isinstance(error, OwnTrainingError):
        return failure or str(error)
    frames = traceback.extract_tb(error.__traceback__)
    frame = [*frames[-1:], *(frame for frame in frames if frame.filename == str(file))][-1]
    text = f"{type(error).__name__}: {str(error).rstrip('.')}"
    return f"{text} ({Path(frame.filename).name}, line {frame.lineno}; see {log})."


def read_result(found: Any, expected: str) -> Result:
    """The metrics, and the logits and targets unless metrics are all that is found.

    Predictions are logits or probabilities: rows that are not negative and sum to 1 or, of several
    labels per sample, numbers in [0, 1].

    expected: the beginning of the message for anything else.
    """
    if isinstance(found, Mapping):
        if not found or any(isinstance(v, str) or np.size(v) != 1 for v in found.values()):
            raise OwnTrainingError(f"{expected}, each of them one number; got {found}.")
        return _fractions({str(name): float(value) for name, value in found.items()}), None
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise OwnTrainingError(f"{expected}, got {type(found).__name__}.")
    try:
        scores, targets = (torch.as_tensor(part).detach().cpu() for part in found)
    except (TypeError, ValueError, RuntimeError) as error:
        raise OwnTrainingError(f"{expected}: {reason(error)}.") from None
    several = targets.ndim == 2
    alike = scores.shape == targets.shape if several else scores.shape[:1] == targets.shape
    if scores.ndim != 2 or not alike or not scores.numel():
        shapes = f"{list(scores.shape)} and {list(targets.shape)}"
        raise OwnTrainingError(f"{expected}, got shapes {shapes}.")
    top = 1 if several else scores.shape[1] - 1
    if not ((targets >= 0) & (targets <= top) & (targets == targets.round())).all():
        raise OwnTrainingError(f"{expected}; targets must be whole numbers from 0 to {top}.")
    scores, targets = scores.float(), targets.float() if several else targets.long()
    if several and scores.min() >= 0 and scores.max() <= 1:
        scores = scores.logit(1e-7)
    elif not several and scores.min() >= 0 and (scores.sum(1) - 1).abs().max() < 1e-3:
        scores = scores.clamp_min(1e-12).log()
    if not scores.isfinite().all():
        raise OwnTrainingError("Predictions must be finite: has training diverged?")
    return classify(scores, targets), (scores, targets)


def _fractions(found: dict[str, float]) -> dict[str, float]:
    """The metrics, unless one that is shown in per cent is no fraction."""
    for name, value in found.items():
        if metric_of(name).percent and not (0 <= value <= 1 or math.isnan(value)):
            raise OwnTrainingError(f"{name} must be a fraction from 0 to 1, got {value:g}.")
    return found


def read_table(path: Path) -> Comparison:
    """The comparison of a CSV table with the columns method, seed, metric and value.

    With the columns method, seed and predictions, the last names `.npz` files relative to the
    table, with the arrays `predictions` and `targets` as `read_result` takes them.
    """
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False, skipinitialspace=True)
    except (OSError, ValueError) as error:
        raise OwnTrainingError(f"{path}: {reason(error)}. Expected {TABLE}.") from None
    wanted = FILE_COLUMNS if "predictions" in table else COLUMNS
    if missing := [column for column in wanted if column not in table]:
        raise OwnTrainingError(
            f"{path} has no column {join(missing)}, but {join([*table.columns])}. Expected {TABLE}."
        )
    rows, samples = dict[tuple[str, int, str], float](), dict[Key, SampleResults]()
    for number, (method, seed, *rest) in enumerate(table[[*wanted]].itertuples(index=False), 2):
        try:
            key = method.strip(), int(seed)
            if wanted is COLUMNS:
                found = _fractions({rest[0]: float(rest[1])})
            else:
                with np.load(path.parent / rest[0], allow_pickle=False) as file:
                    arrays = file["predictions"], file["targets"]
                found, predicted = read_result(arrays, f"{rest[0]} must have {RETURNS}")
                samples |= {key: SampleResults.of(*predicted)} if predicted else {}
            if any((*key, metric) in rows for metric in found):
                raise ValueError(f"{key[0]} seed {key[1]} is given twice")
        except (ValueError, KeyError, OSError) as error:
            raise OwnTrainingError(f"{path}, line {number}: {reason(error)}.") from None
        rows |= {(*key, metric): value for metric, value in found.items()}
    if not rows:
        raise OwnTrainingError(f"{path} has no rows. Expected {TABLE}.")
    runs = pd.DataFrame([(path.stem, *key, rows[key]) for key in rows], columns=[*KEYS, "value"])
    comparison = Comparison(
        requested=tuple(runs["method"].unique()),
        seeds=tuple(sorted(runs["seed"].unique().tolist())),
        given=runs,
        samples=samples,
        name=path.stem,
    )
    # the other metrics are left out where one is missing, the one that decides is not
    first = runs["metric"].iat[0]
    without = set(comparison.finished) - {(m, s) for m, s, metric in rows if metric == first}
    if without:
        method, seed = min(without)
        raise OwnTrainingError(
            f"{path} has no {first}, its first metric, of {method} seed {seed}. Expected it of "
            "every run."
        )
    return comparison
