"""A study that several commands share: each trial is somebody's once, and none is lost."""

import math
import sqlite3
import sys
import threading
import time

import optuna
import pytest
from filelock import FileLock
from optuna.exceptions import StorageInternalError
from optuna.trial import TrialState
from tuning import RECIPE, SPACE, hasty_sqlite, make_question, make_study

from zetamix.experiments.tune import StudyError, parse_space
from zetamix.experiments.tune.sampler import make_pruner, make_sampler
from zetamix.experiments.tune.storage import Storage, quieten, sqlite_in
from zetamix.experiments.tune.tries import MOST_TRIES

pytestmark = pytest.mark.usefixtures(hasty_sqlite.__name__)

GOOD = {"scores": {"nll": 0.1}, "seconds": 3.0, "error": 0.01}


def kill(study):
    """What is left of a command after `kill -9`: its lock is free, and it has told nobody."""
    study.presence.lock.release(force=True)


def finish(study, claim, value=0.1):
    study.complete(claim.number, value, GOOD)


def states(study):
    return [trial.state.name for trial in study.optuna.get_trials()]


# claiming


def test_many_commands_train_exactly_as_many_trials_as_asked_for(tmp_path):
    claimed, commands = [], 6

    def work():
        with make_study(tmp_path, trials=15, sampler="random") as study:
            while (claim := study.claim()) is not None:
                claimed.append(claim)
                study.report(claim.number, {1: 0.5})
                finish(study, claim)

    threads = [threading.Thread(target=work) for _ in range(commands)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claim.number for claim in claimed) == list(range(15))
    with make_study(tmp_path, trials=15) as study:
        assert states(study) == ["COMPLETE"] * 15
        assert study.finished()
        assert study.claim() is None


def test_a_trial_that_runs_counts(tmp_path):
    with make_study(tmp_path, trials=2) as one, make_study(tmp_path, trials=2) as two:
        first, second = one.claim(), two.claim()
        assert (first.number, second.number) == (0, 1)
        assert one.claim() is two.claim() is None
        assert not one.finished()
        finish(one, first)
        finish(two, second)
        assert one.finished()


def test_more_trials_are_those_that_are_missing(tmp_path):
    for total, expected in ((2, [0, 1]), (5, [2, 3, 4]), (3, [])):
        with make_study(tmp_path, trials=total) as study:
            found = []
            while (claim := study.claim()) is not None:
                found.append(claim.number)
                finish(study, claim)
            assert found == expected
            assert study.finished()


def test_each_trial_has_a_seed_of_its_own(tmp_path):
    with make_study(tmp_path, make_question(seed=40)) as study:
        assert [study.claim().seed for _ in range(3)] == [40, 41, 42]


def test_a_claim_is_a_setting_of_the_space(tmp_path):
    question = make_question("gamma=1..6,sources=2|all,lr=0.02")
    with make_study(tmp_path, question) as study:
        claim = study.claim()
        assert list(claim.setting) == ["gamma", "sources", "lr"]
        assert 1 <= claim.setting["gamma"] <= 6
        assert claim.setting["sources"] in (2, "all")
        assert claim.setting["lr"] == 0.02


# retrying


def test_a_killed_commands_trial_is_gone_on_with_and_counted_once(tmp_path):
    killed = make_study(tmp_path, trials=2).__enter__()
    lost = killed.claim()
    with make_study(tmp_path, trials=2) as study:
        other = study.claim()
        assert study.claim() is None
        kill(killed)
        again = study.claim()
        assert (again.setting, again.seed, again.place) == (lost.setting, lost.seed, lost.place)
        assert again.number not in (lost.number, other.number)
        finish(study, other)
        finish(study, again)
        assert study.finished()
        assert study.claim() is None
        assert states(study).count("COMPLETE") == 2
        assert [trial.number for trial in study.trials()] == [0, 1]
        assert [trial.seed for trial in study.trials()] == [0, 1]


def test_a_command_of_another_machine_is_waited_for_while_it_shows_signs_of_life(tmp_path):
    elsewhere = make_study(tmp_path, trials=1).__enter__()
    lost = elsewhere.claim()
    with make_study(tmp_path, trials=1, grace=0.3) as study:
        # its lock cannot be seen from here
        study.presence.commands = tmp_path / "another machine"
        for _ in range(4):
            assert study.claim() is None
            elsewhere.presence.beat()
            time.sleep(0.12)
        assert study.claim() is None
        time.sleep(0.35)
        again = study.claim()
        assert again.place == lost.place
        # it was not dead after all: what it has to say is not heard any more
        assert elsewhere.report(lost.number, {1: 0.5}) == "lost"
        finish(elsewhere, lost, 0.9)
        finish(study, again, 0.2)
        assert [trial.value for trial in study.trials()] == [0.2]


