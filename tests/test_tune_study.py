"""The trials of a study: retried when their process dies, counted once, drawn reproducibly."""

import math
import os
import sqlite3
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import optuna
import pytest
from filelock import FileLock
from optuna.exceptions import StorageInternalError
from optuna.trial import TrialState
from processes import start
from tuning import RECIPE, SPACE, hasty_sqlite, make_spec

from zetamix.experiments.tune import StudyError, make_plan
from zetamix.experiments.tune.storage import open_storage, parse_url, patiently, sqlite_url
from zetamix.experiments.tune.study import (
    MAX_RETRIES,
    WorkerSettings,
    attempts,
    can_start,
    index_of,
    is_over,
    lock_name,
    open_study,
    read_progress,
    read_trials,
    recover,
    retry,
)
from zetamix.results.search_space import parse_space

pytestmark = [
    pytest.mark.usefixtures(hasty_sqlite.__name__),
    # these tests start trials without `optimize`
    pytest.mark.filterwarnings("ignore:Heartbeat of storage is supposed:UserWarning"),
]

FAIL = TrialState.FAIL


def open_in(folder, spec=None, *, name="study", plan=None, **options):
    spec = make_spec() if spec is None else spec
    plan = make_plan(spec, "random", 3) if plan is None else plan
    settings = WorkerSettings(name, spec, plan, folder, **options)
    return open_study(sqlite_url(folder / "study.db"), settings)


def ask(study, spec=None, lock=None):
    """A trial as a worker starts it; lock: the path that its process holds."""
    trial = study.ask((make_spec() if spec is None else spec).space.distributions())
    if lock is not None:
        trial.set_user_attr("lock", lock_name(lock))
    return trial


def states(study):
    return [trial.state.name for trial in study.get_trials()]


def die(folder):
    """A process that is killed in the middle of a trial."""
    open_in(folder, heartbeat=1, grace=2).optimize(lambda trial: (time.sleep(1.5), os._exit(9)))


def wait_for_retry(study):
    """Wait until the heartbeat of the only trial is too old."""
    assert states(study) == ["RUNNING"]
    began = time.monotonic()
    while states(study) == ["RUNNING"]:
        assert time.monotonic() - began < 30
        time.sleep(0.2)
        recover(study, grace=1000, lost_after=1000)
    assert states(study) == ["FAIL", "WAITING"]


def claim_all(open_again, expected):
    """Four commands at once claim three waiting trials each."""

    def claim(_):
        study = open_again()
        return [ask(study).number for _ in range(3)]

    with ThreadPoolExecutor(4) as pool:
        claimed = [number for numbers in pool.map(claim, range(4)) for number in numbers]
    assert sorted(claimed) == list(expected)


@pytest.mark.parametrize(("metric", "direction"), [("auc", "MAXIMIZE"), ("nll", "MINIMIZE")])
def test_a_study_has_the_direction_of_its_metric(metric, direction, tmp_path):
    assert open_in(tmp_path, make_spec(metric=metric)).direction.name == direction


def over(study):
    return sum(is_over(trial) for trial in attempts(study))


# retries


def test_the_trial_of_a_dead_process_is_retried_with_its_values(tmp_path):
    study, lock = open_in(tmp_path), tmp_path / "lock"
    with FileLock(lock):
        dead = ask(study, lock=lock)
        recover(study, grace=60, lost_after=60)
        assert states(study) == ["RUNNING"]
    recover(study, grace=60, lost_after=60)
    recover(study, grace=60, lost_after=60)
    assert states(study) == ["FAIL", "WAITING"]
    again = ask(study)
    assert (again.number, again.params) == (1, dead.params)
    assert index_of(study, again.number) == index_of(study, dead.number) == 0
    study.tell(again, 0.1)
    other = ask(study)
    assert index_of(study, other.number) == 1
    assert [trial.number for trial in read_trials(study, make_spec())] == [0]


