"""Agent client: cheap import, speed, and no repetition of calls that are not repeatable."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_slurm.agent.api.app import MAX_BODY_BYTES
from jupyter_slurm.agent.client.agent_client import AgentClient
from jupyter_slurm.agent.hosting import agent_host
from jupyter_slurm.agent.hosting.agent_host import ThreadedAgent, serve_in_thread
from jupyter_slurm.config import Settings
from jupyter_slurm.errors import AgentUnreachable, JobNotFound, SlurmError, UsageError

JOBS = "/v1/clusters/local/jobs"


def test_importing_it_is_cheap() -> None:
    """Check that the import takes far less time than httpx beside a kernel's modules, and imports nothing large."""
    code = """
import json, socket, threading, asyncio, contextlib, traitlets, sys, time
before = time.perf_counter()
import jupyter_slurm.agent.client.agent_client
spent = time.perf_counter() - before
heavy = {"httpx", "tornado", "yaml", "jsonschema", "platformdirs"} & set(sys.modules)
before = time.perf_counter()
import httpx
print(spent / (time.perf_counter() - before), *heavy)
"""
    parts = []
    for _ in range(5):
        part, *heavy = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
        ).stdout.split()
        assert not heavy
        parts.append(float(part))
    assert min(parts) < 0.5


def test_no_agent_and_none_wanted(make_settings: Callable[..., Settings]) -> None:
    with pytest.raises(AgentUnreachable, match="No agent is running"):
        AgentClient.connect(make_settings(), start=False)


def test_errors_arrive_as_what_they_are(client: AgentClient) -> None:
    with pytest.raises(JobNotFound, match="there is no job 99") as caught:
        client.get(f"{JOBS}/99")
    assert caught.value.hint == "Look."
    with pytest.raises(UsageError):
        client.post(JOBS, json={"key": "x"})


def test_a_body_that_is_too_large_is_not_sent(client: AgentClient, core: Any) -> None:
    """Check that the reason is the size, and not the end of the agent, which may close the connection first."""
    large = {"key": "x" * MAX_BODY_BYTES}
    for ask in (
        lambda: client.post(JOBS, json=large),
        lambda: list(client.post_events("/v1/clusters/local/login-commands", large)),
    ):
        with pytest.raises(SlurmError, match=f"larger than {MAX_BODY_BYTES} bytes"):
            ask()
    assert client.get(f"{JOBS}/12")
    assert not core.calls


def test_bytes_and_their_total(client: AgentClient) -> None:
    assert client.get_bytes(f"{JOBS}/12/output", {"offset": 8, "limit": 5}) == (b"89", 10)
    assert client.get_bytes(f"{JOBS}/12/script") == (b"#!/bin/sh\n\xff\n", 12)


def test_file_names_that_are_no_utf8_travel(client: AgentClient, core: Any) -> None:
    client.post("/v1/clusters", json={"slurm_conf": "/etc/\udcff.conf", "path": None})
    assert core.calls == [("register", "/etc/\udcff.conf", None, None)]


class _Failing:
    """Listener in the agent's place that drops every connection after a request, like an agent that dies at work."""

    def __init__(self, settings: Settings) -> None:
        from jupyter_slurm.agent.hosting import discovery

        self.place = discovery.place_to_start(settings)
        self.requests: list[bytes] = []
        self.answers: dict[bytes, bytes] = {}

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            writer.close()
            return
        line = head.split(b"\r\n")[0]
        if line.startswith(b"GET /v1/agent "):
            body = b'{"version": "0.1.0", "api": {"major": 1, "minor": 0}, "pid": 1}'
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body))
            await writer.drain()
        else:
            self.requests.append(line)
        writer.close()

    async def __aenter__(self) -> _Failing:
        self._server = await asyncio.start_unix_server(self._serve, self.place.socket)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()


async def test_only_what_may_be_repeated_is_repeated(make_settings: Callable[..., Settings]) -> None:
    settings = make_settings()
    async with _Failing(settings) as failing:
        client = AgentClient(settings, start=False)

        def post(path: str, **options: Any) -> Any:
            return client.post(path, json={}, **options)

        for call, times in (
            (lambda: client.get("/v1/clusters"), 4),
            (lambda: post(JOBS), 4),
            (lambda: post("/v1/clusters"), 4),
            (lambda: post("/v1/clusters/far/connect"), 4),
            (lambda: post("/v1/clusters/local/commands"), 1),
            (lambda: post(f"{JOBS}/12/cancel"), 1),
            (lambda: post(f"{JOBS}/12/cancel", idempotent=True), 4),
        ):
            failing.requests.clear()
            with pytest.raises(AgentUnreachable) as caught:
                await asyncio.to_thread(call)
            assert len(failing.requests) == times
            if times == 1:
                assert "not known" in caught.value.message
        failing.requests.clear()
        for method, times in (("GET", 4), ("POST", 1)):
            failing.requests.clear()
            with pytest.raises(AgentUnreachable):
                async with client.forward(method, "/v1/clusters/local/commands"):
                    pass
            assert len(failing.requests) == times
        client.close()


