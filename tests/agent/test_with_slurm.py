"""Agent with its real core on a real Slurm: durable state survives the agent, and its answers match the document."""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from jupyter_slurm.agent.api.schema import load_document
from jupyter_slurm.agent.client.agent_client import AgentClient
from jupyter_slurm.config import Settings
from jupyter_slurm.embedded import EmbeddedCluster
from jupyter_slurm.errors import AgentUnreachable, JobNotFound, SubmitRefused, UsageError

pytestmark = pytest.mark.slurm


@pytest.fixture
def slurm(daemon_settings: Settings, cluster: EmbeddedCluster) -> Iterator[tuple[AgentClient, str]]:
    """Provide a client of a daemon, and the path of the cluster in its API."""
    with AgentClient.connect(daemon_settings) as client:
        env = cluster.env()
        named = client.post("/v1/clusters", json={"slurm_conf": env["SLURM_CONF"], "path": env["PATH"]})
        assert named["gpus"], "GresTypes of the configuration"
        yield client, f"/v1/clusters/{named['id']}"


def _submission(text: str, cluster: EmbeddedCluster, *options: str) -> dict[str, Any]:
    key = time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(8)
    context = {"cwd": "/tmp", "env": cluster.env(), "umask": 0o22, "limits": {}}
    return {"key": key, "kind": "script", "text": text, "options": list(options), "context": context}


def _check(schema: str, value: Any) -> Any:
    spec = load_document().spec
    Draft202012Validator({"$ref": f"#/components/schemas/{schema}", "components": spec["components"]}).validate(value)
    return value


def _queued(cluster: EmbeddedCluster, name: str) -> int:
    argv = ["squeue", "-h", "-t", "all", "-n", name, "-o", "%i"]
    done = subprocess.run(argv, env=cluster.env(), capture_output=True, text=True, check=True)
    return len(done.stdout.split())


def _kill(client: AgentClient, wait_for: Callable[..., Any]) -> None:
    pid = client.info["pid"]
    os.kill(pid, signal.SIGKILL)

    def is_gone() -> bool:
        try:
            with open(f"/proc/{pid}/stat") as file:
                return file.read().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    wait_for(is_gone, "the end of the agent")


def test_the_output_is_complete_although_the_agent_is_killed_twice(
    slurm: tuple[AgentClient, str],
    cluster: EmbeddedCluster,
    stream: Callable[..., Any],
    wait_for: Callable[..., Any],
) -> None:
    """Check that the reader resumes the stream after the break, and the job is not affected."""
    client, path = slurm
    script = "#!/bin/sh\nfor i in 1 2 3 4 5 6 7 8 9 10; do echo line $i; sleep 0.4; done\n"
    job = _check("Job", client.post(f"{path}/jobs", json=_submission(script, cluster)))
    received = b""
    ended = False
    killed: list[int] = []
    last: dict[str, Any] = {}
    deadline = time.monotonic() + 120
    while not ended and time.monotonic() < deadline:
        with contextlib.suppress(AgentUnreachable):
            for event, data in stream(client, f"{path}/jobs/{job['key']}/stream", {"stdout": len(received)}):
                if event == "output":
                    assert data["offset"] == len(received)
                    received += base64.b64decode(data["data"])
                elif event == "job":
                    last = _check("Job", data)
                ended = ended or event == "end"
                # What a killed agent had sent arrives after its end.
                if (pid := client.info["pid"]) not in killed and received.count(b"\n") >= 3 * (len(killed) + 1) <= 6:
                    killed.append(pid)
                    _kill(client, wait_for)
    assert ended
    assert len(killed) == 2
    assert received == b"".join(b"line %d\n" % number for number in range(1, 11))
    assert (last["state"], last["exit_code"]) == ("COMPLETED", 0)
    assert client.get_bytes(f"{path}/jobs/{job['key']}/script")[0] == script.encode()


@pytest.mark.parametrize("delay", [0.0, 0.005, 0.01, 0.02, 0.04, 0.08])
def test_a_submission_is_made_once_although_the_agent_is_killed_at_it(
    slurm: tuple[AgentClient, str], cluster: EmbeddedCluster, wait_for: Callable[..., Any], delay: float
) -> None:
    """Check that the same call returns the one job, whenever the agent dies."""
    client, path = slurm
    name = f"once-{secrets.token_hex(4)}"
    submission = _submission("#!/bin/sh\nsleep 60\n", cluster, "-J", name)
    answers: list[Any] = []

    def submit() -> None:
        try:
            answers.append(client.post(f"{path}/jobs", json=submission))
        except BaseException as error:
            answers.append(error)

    pid = client.info["pid"]
    thread = threading.Thread(target=submit)
    thread.start()
    threading.Event().wait(delay)
    os.kill(pid, signal.SIGKILL)
    thread.join(120)
    (answer,) = answers
    assert isinstance(answer, dict), answer
    wait_for(lambda: client.get(f"{path}/jobs/{submission['key']}")["id"], "the job's id")
    assert _queued(cluster, name) == 1
    client.post(f"{path}/jobs/{submission['key']}/cancel", json={})