def test_a_dead_machine_is_noticed_by_its_heartbeat(tmp_path):
    study = open_in(tmp_path, heartbeat=1, grace=2)
    assert start(die, tmp_path).wait() == 9
    wait_for_retry(study)


def test_a_process_that_dies_before_its_first_heartbeat_is_noticed(tmp_path):
    study = open_in(tmp_path)
    ask(study)
    recover(study, grace=60, lost_after=60)
    assert states(study) == ["RUNNING"]
    recover(study, grace=0, lost_after=60)
    assert states(study) == ["FAIL", "WAITING"]


def test_a_failed_trial_that_nobody_queued_is_queued_once(tmp_path):
    """Its process was killed between the failure and the retry."""
    study = open_in(tmp_path)
    study.tell(ask(study), state=FAIL)
    recover(study, grace=60, lost_after=60)
    assert states(study) == ["FAIL"]
    recover(study, grace=60, lost_after=0)
    recover(study, grace=60, lost_after=0)
    assert states(study) == ["FAIL", "WAITING"]


def test_a_trial_that_kills_every_process_is_given_up(tmp_path):
    study = open_in(tmp_path)
    for _ in range(1 + MAX_RETRIES):
        assert can_start(study, 1)
        study.tell(ask(study), state=FAIL)
        recover(study, grace=60, lost_after=0)
    assert states(study) == ["FAIL"] * (1 + MAX_RETRIES)
    assert not can_start(study, 1)
    (trial,) = read_trials(study, make_spec())
    assert (trial.state, trial.value, trial.number) == ("failed", None, 0)
    assert trial.setting["gamma"] >= 1
    assert read_progress(study, make_spec(), 1).counts["failed"] == 1


def test_an_interruption_is_no_failed_attempt(tmp_path):
    study, values = open_in(tmp_path), set()
    for _ in range(2 + MAX_RETRIES):
        trial = ask(study)
        values.add(trial.params["gamma"])
        trial.set_user_attr("interrupted", True)
        retry(study, study.tell(trial, state=FAIL))
    assert len(values) == 1
    study.tell(ask(study), 0.1)
    assert over(study) == 1
    assert read_progress(study, make_spec(), 1).counts["failed"] == 0


def test_surplus_trials_do_not_count(tmp_path):
    study = open_in(tmp_path)
    study.tell(ask(study), 0.1)
    surplus = ask(study)
    surplus.set_user_attr("surplus", True)
    study.tell(surplus, state=FAIL)
    recover(study, grace=0, lost_after=0)
    assert states(study) == ["COMPLETE", "FAIL"]
    assert over(study) == 1
    assert index_of(study, ask(study).number) == 1


def test_every_waiting_trial_is_claimed_once(tmp_path):
    study = open_in(tmp_path)
    for _ in range(12):
        trial = ask(study)
        trial.set_user_attr("interrupted", True)
        study.tell(trial, state=FAIL)
    recover(study, grace=60, lost_after=0)
    claim_all(lambda: open_in(tmp_path), range(12, 24))


def test_states_and_progress(tmp_path):
    study = open_in(tmp_path)
    done, pruned, wild, running = (ask(study) for _ in range(4))
    for trial, curve in ((pruned, {1: 0.4}), (wild, {1: 0.3}), (running, {1: 0.3, 2: 0.2})):
        for epoch, value in curve.items():
            trial.report(value, epoch)
    for name, value in {"scores": {"nll": 0.1}, "seconds": 3.0, "standard_error": 0.02}.items():
        done.set_user_attr(name, value)
    wild.set_user_attr("diverged", True)
    study.tell(done, 0.1)
    study.tell(pruned, state=TrialState.PRUNED)
    study.tell(wild, state=TrialState.PRUNED)
    first, second, third = read_trials(study, make_spec())
    assert [(t.state, t.value) for t in (first, second, third)] == [
        ("complete", 0.1),
        ("pruned", 0.4),
        ("diverged", None),
    ]
    assert (first.standard_error, first.scores, first.seconds) == (0.02, {"nll": 0.1}, 3.0)
    assert third.curve == {1: 0.3}
    progress = read_progress(study, make_spec(), 5)
    assert progress.counts == {"complete": 1, "pruned": 1, "diverged": 1}
    assert (progress.done, progress.total, progress.running) == (3, 5, {3: 2})
    assert progress.best.value == 0.1


