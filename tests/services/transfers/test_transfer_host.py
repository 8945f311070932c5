"""Tests of transfers by a host that the profile names, with a real sshd beside the login node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts.sshd import SshHost
from ssh_hosts.ways import Way

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.remote]

ONLY_THERE = "/mnt"


@dataclass(frozen=True)
class TransferWay(Way):
    """Route to a cluster whose profile names a host for transfers."""

    other: SshHost | None = None
    entry: str = ""

    def settings(self, cluster: Any, folder: Path, job_root: str) -> dict[str, Any]:
        assert self.host is not None
        settings = super().settings(cluster, folder, job_root)
        both = folder / "config"
        both.write_text(self.host.ssh_config.read_text() + self.entry)
        profile = folder / "sites" / "far.toml"
        text = profile.read_text().replace(str(self.host.ssh_config), str(both))
        profile.write_text(f'{text}\n[storage]\ntransfer_host = "dtn"\n')
        return settings


@pytest.fixture
def dtn(
    request: Any, ssh_host: Callable[..., SshHost], short_tmp: Path, tmp_path: Path, tmp_path_factory: Any
) -> SshHost:
    """Provide a host for transfers, with directories that the login node does not have: ``/mnt``, and the parameters."""
    mounts = {path: tmp_path / path.strip("/") for path in (ONLY_THERE, *getattr(request, "param", ()))}
    for folder in mounts.values():
        folder.mkdir()
    shared = [short_tmp, tmp_path_factory.getbasetemp()]
    return ssh_host(
        name="dtn", users=["root"], own_network=False, shared=shared, mounts=mounts,
        options={"PermitRootLogin": "prohibit-password"}, sftp=False,
    )  # fmt: skip


async def transfer(core: Any, kind: str, source: str, dest: str, **more: Any) -> dict[str, Any]:
    found = await core.transfers.start("far", {"kind": kind, "sources": [source], "dest": dest, **more})
    async with asyncio.timeout(120):
        while found["state"] == "running":
            await asyncio.sleep(0.02)
            found = core.transfers.transfer_to_api(found["id"])
    return dict(found)


async def test_the_host_carries_the_files_and_the_login_node_none(
    remote_carrier: str, login_host: SshHost, dtn: SshHost, desk_by: Any, cluster: Any, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/x").write_bytes(b"x" * 100_000)
    way = TransferWay(remote_carrier, login_host, dtn, dtn.client_entry())
    async with desk_by(way, cluster, tmp_path) as desk:
        assert not dtn.sessions()
        put = await transfer(desk.core, "put", str(tmp_path / "data"), f"{ONLY_THERE}/")
        assert (put["error"], put["state"]) == (None, "finished")
        assert (tmp_path / "mnt/data/x").read_bytes() == b"x" * 100_000
        copied = await transfer(desk.core, "copy", f"{ONLY_THERE}/data", f"{tmp_path}/copy")
        got = await transfer(desk.core, "get", f"{ONLY_THERE}/data", f"{tmp_path}/back")
        staged = await transfer(desk.core, "stage", f"{ONLY_THERE}/data", f"{tmp_path}/staged", to_cluster="far")
        for one, name in ((copied, "copy"), (got, "back"), (staged, "staged")):
            assert (one["error"], one["state"]) == (None, "finished")
            assert (tmp_path / name / "x").read_bytes() == b"x" * 100_000
        missing = await transfer(desk.core, "get", f"{ONLY_THERE}/none", f"{tmp_path}/none")
        assert "on dtn does not exist" in missing["error"]["detail"]
        assert dtn.sessions()
    async with asyncio.timeout(60):
        while dtn.sessions():  # its login ends with that of the cluster
            await asyncio.sleep(0.05)


async def test_a_connection_to_it_that_breaks_is_made_again(
    remote_carrier: str, login_host: SshHost, dtn: SshHost, desk_by: Any, cluster: Any, tmp_path: Path
) -> None:
    (tmp_path / "x").write_bytes(b"x")
    way = TransferWay(remote_carrier, login_host, dtn, dtn.client_entry())
    async with desk_by(way, cluster, tmp_path) as desk:
        for name in ("one", "two"):
            put = await transfer(desk.core, "put", str(tmp_path / "x"), f"{ONLY_THERE}/{name}")
            assert (put["error"], put["state"]) == (None, "finished")
            assert (tmp_path / "mnt" / name).read_bytes() == b"x"
            assert dtn.kill_sessions()


async def test_it_may_ask_and_a_refusal_is_told(
    remote_carrier: str, login_host: SshHost, dtn: SshHost, desk_by: Any, cluster: Any, tmp_path: Path
) -> None:
    (tmp_path / "x").write_bytes(b"x")
    known = tmp_path / "known"
    entry = dtn.client_entry(f"UserKnownHostsFile {known}", "StrictHostKeyChecking ask")
    async with desk_by(TransferWay(remote_carrier, login_host, dtn, entry), cluster, tmp_path) as desk:
        clusters = desk.core.clusters
        for answers in (None, ["yes"]):
            started = asyncio.create_task(transfer(desk.core, "put", str(tmp_path / "x"), f"{ONLY_THERE}/"))
            async with asyncio.timeout(60):
                while not (prompts := clusters.list_prompts()):
                    assert not started.done(), started
                    await asyncio.sleep(0.02)
            assert (prompts[0]["cluster"], prompts[0]["kind"]) == ("far", "host-key")
            clusters.answer_prompt(prompts[0]["id"], answers)
            if answers is None:
                with pytest.raises(Exception, match="dtn"):
                    await started
                assert not (tmp_path / "mnt/x").exists()
        assert (await started)["error"] is None
        assert (tmp_path / "mnt/x").read_bytes() == b"x"


async def test_a_login_of_an_agent_that_was_killed_ends_with_the_login_to_the_cluster(
    login_host: SshHost, dtn: SshHost, desk_by: Any, cluster: Any, tmp_path: Path
) -> None:
    (tmp_path / "x").write_bytes(b"x")
    way = TransferWay("openssh", login_host, dtn, dtn.client_entry())
    async with desk_by(way, cluster, tmp_path) as desk:
        assert (await transfer(desk.core, "put", str(tmp_path / "x"), f"{ONLY_THERE}/"))["error"] is None
        site = desk.core.clusters.site("far")
        site._transfer_host._carried.transport.close(keep=True)  # as if an earlier process had logged in
        site._transfer_host = None
        assert dtn.sessions()
    async with asyncio.timeout(60):
        while dtn.sessions():
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("dtn", "key", "status", "said"),
    [
        ((), "same", "ok", "dtn has your home directory, and rsync"),
        (("/root",), "same", "warning", "dtn does not have the home directory /root of the login node"),
        ((), "new", "failed", "has changed"),
    ],
    indirect=["dtn"],
)
async def test_doctor_checks_it(
    dtn: SshHost, key: str, status: str, said: str, login_host: SshHost, desk_by: Any, cluster: Any, tmp_path: Path
) -> None:
    way = TransferWay("openssh", login_host, dtn, dtn.client_entry())
    if key == "new":
        dtn.new_host_key()
    async with desk_by(way, cluster, tmp_path) as desk:
        found = (await desk.core.examinations.examine("far"))["findings"]
        told = [one for one in found if one["about"] == "transfer host"]
        assert [(one["status"], said in one["said"]) for one in told] == [(status, True)], told
        assert bool(told[0]["todo"]) == (status != "ok")
