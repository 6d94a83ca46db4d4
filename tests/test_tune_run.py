"""A search from its first trial to the test split, in this process."""

import json
import math
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from scipy import stats
from tuning import (
    RECIPE,
    hasty_sqlite,
    make_dataset,
    make_question,
    make_study,
    make_trial,
    make_tuning,
)

from zetamix.data import DataError
from zetamix.experiments.boards import STOP
from zetamix.experiments.tune import Evaluating, SpaceError, Standing, StudyError, make_plan
from zetamix.experiments.tune.crew import Crew, plan_places
from zetamix.experiments.tune.final import FIRST_SEED, contenders, differences
from zetamix.experiments.tune.oversee import overseeing
from zetamix.experiments.tune.run import tune
from zetamix.experiments.tune.search import idle, report, search
from zetamix.experiments.tune.work import Job, Task, _device, _Team, train_tasks
from zetamix.experiments.workers import FileBoard, Workers
from zetamix.methods import parse
from zetamix.provenance import machine_info
from zetamix.records import read_lines
from zetamix.report.tune import write_report
from zetamix.train import Run, train
from zetamix.train.step_timer import StepTimer

pytestmark = pytest.mark.usefixtures(hasty_sqlite.__name__)


def run(folder, question=None, *, trials=3, test_seeds=0, **how):
    question = make_question() if question is None else question
    given = {name: how.pop(name) for name in ("sampler", "seeds", "prune") if name in how}
    if given.get("sampler") == "grid":
        trials = None
    plan = make_plan(question, trials=trials, **given)
    return tune(question, plan, out=folder, test_seeds=test_seeds, jobs=1, device="cpu", **how)


@pytest.fixture
def trained(monkeypatch):
    """Names of the tasks that are trained while a test runs."""
    names = []

    def watching(job, shared, board):
        names.extend(task.name for task in job.tasks)
        return train_tasks(job, shared, board)

    monkeypatch.setattr("zetamix.experiments.tune.search.train_tasks", watching)
    monkeypatch.setattr("zetamix.experiments.tune.final.train_tasks", watching)
    return names


# the whole of it


def test_a_search_and_its_test(tmp_path, trained):
    seen = []
    found = run(tmp_path, trials=3, test_seeds=2, watch=seen.append)
    assert trained[:3] == ["0", "1", "2"]
    assert [trial.state for trial in found.trials] == ["complete"] * 3
    assert found.finished
    for trial in found.trials:
        assert len(trial.curve) == RECIPE.epochs
        assert trial.value == trial.curve[RECIPE.epochs] == trial.scores["error"]
        assert trial.error > 0
        folder = tmp_path / "trials" / f"{trial.number:04d}"
        # a setting is what is looked for, not a model
        assert {path.name for path in folder.iterdir()} >= {"cell.json", "record.json"}
        assert not list(folder.glob("*.pt"))
    assert found.chosen.value == min(trial.value for trial in found.trials)
    names = [each.contender.name for each in found.tested]
    assert names == ["none", "zeta:2.8", "chosen"]
    for each in found.tested:
        seeds = [record.cell.seed for record in each.records]
        assert seeds == [FIRST_SEED, FIRST_SEED + 1]
        # what was lucky while choosing is not lucky again
        assert not {*seeds} & set(range(200))
        assert all(record.test_size == 60 for record in each.records)
        assert all(record.cell.train_size == 120 for record in each.records)
    assert found.settings_tested == 1
    standings = [each for each in seen if isinstance(each, Standing)]
    assert (standings[-1].done, standings[-1].total) == (3, 3)
    assert seen[-1] == Evaluating(done=6, total=6, epochs=24.0, epochs_total=24)
    assert not list((tmp_path / ".commands").iterdir())


def test_the_same_call_again_trains_nothing_and_more_trials_what_is_missing(tmp_path, trained):
    first = run(tmp_path, trials=2, test_seeds=1)
    assert len(trained) == 2 + 3
    trained.clear()
    again = run(tmp_path, trials=2, test_seeds=1)
    assert trained == []
    assert again.trials == first.trials
    assert again.tested == first.tested
    more = run(tmp_path, trials=4, test_seeds=1)
    assert trained[:2] == ["2", "3"]
    assert more.trials[:2] == first.trials
    changed = more.chosen.setting != first.chosen.setting
    assert more.settings_tested == 1 + changed