def test_the_answers_are_what_the_document_says(slurm: tuple[AgentClient, str], cluster: EmbeddedCluster) -> None:
    client, path = slurm
    _check("Agent", client.get("/v1/agent"))
    for known in client.get("/v1/clusters"):
        _check("Cluster", known)
    submission = _submission("#!/bin/sh\nsleep 100\n", cluster)
    _check("Preview", client.post(f"{path}/jobs", json={**submission, "dry_run": True}))
    job = _check("Job", client.post(f"{path}/jobs", json=submission))
    assert _check("Job", client.post(f"{path}/jobs", json=submission))["id"] == job["id"]
    for listed in client.get(f"{path}/jobs", params={"state": "all"}):
        _check("Job", listed)
    assert _check("Job", client.get(f"{path}/jobs/{job['id']}"))["key"] == submission["key"]
    _check("Job", client.post(f"{path}/jobs/{job['id']}/cancel", json={}))
    for command in ("sbatch", "salloc", "srun"):
        _check("Options", client.get(f"{path}/options/{command}"))
    context = {"cwd": "/tmp", "env": cluster.env()}
    for argv in (["sinfo"], ["squeue", "--me"], ["sinfo", "--nonsense"]):
        _check("CommandResult", client.post(f"{path}/commands", json={"argv": argv, "table": True, "context": context}))
    _check("Cleaned", client.post("/v1/housekeeping", json={"dry_run": True}))
    with pytest.raises(JobNotFound):
        client.get(f"{path}/jobs/999999")
    with pytest.raises(SubmitRefused):
        client.post(f"{path}/jobs", json=_submission("#!/bin/sh\n", cluster, "-p", "nowhere"))


def test_a_job_is_submitted_again_once_for_one_key(slurm: tuple[AgentClient, str], cluster: EmbeddedCluster) -> None:
    client, path = slurm
    first = client.post(f"{path}/jobs", json=_submission("#!/bin/sh\nsleep 100\n", cluster, "--array=3-4", "--hold"))
    after = _submission("#!/bin/sh\npwd\n", cluster, "--hold", f"--dependency=afterany:{first['id']}")
    second = client.post(f"{path}/jobs", json={**after, "args": ["a b"]})
    client.post(f"{path}/jobs/{first['id']}/cancel", json={})
    asked = {"key": _submission("", cluster)["key"], "context": {"cwd": "/", "env": cluster.env()}}
    again = _check("Job", client.post(f"{path}/jobs/{second['id']}/resubmit", json=asked))
    assert client.post(f"{path}/jobs/{second['id']}/resubmit", json=asked)["id"] == again["id"] != second["id"]
    record = client.get(f"{path}/jobs/{again['key']}/record")
    assert (record["resubmitted_from"], record["args"], record["cwd"]) == (second["key"], ["a b"], "/tmp")
    # A finished job is not waited for: Slurm may have forgotten it.
    assert record["options"] == ["--hold"]
    task = {"key": _submission("", cluster)["key"], "context": asked["context"]}
    alone = client.post(f"{path}/jobs/{first['id']}_4/resubmit", json=task)
    assert alone["array"] == "4"
    verbatim = cluster.run("sbatch", "--parsable", "--hold", "--wrap", "true").stdout.strip()
    with pytest.raises(UsageError, match="there is no record of it"):
        client.post(f"{path}/jobs/{verbatim}/resubmit", json={"key": _submission("", cluster)["key"]})


def test_events_tell_everybody(
    slurm: tuple[AgentClient, str], cluster: EmbeddedCluster, stream: Callable[..., Any], wait_for: Callable[..., Any]
) -> None:
    client, path = slurm
    seen: list[Any] = []

    def listen() -> None:
        with contextlib.suppress(AgentUnreachable):
            for event, data in stream(client, "/v1/events"):
                seen.append(_check({"job": "Job", "cluster": "Cluster"}[event], data))

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    job = client.post(f"{path}/jobs", json=_submission("#!/bin/sh\ntrue\n", cluster))
    wait_for(lambda: any(data.get("key") == job["key"] and data["finished"] for data in [*seen]), "its end")
    client.stop_agent()
    thread.join(120)


def test_a_report_fits_the_document(slurm, cluster, wait_for):
    client, path = slurm
    job = client.post(f"{path}/jobs", json=_submission("#!/bin/sh\nexec sleep 1000\n", cluster))
    wait_for(lambda: client.get(f"{path}/jobs/{job['key']}")["state"] == "RUNNING", "the job to run")
    report = _check("Report", client.get(f"{path}/jobs/{job['key']}/report"))
    assert report["source"] in ("sstat", None)
