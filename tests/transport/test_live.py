"""Commands with live output, on this computer and over SSH: streams, back-pressure, and ends of all kinds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.transport.base import Context

SOURCE = ["/bin/sh", "-c", '. "$0"']
LONG_S = 600


class Received:
    """Sink that keeps all output, and can hold its writer."""

    def __init__(self) -> None:
        self.out, self.err, self.size = b"", b"", 0
        self.go = threading.Event()
        self.go.set()
        self.first = threading.Event()

    def __call__(self, stream: int, data: bytes) -> None:
        self.go.wait()
        self.size += len(data)
        if self.size < 1 << 20:
            self.out += data if stream == 1 else b""
            self.err += data if stream == 2 else b""
        if data:
            self.first.set()


async def until(condition: Callable[[], Any], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.05)


def runs(path: Path) -> bool:
    """Return whether the process of a pid file runs: the file of each test is touched by its process in turn."""
    before = path.stat().st_mtime_ns
    time.sleep(0.5)
    return path.stat().st_mtime_ns != before


def beat(path: Path) -> str:
    """Return a text that shows signs of life in a file, in the background and without output."""
    return f"( while :; do echo >'{path}'; sleep 0.1; done ) >/dev/null 2>&1 &\n"


async def test_streams_exit_code_and_file(transport: Any, place: Any) -> None:
    got = Received()
    text = b"echo out; echo error >&2; cat; printf '\\377\\n'; basename \"$0\"; exit 7"
    assert await transport.run_live(SOURCE, text, got, time_limit=LONG_S) == 7
    *lines, name, _ = got.out.split(b"\n")
    assert (lines, got.err) == ([b"out", b"\xff"], b"error\n")
    assert name.startswith(b".jupyter_slurm-")
    found = ["/bin/sh", "-c", 'test ! -e "/tmp/$1"', "sh", name.decode()]
    for _ in range(50):
        if not (await transport.run(found)).exit_code:
            break
        await asyncio.sleep(0.1)
    assert (await transport.run(found)).exit_code == 0


async def test_output_arrives_while_the_command_runs(transport: Any, place: Any) -> None:
    got = Received()
    text = f"echo first >&2; until [ -e {place.path}/go ]; do sleep 0.05; done; echo last".encode()
    running = asyncio.ensure_future(transport.run_live(SOURCE, text, got, time_limit=LONG_S))
    await until(got.first.is_set)
    assert (got.err, running.done()) == (b"first\n", False)
    (place.path / "go").touch()
    assert await running == 0
    assert got.out == b"last\n"


async def test_a_cancelled_command_ends_with_its_children(transport: Any, place: Any) -> None:
    got, sign = Received(), place.path / "sign"
    text = f"{beat(sign)}echo begun\nsleep 1000\n".encode()
    running = asyncio.ensure_future(transport.run_live(SOURCE, text, got, time_limit=LONG_S))
    await until(lambda: got.first.is_set() and sign.exists())
    assert runs(sign)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: not runs(sign))


async def test_background_processes_end_with_the_command(transport: Any, place: Any) -> None:
    sign = place.path / "sign"
    text = f"{beat(sign)}until [ -e '{sign}' ]; do sleep 0.05; done\nsleep 1000 &\n".encode()
    assert await transport.run_live(SOURCE, text, Received(), time_limit=LONG_S) == 0
    await until(lambda: not runs(sign))
    assert (await transport.run(["echo", "x"])).stdout == b"x\n"


async def test_limits_of_time_and_processor(transport: Any) -> None:
    began = time.monotonic()
    assert await transport.run_live(SOURCE, b"sleep 1000", Received(), time_limit=1) in (143, 137)
    assert time.monotonic() - began < 30
    spins = b"sh -c 'while :; do :; done'"
    context = Context(limits={"t": "1"})
    assert await transport.run_live(SOURCE, spins, Received(), time_limit=LONG_S, context=context) in (152, 137)


async def test_a_slow_reader_holds_the_command(transport: Any, place: Any) -> None:
    got = Received()
    text = f"yes | head -c 200000000; echo >{place.path}/written".encode()
    got.go.clear()
    running = asyncio.ensure_future(transport.run_live(SOURCE, text, got, time_limit=LONG_S))
    await asyncio.sleep(3)
    assert not (place.path / "written").exists()
    got.go.set()
    assert await running == 0
    assert got.size == 200_000_000


async def test_commands_between_have_their_own_answers(transport: Any) -> None:
    """Check that a process that leaves the group cannot write into the answer of a later command."""
    stray = b"setsid sh -c 'for n in 1 2 3 4 5 6 7 8 9; do echo stray; echo stray >&2; sleep 0.2; done' & echo done"
    got = Received()
    assert await transport.run_live(SOURCE, stray, got, time_limit=LONG_S) == 0
    assert b"done" in got.out
    for number in range(8):
        done = await transport.run(["sh", "-c", f"echo {number}"])
        assert (done.stdout, done.stderr) == (f"{number}\n".encode(), b"")
        await asyncio.sleep(0.1)


async def test_two_commands_run_at_a_time(transport: Any) -> None:
    one, two = Received(), Received()
    codes = await asyncio.gather(
        transport.run_live(SOURCE, b"sleep 1; echo 1; exit 1", one, time_limit=LONG_S),
        transport.run_live(SOURCE, b"sleep 1; echo 2; exit 2", two, time_limit=LONG_S),
    )
    assert (codes, one.out, two.out) == ([1, 2], b"1\n", b"2\n")


async def test_the_end_of_the_transport_ends_the_command(transport: Any, place: Any) -> None:
    got, sign = Received(), place.path / "sign"
    text = f"{beat(sign)}echo begun\nsleep 1000\n".encode()
    running = asyncio.ensure_future(transport.run_live(SOURCE, text, got, time_limit=LONG_S))
    await until(lambda: got.first.is_set() and sign.exists())
    transport.close()
    await until(lambda: not runs(sign))
    running.cancel()
    with contextlib.suppress(BaseException):
        await running


@pytest.mark.parametrize("name", [pytest.param("x", id="plain")])
async def test_a_large_text_is_no_argument_of_a_command(transport: Any, name: str) -> None:
    """Check a text larger than an argument of the system may be (MAX_ARG_STRLEN, 128 KiB)."""
    got = Received()
    text = b"# " + b"y" * 1_000_000 + b"\necho '" + os.fsencode("\udcff'\"'$HOME") + b"'\n"
    assert await transport.run_live(SOURCE, text.replace(b"'\"'", b""), got, time_limit=LONG_S) == 0
    assert got.out == b"\xff$HOME\n"
