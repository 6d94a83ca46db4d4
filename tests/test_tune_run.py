"""A search from its first trial to the final test, in this process."""

import json
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from optuna.trial import TrialState
from scipy import stats
from tuning import RECIPE, hasty_sqlite, make_dataset, make_spec, make_trial, make_tuning, search

from zetamix.data import DataError
from zetamix.experiments.executor import Channel
from zetamix.experiments.progress import Snapshot
from zetamix.experiments.tune import StudyError, make_plan
from zetamix.experiments.tune.objective import Objective
from zetamix.experiments.tune.run import (
    FIRST_TEST_SEED,
    WorkerJob,
    make_candidates,
    plan_workers,
    run_trials,
)
from zetamix.experiments.tune.storage import sqlite_url
from zetamix.experiments.tune.study import SearchProgress, WorkerSettings, open_study, read_trials
from zetamix.records import read_lines
from zetamix.results.tuning import differences

pytestmark = pytest.mark.usefixtures(hasty_sqlite.__name__)


def records(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("record.json")}


def curve(folder, index=0):
    return list(read_lines(folder / f"trials/{index:04d}/metrics.jsonl"))


# the whole of it


def test_a_search_and_its_test(tmp_path):
    seen = []
    tuning = search(tmp_path, trials=3, test_seeds=2, watch=seen.append)
    assert [trial.state for trial in tuning.trials] == ["complete"] * 3
    assert tuning.finished
    for trial in tuning.trials:
        assert list(trial.curve) == list(range(1, RECIPE.epochs + 1))
        assert trial.value == trial.curve[RECIPE.epochs] == trial.scores["error"]
        assert trial.standard_error > 0
        assert trial.seed == trial.number
        folder = tmp_path / "trials" / f"{trial.number:04d}"
        assert {path.name for path in folder.iterdir()} >= {"cell.json", "record.json"}
        # a search looks for a setting, not for models
        assert not list(folder.glob("*.pt"))
    assert tuning.chosen.value == min(trial.value for trial in tuning.trials)
    assert [result.name for result in tuning.tested] == [
        "none",
        "zetamix",
        "zeta:2.8",
        "chosen",
    ]
    for result in tuning.tested:
        seeds = [record.cell.seed for record in result.records]
        assert seeds == [FIRST_TEST_SEED, FIRST_TEST_SEED + 1]
        assert all(record.test_size == 60 for record in result.records)
        assert all(record.cell.train_size == 120 for record in result.records)
    assert tuning.settings_tested == 1
    last = [progress for progress in seen if isinstance(progress, SearchProgress)][-1]
    assert (last.done, last.total, last.running) == (3, 3, {})
    assert isinstance(seen[-1], Snapshot)
    assert seen[-1].count("done") == 8


def test_the_same_call_trains_nothing_and_more_trials_train_the_missing_ones(tmp_path):
    first = search(tmp_path, trials=2, test_seeds=1)
    before = records(tmp_path)
    again = search(tmp_path, trials=2, test_seeds=1)
    assert records(tmp_path) == before
    assert again.trials == first.trials
    assert again.tested == first.tested
    more = search(tmp_path, trials=4, test_seeds=1)
    assert more.trials[:2] == first.trials
    assert len(more.trials) == 4
    assert more.settings_tested == 1 + (more.chosen.setting != first.chosen.setting)
    # baselines are not tested again
    assert records(tmp_path).items() >= before.items()


def test_a_grid_and_more_seeds_of_it(tmp_path):
    spec = make_spec("gamma=2:3:0.5")
    tuning = search(tmp_path, spec, sampler="grid", seeds=(0, 4))
    assert [(trial.seed, trial.gamma) for trial in tuning.trials] == [
        (seed, gamma) for seed in (0, 4) for gamma in (2.0, 2.5, 3.0)
    ]
    before = records(tmp_path)
    tuning = search(tmp_path, spec, sampler="grid", seeds=(0, 4, 5))
    assert len(records(tmp_path)) - len(before) == 3
    assert tuning.chosen.n == 3
    with pytest.raises(StudyError, match=r"was trained with seeds 0, 4, 5\. Start --seeds with"):
        search(tmp_path, spec, sampler="grid", seeds=(7,))
    assert len(search(tmp_path, spec, sampler="grid", seeds=(0,)).trials) == 9


# interruptions


def test_a_stopped_trial_resumes_from_its_checkpoint(tmp_path):
    """A trial of 60 epochs is stopped after some, and none of them is trained again."""
    spec = make_spec(recipe=RECIPE.change(epochs=60, evaluate_every=1))
    tuning = search(tmp_path, spec, trials=1, test_seeds=1, stop=lambda: len(curve(tmp_path)) > 3)
    before = curve(tmp_path)
    assert 3 < len(before) < 60
    assert (tuning.finished, tuning.trials, tuning.tested) == (False, (), ())
    tuning = search(tmp_path, spec, trials=1)
    after = curve(tmp_path)
    assert after[: len(before)] == before
    assert [line["epoch"] for line in after] == list(range(1, 61))
    (trial,) = tuning.trials
    assert list(trial.curve) == list(range(1, 61))
    assert not list((tmp_path / "trials/0000").glob("*.pt"))