# sampling and pruning


def draw(folder, sampler, *, seed=0, each=13, count=13):
    """Settings of a study; each: how many trials one command makes before it is interrupted."""
    spec, values = make_spec(seed=seed), []
    while len(values) < count:
        study = open_in(folder, spec, plan=make_plan(spec, sampler, count))
        for _ in range(min(each, count - len(values))):
            trial = ask(study)
            values.append(tuple(trial.params.values()))
            # the best γ is 3
            study.tell(trial, abs(trial.params["gamma"] - 3))
        if len(values) < count:
            trial = ask(study)
            trial.set_user_attr("interrupted", True)
            retry(study, study.tell(trial, state=FAIL))
    return values


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_an_interrupted_study_draws_the_settings_of_a_whole_one(sampler, tmp_path):
    whole = draw(tmp_path / "whole", sampler)
    assert draw(tmp_path / "pieces", sampler, each=4) == whole
    assert draw(tmp_path / "other", sampler, seed=1, count=2) != whole[:2]
    assert len(set(whole)) == len(whole)


def test_parameters_are_drawn_independently(tmp_path):
    gamma, decay = parse_space(SPACE).parameters
    near = [
        abs((g - gamma.low) / (gamma.high - gamma.low) - math.log(d / decay.low, 20)) < 0.05
        for g, d in draw(tmp_path, "random")
    ]
    assert sum(near) < len(near) / 2


def test_tpe_learns(tmp_path):
    """The last ten of forty trials are nearer to the optimum than the first ten, at random."""
    distances = [abs(gamma - 3) for gamma, _ in draw(tmp_path, "tpe", each=40, count=40)]
    assert sum(distances[-10:]) < 0.7 * sum(distances[:10])


def test_a_grid_has_all_settings_for_the_first_seed_first(tmp_path):
    spec = make_spec("gamma=2:3:0.5,sources=2|all")
    study = open_in(tmp_path, spec, plan=make_plan(spec, "grid", seeds=(0, 1)))
    values = []
    for _ in range(12):
        trial = ask(study, spec)
        values.append(tuple(spec.space.setting(trial.params).values()))
        study.tell(trial, 0.1)
    assert values == 2 * [(g, s) for g in (2.0, 2.5, 3.0) for s in (2, "all")]


@pytest.mark.parametrize(
    ("prune", "values", "expected"),
    [
        # before a third of the epochs no trial is pruned
        (True, [0.9], False),
        (True, [0.9, 0.9], True),
        (True, [0.9, 0.9, 0.9, 0.9], True),
        # worse than half of the others, but not than three quarters
        (True, [0.225, 0.225, 0.225], False),
        (True, [0.1, 0.1, 0.1], False),
        # the best epoch counts
        (True, [0.1, 0.1, 0.9], False),
        (False, [0.9, 0.9, 0.9, 0.9], False),
    ],
)
@pytest.mark.parametrize("metric", ["error", "accuracy"])
def test_trials_of_the_worst_quarter_are_pruned(metric, prune, values, expected, tmp_path):
    spec = make_spec(recipe=RECIPE.change(epochs=6), metric=metric)
    study = open_in(tmp_path, spec, plan=make_plan(spec, "random", 20, prune))

    def flip(value):
        return value if metric == "error" else 1 - value

    for k in range(5):
        trial = ask(study, spec)
        for epoch in range(1, 7):
            trial.report(flip(0.2 + k / 100), epoch)
        study.tell(trial, flip(0.1 + k / 100))
    trial, pruned = ask(study, spec), False
    for epoch, value in enumerate(values, 1):
        trial.report(flip(value), epoch)
        pruned = pruned or trial.should_prune()
    assert pruned == expected


