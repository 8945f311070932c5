"""Agent without space or file descriptors: it works, its answers stay honest, and it recovers."""

from __future__ import annotations

import contextlib
import resource
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.agent.client.agent_client import AgentClient
from jupyter_slurm.config import Settings
from jupyter_slurm.embedded import EmbeddedCluster
from jupyter_slurm.errors import SlurmError, TransportError

pytestmark = pytest.mark.slurm


def _submission(text: str, cluster: EmbeddedCluster, *options: str) -> dict[str, Any]:
    key = time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(8)
    context = {"cwd": "/tmp", "env": cluster.env(), "umask": 0o22, "limits": {}}
    return {"key": key, "kind": "script", "text": text, "options": list(options), "context": context}


def _register(client: AgentClient, cluster: EmbeddedCluster) -> str:
    env = cluster.env()
    named = client.post("/v1/clusters", json={"slurm_conf": env["SLURM_CONF"], "path": env["PATH"]})
    return f"/v1/clusters/{named['id']}"


@pytest.fixture
def descriptors() -> Iterator[Callable[[int, int], None]]:
    """Return ``descriptors(pid, n)``: leave a process n free file descriptors; the limit is lifted at the end."""
    limits: dict[int, tuple[int, int]] = {}

    def leave(pid: int, number: int) -> None:
        limits.setdefault(pid, resource.prlimit(pid, resource.RLIMIT_NOFILE))
        used = {int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()}
        # A descriptor is the lowest free number, and must be below the limit.
        free = (n for n in range(100_000) if n not in used)
        limit = next(n for index, n in enumerate(free) if index == number)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, limits[pid][1]))

    yield leave
    for pid, limit in limits.items():
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)


@pytest.fixture
def disk(place: Path, daemon_settings: Settings) -> Iterator[Path]:
    """Provide a small disk as the state directory of the agent, which is ended first."""
    state = place / "state"
    state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "none", str(state)], check=True)
    yield state
    with contextlib.suppress(SlurmError), AgentClient.connect(daemon_settings, start=False) as client:
        client.stop_agent()
    subprocess.run(["umount", "--lazy", str(state)], check=True)


@pytest.mark.root
@pytest.mark.parametrize("obstacle", ["full", "read-only", "full later"])
def test_state_folder_that_cannot_be_written(
    daemon_settings: Settings,
    cluster: EmbeddedCluster,
    disk: Path,
    obstacle: str,
    capsys: pytest.CaptureFixture[str],
    wait_for: Callable[..., Any],
) -> None:
    """Check that the agent starts, works and says so once to each process; its log is in the directory of the socket."""

    def fill() -> None:
        with contextlib.suppress(OSError), open(disk / "filler", "wb", buffering=0) as filler:
            while filler.write(b"x" * 4096):
                pass

    if obstacle == "full":
        fill()
    elif obstacle == "read-only":
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with AgentClient.connect(daemon_settings) as client:
        if obstacle == "full later":
            fill()
        path = _register(client, cluster)
        job = client.post(f"{path}/jobs", json=_submission("#!/bin/sh\necho out\n", cluster))
        wait_for(lambda: client.get(f"{path}/jobs/{job['key']}")["finished"], "the end of the job", timeout=60)
        known = client.get("/v1/agent")
        wait_for(lambda: client.get("/v1/agent")["warnings"], "a warning")
        (index,) = [text for text in client.get("/v1/agent")["warnings"] if "The index of finished jobs" in text]
        assert str(disk) in index
        if obstacle != "full later":
            assert Path(known["log"]).parent == Path(daemon_settings.runtime_dir)
            assert " leads (" in Path(known["log"]).read_text()
            assert any(known["log"] in text for text in known["warnings"])
    with AgentClient.connect(daemon_settings) as client:
        assert job["key"] in [entry["key"] for entry in client.get(f"{path}/jobs", params={"state": "all"})]
    assert capsys.readouterr().err.count("The index of finished jobs") == 1


def test_no_file_descriptor_is_left(
    daemon_settings: Settings,
    cluster: EmbeddedCluster,
    descriptors: Callable[[int, int], None],
    wait_for: Callable[..., Any],
) -> None:
    """Check that nothing is told as missing, and that a submission that is refused leaves no job."""
    reported = []
    with AgentClient.connect(daemon_settings) as client:
        path = _register(client, cluster)
        name = f"exhausted-{secrets.token_hex(4)}"
        known = client.post(f"{path}/jobs", json=_submission("#!/bin/sh\necho out\n", cluster, "--hold"))
        pid = client.info["pid"]

        def refusal(ask: Callable[[], Any]) -> TransportError | None:
            descriptors(pid, 0)  # again with each try: what runs in the background may end, and free some
            try:
                ask()
            except TransportError as error:
                return error
            return None

        def submit(*options: str) -> Any:
            return client.post(f"{path}/jobs", json=_submission("#!/bin/sh\ntrue\n", cluster, *options))

        error = wait_for(lambda: refusal(lambda: submit("--hold")), "a refusal")
        assert "Too many open files" in error.message
        assert "ulimit -n" in error.hint
        for number in range(9):
            descriptors(pid, number)
            assert client.get(f"{path}/jobs/{known['key']}")["state"] == "PENDING"
            with contextlib.suppress(SlurmError):
                reported.append(submit("-J", name)["key"])
        descriptors(pid, 1000)
        reported.append(submit("-J", name)["key"])

        def cancelled() -> bool:
            with contextlib.suppress(TransportError):  # the last look at the queue may have failed
                return client.post(f"{path}/jobs/{known['key']}/cancel")["state"] == "CANCELLED"
            return False

        wait_for(cancelled, "the cancellation")
        argv = ["squeue", "-h", "-t", "all", "-n", name, "-o", "%i"]

        def is_settled() -> bool:
            listed = [job for job in client.get(f"{path}/jobs", params={"state": "all"}) if job["name"] == name]
            done = subprocess.run(argv, env=cluster.env(), capture_output=True, text=True, check=True)
            assert {*reported} <= {job["key"] for job in listed}
            return sorted(str(job["id"]) for job in listed) == sorted(done.stdout.split())

        wait_for(is_settled, "each job is listed once")