def test_a_trial_that_kills_every_command_is_given_up(tmp_path):
    for tries in range(1 + MOST_TRIES):
        study = make_study(tmp_path, trials=1).__enter__()
        claim = study.claim()
        assert (claim.number, claim.place) == (tries, 0)
        kill(study)
    with make_study(tmp_path, trials=1) as study:
        assert study.claim() is None
        assert study.finished()
        assert study.standing().failed == 1
        (trial,) = study.trials()
        assert (trial.state, trial.value, trial.number) == ("failed", None, 0)
        assert trial.setting["gamma"] >= 1


def test_what_is_given_back_is_no_failed_try(tmp_path):
    settings = set()
    for _ in range(2 + MOST_TRIES):
        with make_study(tmp_path, trials=1) as study:
            claim = study.claim()
            settings.add(claim.setting["gamma"])
            assert claim.place == 0
        # leaving gives it back
    assert len(settings) == 1
    with make_study(tmp_path, trials=1) as study:
        finish(study, study.claim())
        assert study.standing().failed == 0
        assert study.finished()


def test_killed_while_claiming(tmp_path):
    with make_study(tmp_path, trials=1) as study:
        # a trial that nobody has put a name on yet
        study.optuna.ask()
        claim = study.claim()
        assert claim is not None
        finish(study, claim)
        assert states(study) == ["FAIL", "COMPLETE"]


def test_killed_between_giving_up_and_queueing(tmp_path):
    with make_study(tmp_path, trials=2) as study:
        lost = study.claim()
        study.optuna.tell(lost.number, state=TrialState.FAIL)
        again = study.claim()
        assert (again.place, again.setting) == (lost.place, lost.setting)
        # and not queued twice
        other = study.claim()
        assert other.place == 1
        assert study.claim() is None


def test_folders_of_commands_are_removed(tmp_path):
    killed = make_study(tmp_path).__enter__()
    with make_study(tmp_path) as at_work, make_study(tmp_path) as study:
        kill(killed)
        assert len(list(study.presence.commands.iterdir())) == 3
        study.__exit__()
        assert [folder.name for folder in study.presence.commands.iterdir()] == [
            at_work.presence.owner
        ]
        study.__enter__()


# grids


def test_a_grid_is_queued_once_and_only_what_is_missing(tmp_path):
    question = make_question("gamma=2:3:0.5,lr=0.01")
    settings = question.space.grid()
    found = []
    for seeds, total in ((2, 6), (3, 9)):
        with make_study(tmp_path, question, trials=total, sampler="grid") as study:
            study.queue(settings, range(seeds))
            study.queue(settings, range(seeds))
            while (claim := study.claim()) is not None:
                found.append((claim.seed, claim.setting["gamma"]))
                finish(study, claim)
            assert study.finished()
    # one seed after the other, so that half a grid is a whole curve
    assert found == [(seed, gamma) for seed in range(3) for gamma in (2.0, 2.5, 3.0)]


def test_a_killed_place_of_a_grid_is_not_queued_beside_its_retry(tmp_path):
    question = make_question("gamma=2:3:1")
    killed = make_study(tmp_path, question, trials=2, sampler="grid").__enter__()
    killed.queue(question.space.grid(), [5])
    lost = killed.claim()
    kill(killed)
    with make_study(tmp_path, question, trials=2, sampler="grid") as study:
        study.queue(question.space.grid(), [5])
        found = [study.claim() for _ in range(2)]
        assert study.claim() is None
        assert sorted(claim.setting["gamma"] for claim in found) == [2.0, 3.0]
        assert {claim.seed for claim in found} == {5}
        assert lost.setting in [claim.setting for claim in found]


# judging


def curve(values):
    return dict(enumerate(values, 1))


