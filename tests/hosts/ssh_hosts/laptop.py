"""Laptop in front of a site: the services, a user who answers the hosts' questions, and remote jobs."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.config import Settings
from jupyter_slurm.errors import SlurmError
from jupyter_slurm.services.agent_core import Core
from ssh_hosts.site import Site

__all__ = ["NAME", "Laptop", "at_laptop"]

NAME = "far"


class Laptop:
    """A started core that is logged in to the site, by its profile ``far``."""

    def __init__(self, core: Core, site: Site) -> None:
        self.core, self.site, self.asked = core, site, list[dict[str, Any]]()

    @property
    def cluster(self) -> Any:
        """Return the site's cluster in the services."""
        return self.core.cluster(NAME)

    @property
    def transport(self) -> Any:
        """Return the transport to the site."""
        return self.cluster.client.transport

    @property
    def state(self) -> str:
        """Return the published state of the connection."""
        told = next(one for one in self.core.clusters.list_clusters() if one["id"] == NAME)
        return str(told["connection"]["state"])

    async def answer(self) -> None:
        """Answer the hosts' questions, without end."""
        while True:
            for prompt in self.core.clusters.list_prompts():
                if prompt not in self.asked:
                    self.asked.append(prompt)
                    self.core.clusters.answer_prompt(
                        prompt["id"], [self.site.codes.next() for _ in prompt["questions"]]
                    )
            await asyncio.sleep(0.05)

    def submission(self, text: str, *options: str) -> dict[str, Any]:
        """Return a submission with its own key, as a front end makes it, without any path of this machine."""
        key = time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + "-" + secrets.token_hex(8)
        kind, python = ("script", None) if text.startswith("#!") else ("python", "python3")
        asked = {"key": key, "kind": kind, "text": text, "options": list(options), "args": [], "context": {}}
        return {**asked, "python": python}

    async def submit(self, text: str, *options: str) -> dict[str, Any]:
        """Submit a cell."""
        return await self.core.cluster(NAME).submit(self.submission(text, *options))

    async def job(self, reference: str) -> dict[str, Any]:
        """Return the published record of a job."""
        return await self.core.cluster(NAME).jobs.describe(reference)

    async def follow(self, job: dict[str, Any], received: bytearray, stream: str = "stdout") -> None:
        """Follow a job to its end as a notebook does, which continues after an interruption."""
        while True:
            try:
                async for event, data in self.core.cluster(NAME).results.stream(job["key"], {stream: len(received)}):
                    if event == "output" and data["stream"] == stream:
                        assert data["offset"] == len(received), "a byte was lost, or came twice"
                        received += base64.b64decode(data["data"])
                    if event == "end":
                        return
            except SlurmError:
                await asyncio.sleep(0.2)

    async def until(self, condition: Callable[[], Any], what: str, timeout: float = 90) -> Any:
        """Wait for a condition."""
        deadline = time.monotonic() + timeout
        while not (value := condition()):
            assert time.monotonic() < deadline, what
            await asyncio.sleep(0.05)
        return value


@contextlib.asynccontextmanager
async def _at_laptop(
    site: Site,
    folder: Path,
    *,
    host: str = "login",
    carrier: str = "paramiko",
    slurm: Any = None,
    tunnels: Any = None,
    **settings: Any,
) -> AsyncIterator[Laptop]:
    (folder / "sites").mkdir(exist_ok=True)
    profile = [f'[login]\nhost = "{host}"\nssh_config = "{site.ssh_config}"\ncarrier = "{carrier}"\n']
    for table, said in (("slurm", slurm), ("tunnels", tunnels)):
        profile += [f"[{table}]\n", *(f"{name} = {json.dumps(value)}\n" for name, value in (said or {}).items())]
    (folder / "sites" / f"{NAME}.toml").write_text("".join(profile))
    runtime = tempfile.mkdtemp(prefix="jsr-", dir="/tmp")  # short, for the paths of Unix sockets
    places = {"job_root": str(folder / "jobs"), "state_dir": str(folder / "state"), "runtime_dir": runtime}
    places |= {"sites": [str(folder / "sites")]}
    core = Core(Settings(**{**places, **settings}))
    await core.start()
    laptop = Laptop(core, site)
    answering = asyncio.create_task(laptop.answer())
    try:
        await core.clusters.register(None, None, NAME)
        await core.clusters.connect(NAME)
        yield laptop
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
        await core.clusters.disconnect(NAME)  # otherwise the process that carries the connection may stay
        await core.stop()
        shutil.rmtree(runtime, ignore_errors=True)  # OpenSSH also removes files at this time


@pytest.fixture(scope="session")
def at_laptop() -> Callable[..., contextlib.AbstractAsyncContextManager[Laptop]]:
    """Run a block with a laptop: ``async with at_laptop(site, tmp_path, carrier="paramiko", **settings) as laptop``."""
    return _at_laptop
