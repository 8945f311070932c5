"""Tests of each kind of connection loss to a session: it is reported meanwhile, and the same page works afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sessions import Page, launch, nothing_left, ready, run_a_cell
from ssh_hosts.ways import new_login_host

from jupyter_slurm.embedded import EmbeddedCluster

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.root,
    pytest.mark.usefixtures("hurried"),
    pytest.mark.carrier("paramiko", "openssh"),
    pytest.mark.by_day("paramiko", "openssh"),  # a forwarding of another program
]


@pytest.fixture(scope="module")
def login_host(ssh_host: Any, short_tmp: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Provide a login node with OpenSSH's default limit of sessions, one of them for the tunnel."""
    host = new_login_host(ssh_host, short_tmp, tmp_path_factory, sessions=10)
    yield host
    host.restore()


async def state(desk: Any, wanted: str) -> dict[str, Any]:
    (told,) = desk.core.sessions.list_to_api(desk.id, active=True)
    return dict(await desk.until(told["key"], lambda job: job["session"]["state"] == wanted))


def where(told: dict[str, Any]) -> list[Any]:
    return [told["session"][name] for name in ("url", "port", "local_port", "server", "ready_time")]


async def test_sshd_restarts_and_packets_are_lost(
    open_far_desk: Any, cluster: EmbeddedCluster, tmp_path: Path, login_host: Any
) -> None:
    async with open_far_desk(cluster, tmp_path) as desk:
        asked = launch(desk, "-p", "arandu", name="mine")
        await desk.core.sessions.launch(desk.id, asked)
        before = await ready(desk, asked)
        page = Page((await desk.core.sessions.open(desk.id, "mine"))["page"])
        await page.log_in()

        login_host.stop()
        login_host.kill_sessions()
        told = await state(desk, "reconnecting")
        assert "The connection to far is lost" in told["session"]["message"]
        assert told["session"]["url"] == before["session"]["url"]
        login_host.start()
        assert where(await state(desk, "ready")) == where(before)
        assert await page.get("api/contents") == 200

        login_host.drop()  # until the pings have detected it
        try:
            await state(desk, "reconnecting")
        finally:
            login_host.restore()
        assert where(await state(desk, "ready")) == where(before)
        assert await run_a_cell(page, "print(1)") == "1\n"
        await desk.core.sessions.end(desk.id, "mine")
        await desk.finished(before["key"])
        await nothing_left(desk, before)