@pytest.fixture(scope="module")
def with_five(tmp_path_factory):
    """A study of 6 epochs with five finished trials, all between 20 and 24 % error throughout."""
    question = make_question(recipe=RECIPE.change(epochs=6))
    folder = tmp_path_factory.mktemp("five")
    with make_study(folder, question, trials=20, prune=True) as study:
        for k in range(5):
            claim = study.claim()
            assert study.report(claim.number, curve([0.2 + k / 100] * 6)) == "go on"
            finish(study, claim, 0.1 + k / 100)
        yield study


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        # before a third of the epochs nothing is known
        ([0.9], "go on"),
        ([0.9, 0.9], "prune"),
        ([0.9, 0.9, 0.9, 0.9], "prune"),
        # worse than half, but not than three quarters
        ([0.225, 0.225, 0.225], "go on"),
        ([0.1, 0.1, 0.1], "go on"),
        # the best epoch counts: a bad one alone stops nothing
        ([0.1, 0.1, 0.9], "go on"),
    ],
)
def test_hopeless_trials_are_stopped(with_five, values, verdict):
    claim = with_five.claim()
    found = "go on"
    for epochs in range(1, len(values) + 1):
        if found == "go on":
            found = with_five.report(claim.number, curve(values[:epochs]))
    assert found == verdict


def test_a_direction_is_that_of_the_measure(tmp_path):
    question = make_question(recipe=RECIPE.change(epochs=3), metric="accuracy")
    with make_study(tmp_path, question, trials=20, prune=True) as study:
        for _ in range(5):
            claim = study.claim()
            study.report(claim.number, curve([0.8] * 3))
            finish(study, claim, 0.8)
        assert study.report(study.claim().number, curve([0.1, 0.1])) == "prune"
        assert study.report(study.claim().number, curve([0.9, 0.9])) == "go on"


def test_without_pruning_nothing_is_stopped(tmp_path):
    with make_study(tmp_path, trials=20, prune=False) as study:
        for _ in range(6):
            claim = study.claim()
            study.report(claim.number, curve([0.2] * 4))
            finish(study, claim)
        assert study.report(study.claim().number, curve([0.9] * 4)) == "go on"


def test_what_was_reported_is_not_reported_again(with_five):
    claim = with_five.claim()
    nan = float("nan")
    for _ in range(3):
        # a trial that is gone on with tells its curve from the beginning
        assert with_five.report(claim.number, {1: 0.21, 2: nan}) == "go on"
    with_five.prune(claim.number, {})
    (pruned,) = (trial for trial in with_five.trials() if trial.state == "pruned")
    assert pruned.curve == {1: 0.21}


def test_threads_of_one_command_do_not_disturb_each_other(tmp_path):
    """One tells what workers tell while another tells what came of it."""
    with make_study(tmp_path, trials=8) as study:
        for _ in range(8):
            claim = study.claim()
            values = curve([0.3] * 30)
            thread = threading.Thread(target=study.report, args=(claim.number, values))
            thread.start()
            study.report(claim.number, values)
            finish(study, claim)
            thread.join()
        assert [len(trial.curve) for trial in study.trials()] == [30] * 8


def test_what_became_of_trials(tmp_path):
    with make_study(tmp_path, trials=5) as study:
        done, pruned, wild, running = (study.claim() for _ in range(4))
        study.report(pruned.number, {1: 0.4})
        study.report(wild.number, {1: 0.3})
        study.report(running.number, {1: 0.3, 2: 0.2})
        study.complete(done.number, 0.1, {**GOOD, "error": 0.02})
        study.prune(pruned.number, {"seconds": 1.0})
        study.diverge(wild.number, {"seconds": 2.0})
        found = study.trials()
        assert [(t.number, t.state, t.value) for t in found] == [
            (0, "complete", 0.1),
            (1, "pruned", 0.4),
            (2, "diverged", None),
        ]
        assert (found[0].error, found[0].scores, found[0].seconds) == (0.02, {"nll": 0.1}, 3.0)
        assert found[2].curve == {1: 0.3}
        standing = study.standing()
        counts = (standing.complete, standing.pruned, standing.diverged, standing.failed)
        assert counts == (1, 1, 1, 0)
        assert (standing.done, standing.total, standing.running) == (3, 5, {3: 2})
        assert standing.best.trials[0].number == 0
        assert study.mine() == [3]


# drawing


def settings(folder, sampler, seed=0, each=13, count=13):
    """The settings of a study's trials; each: how many a command makes before the next goes on."""
    question = make_question(seed=seed)
    found = []
    while len(found) < count:
        with make_study(folder, question, trials=count, sampler=sampler) as study:
            for _ in range(min(each, count - len(found))):
                claim = study.claim()
                found.append(tuple(claim.setting.values()))
                # the better the nearer to γ = 3
                study.complete(claim.number, abs(claim.setting["gamma"] - 3), GOOD)
            # one more is begun, and given back
            study.claim()
    return found


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_an_interrupted_study_draws_what_a_whole_one_would_have(sampler, tmp_path):
    whole = settings(tmp_path / "whole", sampler)
    assert settings(tmp_path / "pieces", sampler, each=4) == whole
    assert settings(tmp_path / "other", sampler, seed=1, count=2) != whole[:2]
    assert len(set(whole)) == len(whole)