def test_a_finished_run_without_a_result_in_the_study_is_not_trained_again(tmp_path):
    """Its process was killed after the record was written."""
    first = search(tmp_path, trials=1)
    before = records(tmp_path)
    for path in tmp_path.glob("study.db*"):
        path.unlink()
    again = search(tmp_path, trials=1)
    assert records(tmp_path) == before
    assert again.trials[0].value == first.trials[0].value
    assert again.trials[0].curve == first.trials[0].curve


def test_after_an_error_the_trial_is_retried_by_the_next_call(tmp_path):
    (tmp_path / "trials/0000").mkdir(parents=True)
    cell = tmp_path / "trials/0000/cell.json"
    cell.write_text("not a cell")
    with pytest.raises(ValueError, match=r"cell\.json"):
        search(tmp_path, trials=1)
    cell.unlink()
    tuning = search(tmp_path, trials=1)
    assert [(trial.seed, trial.state) for trial in tuning.trials] == [(0, "complete")]


def test_a_damaged_checkpoint_ends_the_search_and_not_its_trial(tmp_path):
    spec = make_spec(recipe=RECIPE.change(epochs=60, evaluate_every=1))
    search(tmp_path, spec, trials=1, stop=lambda: len(curve(tmp_path)) > 3)
    checkpoint = tmp_path / "trials/0000/checkpoint.pt"
    checkpoint.write_bytes(b"damaged")
    with pytest.raises(StudyError, match=r"checkpoint\.pt"):
        search(tmp_path, spec, trials=1)
    checkpoint.unlink()
    assert [trial.state for trial in search(tmp_path, spec, trials=1).trials] == ["complete"]


def test_commands_that_share_a_study_train_every_trial_once(tmp_path):
    """Threads stand in for commands; each trains its own part."""
    spec = make_spec(recipe=RECIPE.change(epochs=1))
    plan = make_plan(spec, "random", 8, False)
    settings = WorkerSettings("study", spec, plan, tmp_path)
    job = WorkerJob(sqlite_url(tmp_path / "study.db"), "cpu", 1)
    errors = []

    def command():
        try:
            for _ in range(5):
                run_trials(job, settings, Channel())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=command) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    trials = read_trials(open_study(job.url, settings), spec)
    assert [trial.seed for trial in trials] == list(range(8))
    assert all(trial.state == "complete" for trial in trials)
    assert len(list((tmp_path / "trials").iterdir())) == 8


# results that are none


def test_diverged_trials_are_counted_and_not_chosen(tmp_path):
    tuning = search(tmp_path, make_spec("gamma=2..3,lr=1e30"), trials=2)
    assert [(trial.state, trial.value) for trial in tuning.trials] == [("diverged", None)] * 2
    assert tuning.finished
    assert (tuning.chosen, tuning.tested) == (None, ())


def test_a_metric_that_is_nan_is_no_result(tmp_path):
    """The AUC needs two classes; this validation split has one."""
    dataset = make_dataset()
    one = dataset.val.keep((dataset.val.labels == 0).nonzero().squeeze(1))
    tuning = search(tmp_path, make_spec(dataset=replace(dataset, val=one), metric="auc"), trials=1)
    assert [trial.state for trial in tuning.trials] == ["diverged"]


def test_a_trial_that_is_out_of_memory_does_not_end_the_study(tmp_path, monkeypatch):
    linear = torch.nn.Linear.forward

    def forward(layer, samples):
        if torch.is_grad_enabled() and len(samples) == 16:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")
        return linear(layer, samples)

    monkeypatch.setattr(torch.nn.Linear, "forward", forward)
    spec = make_spec("gamma=2|3,batch_size=8|16")
    tuning = search(tmp_path, spec, sampler="grid", seeds=(0,))
    assert [(t.setting["batch_size"], t.state) for t in tuning.trials] == [
        (8, "complete"),
        (16, "failed"),
    ] * 2
    assert tuning.finished
    assert tuning.chosen.setting["batch_size"] == 8
    # a rerun does not try them again
    before = records(tmp_path)
    assert search(tmp_path, spec, sampler="grid", seeds=(0,)).trials == tuning.trials
    assert records(tmp_path) == before