# storage


def test_other_settings_are_refused_and_the_study_is_unchanged(tmp_path):
    study = open_in(tmp_path)
    study.tell(ask(study), 0.1)
    with pytest.raises(StudyError, match=r"^Study study was created with other settings \(space"):
        open_in(tmp_path, make_spec("gamma=2..3"))
    assert [trial.value for trial in read_trials(open_in(tmp_path), make_spec())] == [0.1]
    other = open_in(tmp_path, make_spec("gamma=2..3"), name="other")
    assert other.get_trials() == []


def test_a_study_of_another_program_is_refused(tmp_path):
    url = sqlite_url(tmp_path / "study.db")
    study = optuna.create_study(storage=url, study_name="study")
    study.tell(study.ask(), 0.1)
    with pytest.raises(StudyError, match="not created by zetamix"):
        open_in(tmp_path)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "--storage is not a database URL."),
        ("postgresql://ann:s3@cr/et@h/x", "--storage is not a database URL."),
        ("sqlite://", "Expected sqlite:///path/of/study.db or postgresql://"),
        ("sqlite:///:memory:", "Expected sqlite:///path/of/study.db or postgresql://"),
        ("mysql://ann:s3cret@host/x", "Expected sqlite:///path/of/study.db or postgresql://"),
    ],
)
def test_a_wrong_url_is_refused_without_its_password(url, message):
    with pytest.raises(StudyError) as caught:
        open_storage(url)
    assert str(caught.value).startswith(message)
    assert "s3" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("postgresql://ann:se%40cr%3At@host/x", "postgresql+psycopg://ann:***@host/x"),
        ("postgresql://ann@host/x", "postgresql+psycopg://ann@host/x"),
        ("postgresql://host/x?user=ann", "postgresql+psycopg://ann@host/x"),
        ("postgresql://h/x?user=ann&password=s", "postgresql+psycopg://ann:***@h/x"),
        ("postgresql://ann@h/x?password=s&sslmode=a", "postgresql+psycopg://ann:***@h/x?sslmode=a"),
    ],
)
def test_a_password_is_masked(url, masked):
    assert str(parse_url(url)) == masked


def test_a_server_that_cannot_be_reached_is_named_without_its_password():
    with pytest.raises(StudyError) as caught:
        open_storage("postgresql://127.0.0.1:1/studies?user=ann&password=secret")
    message = str(caught.value)
    assert message.startswith(
        "The storage postgresql+psycopg://ann:***@127.0.0.1:1/studies cannot be used: "
    )
    assert "refused" in message
    assert "secret" not in message


def test_a_file_that_is_no_database_is_refused_and_unchanged(tmp_path):
    path = tmp_path / "study.db"
    path.write_bytes(b"something else entirely" * 100)
    with pytest.raises(StudyError, match=r"cannot be used: file is not a database\."):
        open_storage(sqlite_url(path))
    assert path.read_bytes() == b"something else entirely" * 100


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StudyError, match=r"cannot be used: (Not a directory|File exists)"):
        open_storage(sqlite_url(tmp_path / "file/study.db"))


def test_a_storage_of_another_version_of_optuna_is_refused(tmp_path):
    open_in(tmp_path)
    with sqlite3.connect(tmp_path / "study.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'v99'")
    connection.close()
    with pytest.raises(StudyError, match=r"study\.db cannot be used: The runtime "):
        open_in(tmp_path)


def test_a_missing_driver_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StudyError, match=r"needs psycopg: pip install 'zetamix\[tune\]'"):
        open_storage("postgresql://ann@127.0.0.1:1/x")


def test_a_server_that_comes_back_is_waited_for():
    answers = [StorageInternalError("gone"), "here"]

    def call():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert patiently(call, 10, pause=0.01) == "here"
    answers += [StorageInternalError("gone")] * 1000
    with pytest.raises(StudyError, match=r"cannot be used: gone\."):
        patiently(call, 0.05, pause=0.01)
