"""Tests of faults between a laptop and its cluster: jobs are neither lost nor doubled, and the user is notified."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts import Site
from ssh_hosts.laptop import Laptop

from jupyter_slurm.transport.ssh import transport

pytestmark = [pytest.mark.slurm, pytest.mark.root]

MB = 1_000_000
LINES = 30_000


@pytest.fixture
async def site(ssh_site: Site) -> AsyncIterator[Site]:
    yield ssh_site
    ssh_site.gateway.restore()
    ssh_site.slurm.thaw_controller()
    ssh_site.point_login_at("login1")
    ssh_site.slurm.run("scancel", f"--user={ssh_site.user}")


@pytest.fixture
async def laptop(
    site: Site, tmp_path: Path, at_laptop: Callable[..., Any], remote_carrier: str
) -> AsyncIterator[Laptop]:
    async with at_laptop(site, tmp_path, carrier=remote_carrier, submit_timeout=2.0, command_timeout=15.0) as there:
        yield there


async def gateway_dies(laptop: Laptop) -> None:
    await asyncio.to_thread(laptop.site.gateway.kill_sessions)


async def login_dies(laptop: Laptop) -> None:
    await asyncio.to_thread(laptop.site.logins["login1"].kill_sessions)


async def silence(laptop: Laptop) -> None:
    """Drop all packets silently until that is detected."""
    laptop.site.gateway.drop()
    await laptop.until(lambda: laptop.state == "lost", "the silence is noticed", 20)
    laptop.site.gateway.restore()


BREAKS = [gateway_dies, login_dies, silence]


def at_work(site: Site, program: str) -> list[int]:
    return [pid for pid, name in site.logins["login1"].processes().items() if name == program]


def times_in_queue(site: Site, job: dict[str, Any]) -> int:
    listed = site.slurm.run("squeue", "--noheader", "--states=all", "--format=%o").stdout.split()
    return listed.count(job["script_path"])


async def found(laptop: Laptop, job: dict[str, Any]) -> dict[str, Any]:
    """Wait until a job's id is known."""
    async with asyncio.timeout(90):
        while not (told := await laptop.job(job["key"]))["id"]:
            await asyncio.sleep(0.2)
    return told


async def long_silence(laptop: Laptop) -> None:
    """Drop all packets until every waiting request has timed out."""
    laptop.site.gateway.drop()
    tracker = laptop.core.cluster("far").tracker
    await laptop.until(lambda: [entry for entry in tracker.entries.values() if entry.error], "it is given up", 30)
    laptop.site.gateway.restore()