def test_without_a_test_split_a_setting_can_still_be_chosen(tmp_path):
    spec = make_spec(dataset=replace(make_dataset(), test=None))
    with pytest.raises(DataError, match=r"blobs has no test split.*--test-seeds 0"):
        search(tmp_path, spec, trials=1, test_seeds=1)
    assert search(tmp_path, spec, trials=1).chosen is not None


# workers


@pytest.mark.parametrize(
    ("jobs", "backend", "device", "gpus", "expected"),
    [
        (None, "local", None, 0, (1, [None], None)),
        (3, "local", "cpu", 2, (1, ["cpu"], 3)),
        (None, "local", None, 1, (4, ["cuda:0"], 1)),
        (6, "local", "cuda", 1, (6, ["cuda:0"], 1)),
        (6, "local", None, 2, (3, ["cuda:0", "cuda:1"], 2)),
        (5, "local", "cuda:1", 2, (5, ["cuda:1"], 1)),
        (None, "ray", None, 2, (1, [None], None)),
    ],
)
def test_processes_on_a_cpu_and_threads_on_a_gpu(jobs, backend, device, gpus, expected):
    assert plan_workers(jobs, backend, device, gpus) == expected


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_threads_of_one_process_train_the_models_of_a_sequential_search(device, tmp_path):
    spec = make_spec()
    plan = make_plan(spec, "random", 5, False)
    job = WorkerJob(sqlite_url(tmp_path / "study.db"), device, 3)
    settings = WorkerSettings("study", spec, plan, tmp_path)
    run_trials(job, settings, Channel())
    side_by_side = read_trials(open_study(job.url, settings), spec)
    options = {"sampler": "random", "prune": False, "device": device}
    alone = search(tmp_path / "alone", spec, trials=5, **options)
    assert [(t.setting, t.seed, t.value) for t in side_by_side] == [
        (t.setting, t.seed, t.value) for t in alone.trials
    ]


def test_hopeless_trials_are_pruned_while_they_train(tmp_path):
    spec = make_spec("lr=0.05|1e-9", recipe=RECIPE.change(epochs=12))
    tuning = search(tmp_path, spec, trials=24, sampler="random")
    states = {trial.setting["lr"]: set() for trial in tuning.trials}
    for trial in tuning.trials:
        states[trial.setting["lr"]].add(trial.state)
        if trial.state == "pruned":
            assert max(trial.curve) < 12
            assert trial.value == trial.curve[max(trial.curve)]
    assert "pruned" in states[1e-9]
    assert "complete" in states[0.05]


def test_a_folder_in_use_is_waited_for(tmp_path):
    (tmp_path / "trials/0000").mkdir(parents=True)
    lock = FileLock(tmp_path / "trials/0000/.lock", thread_local=False)
    lock.acquire()
    timer = threading.Timer(0.5, lock.release)
    timer.start()
    assert search(tmp_path, trials=1).trials[0].state == "complete"
    timer.join()


def test_a_trial_taken_over_at_its_very_end_is_no_error(tmp_path, monkeypatch):
    spec = make_spec()
    settings = WorkerSettings("study", spec, make_plan(spec, "random", 1), tmp_path)
    job = WorkerJob(sqlite_url(tmp_path / "study.db"), "cpu", 1)

    def taken_over(objective, trial):
        trial.storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
        return 0.5

    monkeypatch.setattr(Objective, "__call__", taken_over)
    run_trials(job, settings, Channel())

    def broken(objective, trial):
        raise AssertionError("ours")

    monkeypatch.setattr(Objective, "__call__", broken)
    with pytest.raises(AssertionError, match="ours"):
        run_trials(job, settings, Channel())


def test_a_worker_of_another_machine_trains_in_a_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    spec = make_spec()
    plan = make_plan(spec, "random", 1)
    settings = WorkerSettings("study", spec, plan, tmp_path, token="another")
    run_trials(WorkerJob(sqlite_url(tmp_path / "study.db"), "cpu", 1), settings, Channel())
    assert not (tmp_path / "trials").exists()
    assert (tmp_path / "temporary/zetamix-another/trials/0000/record.json").exists()


# the final test


def test_a_test_by_another_command_is_waited_for_until_a_stop(tmp_path):
    """Its records would be used; a stop ends the waiting."""
    first = search(tmp_path, trials=1)
    lock = FileLock(tmp_path / ".test.lock")
    with lock:
        stops = iter([False] * 20)
        tuning = search(tmp_path, trials=1, test_seeds=1, stop=lambda: next(stops, True))
    assert (tuning.trials, tuning.tested) == (first.trials, ())
    assert len(search(tmp_path, trials=1, test_seeds=1).tested) == 4