def test_a_grid_and_more_seeds_of_it(tmp_path, trained):
    question = make_question("gamma=2:3:0.5")
    found = run(tmp_path, question, sampler="grid", seeds=2)
    assert [(trial.seed, trial.gamma) for trial in found.trials] == [
        (seed, gamma) for seed in (0, 1) for gamma in (2.0, 2.5, 3.0)
    ]
    assert found.chosen.n == 2
    trained.clear()
    found = run(tmp_path, question, sampler="grid", seeds=3)
    assert len(trained) == 3
    assert found.chosen.n == 3
    assert not found.prune


def test_the_papers_analysis_by_the_test_split_chooses_nothing(tmp_path):
    question = make_question("gamma=2:3:1", judge="test")
    found = run(tmp_path, question, sampler="grid", seeds=1, test_seeds=3)
    assert found.tested == ()
    record = json.loads((tmp_path / "trials/0000/record.json").read_text())
    assert record["cell"]["fingerprint"] == question.dataset.fingerprint


def test_stopped_between_trials(tmp_path, trained):
    found = run(tmp_path, trials=5, test_seeds=1, stop=lambda: len(trained) >= 2)
    assert not found.finished
    assert found.tested == ()
    assert len(found.trials) <= 2
    found = run(tmp_path, trials=5)
    assert found.finished
    assert len({trial.seed for trial in found.trials}) == 5


def test_stopped_within_a_trial_it_goes_on_from_there(tmp_path, monkeypatch):
    """A trial of 60 epochs is stopped after some, and not one of them is trained again."""
    monkeypatch.setattr("zetamix.experiments.tune.oversee.EVERY", 0.05)
    monkeypatch.setattr("zetamix.experiments.tune.work.EVERY", 0.05)
    question = make_question(recipe=RECIPE.change(epochs=60, evaluate_every=1))
    curve = tmp_path / "trials/0000/metrics.jsonl"
    began = time.monotonic()

    def stop():
        assert time.monotonic() - began < 60
        return curve.exists() and len(list(read_lines(curve))) > 3

    run(tmp_path, question, trials=1, stop=stop)
    before = list(read_lines(curve))
    assert 3 < len(before) < 60
    found = run(tmp_path, question, trials=1)
    after = list(read_lines(curve))
    assert after[: len(before)] == before
    assert [line["epoch"] for line in after] == list(range(1, 61))
    (trial,) = found.trials
    assert list(trial.curve) == list(range(1, 61))
    assert not list((tmp_path / "trials/0000").glob("*.pt"))


def test_a_finished_run_that_nobody_was_told_of_is_not_trained_again(tmp_path, monkeypatch):
    first = run(tmp_path, trials=1)
    for name in ("study.db", "study.db.lock"):
        (tmp_path / name).unlink()
    monkeypatch.setattr(Run, "advance", lambda self: pytest.fail("trained again"))
    again = run(tmp_path, trials=1)
    assert (again.trials[0].value, again.trials[0].curve) == (
        first.trials[0].value,
        first.trials[0].curve,
    )


def test_a_loss_that_is_not_finite_is_a_bad_setting_and_no_end(tmp_path):
    question = make_question("gamma=2..3,lr=1e30")
    found = run(tmp_path, question, trials=2)
    assert [trial.state for trial in found.trials] == ["diverged", "diverged"]
    assert found.finished
    assert found.chosen is None
    assert found.tested == ()


def test_a_measure_that_is_not_a_number_is_no_result(tmp_path):
    """The area under the curve needs two classes; this split has one."""
    dataset = make_dataset()
    one = dataset.val.keep((dataset.val.labels == 0).nonzero().squeeze(1))
    question = make_question(dataset=replace(dataset, val=one), metric="auc")
    found = run(tmp_path, question, trials=1)
    assert [trial.state for trial in found.trials] == ["diverged"]


def test_an_error_gives_the_trial_back(tmp_path, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(
            "zetamix.experiments.tune.search.train_tasks",
            lambda *_: (_ for _ in ()).throw(MemoryError("full")),
        )
        with pytest.raises(MemoryError, match="full"):
            run(tmp_path, trials=1)
    found = run(tmp_path, trials=1)
    assert [(trial.seed, trial.state) for trial in found.trials] == [(0, "complete")]


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StudyError) as caught:
        run(tmp_path / "file" / "out")
    assert str(caught.value) == (
        f"Cannot write to {tmp_path}/file/out: Not a directory. Choose another --out."
    )


