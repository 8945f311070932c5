"""Event streams: alive, bounded, and broken off rather than ended falsely."""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_slurm.agent.api import routes, sse
from jupyter_slurm.agent.client.agent_client import AgentClient
from jupyter_slurm.agent.client.event_parser import EventParser
from jupyter_slurm.agent.hosting.agent_host import ThreadedAgent
from jupyter_slurm.agent.hosting.discovery import search_locations
from jupyter_slurm.agent.hosting.endpoint import endpoint_at
from jupyter_slurm.config import Settings
from jupyter_slurm.errors import AgentUnreachable, JobNotFound, UsageError
from jupyter_slurm.services.event_bus import EventBus

STREAM = "/v1/clusters/local/jobs/{}/stream"


def test_a_stream_ends_when_the_job_does(client: AgentClient, stream: Callable[..., Any]) -> None:
    events = list(stream(client, STREAM.format(12), {"stdout": 0, "stderr": 0}))
    assert [event for event, _ in events] == ["output"] * 3 + ["end"]
    assert [data["offset"] for _, data in events[:-1]] == [0, 1, 2]


async def test_and_so_it_does_in_a_loop(client: AgentClient) -> None:
    assert [event async for event, _ in client.astream(STREAM.format(12))] == ["output"] * 3 + ["end"]


def test_an_unknown_job_is_an_error_not_a_stream(client: AgentClient, stream: Callable[..., Any]) -> None:
    with pytest.raises(JobNotFound):
        list(stream(client, STREAM.format(99)))


def test_an_error_on_the_way_is_raised_as_what_it_is(client: AgentClient, stream: Callable[..., Any]) -> None:
    events = stream(client, STREAM.format(14))
    assert [next(events)[0] for _ in range(3)] == ["output"] * 3
    with pytest.raises(UsageError, match="the stream failed") as caught:
        next(events)
    assert caught.value.hint == "ask again"


def test_a_stream_is_broken_off_when_the_agent_leaves(
    client: AgentClient, agent: ThreadedAgent, stream: Callable[..., Any], wait_for: Callable[..., Any]
) -> None:
    """Check that the stream breaks instead of ending: a reader must not take the agent's end for the job's."""
    caught: list[BaseException] = []
    seen = []

    def read() -> None:
        try:
            for event, _ in stream(client, STREAM.format(13)):
                seen.append(event)
        except AgentUnreachable as error:
            caught.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    wait_for(lambda: len(seen) == 3, "what there was")
    assert client.get("/v1/agent")["holds"]["streams"] == 1
    agent.stop()
    reader.join(120)
    assert len(caught) == 1


def test_events_reach_everybody(
    client: AgentClient, core: Any, stream: Callable[..., Any], wait_for: Callable[..., Any], agent: ThreadedAgent
) -> None:
    seen: list[list[tuple[str, str]]] = [[], [], []]

    def read(into: list[tuple[str, str]]) -> None:
        with contextlib.suppress(AgentUnreachable):
            for event, data in stream(client, "/v1/events"):
                into.append((event, data["id"]))

    readers = [threading.Thread(target=read, args=(into,)) for into in seen]
    for reader in readers:
        reader.start()
    wait_for(lambda: core.bus.listeners == 3, "three listeners")
    core.publish("job", {"cluster": "local", "key": None, "id": "7"})
    core.publish("cluster", {"id": "local"})
    wait_for(lambda: all(into == [("job", "7"), ("cluster", "local")] for into in seen), "both events, everywhere")
    agent.stop()
    for reader in readers:
        reader.join(120)


async def test_a_stream_without_events_shows_that_it_lives(
    client: AgentClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "send_events", functools.partial(sse.send_events, heartbeat=0.05))
    beats = b""
    async with client.forward("GET", "/v1/events") as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        async for chunk in answer.chunks:
            beats += chunk
            if beats.count(b":\n\n") >= 4:
                break
    assert set(beats.split(b"\n\n")) == {b":", b""}


def test_a_reader_that_takes_nothing_costs_little_and_is_let_go(
    agent: ThreadedAgent, settings: Settings, core: Any, monkeypatch: pytest.MonkeyPatch, wait_for: Callable[..., Any]
) -> None:
    """Check with 100 GB pending: only the sockets' buffers are filled, and after the deadline nothing stays open."""
    monkeypatch.setattr(routes, "send_events", lambda *args, deadline: sse.send_events(*args, deadline=0.5))
    core.chunks = 10_000_000
    endpoint = endpoint_at(search_locations(settings)[0])
    assert endpoint is not None
    kind = socket.AF_UNIX if endpoint.port is None else socket.AF_INET
    with socket.socket(kind) as reader:
        reader.connect(endpoint.place.socket if endpoint.port is None else ("127.0.0.1", endpoint.port))
        host = endpoint.base_url.removeprefix("http://")
        head = f"GET {STREAM.format(12)} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {endpoint.secret}\r\n\r\n"
        reader.sendall(head.encode())
        with AgentClient.connect(settings, start=False) as other:
            wait_for(lambda: core.last_seen > 2, "the stream to begin")
            assert other.get("/v1/agent")["holds"]["streams"] == 1
            wait_for(
                lambda: other.get("/v1/agent")["holds"]["streams"] == 0, "the slow reader to be let go", timeout=20
            )
    assert core.last_seen < 2_000  # 40 kB each: some megabytes in the buffers of the two sockets


