"""Tests that secrets of a login appear nowhere else, on no host: at no time in a command line or an environment."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts import Site
from ssh_hosts.watch import Watch

from jupyter_slurm.config import Settings
from jupyter_slurm.services.agent_core import Core

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow]


@pytest.fixture(scope="module")
def site(new_ssh_site: Callable[..., Site]) -> Site:
    return new_ssh_site(way_in="password+code", nodes=1)


async def answer(core: Core, site: Site, given: list[str]) -> None:
    """Answer the prompt of the gateway."""
    done: set[str] = set()
    while True:
        for prompt in core.clusters.list_prompts():
            if prompt["id"] not in done:
                done.add(prompt["id"])
                texts = [question["text"] for question in prompt["questions"]]
                answers = [site.codes.next() if "erification" in text else site.password for text in texts]
                given += answers
                core.clusters.answer_prompt(prompt["id"], answers)
        await asyncio.sleep(0.02)


def submission(text: str) -> dict[str, Any]:
    key = time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + "-" + secrets.token_hex(8)
    return {"key": key, "kind": "script", "text": text, "options": [], "args": [], "context": {}, "python": None}


def readable(folder: Path) -> bytes:
    """Return the content of all files below a folder."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return b"\n".join(path.read_bytes() for path in files)


@pytest.mark.parametrize("carrier", ["paramiko", "openssh"])
async def test_what_was_typed_is_nowhere(
    carrier: str, tmp_path: Path, site: Site, watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "sites").mkdir()
    login = f'[login]\nhost = "login"\nssh_config = "{site.ssh_config}"\ncarrier = "{carrier}"\n'
    (tmp_path / "sites" / "far.toml").write_text(login)
    folders = {"job_root": tmp_path / "jobs", "state_dir": tmp_path / "state", "runtime_dir": site.directory / carrier}
    folders["runtime_dir"].mkdir(mode=0o700)
    core = Core(Settings(sites=[str(tmp_path / "sites")], **{name: str(path) for name, path in folders.items()}))
    await core.start()
    given: list[str] = []
    answering = asyncio.create_task(answer(core, site, given))
    try:
        await core.clusters.register(None, None, "far")
        await core.clusters.connect("far")
        job = await core.cluster("far").submit(submission("#!/bin/sh\nenv\n"))
        async with asyncio.timeout(120):
            async for _ in core.cluster("far").results.stream(job["key"], {}):
                pass
        output = (await core.cluster("far").results.output(job["key"], "stdout", 0, None))[0]
        shown = await core.cluster("far").run_command(["scontrol", "show", "job", job["id"]], table=False, context={})
        with pytest.raises(Exception) as refused:  # noqa: PT011 - whatever it says is looked at
            await core.cluster("far").run_command(
                ["scontrol", "show", "job", "nonsense"], table=False, context={"cwd": "/nowhere"}
            )
        await core.clusters.disconnect("far")
    finally:
        answering.cancel()
        await core.stop()
        watch.stop()
    assert len(given) == 2, "a password and a code"
    assert watch.rounds > 3
    for secret in given:
        assert not watch.where(secret)
        assert secret not in caplog.text
        assert secret not in f"{job}{shown}{refused.value!r}{refused.value}{vars(refused.value)}"
        assert secret.encode() not in output
        for folder in (tmp_path, folders["runtime_dir"]):
            assert secret.encode() not in readable(folder)


async def test_the_watch_sees_what_is_there_for_a_moment(watch: Watch, site: Site) -> None:
    secret = secrets.token_hex(8)
    host = site.logins["login1"]
    for seconds in (0.05, 0.05, 0.05, 0.1, 0.2, 0.5, 1, 2, 5):  # a busy machine looks seldom
        await asyncio.to_thread(host.run, "sh", "-c", f": {secret}x; sleep {seconds}")
        if watch.where(f"{secret}x"):
            break
    assert watch.where(f"{secret}x")
