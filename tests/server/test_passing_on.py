"""Tests of forwarded answers, bytes, events and errors of the agent, which reach a browser unchanged."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def server(start_jupyter: Callable[..., Any]) -> Any:
    return start_jupyter("server")


@pytest.fixture
def client(server: Any) -> Iterator[httpx.Client]:
    with httpx.Client(headers={"Authorization": f"token {server.token}"}, timeout=120) as client:
        yield client


@pytest.fixture
def submit(server: Any, client: httpx.Client) -> Callable[[str], dict[str, Any]]:
    """Return ``submit(script)``, which submits as a front end would and returns the job."""
    (known,) = client.get(server.api("v1/clusters")).json()

    def submit(text: str) -> dict[str, Any]:
        env = {"PATH": os.environ["PATH"], "SLURM_CONF": known["slurm_conf"]}
        context = {"cwd": str(server.home), "env": env, "umask": 0o22, "limits": {}}
        key = time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + "-" + secrets.token_hex(8)
        asked = {"key": key, "kind": "script", "text": text, "options": ["-t", "5"], "args": [], "context": context}
        answer = client.post(server.api(f"v1/clusters/{known['id']}/jobs"), json=asked)
        assert answer.status_code == 201, answer.text
        job: dict[str, Any] = answer.json()
        return job

    return submit


def address(server: Any, job: dict[str, Any], *more: str) -> str:
    path: str = server.api("/".join(["v1/clusters", job["cluster"], "jobs", job["key"], *more]))
    return path


def events(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def test_the_cluster_of_the_server_is_known_before_any_kernel_runs(server: Any, client: httpx.Client) -> None:
    clusters = client.get(server.api("v1/clusters")).json()
    assert [(each["name"], each["poll"]["error"]) for each in clusters] == [("arandu", None)]
    assert client.get(server.api("v1/clusters")).json()[0]["id"] == clusters[0]["id"]


def test_script_and_output_come_byte_for_byte(
    server: Any, client: httpx.Client, submit: Callable[[str], dict[str, Any]], wait_for: Callable[..., Any]
) -> None:
    script = "#!/bin/bash\nprintf '\\xff\\x00\\r\\n%s' ä\n"
    job = submit(script)
    with client.stream("GET", address(server, job, "stream")) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        names = [name for name, _ in events(answer.iter_lines())]
    assert names[-1] == "end"
    assert client.get(address(server, job, "script")).content == script.encode()
    whole = b"\xff\x00\r\n\xc3\xa4"
    answer = client.get(address(server, job, "output"), params={"offset": 1, "limit": 2})
    assert (answer.content, answer.headers["x-total-size"]) == (whole[1:3], str(len(whole)))
    assert answer.headers["content-type"] == "application/octet-stream"


def test_events_come_while_the_stream_is_open_and_its_end_reaches_the_agent(
    server: Any, client: httpx.Client, submit: Callable[[str], dict[str, Any]], wait_for: Callable[..., Any]
) -> None:
    def streams() -> int:
        return int(client.get(server.api("v1/agent")).json()["holds"]["streams"])

    with client.stream("GET", server.api("v1/events")) as answer:
        assert streams() == 1
        job = submit("#!/bin/bash\nsleep 300\n")
        seen = next(data for name, data in events(answer.iter_lines()) if name == "job" and data["key"] == job["key"])
        assert seen["cluster"] == job["cluster"]
    # At once: not only when the next sign of life fails, 15 s later.
    wait_for(lambda: streams() == 0, "the agent's stream ends when the browser leaves")
    cancelled = client.post(address(server, job, "cancel"), json={"signal": None})
    assert cancelled.status_code == 200
    wait_for(lambda: client.get(address(server, job)).json()["state"].startswith("CANCELLED"), "cancelled")
    assert "Traceback" not in server.log


async def test_changes_are_events_of_jupyter(
    server: Any, client: httpx.Client, submit: Callable[[str], dict[str, Any]]
) -> None:
    headers = {"Authorization": f"token {server.token}"}
    url = server.url.replace("http", "ws", 1) + "api/events/subscribe"
    listening = await websocket_connect(HTTPRequest(url, headers=headers))
    job, seen = submit("#!/bin/bash\n# secret-of-the-script\nexit 3\n"), []
    async with asyncio.timeout(60):
        while not (seen and seen[-1]["finished"]):
            told = json.loads(await listening.read_message() or "")
            if told["schema_id"] == "https://schema.jupyter.org/jupyter_slurm/job/v1" and told["key"] == job["key"]:
                seen.append(told)
    listening.close()
    while await listening.read_message() is not None:
        pass
    assert seen[-1]["state"] == "FAILED"
    assert (seen[-1]["exit_code"], seen[-1]["id"], seen[-1]["cluster"]) == (3, job["id"], job["cluster"])
    states = [told["state"] for told in seen]
    assert len(states) == len(set(states)), "each state once"
    assert "secret" not in json.dumps(seen)
    assert server.token not in json.dumps(seen)
    assert client.get(server.api("v1/agent")).json()["holds"]["streams"] == 0, "the agent does not stay for it"


def test_an_error_of_the_agent_arrives_with_its_hint(server: Any, client: httpx.Client) -> None:
    answer = client.get(server.api("v1/clusters/nowhere/jobs"))
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"].startswith("urn:jupyter-slurm:error:")
    assert problem["status"] == answer.status_code >= 400
    assert problem["hint"]


def test_an_agent_that_was_killed_is_found_again(server: Any, client: httpx.Client) -> None:
    first = client.get(server.api("v1/agent")).json()
    assert first["host"] == "daemon"
    os.kill(first["pid"], 9)
    second = client.get(server.api("v1/agent")).json()
    assert second["pid"] != first["pid"]
    assert [each["name"] for each in client.get(server.api("v1/clusters")).json()] == ["arandu"]


def test_a_stream_is_broken_off_when_the_agent_dies(server: Any, client: httpx.Client) -> None:
    pid = client.get(server.api("v1/agent")).json()["pid"]
    with client.stream("GET", server.api("v1/events")) as answer:
        os.kill(pid, 9)
        with pytest.raises(httpx.RemoteProtocolError):
            list(answer.iter_lines())


@pytest.mark.parametrize("section", ["JupyterSlurm", "Settings"])  # the former name of the section is still read
def test_the_server_can_house_the_agent(
    start_jupyter: Callable[..., Any], wait_for: Callable[..., Any], section: str
) -> None:
    server = start_jupyter("server", f"--{section}.agent_host=server")
    socket = wait_for(lambda: next((server.home / "run").rglob("*.sock"), None), "the socket, before anybody asks")
    answer = httpx.get(server.api("v1/agent"), headers={"Authorization": f"token {server.token}"}, timeout=60).json()
    assert (answer["host"], answer["pid"]) == ("server", server.process.pid)
    server.process.terminate()
    assert server.process.wait(120) is not None
    assert not socket.exists()
    assert "Traceback" not in server.log
