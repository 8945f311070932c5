"""The transport over SSH where start-up files, the server or what it says are against it."""

import asyncio
from pathlib import Path

import pytest

from jupyter_slurm.errors import TransportError
from jupyter_slurm.transport.base import Completed
from jupyter_slurm.transport.ssh.shell import Shell

pytestmark = pytest.mark.root


@pytest.fixture
def fragile(ssh_host, common):
    """A host that the test may break; its /bin/sh is dash."""
    host = ssh_host(name="frail", shared=[common])
    yield host
    host.close()


# Sessions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sessions", [1, 2])
async def test_sessions_refused_at_once_do_not_cost_the_connection(ssh_host, connect, sessions):
    host = ssh_host(name=f"few{sessions}", options={"MaxSessions": sessions})
    for _ in range(10):
        one = connect(host)
        await one.link.connect()
        done = await asyncio.gather(*(one.transport.run(["echo", "x"]) for _ in range(8)))
        assert (done, one.told) == ([Completed(0, b"x\n", b"")] * 8, [])
        one.transport.close()


@pytest.mark.parametrize("sh", ["dash", "bash"])
async def test_no_lock_outlives_a_connection_that_is_cut_under_an_answer(ssh_host, connect, common, new_folder, sh):
    host = ssh_host(name=f"cut-{sh}", shared=[common], mounts={"/bin/sh": Path(f"/bin/{sh}")})
    folder = new_folder(host.user)
    one = connect(host)
    await one.transport.run(["true"])
    for number in range(4):
        start = one.transport.start_once(f"{folder}/{number}/run", ["sh", "-c", "sleep 0.3; echo x"], files={"a": b"1"})
        task = asyncio.create_task(start)
        await asyncio.sleep(0.2)
        await asyncio.to_thread(host.kill_sessions)
        once = await task
        await once.result(10)
        if once.hold is not None:
            once.hold.release()
    async with asyncio.timeout(5):
        while "sleep" in host.processes().values():
            await asyncio.sleep(0.05)
    host.close()


async def test_shells_of_a_lost_connection_are_ended_by_the_second_new_one_too(fragile, connect, monkeypatch):
    one = connect(fragile)
    await one.transport.run(["true"])
    task = asyncio.create_task(one.transport.run(["sleep", "500"]))
    while "sleep" not in fragile.processes().values():
        await asyncio.sleep(0.05)
    start, failed = Shell.start, []

    def fail(shell, timeout):
        if not failed:
            failed.append(shell)
            raise TransportError("not this time")
        start(shell, timeout)

    monkeypatch.setattr(Shell, "start", fail)
    fragile.kill_sessions()
    with pytest.raises(TransportError):
        await task
    with pytest.raises(TransportError, match="not this time"):
        await one.transport.run(["true"])
    await one.transport.run(["true"])
    assert "sleep" not in fragile.processes().values()