async def test_an_agent_that_hangs_is_told_and_not_asked_again(make_settings: Callable[..., Settings]) -> None:
    settings = make_settings()

    failing = _Failing(settings)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.read(1000)
        if head.startswith(b"GET /v1/agent "):
            copy = asyncio.StreamReader()
            copy.feed_data(head)
            await failing._serve(copy, writer)
        elif head:
            asked.append(head)
            await reader.read()
        writer.close()

    asked: list[bytes] = []
    server = await asyncio.start_unix_server(serve, failing.place.socket)
    client = AgentClient(settings, start=False)
    with pytest.raises(AgentUnreachable, match="no answer"):
        await asyncio.to_thread(client.get, "/v1/clusters", timeout=0.3)
    assert len(asked) == 1
    client.close()
    server.close()


def test_an_agent_in_this_process_is_found_again(make_settings: Callable[..., Settings], core: Any) -> None:
    """Check that the next call after the end of an agent in this process starts another."""
    settings = make_settings(agent_host="inprocess")
    first = serve_in_thread(settings, core)
    assert first is not None
    with AgentClient.connect(settings) as client:
        assert client.get("/v1/clusters")[0]["name"] == "plumbing"
        first.stop()
        assert client.get("/v1/clusters") == []  # a real core now
        assert client.info["host"] == "inprocess"
        client.stop_agent()


def test_a_second_one_in_this_process_finds_the_first(agent: ThreadedAgent, settings: Settings) -> None:
    assert serve_in_thread(settings) is None


def test_a_fork_has_its_own_connection(client: AgentClient) -> None:
    """Check also that the fork does not keep lock or socket of the parent's agent open."""
    client.get("/v1/agent")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = str(client.get("/v1/agent")["pid"])
            left = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
        except BaseException as error:
            answer, left = repr(error), []
        os.write(writing, f"{answer} {any(name.endswith('.lock') for name in left)}".encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    assert said == f"{os.getpid()} False"
    assert client.get("/v1/agent")["pid"] == os.getpid()


async def test_a_request_is_forwarded_as_it_is(client: AgentClient, core: Any) -> None:
    headers = {
        "Content-Type": "application/json",
        "Cookie": "a=b",
        "Origin": "http://x",
        "Host": "y",
        "Authorization": "z",
    }
    body = b'{"argv": ["squeue"]}'
    async with client.forward("POST", "/v1/clusters/local/commands", headers=headers, body=body) as answer:
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        assert b'"exit_code":0' in b"".join([chunk async for chunk in answer.chunks])
    async with client.forward("GET", f"{JOBS}/12/output", query="offset=1&limit=2") as answer:
        assert answer.headers["x-total-size"] == "10"
        assert b"".join([chunk async for chunk in answer.chunks]) == b"12"
    async with client.forward("DELETE", "/v1/agent") as answer:
        assert (answer.status, answer.headers["allow"]) == (405, "GET")
    async with client.forward("GET", "/v1/clusters/%2e%2e/jobs") as answer:
        assert answer.status == 404


@pytest.mark.parametrize(
    "path", ["/", "http://evil/v1/", "/v2/agent", "/v1/a b", "/v1/\r\nX: y", "/v1/ü", "//v1/agent"]
)
async def test_only_addresses_of_the_api_are_forwarded(client: AgentClient, path: str) -> None:
    with pytest.raises(ValueError, match="not an address"):
        async with client.forward("GET", path):
            pass


async def test_the_server_is_a_host_where_it_should_be(make_settings: Callable[..., Settings]) -> None:
    """Check the agent in the server's loop, with a real core: reachable by its socket, ended with the server."""
    settings = make_settings(agent_host="server")
    client = await AgentClient.connect_in_server(settings)
    try:
        assert client.info["host"] == "server"
        async with client.forward("GET", "/v1/clusters") as answer:
            assert b"".join([chunk async for chunk in answer.chunks]) == b"[]"
        with await asyncio.to_thread(AgentClient.connect, settings, start=False) as other:
            assert other.info["pid"] == os.getpid()
    finally:
        await agent_host.leave_server()
        client.close()
    with pytest.raises(AgentUnreachable):
        await asyncio.to_thread(AgentClient.connect, settings, start=False)
