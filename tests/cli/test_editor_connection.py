"""Tests of the connection of an editor without a cluster: what remains if it ends at any moment."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_slurm.cli.editors import connection, hosts
from jupyter_slurm.cli.editors.hosts import EditorHost
from jupyter_slurm.client.clusters import cluster_names
from jupyter_slurm.errors import JobNotFound, SubmitRefused


class _Agent:
    """Agent that knows jobs by key, and a client that may be ended at any moment.

    Attributes
    ----------
    jobs : dict
        Whether each job has finished, by key.
    ends : str
        Moment at which ssh ends the client: ``before`` or ``after`` the agent takes the request; empty: never.
    refuses : bool
        Whether sbatch refuses the job.
    """

    def __init__(self) -> None:
        self.jobs, self.names = dict[str, bool](), dict[str, str]()
        self.ends, self.refuses = "", False

    def get(self, path: str) -> dict[str, Any]:
        reference = path.rpartition("/")[2]
        key = self.names.get(reference, reference)
        if key not in self.jobs:
            raise JobNotFound(f"There is no session {reference}.")
        return {"key": key, "finished": self.jobs[key]}

    def post(self, path: str, json: Any, **options: Any) -> dict[str, Any]:
        if self.refuses:
            raise SubmitRefused("sbatch refused the job.")
        if self.ends != "before":
            self.jobs.setdefault(json["key"], False)
            self.names[json["name"]] = json["key"]
        if self.ends:
            raise SystemExit
        return {"key": json["key"], "finished": False}


class _Place:
    """A host of this computer, and its cluster."""

    def __init__(self) -> None:
        self.agent = _Agent()
        self.host = EditorHost("far-code", "far", "", "ana")
        place = Path(self.host.place)
        place.mkdir(parents=True)
        (place / "key.pub").write_text("ssh-ed25519 AAAA comment\n")
        self.cluster: Any = SimpleNamespace(
            name="far",
            client=self.agent,
            is_remote=True,
            python="python3",
            path=lambda *parts: "/".join(parts),
            login_variables=dict,
        )

    def connect(self) -> str:
        """Return the key of the job that a connection uses; empty: the connection was ended."""
        parsed: Any = SimpleNamespace(keywords={}, options=[], parsed=SimpleNamespace(options=[]), args=[], rest=[])
        parsed._replace = lambda **changes: SimpleNamespace(**{**vars(parsed), **changes})
        with contextlib.suppress(SystemExit):
            session = connection._running(self.cluster, self.host)
            session = session or connection._launch(self.cluster, self.host, parsed)
            return str(session.data["key"])
        return ""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Place:
    """Provide a host without a job."""
    monkeypatch.setattr(hosts, "_root", lambda: str(tmp_path / "ssh-hosts"))
    monkeypatch.setattr(cluster_names, "shown_name", lambda cluster: "far")
    return _Place()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_connections_that_are_ended_during_the_submission_leave_one_job(place: _Place, moment: str) -> None:
    """An agent that did not take the request gets the same one again."""
    place.agent.ends = moment
    assert not place.connect()
    if moment == "before":
        assert not place.connect()
    key, place.agent.ends = place.host.job, ""
    assert [place.connect(), place.connect()] == [key, key]
    assert place.agent.jobs == {key: False}
    assert place.agent.names == {"far-code": key}


def test_a_job_that_has_ended_or_was_refused_is_not_submitted_again(place: _Place) -> None:
    place.agent.ends = "after"
    assert not place.connect()
    ended, place.agent.ends = place.host.job, ""
    place.agent.jobs[ended] = True
    after = place.connect()
    assert after != ended
    del place.agent.jobs[after]  # its job directory was removed
    place.agent.refuses = True
    with pytest.raises(SubmitRefused):
        place.connect()
    assert place.host.job == ""
    place.agent.refuses = False
    assert place.connect() not in (ended, after)


def test_an_unanswered_job_is_not_submitted_to_another_cluster(place: _Place) -> None:
    place.agent.ends = "before"
    assert not place.connect()
    key, place.agent.ends, place.cluster.name = place.host.job, "", "other"
    assert place.connect() != key


class _BusySocket(socket.socket):
    """Socket whose ``recv`` has begun in another thread: a timeout that is set later has no effect on it."""

    def settimeout(self, value: float | None) -> None:
        pass


def test_a_silent_network_does_not_keep_a_connection_that_ssh_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_END_TIMEOUT_S", 0.05)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    is_late = threading.Event()
    node, end = socket.socketpair()
    server = _BusySocket(fileno=end.detach())

    def answer() -> None:
        is_late.set()
        node.close()

    watch = threading.Timer(60.0, answer)  # otherwise a failure would last until the timeout of the test
    watch.daemon = True
    watch.start()
    ended, output = os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY)
    try:
        assert not connection._carry(server, ended, output)
        assert not is_late.is_set()
    finally:
        watch.cancel()
        os.close(ended)
        node.close()