def test_parameters_are_drawn_independently(tmp_path):
    """From one stream for each trial, not from the same beginning for each parameter."""
    space = parse_space(SPACE)
    gamma, decay = space.parameters
    quantiles = [
        (
            (g - gamma.low) / (gamma.high - gamma.low),
            math.log(d / decay.low, decay.high / decay.low),
        )
        for g, d in settings(tmp_path, "random")
    ]
    near = [abs(g - d) < 0.05 for g, d in quantiles]
    assert sum(near) < len(near) / 2


def test_tpe_learns():
    """The last ten of forty trials are far nearer to the optimum than the first ten, at random."""
    quieten()
    distributions = parse_space(SPACE).distributions()
    begin = end = 0.0
    for seed in range(3):
        study = optuna.create_study(sampler=make_sampler("tpe", seed))
        far = []
        for _ in range(40):
            trial = study.ask(distributions)
            far.append(abs(trial.params["gamma"] - 3))
            study.tell(trial, far[-1])
        begin, end = begin + sum(far[:10]), end + sum(far[-10:])
    assert end < 0.7 * begin


def test_no_pruner_and_one_that_waits():
    assert isinstance(make_pruner(False, 30), optuna.pruners.NopPruner)
    pruner = make_pruner(True, 30)
    assert (pruner._n_warmup_steps, pruner._interval_steps) == (10, 5)
    assert isinstance(make_sampler("random", 0), optuna.samplers.BaseSampler)


# opening


def test_another_question_leaves_the_study_as_it_is(tmp_path):
    with make_study(tmp_path) as study:
        finish(study, study.claim())
    before = (tmp_path / "study.db").read_bytes()
    with pytest.raises(StudyError) as caught:
        make_study(tmp_path, make_question("gamma=2..3"))
    assert str(caught.value).startswith(
        f"The study study in {tmp_path}/study.db asks something else (space: {SPACE} "
        "there, gamma=2..3 asked for). Nothing was changed: "
    )
    assert (tmp_path / "study.db").read_bytes() == before
    with make_study(tmp_path) as study:
        assert [trial.value for trial in study.trials()] == [0.1]


def test_a_study_of_somebody_else_is_left_alone(tmp_path):
    optuna.create_study(storage=sqlite_in(tmp_path), study_name="study")
    with pytest.raises(StudyError) as caught:
        make_study(tmp_path)
    assert str(caught.value) == (
        f"The study study in {tmp_path}/study.db was not made by zetamix. Choose another "
        "--study, or another --storage."
    )


def test_two_studies_in_one_storage(tmp_path):
    with make_study(tmp_path, name="a") as one, make_study(tmp_path, name="b") as two:
        finish(one, one.claim())
        assert two.trials() == []


EXPECTED = "expected sqlite:///path/of/study.db or postgresql://user:password@host:5432/name"


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("nonsense", f"--storage is not an address: {EXPECTED}."),
        ("sqlite://", f"--storage sqlite:// names no file: {EXPECTED}."),
        ("sqlite:///:memory:", f"--storage sqlite:///:memory: names no file: {EXPECTED}."),
        ("mysql://ann:pw@host/x", f"--storage: {EXPECTED}, got mysql://ann:***@host/x."),
    ],
)
def test_a_wrong_address_is_told(address, message):
    with pytest.raises(StudyError) as caught:
        Storage(address, "study")
    assert str(caught.value) == message


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg"])
def test_a_server_that_cannot_be_reached_is_told_without_the_password(scheme):
    with pytest.raises(StudyError) as caught:
        Storage(f"{scheme}://ann:secret@127.0.0.1:1/studies", "study")
    message = str(caught.value)
    assert message.startswith(
        f"The storage {scheme}://ann:***@127.0.0.1:1/studies cannot be used: "
    )
    assert message.endswith("Expected a database that can be reached and written to.")
    assert "refused" in message
    assert "secret" not in message


def test_a_file_that_is_no_database_is_told_and_left_alone(tmp_path):
    path = tmp_path / "study.db"
    path.write_bytes(b"something else entirely" * 100)
    with pytest.raises(StudyError) as caught:
        Storage(sqlite_in(tmp_path), "study")
    assert str(caught.value) == (
        f"The storage {path} cannot be used: file is not a database. Expected a database "
        "that can be reached and written to."
    )
    assert path.read_bytes() == b"something else entirely" * 100