def test_where_the_recipe_is_searched_the_baselines_get_the_same_search(tmp_path):
    spec = make_spec("gamma=2.4|3.0,weight_decay=1e-4|2e-3")
    seen = []
    tuning = search(tmp_path, spec, trials=2, test_seeds=1, watch=seen.append)
    found = {progress.baseline: progress for progress in seen if hasattr(progress, "baseline")}
    baselines = ["none", "zetamix", "zeta:2.8"]
    assert list(found) == ["", *baselines]
    for name in baselines:
        assert (found[name].done, found[name].total) == (2, 2)
        # of the recipe alone, scored as the other trials
        assert list(found[name].best.setting) == ["weight_decay"]
    chosen = {c.name: c.recipe.weight_decay for c in tuning.tested}
    for name in baselines:
        assert chosen[name] == found[name].best.setting["weight_decay"]
        folder = tmp_path / "baselines" / name.replace(":", "-") / "trials" / "0000"
        assert json.loads((folder / "cell.json").read_text())["method"] == name
    assert chosen["chosen"] == tuning.chosen.setting["weight_decay"]
    # all of it is kept
    seen.clear()
    again = search(tmp_path, spec, trials=2, test_seeds=1, watch=seen.append)
    assert again.tested == tuning.tested


def test_a_grid_of_the_recipe_is_one_for_the_baselines_too(tmp_path):
    spec = make_spec("gamma=2.4|3.0,weight_decay=1e-4|2e-3")
    seen = []
    search(tmp_path, spec, sampler="grid", seeds=(0,), test_seeds=1, watch=seen.append)
    totals = {p.baseline: p.total for p in seen if hasattr(p, "baseline")}
    assert totals == {"": 4, "none": 2, "zetamix": 2, "zeta:2.8": 2}


def test_where_gamma_alone_is_searched_the_baselines_keep_the_recipe(tmp_path):
    seen = []
    spec = make_spec("gamma=2.4|3.0,weight_decay=1e-4")
    tuning = search(tmp_path, spec, trials=1, test_seeds=1, watch=seen.append)
    assert {progress.baseline for progress in seen if hasattr(progress, "baseline")} == {""}
    # a value that is set, and not searched, holds for all
    assert [c.recipe.weight_decay for c in tuning.tested] == [1e-4] * 4


def test_the_default_gamma_is_not_trained_twice():
    spec = make_spec("gamma=2.4|2.8")
    recipes = dict.fromkeys(("none", "zeta:2.8"), spec.recipe)
    names = [c.name for c in make_candidates(spec, {"gamma": 2.8}, recipes)]
    assert names == ["none", "chosen"]


def tuning_with(errors):
    return make_tuning([make_trial(0, 0.1, gamma=2.4, weight_decay=1e-4)], errors=errors)


def test_differences_are_paired_by_seed_and_corrected():
    errors = {"none": [0.10, 0.14, 0.12], "zeta:2.8": [0.1] * 3, "chosen": [0.08, 0.11, 0.10]}
    none, default = differences(tuning_with(errors).tested, "error")
    expected = stats.ttest_rel(errors["chosen"], errors["none"])
    interval = expected.confidence_interval(0.95)
    assert none.baseline == "none"
    assert (none.low, none.high) == pytest.approx((interval.low, interval.high))
    assert none.p_holm == pytest.approx(2 * expected.pvalue)
    assert not default.significant
    one = {name: values[:1] for name, values in errors.items()}
    assert differences(tuning_with(one).tested, "error")[0].low is None


def test_equal_differences_are_no_certainty():
    """Three seeds that all differ by two of 1,000 samples: no deviation, but no proof."""
    errors = {"none": [0.012, 0.022, 0.032], "zeta:2.8": [0.1] * 3, "chosen": [0.01, 0.02, 0.03]}
    none = differences(tuning_with(errors).tested, "error")[0]
    half = stats.t.ppf(0.975, 2) * 0.001 / 6**0.5 / 3**0.5
    assert none.high - none.low == pytest.approx(2 * half)


def test_another_choice_is_another_test_and_is_counted(tmp_path):
    spec = make_spec("gamma=1..6")
    search(tmp_path, spec, trials=1, test_seeds=1)
    assert search(tmp_path, spec, trials=1, test_seeds=1).settings_tested == 1
    plan = make_plan(spec, trials=2)
    settings = WorkerSettings("tune-blobs", spec, plan, tmp_path)
    study = open_study(sqlite_url(tmp_path / "study.db"), settings)
    with pytest.warns(UserWarning, match="Heartbeat"):
        trial = study.ask(spec.space.distributions())
    trial.set_user_attr("scores", {"nll": 0.0})
    study.tell(trial, 0.0)
    before = records(tmp_path)
    tuning = search(tmp_path, spec, trials=2, test_seeds=1)
    assert tuning.settings_tested == 2
    # the baselines were tested already
    assert len(records(tmp_path)) - len(before) == 1
    assert len(list(Path(tmp_path / "test").iterdir())) == 5
