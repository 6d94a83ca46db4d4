"""One study for many machines: two commands share a PostgreSQL server."""

import json
import threading
import time

import pytest
import sqlalchemy
from postgres import PASSWORD, needs_postgres, postgres
from processes import zetamix
from tuning import make_question

from zetamix.experiments.tune import StudyError, search
from zetamix.experiments.tune.storage import Storage
from zetamix.experiments.tune.study import Study

pytestmark = needs_postgres

END_OTHERS = """
select pg_terminate_backend(pid) from pg_stat_activity
where pid <> pg_backend_pid() and backend_type = 'client backend'
"""


@pytest.fixture(scope="module")
def address():
    with postgres() as address:
        yield address


def open_study(address, folder, *, trials, name, question=None, **how):
    question = make_question() if question is None else question
    storage = Storage(address, name)
    return Study(storage, question, commands=folder, trials=trials, sampler="random", **how)


def take_time():
    """Before a command: every trial takes a moment, so that neither finds all of them done."""
    whole = search.train_tasks

    def slowly(job, shared, board):
        time.sleep(0.6)
        return whole(job, shared, board)

    search.train_tasks = slowly


def test_commands_of_two_machines_share_one_study(address, tmp_path):
    """Two processes with folders of their own: every trial is trained once, by one of them."""
    root = tmp_path / "data"
    common = [
        "tune",
        "--data",
        "digits",
        "--data-dir",
        root,
        "--storage",
        address,
        "--study",
        "shared",
    ]
    common += ["--trials", 8, "--epochs", 1, "--train-size", 100, "--test-seeds", 1, "--jobs", 1]
    common += ["--device", "cpu", "--no-prune"]
    machines = [tmp_path / "one", tmp_path / "two"]
    logs = [tmp_path / "one.log", tmp_path / "two.log"]
    running = [
        zetamix(*common, "--out", out, log=log, before=take_time)
        for out, log in zip(machines, logs, strict=True)
    ]
    assert [each.wait() for each in running] == [0, 0], [log.read_text() for log in logs]
    trained = [{path.name for path in (out / "trials").iterdir()} for out in machines]
    assert trained[0] | trained[1] == {f"{k:04d}" for k in range(8)}
    assert not trained[0] & trained[1]
    # neither was idle
    assert all(trained)
    found = [json.loads((out / "results.json").read_text()) for out in machines]
    assert found[0]["trials"] == found[1]["trials"]
    assert [trial["number"] for trial in found[0]["trials"]] == list(range(8))
    assert all(trial["state"] == "complete" for trial in found[0]["trials"])
    # no password in anything that is kept or shown
    for path in [*tmp_path.glob("o*/**/*"), *tmp_path.glob("t*/**/*"), *logs]:
        if path.is_file() and path.suffix not in (".pt", ".png"):
            assert PASSWORD not in path.read_text(), path


def test_many_commands_claim_each_trial_once(address, tmp_path):
    claimed = []

    def work(folder):
        with open_study(address, folder, trials=12, name="claims") as study:
            while (claim := study.claim()) is not None:
                claimed.append(claim.number)
                study.report(claim.number, {1: 0.5})
                study.complete(claim.number, 0.1, {})

    threads = [threading.Thread(target=work, args=(tmp_path / str(k),)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claimed) == list(range(12))


def test_a_machine_that_is_gone_is_noticed(address, tmp_path):
    gone = open_study(address, tmp_path / "gone", trials=1, name="gone").__enter__()
    lost = gone.claim()
    gone.storage.close()
    with open_study(address, tmp_path / "here", trials=1, name="gone", grace=0.2) as study:
        assert study.claim() is None
        time.sleep(0.3)
        again = study.claim()
        assert (again.place, again.setting, again.seed) == (lost.place, lost.setting, lost.seed)
        study.complete(again.number, 0.1, {})
        assert study.finished()


def test_a_connection_that_the_server_closed_is_opened_again(address, tmp_path):
    with open_study(address, tmp_path, trials=2, name="closed") as study:
        claim = study.claim()
        with study.storage.rdb.engine.connect() as connection:
            connection.execute(sqlalchemy.text(END_OTHERS))
        assert study.report(claim.number, {1: 0.5}) == "go on"
        study.complete(claim.number, 0.1, {})
        assert len(study.trials()) == 1


def test_another_question_is_told(address, tmp_path):
    open_study(address, tmp_path, trials=1, name="asked").storage.close()
    with pytest.raises(StudyError) as caught:
        open_study(address, tmp_path, trials=1, name="asked", question=make_question("gamma=2..3"))
    assert "asks something else (space: " in str(caught.value)
    assert PASSWORD not in str(caught.value)


def test_a_wrong_password_is_told(address):
    with pytest.raises(StudyError) as caught:
        Storage(address.replace(PASSWORD, "guess"), "study")
    message = str(caught.value)
    assert "password authentication failed" in message
    assert "guess" not in message


def test_a_database_that_is_not_there_is_told(address):
    with pytest.raises(StudyError, match='database "nowhere" does not exist'):
        Storage(address.replace("/postgres", "/nowhere"), "study")
