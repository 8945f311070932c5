"""Fixtures: the services on a real cluster, without HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from sessions import hurried, launched  # noqa: F401 - fixtures
from ssh_hosts.ways import Way

from jupyter_slurm.config import Settings
from jupyter_slurm.services.agent_core import Core


def new_key() -> str:
    """Make a submission key, as a front end does."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + "-" + secrets.token_hex(8)


class Desk:
    """A started core and one of its clusters, in place of a front end.

    Attributes
    ----------
    env : dict
        Environment of commands that the test itself runs on the cluster.
    folder : str
        Working directory of the submissions.
    root : str
        Parent directory of the job directories.
    """

    def __init__(self, core: Core, cluster: dict[str, Any], env: dict[str, str], folder: str, way: Way) -> None:
        self.core, self.cluster, self.env, self.folder, self.way = core, cluster, env, folder, way

    @property
    def id(self) -> str:
        return str(self.cluster["id"])

    @property
    def root(self) -> str:
        return str(self.cluster["folder"])

    def asked(self, text: str, *options: str, **more: Any) -> dict[str, Any]:
        """Return a submission: a Python cell unless the text begins with ``#!``."""
        kind = "script" if text.startswith("#!") else "python"
        context = {"cwd": self.folder, "env": self.env, "umask": 0o022, "limits": {}, **more.pop("context", {})}
        if self.way.is_remote:  # over SSH only named parts are sent
            context["env"] = dict(context["env"].items() - self.env.items())
        asked = {"key": new_key(), "kind": kind, "text": text, "options": list(options), "args": [], "context": context}
        return {**asked, "python": sys.executable if kind == "python" else None, "dry_run": False, **more}

    async def submit(self, text: str, *options: str, **more: Any) -> dict[str, Any]:
        return await self.core.cluster(self.id).submit(self.asked(text, *options, **more))

    async def job(self, reference: str) -> dict[str, Any]:
        return await self.core.cluster(self.id).jobs.describe(reference)

    async def bring_results(self, reference: str) -> dict[str, Any]:
        cluster = self.core.cluster(self.id)
        await cluster.staging.copy_back(await cluster.jobs.find(reference))
        return await self.job(reference)

    async def start_step(self, reference: str, asked: dict[str, Any]) -> dict[str, Any]:
        cluster = self.core.cluster(self.id)
        return await cluster.steps.start(await cluster.jobs.find(reference), asked)

    async def list_steps(self, reference: str) -> list[dict[str, Any]]:
        cluster = self.core.cluster(self.id)
        return cluster.steps.steps_to_api(await cluster.jobs.find(reference))

    async def kernel(self, reference: str, wait: float) -> dict[str, Any]:
        cluster = self.core.cluster(self.id)
        return await cluster.kernels.connection_to_api(await cluster.jobs.find(reference), wait)

    async def until(
        self, reference: str, condition: Callable[[dict[str, Any]], Any], timeout: float = 150.0
    ) -> dict[str, Any]:
        """Wait for a condition of a job, and follow it meanwhile, as a notebook does."""
        job = await self.job(reference)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not condition(job):
                    await asyncio.sleep(0.1)
                    job = await self.job(reference)
        assert condition(job), job
        return job

    async def finished(self, reference: str) -> dict[str, Any]:
        """Follow a job to its end."""
        async with asyncio.timeout(120):
            async for _ in self.core.cluster(self.id).results.stream(reference, {}):
                pass
        return await self.job(reference)

    async def text(self, reference: str, stream: str = "stdout") -> str:
        return (await self.core.cluster(self.id).results.output(reference, stream, 0, None))[0].decode()


@contextlib.asynccontextmanager
async def desk_at(
    way: Way, cluster: Any, folder: Any, *, clock: Callable[[], float] = time.time, **settings: Any
) -> AsyncIterator[Desk]:
    """Start a core whose folders are below ``folder``, unless the settings name others; it reads the time of day from
    ``clock``."""
    env = cluster.env()
    job_root = settings.pop("job_root", str(folder / "jobs"))
    runtime = tempfile.mkdtemp(prefix="jsr-", dir="/tmp")  # short, for the paths of Unix sockets
    places = {"state_dir": str(folder / "state"), "runtime_dir": runtime, **way.settings(cluster, folder, job_root)}
    core = Core(Settings(**{**places, **settings}), clock=clock)
    await core.start()
    try:
        if way.is_remote:
            await core.clusters.register(None, None, "far")
            registered = await core.clusters.connect("far")
        else:
            registered = await core.clusters.register(str(cluster.slurm_conf), env.get("PATH", os.defpath))
        yield Desk(core, registered, env, str(folder), way)
    finally:
        if way.is_remote:  # otherwise its connection may stay
            await core.clusters.disconnect("far")
        await core.stop()
        shutil.rmtree(runtime, ignore_errors=True)  # OpenSSH removes files at the same time


@pytest.fixture
async def desk(cluster, tmp_path, way) -> AsyncIterator[Desk]:
    async with desk_at(way, cluster, tmp_path) as desk:
        yield desk


@pytest.fixture
def open_desk(way: Way) -> Callable[..., Any]:
    """Return ``open_desk(cluster, folder, **settings)``, a context manager for several desks, or other settings."""
    return functools.partial(desk_at, way)


@pytest.fixture
def desk_by() -> Callable[..., Any]:
    """Return ``desk_by(way, cluster, folder, **settings)``, for tests with a host of their own."""
    return desk_at


@pytest.fixture
def open_far_desk(remote_carrier: str, login_host: Any) -> Callable[..., Any]:
    """Return the same, for tests that make sense only over SSH."""
    return functools.partial(desk_at, Way(remote_carrier, login_host))
