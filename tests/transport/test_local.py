"""Guarantees of the local transport alone; the others are in test_transport.py."""

import asyncio
import os
import sys
import threading

import pytest

from jupyter_slurm.transport.base import Context
from jupyter_slurm.transport.local.streams import CommandStream
from jupyter_slurm.transport.local.transport import LocalTransport


@pytest.fixture
def transport():
    transport = LocalTransport()
    yield transport
    transport.close()


async def test_many_commands_share_few_threads(transport, tmp_path):
    def own_threads():
        return [thread for thread in threading.enumerate() if thread.name == "jupyter-slurm-once"]

    before = len(own_threads())  # of other transports
    turns = 20
    for turn in range(turns):
        prefixes = [str(tmp_path / f"{turn}-{number}") for number in range(3)]
        many = await asyncio.gather(*(transport.start_detached(prefix, ["true"]) for prefix in prefixes))
        assert [(await once.result(None)).exit_code for once in many] == [0, 0, 0]
    # Three are needed, one for each command at once. A thread that is still returning from its last command may add one.
    assert len(own_threads()) <= before + turns


async def test_the_environment_is_a_whole_one(transport):
    context = Context(env={"PATH": os.environ["PATH"], "ONLY": "this"})
    done = await transport.run(["/bin/sh", "-c", "echo $ONLY; env | grep -c ^HOME="], context=context)
    assert done.stdout.decode().split() == ["this", "0"]


async def test_a_lock_let_go_at_the_last_moment_ends_with_the_transport(tmp_path):
    """Check that the file is closed even if no thread is left to close it: otherwise it would stay locked for ever."""
    path, busy, go_on = tmp_path / "file", threading.Event(), threading.Event()
    path.touch()
    transport, other = LocalTransport(workers=1), LocalTransport()
    hold = await transport.acquire_lock(str(path))

    def work():
        busy.set()
        go_on.wait()

    working = asyncio.get_running_loop().run_in_executor(transport._pool, work)
    await asyncio.to_thread(busy.wait)
    hold.release()
    transport.close()
    try:
        assert await other.acquire_lock(str(path)) is not None
    finally:
        go_on.set()
        await working
        other.close()


def test_a_stream_closed_by_several_threads_at_once_ends_once(monkeypatch):
    """Check two directions of a connection that end together, each in its own thread."""
    complaints: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda hook: complaints.append(repr(hook.exc_value)))
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(40):
            stream, together = CommandStream(["cat"], None), threading.Barrier(4)

            def close(stream=stream, together=together):
                together.wait()
                stream.close()

            threads = [threading.Thread(target=close) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(before)
    assert complaints == []
