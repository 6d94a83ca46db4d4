"""Comparisons of training that is not ours: a function of one's own, or a table of its results."""

import math
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from zetamix import Mixup
from zetamix.methods import BUILDERS, Method, parse, parse_list
from zetamix_lab.comparison import Comparison, Key, metric_of
from zetamix_lab.metrics import classify, count_confusion
from zetamix_lab.provenance import FileRef, machine_info
from zetamix_lab.records import Cell, RunRecord, SampleResults
from zetamix_lab.runs import METHODS, SEEDS, UNTIL
from zetamix_lab.runs.executor import POLL_SECONDS, Send, Stop
from zetamix_lab.runs.run_cells import ORPHAN_SECONDS, Job
from zetamix_lab.statistics import KEYS
from zetamix_lab.text import did_you_mean, join, reason
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


class OwnGrid:
    """Methods × seeds, as `zetamix_lab.runs.compare.Grid`, trained by a user's function.

    name: FILE.py:FUNCTION, which is called as `run(mix, seed, out)`. A changed file makes other
        runs.
    methods, out, seeds, until: as in `make_grid`.
    """

    def __init__(
        self,
        name: str,
        methods: Sequence[Method] | None = None,
        *,
        out: Path | None = None,
        seeds: Sequence[int] = range(SEEDS),
        until: float = UNTIL,
    ) -> None:
        if not re.fullmatch(r".+\.py:\w+", name):
            raise OwnTrainingError(
                f"Expected FILE.py:FUNCTION, such as train.py:run, got {name!r}."
            )
        path, _, function = name.rpartition(":")
        self.name, self.code, self.until = name, FileRef.read(path), until
        load_function(name, self.code)
        self.methods = tuple(parse_list(METHODS, until) if methods is None else methods)
        if any(method.name == "smoothing" for method in self.methods):
            raise OwnTrainingError(
                "smoothing needs the number of classes, which is not known here. Use the "
                "label_smoothing of your loss."
            )
        self.seeds, title = tuple(seeds), self.code.path.stem
        self.out = (out or Path("out") / f"compare-{title}").absolute()
        recipe = {"train": {**self.code.as_dict(), "function": function}}
        make = partial(Cell, dataset=title, fingerprint="", train_size=0, recipe=recipe)
        self.cells = tuple(make(method=m.label, seed=s) for s in self.seeds for m in self.methods)


def load_function(name: str, code: FileRef) -> Callable[..., Any]:
    """The function FILE.py:FUNCTION of a file, which is run with its folder on sys.path."""
    path, function = code.check(), name.rpartition(":")[2]
    module = ModuleType(f"zetamix_train_{code.sha256[:12]}")
    module.__file__ = str(path)
    # where pickle and dataclasses look for it
    sys.modules[module.__name__] = module
    sys.path.insert(0, str(path.parent))
    try:
        SourceFileLoader(module.__name__, str(path)).exec_module(module)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise OwnTrainingError(
            f"{path} cannot be imported: {type(error).__name__}: {str(error).rstrip('.')} "
            f"({Path(last.filename).name}, line {last.lineno})."
        ) from error
    finally:
        sys.path.remove(str(path.parent))
    found: Callable[..., Any] | None = getattr(module, function, None)
    if not callable(found):
        names = [key for key, value in vars(module).items() if callable(value)]
        raise OwnTrainingError(
            f"{path.name} has no function {function!r}.{did_you_mean(function, names)}"
        )
    return found


def call(grid: OwnGrid, runs: Path, job: Job, send: Send, stopped: Stop) -> None:
    """Call a user's function for one cell; workers run this, a process for each.

    runs: the folder of the runs.
    """
    began, (cell,) = time.monotonic(), job.cells
    folder = RunFolder(runs / cell.folder, cell)

    def end_when_stopped() -> None:
        # the function cannot be asked to save
        while not stopped():
            time.sleep(POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=end_when_stopped, daemon=True).start()
    kind, _, index = (job.device or "").partition(":")
    if kind == "cpu" or index:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        chosen = visible.split(",")[int(index)] if visible and index else index
        os.environ["CUDA_VISIBLE_DEVICES"] = chosen
    try:
        with hold([folder.path], wait=ORPHAN_SECONDS):
            folder.open(cell, 0)
            send(("progress", cell.key, (0.0, 0.0, {})))
            log = os.open(folder.path / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for stream in (1, 2):
                os.dup2(log, stream)
            method, files = parse(cell.method), folder.path / FILES
            files.mkdir(exist_ok=True)
            # for soft targets: the number of classes is not known
            build = BUILDERS.get(method.name, partial(Mixup, p=0.0))
            found = load_function(grid.name, grid.code)(build(**method.values), cell.seed, files)
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
        text = f"{type(error).__name__}: {error} (see {'/'.join(folder.path.parts[-2:])}/{LOG})."
        own = isinstance(error, OwnTrainingError)
        send(("failure", cell.key, describe_failure(error) or (str(error) if own else text)))


def read_result(found: Any, expected: str) -> Result:
    """The metrics, and the logits and targets unless metrics are all that is found.

    Predictions are logits or probabilities: rows that are not negative and sum to 1 or, of several
    labels per sample, numbers in [0, 1].

    expected: the beginning of the message for anything else.
    """
    try:
        if isinstance(found, Mapping) and found:
            return _fractions({str(name): float(value) for name, value in found.items()}), None
        scores, targets = (torch.as_tensor(part).detach().cpu() for part in found)
        several = targets.ndim == 2
        if scores.ndim != 2 or not targets.numel() or scores.shape[: 1 + several] != targets.shape:
            raise ValueError(f"shapes {list(scores.shape)} and {list(targets.shape)}")
        classes = torch.arange(2 if several else scores.shape[1])
        if not torch.isin(targets.double(), classes.double()).all():
            raise ValueError(f"targets that are no whole numbers from 0 to {classes[-1]}")
    except (TypeError, ValueError, RuntimeError) as error:
        kind = type(found).__name__
        raise OwnTrainingError(f"{expected}, got {kind}: {reason(error)}.") from None
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
    rows, samples = dict[tuple[str, int, str], float](), dict[Key, SampleResults]()
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False, skipinitialspace=True)
        wanted = FILE_COLUMNS if "predictions" in table else COLUMNS
        if missing := [column for column in wanted if column not in table]:
            raise ValueError(f"it has no column {join(missing)}, but {join([*table.columns])}")
        for method, seed, *rest in table[[*wanted]].itertuples(index=False):
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
            rows |= {(*key, metric): value for metric, value in found.items()}
        # the other metrics are left out where one is missing, the one that decides is not
        first = next((metric for *_, metric in rows), None)
        for method, seed, _ in rows:
            if (method, seed, first) not in rows:
                raise ValueError(f"{method} seed {seed} has no {first}, which is the first metric")
        if not rows:
            raise ValueError("it has no rows")
    except (TypeError, ValueError, KeyError) as error:
        raise OwnTrainingError(f"{path}: {reason(error)}. Expected {TABLE}.") from None
    runs = pd.DataFrame([(path.stem, *key, rows[key]) for key in rows], columns=[*KEYS, "value"])
    return Comparison(
        requested=tuple(runs["method"].unique()),
        seeds=tuple(sorted(runs["seed"].unique().tolist())),
        given=runs,
        samples=samples,
        name=path.stem,
    )