async def test_a_slow_reader_gets_the_newest_of_each() -> None:
    async def source() -> AsyncIterator[tuple[str, dict[str, Any]]]:
        for step in range(1000):
            yield "job", {"cluster": "local", "key": f"job-{step % 3}", "step": step}
        yield "cluster", {"id": "local"}

    events = sse.latest_only(source())
    received = [event async for event in events]
    assert [data["step"] for event, data in received if event == "job"] == [997, 998, 999]
    assert received[-1] == ("cluster", {"id": "local"})


async def test_who_hears_of_thousands_at_once_misses_how_none_of_them_is_now() -> None:
    """Check 5,000 jobs cancelled at once: one poll reports each of them, before any client can read."""
    bus = EventBus(size=100)
    async with bus.subscribe() as events:
        for state in ("PENDING", "RUNNING", "CANCELLED"):
            for number in range(5_000):
                bus.publish("job", {"cluster": "local", "key": None, "id": str(number), "state": state})
                bus.publish("cluster", {"id": "local", "state": state})
        bus.close()
        heard = [(event, data["id"], data["state"]) async for event, data in events]
    assert len(heard) < 10_100, "what is out of date costs no memory"
    last = {(event, thing): state for event, thing, state in heard}
    assert last == {("cluster", "local"): "CANCELLED", **{("job", str(n)): "CANCELLED" for n in range(5_000)}}


async def test_an_error_of_the_source_is_not_lost() -> None:
    async def source() -> AsyncIterator[tuple[str, dict[str, Any]]]:
        yield "job", {"id": "1"}
        raise UsageError("broken")

    events = sse.latest_only(source())
    assert (await anext(events))[0] == "job"
    with pytest.raises(UsageError):
        await anext(events)


def _parse(data: bytes, size: int) -> list[tuple[str, str]]:
    parser = EventParser()
    return [event for at in range(0, len(data), size) for event in parser.feed(data[at : at + size])]


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize(
    ("data", "events"),
    [
        (b"event: job\ndata: 1\n\ndata:2\n\n", [("job", "1"), ("message", "2")]),
        (b"event: job\r\ndata: 1\r\n\r\nevent: end\rdata: 2\r\r\n", [("job", "1"), ("end", "2")]),
        (b"data: one\ndata:  two\ndata\ndata:\n\n", [("message", "one\n two\n\n")]),
        (b": \n:data: 1\n\n:\n\ndata: 2\n\n", [("message", "2")]),
        (b"event: job\n\ndata: 1\n\n", [("message", "1")]),
        (b"id: 7\nretry: 1\nDATA: 0\n data: 0\ndatax: 0\ndata: a:b\n\n", [("message", "a:b")]),
        (
            b"\xef\xbb\xbfdata: \xc3\xa9 \xff\xc3\n\ndata: \xf0\x9f\x98\x80\n\n",
            [("message", "é \ufffd\ufffd"), ("message", "😀")],
        ),
        ("data: a\u2028b\x0bc\x85\n\n".encode(), [("message", "a\u2028b\x0bc\x85")]),
        (b"data: unfinished\n", []),
    ],
    ids=["names", "line-ends", "lines", "comments", "no-data", "fields", "utf-8", "no-line-ends", "unfinished"],
)
def test_events_are_parsed_as_the_standard_says(data: bytes, events: list[tuple[str, str]], size: int) -> None:
    assert _parse(data, size) == events


_WORDS = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=8)


@given(
    st.lists(st.tuples(_WORDS, st.lists(_WORDS, min_size=1, max_size=3)), max_size=5),
    st.sampled_from(["\n", "\r\n"]),
    st.integers(1, 20),
)
def test_events_may_be_cut_anywhere(sent: list[tuple[str, list[str]]], end: str, size: int) -> None:
    lines = [[f"event: {event}", *(f"data: {part}" for part in data), ":", ""] for event, data in sent]
    text = "".join(line + end for each in lines for line in each)
    assert _parse(text.encode(), size) == [(event or "message", "\n".join(data)) for event, data in sent]