def test_a_place_that_cannot_be_written_to_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StudyError) as caught:
        Storage(f"sqlite:///{tmp_path}/file/study.db", "study")
    assert str(caught.value).startswith(f"Cannot write to {tmp_path}/file: ")


def test_a_storage_of_another_version_is_told(tmp_path):
    make_study(tmp_path)
    with sqlite3.connect(tmp_path / "study.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'v99'")
    connection.close()
    with pytest.raises(StudyError, match=r"^The storage /.*study\.db cannot be used: The runtime "):
        make_study(tmp_path)


def test_a_missing_driver_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StudyError) as caught:
        Storage("postgresql://ann@127.0.0.1:1/x", "study")
    assert str(caught.value) == "A study in PostgreSQL needs psycopg: pip install 'zetamix[tune]'"


def test_one_process_at_a_time(tmp_path):
    storage = Storage(sqlite_in(tmp_path), "study")
    with storage.exclusive(), pytest.raises(TimeoutError):
        FileLock(f"{tmp_path}/study.db.lock").acquire(timeout=0.05)
    FileLock(f"{tmp_path}/study.db.lock").acquire(timeout=0.05)


# a storage that is away for a moment


def test_a_storage_that_comes_back_is_waited_for(tmp_path, monkeypatch):
    waited, failing = [], [True, True]
    monkeypatch.setattr("zetamix.experiments.tune.study.time.sleep", waited.append)
    with make_study(tmp_path) as study:
        whole = study._trials

        def flaky(*states):
            if failing and failing.pop():
                raise StorageInternalError("gone")
            return whole(*states)

        monkeypatch.setattr(study, "_trials", flaky)
        finish(study, study.claim())
        assert waited == [1.0, 1.0]
        assert len(study.trials()) == 1


def test_a_storage_that_stays_away_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("zetamix.experiments.tune.study.PATIENCE", 0.0)
    with make_study(tmp_path) as study:

        def gone(*states):
            raise StorageInternalError("gone")

        with monkeypatch.context() as away:
            away.setattr(study, "_trials", gone)
            with pytest.raises(StudyError, match=r"cannot be used: gone\. Expected a database"):
                study.claim()
            away.setattr(study.optuna, "set_user_attr", gone)
            # signs of life are not worth an end
            study.presence.beat()


def test_what_was_told_before_the_connection_was_lost_is_not_told_again(tmp_path):
    with make_study(tmp_path) as study:
        claim = study.claim()
        trial = study._open[claim.number]
        finish(study, claim)
        study._tell(trial, TrialState.COMPLETE, 0.9, GOOD)
        assert [each.value for each in study.trials()] == [0.1]


@pytest.mark.parametrize("what", ["report", "complete"])
def test_taken_away_at_the_very_moment_of_telling(what, tmp_path, monkeypatch):
    with make_study(tmp_path) as study:
        claim = study.claim()
        before = study._frozen(claim.number)
        study.optuna.tell(claim.number, state=TrialState.FAIL)
        now = study._frozen
        stale = [before]
        monkeypatch.setattr(study, "_frozen", lambda n: stale.pop() if stale else now(n))
        if what == "report":
            assert study.report(claim.number, {1: 0.5}) == "lost"
            assert study.mine() == []
        else:
            finish(study, claim)
        assert study.trials() == []


def test_one_that_comes_back_at_the_very_moment_of_being_given_up(tmp_path, monkeypatch):
    gone = make_study(tmp_path, trials=1).__enter__()
    claim = gone.claim()
    kill(gone)
    with make_study(tmp_path, trials=1) as study:
        running = study._trials(TrialState.RUNNING)
        finish(gone, claim)
        whole = study._trials
        stale = [running]
        monkeypatch.setattr(study, "_trials", lambda *s: stale.pop() if stale else whole(*s))
        assert study.claim() is None
        assert study.finished()
        assert [trial.value for trial in study.trials()] == [0.1]


def test_settings_that_were_tested_are_remembered(tmp_path):
    with make_study(tmp_path) as study:
        assert study.tested() == []
        for gamma in (2.0, 2.0, 3.0):
            study.note_tested({"gamma": gamma})
    with make_study(tmp_path) as study:
        assert study.tested() == [{"gamma": 2.0}, {"gamma": 3.0}]