@pytest.mark.parametrize("broken", [*BREAKS, long_silence])
async def test_in_the_middle_of_sbatch(
    laptop: Laptop, site: Site, broken: Callable[[Laptop], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    await laptop.submit("#!/bin/sh\ntrue\n")  # `sbatch --help` and other preparations are known from now on
    if broken is long_silence:
        monkeypatch.setattr(transport, "_CONNECT_TIMEOUT_S", 3.0)
    site.slurm.freeze_controller()
    submitting = asyncio.create_task(laptop.submit("#!/bin/sh\nsleep 300\n"))
    await laptop.until(lambda: at_work(site, "sbatch"), "sbatch is at work")
    await broken(laptop)
    site.slurm.thaw_controller()
    job = await found(laptop, await submitting)
    assert times_in_queue(site, job) == 1
    await laptop.core.cluster("far").actions.cancel(
        job["key"]
    )  # on a busy machine, the next query of the queue reports the final state
    async with asyncio.timeout(90):
        while (await laptop.job(job["key"]))["state"] not in ("CANCELLED", "COMPLETING"):
            await asyncio.sleep(0.2)


@pytest.mark.by_day("paramiko", "openssh")  # each finds out about a break in its own way
async def test_in_the_middle_of_a_tail(laptop: Laptop, site: Site) -> None:
    """A job prints all the time, and the connection breaks in each way."""
    script = f"#!/bin/bash\nfor ((i = 0; i < {LINES}; i++)); do echo line $i; ((i % 500)) || sleep 0.5; done\n"
    job, received = await laptop.submit(script), bytearray()
    following = asyncio.create_task(laptop.follow(job, received))
    for broken in BREAKS:
        before = len(received)
        await laptop.until(lambda at=before: len(received) > at, "output comes")
        await broken(laptop)
    async with asyncio.timeout(120):
        await following
    assert received == b"".join(b"line %d\n" % number for number in range(LINES))


@pytest.mark.parametrize("broken", BREAKS)
async def test_in_the_middle_of_a_transfer(laptop: Laptop, site: Site, broken: Callable[[Laptop], Any]) -> None:
    data = os.urandom(MB) * 50
    home = Path(f"~{site.user}").expanduser()
    path = str(home / f"large-{os.urandom(4).hex()}")
    writing = asyncio.create_task(laptop.transport.write(path, data))

    def drafted() -> int:
        return max((entry.stat().st_size for entry in home.glob(".*.tmp")), default=0)

    await laptop.until(lambda: drafted() > 5 * MB or writing.done(), "a part has arrived")
    assert not writing.done()
    assert not Path(path).exists()
    await broken(laptop)
    async with asyncio.timeout(120):
        await writing
    assert hashlib.sha256(Path(path).read_bytes()).digest() == hashlib.sha256(data).digest()
    assert drafted() == 0
    came, call = list[str](), laptop.transport._files._call

    async def counted(words: Sequence[str], stdin: memoryview | None = None) -> Any:
        answer = await call(words, stdin)
        came.append(words[0])
        return answer

    laptop.transport._files._call = counted
    reading = asyncio.create_task(laptop.transport.read(path))
    await laptop.until(lambda: came, "a part has come")
    assert not reading.done()
    await broken(laptop)
    async with asyncio.timeout(120):
        assert await reading == data


async def test_another_login_node_answers(laptop: Laptop, site: Site) -> None:
    """Another host key, another /tmp, the same home: the jobs are followed again, and new ones are submitted."""
    script = "#!/bin/bash\necho begun\nuntil [ -e ~/go.$SLURM_JOB_ID ]; do sleep 0.1; done\necho over\n"
    job, received = await laptop.submit(script), bytearray()
    following = asyncio.create_task(laptop.follow(job, received))
    await laptop.until(lambda: received, "it has begun")
    site.point_login_at("login2")
    await login_dies(laptop)
    assert await laptop.transport.read("/proc/sys/kernel/hostname") == b"login2\n"
    (Path(f"~{site.user}").expanduser() / f"go.{job['id']}").touch()
    async with asyncio.timeout(60):
        await following
    assert received == b"begun\nover\n"
    cell = await laptop.submit("#!/bin/sh\necho there\n")
    again = bytearray()
    async with asyncio.timeout(60):
        await laptop.follow(cell, again)
    assert again == b"there\n"
    assert not at_work(site, "sleep"), "nothing is left behind on the first one"


async def test_a_lock_that_a_connection_took_with_it_is_taken_again(
    laptop: Laptop, site: Site, tmp_path: Path, at_laptop: Callable[..., Any], remote_carrier: str
) -> None:
    """Two laptops see a submission without an answer; the first one's connection breaks. One of them completes it."""
    (tmp_path / "other").mkdir()
    async with at_laptop(site, tmp_path / "other", carrier=remote_carrier, command_timeout=15.0) as other:
        site.slurm.freeze_controller()
        job = await laptop.submit("#!/bin/sh\nsleep 300\n")
        assert job["state"] == "SUBMITTING"
        assert (await other.job(job["key"]))["state"] == "SUBMITTING"
        for pid in at_work(site, "sbatch"):
            os.kill(pid, signal.SIGKILL)
        await login_dies(laptop)
        site.slurm.thaw_controller()
        ids = {(await found(one, job))["id"] for one in (laptop, other)}
        assert len(ids) == 1
        assert times_in_queue(site, job) == 1
        script = Path(job["script_path"])
        await laptop.until(lambda: _can_be_locked(script), "nobody has its lock any more")


def _can_be_locked(path: Path) -> bool:
    with path.open("rb+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


async def test_keys_are_changed_under_load(
    new_ssh_site: Callable[..., Site], at_laptop: Callable[..., Any], tmp_path: Path, remote_carrier: str
) -> None:
    """As after a gigabyte, in this test after every megabyte; and the server allows two sessions."""
    site = new_ssh_site(nodes=1, login_options={"RekeyLimit": "1M", "MaxSessions": 2, "Subsystem": "sftp /bin/false"})
    data = os.urandom(MB) * 20
    async with at_laptop(site, tmp_path, carrier=remote_carrier) as laptop:
        path = str(Path(f"~{site.user}").expanduser() / "large")
        await laptop.transport.write(path, data)
        job = await laptop.submit(f"#!/bin/sh\ncat {path}\n")
        received = bytearray()
        following = asyncio.create_task(laptop.follow(job, received))
        others = [asyncio.create_task(laptop.transport.read(path)) for _ in range(3)]
        squeue = await laptop.core.cluster("far").run_command(["squeue"], table=True, context={})
        assert squeue["exit_code"] == 0
        assert [await other == data for other in others] == [True] * 3
        async with asyncio.timeout(120):
            await following
        assert received == data
        assert len(laptop.asked) == 1, "one connection served all"
