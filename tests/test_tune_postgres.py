"""Two commands share a study on a PostgreSQL server."""

import json
import os
import time
from pathlib import Path

import pytest
import sqlalchemy
from optuna.trial import TrialState
from postgres import PASSWORD, needs_postgres, postgres
from processes import start, zetamix
from test_tune_study import ask, claim_all, wait_for_retry
from tuning import make_spec

from zetamix.experiments.tune import StudyError, make_plan
from zetamix.experiments.tune.storage import open_storage
from zetamix.experiments.tune.study import WorkerSettings, open_study, read_trials, retry

pytestmark = [
    needs_postgres,
    pytest.mark.filterwarnings("ignore:Heartbeat of storage is supposed:UserWarning"),
]

END_OTHERS = """
select pg_terminate_backend(pid) from pg_stat_activity
where pid <> pg_backend_pid() and backend_type = 'client backend'
"""


@pytest.fixture(scope="module")
def url():
    with postgres() as url:
        yield url


def open_in(url, name, spec=None, **options):
    spec = make_spec() if spec is None else spec
    plan = make_plan(spec, "random", 12)
    return open_study(url, WorkerSettings(name, spec, plan, Path(), **options))


def test_commands_of_two_machines_share_one_study(url, tmp_path):
    """Two processes with folders of their own: every trial is trained once, by one of them."""
    data_dir = tmp_path / "data"
    # a password may be given in two ways
    query = url.replace(f"ann:{PASSWORD}@", "") + f"?user=ann&password={PASSWORD}"
    common = [
        "tune",
        "--data",
        "digits",
        "--data-dir",
        data_dir,
        "--study",
        "shared",
        "--trials",
        8,
        "--epochs",
        20,
        "--train-size",
        100,
    ]
    common += ["--test-seeds", 1, "--jobs", 1, "--device", "cpu", "--no-prune"]
    machines = [tmp_path / "one", tmp_path / "two"]
    logs = [tmp_path / "one.log", tmp_path / "two.log"]
    running = [
        zetamix(*common, f"--storage={storage}", "--out", out, log=log)
        for out, log, storage in zip(machines, logs, [url, query], strict=True)
    ]
    assert [each.wait() for each in running] == [0, 0], [log.read_text() for log in logs]
    trained = [{path.name for path in (out / "trials").iterdir()} for out in machines]
    assert trained[0] | trained[1] == {f"{k:04d}" for k in range(8)}
    assert not trained[0] & trained[1]
    results = [json.loads((out / "results.json").read_text()) for out in machines]
    assert results[0]["trials"] == results[1]["trials"]
    assert [trial["number"] for trial in results[0]["trials"]] == list(range(8))
    assert all(trial["state"] == "complete" for trial in results[0]["trials"])
    # no password in any file
    for path in [*tmp_path.glob("o*/**/*"), *tmp_path.glob("t*/**/*"), *logs]:
        assert path.is_dir() or PASSWORD.encode() not in path.read_bytes(), path


def test_every_waiting_trial_is_claimed_once(url):
    study = open_in(url, "claims")
    trials = [ask(study) for _ in range(12)]
    for trial in trials:
        retry(study, study.tell(trial, state=TrialState.FAIL))
    claim_all(lambda: open_in(url, "claims"), range(12, 24))


def die(url):
    study = open_in(url, "gone", heartbeat=1, grace=2)
    study.optimize(lambda trial: (time.sleep(1.5), os._exit(9)))


def test_a_dead_machine_is_noticed_by_its_heartbeat(url):
    assert start(die, url).wait() == 9
    wait_for_retry(open_in(url, "gone", heartbeat=1, grace=2))


def test_a_connection_that_the_server_closed_is_opened_again(url):
    study = open_in(url, "closed")
    trial = ask(study)
    with open_storage(url).engine.connect() as connection:
        connection.execute(sqlalchemy.text(END_OTHERS))
    trial.report(0.5, 1)
    study.tell(trial, 0.1)
    assert len(read_trials(study, make_spec())) == 1


def test_other_settings_are_refused_without_the_password(url):
    open_in(url, "settings")
    with pytest.raises(StudyError, match=r"other settings \(space: ") as caught:
        open_in(url, "settings", make_spec("gamma=2..3"))
    assert PASSWORD not in str(caught.value)


def test_a_password_from_the_environment_or_a_file(url, monkeypatch, tmp_path):
    without = url.replace(f":{PASSWORD}@", "@")
    with pytest.raises(StudyError, match="cannot be used"):
        open_storage(without)
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    assert open_storage(without).get_all_studies() is not None
    monkeypatch.delenv("PGPASSWORD")
    pgpass = tmp_path / ".pgpass"
    pgpass.write_text(f"*:*:*:ann:{PASSWORD}\n")
    pgpass.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(pgpass))
    assert open_storage(without).get_all_studies() is not None
    monkeypatch.delenv("PGPASSFILE")
    query = without.replace("ann@", "") + f"?user=ann&password={PASSWORD}"
    assert open_storage(query).get_all_studies() is not None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (PASSWORD, "guess", "password authentication failed"),
        ("/postgres", "/nowhere", 'database "nowhere" does not exist'),
    ],
)
def test_a_refusal_of_the_server_is_reported(url, old, new, message):
    with pytest.raises(StudyError, match=message) as caught:
        open_storage(url.replace(old, new))
    assert "guess" not in str(caught.value)