def test_without_a_test_split_a_setting_can_still_be_chosen(tmp_path):
    question = make_question(dataset=replace(make_dataset(), test=None))
    with pytest.raises(DataError) as caught:
        run(tmp_path, question, trials=1, test_seeds=1)
    assert str(caught.value) == (
        "blobs has no test split to try the chosen setting on. Add --test-seeds 0 to choose "
        "without it."
    )
    found = run(tmp_path, question, trials=1)
    assert found.chosen is not None
    page = write_report(found, tmp_path, {**machine_info(torch.device("cpu"))})
    assert "There is no test split to try the chosen setting on." in page.read_text()


def test_plain_runs_need_nothing_but_training():
    """On a machine with a GPU and little else: no Optuna, no joblib, nothing to draw with."""
    program = (
        "import sys; sys.modules.update(dict.fromkeys(['optuna', 'sqlalchemy', 'joblib', 'ray'])); "
        "from zetamix.experiments.tune import random_settings, trials_from_records, parse_space; "
        "print(len(random_settings(parse_space('gamma=1..6'), 3)), 'zetamix.report' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "3 False", done.stderr


def test_without_optuna_the_package_is_named(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("zetamix.experiments.tune.st")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(StudyError) as caught:
        run(tmp_path)
    assert str(caught.value) == "Tuning needs optuna: pip install 'zetamix[tune]'"


# plans


@pytest.mark.parametrize(
    ("space", "change", "message"),
    [
        (
            "gamma=1..6",
            {"sampler": "luck"},
            "sampler must be one of tpe, grid, random, got 'luck'.",
        ),
        ("gamma=1..6", {"trials": 0}, "trials must be at least 1, got 0."),
        (
            "gamma=1..6",
            {"seeds": 3},
            "seeds are for a grid, got 3 for tpe: there every trial has its own.",
        ),
        ("gamma=2", {}, "Nothing to search: every parameter of gamma=2 has one value."),
        (
            "gamma=1:2:1",
            {"sampler": "grid", "trials": 5},
            "A grid has as many trials as places and seeds, got trials=5. Leave it out.",
        ),
        (
            "gamma=1:2:1",
            {"sampler": "grid", "prune": True},
            "A grid is trained whole, so that its curve can be read; leave prune out.",
        ),
        ("gamma=1:2:1", {"sampler": "grid", "seeds": 0}, "seeds must be at least 1, got 0."),
    ],
)
def test_a_plan_that_makes_no_sense_is_told(space, change, message):
    with pytest.raises(SpaceError) as caught:
        make_plan(make_question(space), **change)
    assert str(caught.value) == message


def test_plans():
    sweep = make_plan(make_question())
    assert (sweep.sampler, sweep.trials, sweep.prune) == ("tpe", 200, True)
    grid = make_plan(make_question("gamma=1.8:5.0:0.2", seed=4), "grid")
    assert (grid.trials, grid.seeds, grid.prune) == (51, (4, 5, 6), False)


@pytest.mark.parametrize(
    ("jobs", "backend", "device", "gpus", "expected"),
    [
        (None, "local", None, 0, (None, 1)),
        (3, "local", "cpu", 2, (3, 1)),
        (None, "local", None, 1, (1, 4)),
        (6, "local", "cuda", 1, (1, 6)),
        (None, "local", None, 2, (2, 4)),
        (6, "local", None, 2, (2, 3)),
        (5, "local", "cuda:1", 2, (1, 5)),
        (None, "ray", None, 2, (None, 1)),
    ],
)
def test_processes_on_a_cpu_and_models_side_by_side_on_a_gpu(
    jobs, backend, device, gpus, expected, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert plan_places(jobs, backend, device) == expected


# workers


def make_job(folder, names=("0",), epochs=3, **change):
    question = make_question()
    tasks = tuple(
        Task(name, "zeta:2.4", RECIPE.change(epochs=epochs), int(name), f"trials/{name}")
        for name in names
    )
    (folder / ".here").write_text("token")
    whole = Job(
        tasks=tasks,
        metric="error",
        judge="val",
        held_out=False,
        fingerprint=question.seen().fingerprint,
        home=folder,
        token="token",
        device="cpu",
    )
    return replace(whole, **change), question.seen()


@pytest.fixture
def board(tmp_path):
    return FileBoard(tmp_path / "board")


def test_models_side_by_side_are_those_one_alone_would_be(tmp_path, board):
    job, dataset = make_job(tmp_path, ("0", "1", "2"))
    ended = train_tasks(job, dataset, board)
    for task in job.tasks:
        out = tmp_path / "alone" / task.name
        alone = Run(dataset, parse(task.method), task.recipe, seed=task.seed, out=out)
        (record,) = train([alone]).records
        assert ended[task.name].how == "complete"
        assert ended[task.name].record.last == record.last
        assert ended[task.name].record.step_ms > 0
        assert ended[task.name].record.extra["concurrent"] == 3
        assert ended[task.name].curve[3] == record.last["error"]
    word = board.get("1")
    assert [epoch for epoch, _ in word["curve"]] == [1, 2, 3]


def test_a_model_is_ended_when_told_and_the_others_go_on(tmp_path, board, monkeypatch):
    monkeypatch.setattr("zetamix.experiments.tune.work.EVERY", 0.0)
    board.put("end-1", {"how": "prune"})
    job, dataset = make_job(tmp_path, ("0", "1"), save_every=0.0)
    ended = train_tasks(job, dataset, board)
    assert {name: each.how for name, each in ended.items()} == {"0": "complete", "1": "prune"}
    assert ended["1"].record is None
    assert len(ended["1"].curve) < 3
    assert not list((tmp_path / "trials/1").glob("*.pt"))


def test_steps_under_way_end_before_a_model_is_given_up(tmp_path, board, monkeypatch):
    monkeypatch.setattr("zetamix.experiments.tune.work.EVERY", 0.0)
    board.put("end-1", {"how": "prune"})
    job, dataset = make_job(tmp_path, ("1",))
    seen = []
    monkeypatch.setattr(StepTimer, "finish", lambda clock: seen.append("finish"))
    given_up = _Team._end
    monkeypatch.setattr(_Team, "_end", lambda *it: (seen.append("end"), given_up(*it)))
    train_tasks(job, dataset, board)
    assert seen[-2:] == ["finish", "end"]


def test_one_model_joins_in_each_round(tmp_path, board, monkeypatch):
    job, dataset = make_job(tmp_path, ("0", "1", "2"))
    seen = []
    whole = Run.share
    monkeypatch.setattr(
        Run, "share", lambda run, runs: (seen.append((run.seed, runs)), whole(run, runs))
    )
    train_tasks(job, dataset, board)
    first, second, third = (task.seed for task in job.tasks)
    assert seen[:6] == [(first, 1), (first, 2), (second, 2), (first, 3), (second, 3), (third, 3)]


def test_one_that_diverges_does_not_stop_the_others(tmp_path, board):
    job, dataset = make_job(tmp_path, ("0", "1"))
    wild = replace(job.tasks[1], recipe=RECIPE.change(lr=1e30))
    ended = train_tasks(replace(job, tasks=(job.tasks[0], wild)), dataset, board)
    assert {name: each.how for name, each in ended.items()} == {"0": "complete", "1": "diverged"}


def test_an_error_of_one_saves_the_others(tmp_path, board, monkeypatch):
    job, dataset = make_job(tmp_path, ("0", "1"), epochs=50)
    whole = Run.advance

    def breaking(run):
        for count, word in enumerate(whole(run)):
            if run.seed == 1 and count == 30:
                raise MemoryError("full")
            yield word

    monkeypatch.setattr(Run, "advance", breaking)
    with pytest.raises(MemoryError, match="full"):
        train_tasks(job, dataset, board)
    assert (tmp_path / "trials/0/checkpoint.pt").exists()
    # within a step nothing can be saved
    assert not (tmp_path / "trials/1/checkpoint.pt").exists()


def test_told_to_stop_everything_is_saved(tmp_path, board):
    board.put(STOP, {})
    job, dataset = make_job(tmp_path, ("0", "1"))
    ended = train_tasks(job, dataset, board)
    assert {each.how for each in ended.values()} == {"stopped"}


def test_a_folder_in_use_is_waited_for(tmp_path, board, monkeypatch):
    monkeypatch.setattr("zetamix.experiments.tune.work.EVERY", 0.05)
    job, dataset = make_job(tmp_path)
    lock = FileLock(tmp_path / "trials/0/.lock")
    (tmp_path / "trials/0").mkdir(parents=True)
    lock.acquire()
    waited = []

    def later(contact):
        waited.append(1)
        if len(waited) == 3:
            lock.release(force=True)
        return False

    monkeypatch.setattr("zetamix.experiments.workers.Contact.stopped", later)
    assert train_tasks(job, dataset, board)["0"].how == "complete"
    assert len(waited) >= 3


def test_a_folder_of_the_same_name_elsewhere_is_not_home(tmp_path, board, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "their temporary files"))
    job, dataset = make_job(tmp_path, token="another")
    assert train_tasks(job, dataset, board)["0"].how == "complete"
    assert not (tmp_path / "trials").exists()
    assert (tmp_path / "their temporary files/zetamix-another/trials/0/record.json").exists()


def test_two_processes_take_two_gpus(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with _device("cuda", tmp_path) as first, _device("cuda", tmp_path) as second:
        assert {str(first), str(second)} == {"cuda:0", "cuda:1"}
    with _device("cuda", tmp_path) as again:
        assert str(again) == "cuda:0"
    with _device("cuda:1", tmp_path) as named, _device("cpu", tmp_path) as processor:
        assert (str(named), str(processor)) == ("cuda:1", "cpu")
    torch.backends.cudnn.benchmark = False


# looking after workers


def test_what_goes_wrong_while_looking_stops_the_workers_and_is_raised(tmp_path, monkeypatch):
    monkeypatch.setattr("zetamix.experiments.tune.oversee.EVERY", 0.01)
    workers = Workers(1, FileBoard(tmp_path))
    looks = []

    def look():
        looks.append(1)
        raise StudyError("gone")

    def wait_for_it():
        with overseeing(workers, lambda: False, look) as stopped:
            while not stopped():
                time.sleep(0.01)
            time.sleep(0.1)

    with pytest.raises(StudyError, match="gone"):
        wait_for_it()
    assert workers.board.get(STOP) is not None
    assert len(looks) == 1


def test_an_error_of_a_claim_is_raised(tmp_path, monkeypatch):
    with make_study(tmp_path) as study:
        crew = Crew(
            Workers(1, FileBoard(tmp_path / "board")),
            study.question,
            tmp_path,
            "token",
            "cpu",
            False,
            60.0,
            1,
        )
        monkeypatch.setattr(study, "claim", lambda: (_ for _ in ()).throw(StudyError("gone")))
        with pytest.raises(StudyError, match="gone"):
            search(study, crew, lambda progress: None, lambda: False)


def test_hopeless_trials_are_told_to_end(tmp_path):
    question = make_question(recipe=RECIPE.change(epochs=6))
    workers = Workers(1, FileBoard(tmp_path / "board"))
    with make_study(tmp_path, question, trials=9, prune=True) as study:
        for _ in range(5):
            claim = study.claim()
            study.report(claim.number, {1: 0.2, 2: 0.2})
            study.complete(claim.number, 0.1, {})
        bad, good = study.claim(), study.claim()
        for claim, value in ((bad, 0.9), (good, 0.1)):
            word = {"epochs": 2.0, "curve": [[1, value], [2, value]]}
            workers.board.put(str(claim.number), word)
        # a word of a trial that is over
        workers.board.put("0", {"epochs": 2.0, "curve": []})
        report(study, workers)
        assert workers.board.get(f"end-{bad.number}") == {"how": "prune"}
        assert workers.board.get(f"end-{good.number}") is None
        assert workers.board.get("end-0") is None


def test_only_what_a_worker_is_at_is_running(tmp_path):
    workers = Workers(2, FileBoard(tmp_path / "board"))
    with make_study(tmp_path, trials=4) as study:
        study.complete(study.claim().number, 0.1, {"seconds": 1.0})
        ended, trained, waiting = (study.claim() for _ in range(3))
        workers.board.put(str(ended.number), {"epochs": 4.0, "curve": [], "ended": "complete"})
        workers.board.put(str(trained.number), {"epochs": 0.0, "curve": []})
        found = study.standing(idle(study, workers))
        assert list(found.running) == [trained.number]
        assert waiting.number not in found.running
        # nor does it take longer while one waits for its worker
        assert found.seconds_left == study.standing().seconds_left
        # those of other commands are theirs to know
        with make_study(tmp_path, trials=4) as other:
            assert len(other.standing(idle(other, workers)).running) == 3


def test_a_worker_tells_when_it_begins_and_when_it_ends(tmp_path):
    told = []

    class Heard(FileBoard):
        def put(self, name, word):
            told.append((name, word["epochs"], word.get("ended")))
            super().put(name, word)

    train_tasks(*make_job(tmp_path), Heard(tmp_path / "heard"))
    assert told[0] == ("0", 0.0, None)
    assert told[-1] == ("0", 3, "complete")


# the test split


def test_contenders_are_trained_by_the_recipe_as_it_is():
    question = make_question()
    found = contenders(question, {"gamma": 2.4, "weight_decay": 1e-4})
    assert [(each.name, each.method, each.recipe.weight_decay) for each in found] == [
        ("none", "none", 5e-4),
        ("zeta:2.8", "zeta:2.8", 5e-4),
        ("chosen", "zeta:2.4", 1e-4),
    ]


def test_the_default_is_not_trained_twice():
    question = make_question("gamma=2.4|2.8")
    assert [each.name for each in contenders(question, {"gamma": 2.8})] == ["none", "chosen"]


def test_differences_are_paired_by_seed():
    errors = {"none": [0.10, 0.14, 0.12], "zeta:2.8": [0.1] * 3, "chosen": [0.08, 0.11, 0.10]}
    tuning = make_tuning([make_trial(0, 0.1, gamma=2.4, weight_decay=1e-4)], errors=errors)
    none, default = differences(tuning.tested, "error")
    expected = stats.ttest_rel(errors["chosen"], errors["none"]).confidence_interval(0.95)
    assert none.reference == "none"
    assert math.isclose(none.low, expected.low)
    assert math.isclose(none.high, expected.high)
    assert none.excludes_zero
    assert not default.excludes_zero
    # one seed is no interval
    one = {name: values[:1] for name, values in errors.items()}
    tuning = make_tuning([make_trial(0, 0.1, gamma=2.4, weight_decay=1e-4)], errors=one)
    assert differences(tuning.tested, "error")[0].low is None


def test_equal_differences_are_no_certainty():
    """Three seeds that all differ by two of 1,000 samples: no deviation, but no proof."""
    errors = {"none": [0.012, 0.022, 0.032], "zeta:2.8": [0.1] * 3, "chosen": [0.01, 0.02, 0.03]}
    tuning = make_tuning([make_trial(0, 0.1, gamma=2.4, weight_decay=1e-4)], errors=errors)
    none = differences(tuning.tested, "error")[0]
    half = stats.t.ppf(0.975, 2) * 0.001 / math.sqrt(6) / math.sqrt(3)
    assert math.isclose(none.high - none.low, 2 * half, rel_tol=1e-6)


def test_an_area_under_the_curve_is_no_surer_than_its_samples():
    errors = dict.fromkeys(("none", "zeta:2.8", "chosen"), [0.0] * 3)
    tuning = make_tuning([make_trial(0, 0.1, gamma=2.4, weight_decay=1e-4)], errors=errors)
    # three classes, the largest of 334 samples
    half = stats.t.ppf(0.975, 2) * (1 / (3 * 334)) / math.sqrt(6) / math.sqrt(3)
    for metric in ("auc", "balanced_accuracy"):
        none = differences(tuning.tested, metric)[0]
        assert math.isclose(none.high, half)
        assert math.isclose(none.low, -half)


def test_another_choice_is_another_test_and_counted(tmp_path, trained, monkeypatch):
    run(tmp_path, trials=1, test_seeds=1)
    assert run(tmp_path, trials=1, test_seeds=1).settings_tested == 1
    with make_study(tmp_path, name="tune-blobs", trials=2) as study:
        claim = study.claim()
        study.complete(claim.number, 0.0, {"scores": {"nll": 0.0}})
    trained.clear()
    found = run(tmp_path, trials=2, test_seeds=1)
    assert found.settings_tested == 2
    # the others were tested already
    assert len(trained) == 1
    assert len(list(Path(tmp_path / "test").iterdir())) == 4
