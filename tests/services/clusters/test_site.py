"""Tests of the services over SSH: a gateway with a one-time code, and a login node with a real Slurm, none local."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import paramiko
import pytest
from ssh_hosts import Site as RealSite

from jupyter_slurm.config import Settings
from jupyter_slurm.embedded import EmbeddedCluster
from jupyter_slurm.errors import ConfigError, LoginDeclined, NotConnected, SubmitRefused, TransportError
from jupyter_slurm.services.agent_core import Core
from jupyter_slurm.services.clusters import registry
from jupyter_slurm.services.clusters import remote_cluster as services_site
from jupyter_slurm.services.jobs import record_writer
from jupyter_slurm.sites.profile import load_profile
from jupyter_slurm.transport.ssh import transport

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow]


def over(name: str, *marks: pytest.MarkDecorator) -> Any:
    """Return a carrier as a parameter: one worker, with one site, runs all of its tests."""
    return pytest.param(name, marks=[pytest.mark.xdist_group(f"site-{name}"), *marks])


# For what is decided above the carrier.
one_by_day = pytest.mark.parametrize(
    "ssh_carrier", [over("paramiko"), over("openssh", pytest.mark.nightly)], indirect=True
)


@pytest.fixture(params=[over("paramiko"), over("openssh")])
def ssh_carrier(request: pytest.FixtureRequest) -> str:
    """Return the SSH transport: the tests are the same for each."""
    return str(request.param)


def write_profile(folder: Path, site: RealSite, ssh_carrier: str, more: str = "") -> None:
    """Write the profile ``far`` of a site, without other files."""
    folder.mkdir(exist_ok=True)
    login = f'[login]\nhost = "login"\nssh_config = "{site.ssh_config}"\ncarrier = "{ssh_carrier}"\n'
    (folder / "far.toml").write_text(login + more)


class Person:
    """User who answers prompts of hosts."""

    def __init__(self, core: Core, site: RealSite) -> None:
        self.core, self.site, self.asked = core, site, list[dict[str, Any]]()
        self.code = site.codes.next

    async def answer(self) -> None:
        while True:
            for prompt in self.core.clusters.list_prompts():
                if prompt not in self.asked:
                    self.asked.append(prompt)
                    self.core.clusters.answer_prompt(prompt["id"], [self.code() for _ in prompt["questions"]])
            await asyncio.sleep(0.05)


@pytest.fixture
async def core(tmp_path: Path, short_tmp: Path, ssh_site: RealSite, ssh_carrier: str) -> AsyncIterator[Core]:
    cost = '[cost]\nunit = "credits"\npartitions = { main = 2 }\n'
    write_profile(tmp_path / "sites", ssh_site, ssh_carrier, cost)
    settings = Settings(
        job_root=str(tmp_path / "jobs"),
        state_dir=str(tmp_path / "state"),
        runtime_dir=tempfile.mkdtemp(prefix="r", dir=short_tmp),
        sites=[str(tmp_path / "sites")],
    )
    core = Core(settings)
    await core.start()
    yield core
    with contextlib.suppress(ConfigError):  # a login that outlives the core
        await core.clusters.disconnect("far")
    await core.stop()


@pytest.fixture
async def person(core: Core, ssh_site: RealSite) -> AsyncIterator[Person]:
    there = Person(core, ssh_site)
    answering = asyncio.create_task(there.answer())
    yield there
    answering.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await answering


def asked(text: str, *options: str) -> dict[str, Any]:
    """Return a submission from a laptop, which names nothing of this machine."""
    import secrets
    import time

    key = time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + "-" + secrets.token_hex(8)
    kind = "script" if text.startswith("#!") else "python"
    python = "python3" if kind == "python" else None
    return {
        "key": key,
        "kind": kind,
        "text": text,
        "options": list(options),
        "args": [],
        "context": {},
        "python": python,
    }


async def finished(core: Core, job: dict[str, Any]) -> dict[str, Any]:
    async with asyncio.timeout(120):
        async for _ in core.cluster("far").results.stream(job["key"], {}):
            pass
    return await core.cluster("far").jobs.describe(job["key"])


async def until(done: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not done():
            await asyncio.sleep(0.05)


async def text(core: Core, job: dict[str, Any], stream: str = "stdout") -> str:
    return (await core.cluster("far").results.output(job["key"], stream, 0, None))[0].decode()


async def test_cells_run_behind_two_hops_and_a_code(core: Core, person: Person, ssh_site: RealSite) -> None:
    told = await core.clusters.register(None, None, "far")
    assert told["connection"]["state"] == "disconnected"
    with pytest.raises(NotConnected, match="far"):
        await core.cluster("far").jobs.list_jobs(active=True)
    told = await core.clusters.connect("far")
    assert told["connection"]["state"] == "connected"
    assert told["connection"]["hosts"] == ["gateway", "login"]
    assert len(person.asked) == 1
    assert person.asked[0]["questions"][0]["echo"] is False
    script = await core.cluster("far").submit(asked("#!/bin/sh\nid -un; uname -n; echo sorry >&2\n"))
    cell = await core.cluster("far").submit(asked("import os\nprint(os.uname().nodename)\n6 * 7"))
    for job in (script, cell):
        assert (await finished(core, job))["state"] == "COMPLETED"
    user, node = (await text(core, script)).split()
    assert (user, node[:4]) == (ssh_site.user, "node")
    assert await text(core, script, "stderr") == "sorry\n"
    assert (await text(core, cell)).split()[1:] == ["42"]
    assert len(person.asked) == 1  # one login serves everything
    (partition,) = (await core.clusters.list_names("far", "partition", 30.0))["names"]
    assert partition["name"] == "main"
    assert re.fullmatch(r"default, \d nodes?, .*, an hour counts 2 times", partition["about"]), (
        "Slurm's word, then the profile's"
    )
    assert {job["id"] for job in await core.cluster("far").jobs.list_jobs(active=False)} >= {script["id"], cell["id"]}
    squeue = await core.cluster("far").run_command(["squeue", "--all"], table=True, context={})
    assert squeue["table"]["columns"][0] == "JOBID"
    with pytest.raises(SubmitRefused, match="partition"):
        await core.cluster("far").submit(asked("#!/bin/sh\n", "-p", "nowhere"))


@one_by_day
async def test_a_job_folder_is_private_and_lies_with_the_person(core: Core, person: Person, ssh_site: RealSite) -> None:
    await core.clusters.connect((await core.clusters.register(None, None, "far"))["id"])
    job = await core.cluster("far").submit(asked("#!/bin/sh\npwd\n"))
    assert (await finished(core, job))["state"] == "COMPLETED"
    home = Path(f"~{ssh_site.user}").expanduser()
    assert (await text(core, job)).strip() == str(home)
    folder = Path(job["folder"])
    assert folder.is_relative_to(home)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_uid for path in folder.iterdir()} == {home.stat().st_uid}
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir() if path.name not in ("stdout", "stderr"))


async def test_a_connection_that_breaks_loses_nothing(core: Core, person: Person, ssh_site: RealSite) -> None:
    """Both login hosts lose their sessions in the middle; the login needs another code; the job is followed again."""
    await core.clusters.connect((await core.clusters.register(None, None, "far"))["id"])
    job = await core.cluster("far").submit(asked("#!/bin/sh\nfor i in 1 2 3 4 5 6; do echo line $i; sleep 1; done\n"))
    received = b""
    broken = False
    import base64

    while True:
        try:
            async for event, data in core.cluster("far").results.stream(job["key"], {"stdout": len(received)}):
                if event == "output" and data["stream"] == "stdout":
                    assert data["offset"] == len(received)
                    received += base64.b64decode(data["data"])
                if b"line 2" in received and not broken:
                    broken = True
                    ssh_site.gateway.kill_sessions()
                if event == "end":
                    break
            break
        except Exception as error:
            logging.getLogger(__name__).info("asked again: %r", error)
    assert broken
    assert received == b"".join(b"line %d\n" % number for number in range(1, 7))
    assert (await core.cluster("far").jobs.describe(job["key"]))["state"] == "COMPLETED"


async def test_a_code_that_nobody_types_holds_up_nothing_else(
    core: Core, ssh_site: RealSite, cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is lost and prompts for a code: another cluster can be used meanwhile, and waiting calls continue.

    A connecting client waits as well during the prompt, and gets an error soon if the host is unreachable.
    """
    here = (await core.clusters.register(str(cluster.slurm_conf), os.environ["PATH"]))["id"]
    await core.clusters.register(None, None, "far")

    async def code() -> None:
        await until(core.clusters.list_prompts)
        core.clusters.answer_prompt(core.clusters.list_prompts()[0]["id"], [ssh_site.codes.next()])

    await asyncio.gather(core.clusters.connect("far"), code())
    ssh_site.gateway.kill_sessions()
    waiting = asyncio.create_task(core.cluster("far").submit(asked("print(1)")))
    await until(core.clusters.list_prompts)
    connecting = asyncio.create_task(core.clusters.connect("far"))
    context = {"cwd": "/", "env": cluster.env(), "umask": 0o022, "limits": {}}
    job = await core.cluster(here).submit({**asked("#!/bin/sh\necho here\n"), "context": context})
    assert {one["id"] for one in await core.cluster(here).jobs.list_jobs(active=False)} >= {job["id"]}
    states = {told["id"]: told["connection"]["state"] for told in core.clusters.list_clusters() if told["id"] == "far"}
    assert states == {"far": "lost"}
    assert len(core.clusters.list_prompts()) == 1
    assert not waiting.done()
    assert not connecting.done()
    await code()
    job = await waiting
    assert (await core.cluster("far").jobs.describe(job["key"]))["id"] == job["id"]
    assert (await connecting)["connection"]["state"] == "connected"
    await finished(core, job)
    monkeypatch.setattr(services_site, "_RECONNECT_TIMEOUT_S", 0.2)
    ssh_site.gateway.stop()
    try:
        ssh_site.gateway.kill_sessions()
        await until(lambda: core.clusters.list_clusters()[-1]["connection"]["state"] == "lost")
        with pytest.raises(TransportError, match="The connection to far is lost"):
            await core.clusters.connect("far")
        found = await core.examinations.examine("far")
        assert [finding["about"] for finding in found["findings"] if finding["status"] == "failed"] == ["connection"]
        assert "log-in" not in str(found), "what an earlier log-in has found"
    finally:
        ssh_site.gateway.start()


async def test_a_log_in_ends_at_its_longest_age_and_jobs_go_on(
    core: Core, person: Person, ssh_site: RealSite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ages: list[float | None] = [None]
    # A profile allows at least a minute.
    monkeypatch.setattr(registry, "load_profile", lambda *given: replace(load_profile(*given), max_age=ages[-1]))

    async def connect() -> None:
        await core.clusters.register(None, None, "far")
        await core.clusters.connect("far")

    await connect()
    gate = f"/home/{ssh_site.user}/{tmp_path.name}"
    job = await core.cluster("far").submit(
        asked(f"#!/bin/sh\necho one\nuntil [ -e {gate} ]; do sleep 0.1; done\necho two\n")
    )
    await core.clusters.disconnect("far")
    ages.append(6.0)  # a login takes less, also on a busy machine
    await connect()
    used = ssh_site.codes.used
    await until(lambda: core.clusters.list_clusters()[-1]["connection"]["state"] == "disconnected")
    assert core.clusters.list_clusters()[-1]["connection"]["message"] == "the login was 0.00167 h old"
    with pytest.raises(NotConnected):
        await core.cluster("far").jobs.describe(job["key"])
    ages.append(None)
    await connect()
    assert ssh_site.codes.used == used + 1
    assert (await core.cluster("far").jobs.describe(job["key"]))["finished"] is False
    ssh_site.logins["login1"].run("touch", gate)
    async with asyncio.timeout(60):
        while await text(core, job) != "one\ntwo\n":
            await asyncio.sleep(0.1)


@one_by_day
async def test_after_a_restart_the_jobs_are_there(
    core: Core, person: Person, ssh_site: RealSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also jobs with unwritten records when the login ended, over a dead link."""
    await core.clusters.connect((await core.clusters.register(None, None, "far"))["id"])
    job = await core.cluster("far").submit(asked("#!/bin/sh\necho kept\n"))
    await finished(core, job)
    assert (await core.clusters.disconnect("far"))["connection"]["state"] == "disconnected"
    with pytest.raises(NotConnected):
        await core.cluster("far").jobs.describe(job["key"])
    await core.clusters.connect("far")
    assert (await core.cluster("far").jobs.describe(job["key"]))["state"] == "COMPLETED"
    assert await text(core, job) == "kept\n"
    monkeypatch.setattr(transport, "_CONNECT_TIMEOUT_S", 1e6)
    monkeypatch.setattr(record_writer, "_WRITE_DELAYS_S", (2.0, 1))  # the link is cut before the write
    monkeypatch.setattr(record_writer, "_FINAL_WRITE_TIMEOUT_S", 4.0)
    job = await core.cluster("far").submit(asked("#!/bin/sh\necho kept, too\n"))
    ssh_site.gateway.drop()
    try:
        async with asyncio.timeout(60):
            assert (await core.clusters.disconnect("far"))["connection"]["state"] == "disconnected"
    finally:
        ssh_site.gateway.restore()
    record = json.loads((Path(job["script_path"]).parent / "job.json").read_bytes())
    assert record["job"] is None, "it was not written down"
    await core.clusters.connect("far")
    assert (await finished(core, job))["id"] == job["id"]
    assert await text(core, job) == "kept, too\n"


@pytest.mark.parametrize("ssh_carrier", [over("openssh")], indirect=True)
async def test_a_log_in_by_openssh_outlives_the_core(core: Core, person: Person, ssh_site: RealSite) -> None:
    """The next core finds the login without a prompt; the login ends on request, also before it was found."""
    await core.clusters.connect((await core.clusters.register(None, None, "far"))["id"])
    used = ssh_site.codes.used
    await core.stop()
    for _ in range(2):
        again = Core(core.settings)
        await again.start()
        assert (await again.clusters.connect((await again.clusters.register(None, None, "far"))["id"]))["users"] == []
        assert again.clusters.list_prompts() == []
        await again.stop()
    assert ssh_site.codes.used == used
    folder = Path(core.settings.runtime_dir, "ssh")
    assert any(path.is_socket() for path in folder.iterdir())
    last = Core(core.settings)
    await last.start()
    await last.clusters.disconnect("far")
    async with asyncio.timeout(60):
        while any(path.is_socket() for path in folder.iterdir()):
            await asyncio.sleep(0.05)
    await last.stop()


async def test_who_declines_is_told_so_and_may_try_again(core: Core, ssh_site: RealSite) -> None:
    await core.clusters.register(None, None, "far")
    connecting = asyncio.create_task(core.clusters.connect("far"))
    await until(core.clusters.list_prompts)
    core.clusters.answer_prompt(core.clusters.list_prompts()[0]["id"], None)
    with pytest.raises(LoginDeclined):
        await connecting
    assert core.clusters.list_clusters()[-1]["connection"]["state"] == "disconnected"


async def test_a_log_in_under_way_can_be_ended(core: Core, ssh_site: RealSite, ssh_carrier: str) -> None:
    """Waiting callers get an error, and the prompt and its thread end; the next login is a new one."""
    await core.clusters.register(None, None, "far")

    def transports() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if isinstance(thread, paramiko.Transport)}

    before = transports()
    connecting = asyncio.create_task(core.clusters.connect("far"))
    await until(core.clusters.list_prompts)
    assert ssh_carrier == "openssh" or transports() - before
    assert (await core.clusters.disconnect("far"))["connection"]["state"] == "disconnected"
    with pytest.raises(NotConnected, match="was ended"):
        await connecting
    await until(lambda: not core.clusters.list_prompts() and transports() <= before)
    again = asyncio.create_task(core.clusters.connect("far"))
    await until(core.clusters.list_prompts)
    assert len(core.clusters.list_prompts()) == 1
    core.clusters.answer_prompt(core.clusters.list_prompts()[0]["id"], [ssh_site.codes.next()])
    assert (await again)["connection"]["state"] == "connected"


@one_by_day
@pytest.mark.parametrize(
    ("make", "why"),
    [
        ("mkdir -p {0}/theirs; chown nobody {0}/theirs", "belongs to another user"),
        ("mkdir -p {0}/theirs/jobs; chown nobody {0}/theirs", "belongs to another user"),
        ("mkdir -p {0}/theirs; chmod 777 {0}/theirs", "all users can write"),
        ("ln -s {1} {0}/theirs; chown -h nobody {0}/theirs", "belongs to another user"),
        ("mkdir -m 777 {0}/open; ln -s {0}/open {0}/theirs", "all users can write"),
        ("ln -s {1} {0}/theirs", ""),
    ],
)
async def test_no_job_lies_where_another_user_can_put_one(
    core: Core, person: Person, ssh_site: RealSite, tmp_path: Path, ssh_carrier: str, make: str, why: str
) -> None:
    login = ssh_site.logins["login1"]
    base = login.run("mktemp", "-d").stdout.strip()
    login.run("sh", "-c", f"chmod 755 {base}; {make.format(base, f'~{ssh_site.user}')}")
    write_profile(tmp_path / "sites", ssh_site, ssh_carrier, f'[slurm]\njob_root = "{base}/theirs/jobs"\n')
    await core.clusters.register(None, None, "far")
    if not why:
        assert (await core.clusters.connect("far"))["connection"]["state"] == "connected"
        return
    with pytest.raises(ConfigError, match=why) as caught:
        await core.clusters.connect("far")
    assert "job_root" in caught.value.hint
    assert core.clusters.list_clusters()[-1]["connection"]["state"] == "disconnected"


async def test_no_secret_is_told_or_logged(
    core: Core, person: Person, ssh_site: RealSite, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    codes: list[str] = []

    def code() -> str:
        codes.append(ssh_site.codes.next())
        return codes[-1]

    person.code = code
    await core.clusters.connect((await core.clusters.register(None, None, "far"))["id"])
    assert codes
    said = caplog.text + repr(core.clusters.list_clusters()) + repr(person.asked)
    assert not any(code in said for code in codes)


@one_by_day
async def test_only_profiles_say_where_a_cluster_is(core: Core, tmp_path: Path, ssh_site: RealSite) -> None:
    for name in ("login", "elsewhere", "../sites/far"):
        with pytest.raises(ConfigError):
            await core.clusters.register(None, None, name)
    write_profile(tmp_path / "sites", ssh_site, "paramiko", "[shell]\nprelude = 7\n")
    with pytest.raises(ConfigError, match=r"shell\.prelude"):
        await core.clusters.register(None, None, "far")


@one_by_day
async def test_edits_of_the_profile_are_told_until_the_next_login(
    core: Core, person: Person, tmp_path: Path, ssh_site: RealSite, ssh_carrier: str
) -> None:
    """The job's card and the connection name the keys and the commands; after them, the edits take effect."""
    cluster = await core.clusters.site("far").connect()
    assert "notice" not in core.clusters.describe("far")["connection"]
    edits = '[shell]\nprelude = "export EDITED=yes"\n[python]\npath = "/usr/bin/python3"\n'
    write_profile(tmp_path / "sites", ssh_site, ssh_carrier, edits + "[tunnels]\nnode_ports = [20000, 20100]\n")
    job = await cluster.submit(asked("#!/bin/sh\ntrue\n"))
    notices = {core.clusters.describe("far")["connection"]["notice"], *job["warnings"]}
    assert len(notices) == 1
    notice = notices.pop()
    for words in (
        "shell.prelude",
        "python.path",
        "tunnels.node_ports",
        "jupyter slurm disconnect far",
        "jupyter slurm connect far",
    ):
        assert words in notice
    (tmp_path / "sites" / "far.toml").write_text("[login\n")
    assert "far.toml:1" in core.clusters.describe("far")["connection"]["notice"]
    write_profile(tmp_path / "sites", ssh_site, ssh_carrier, edits)
    await core.clusters.disconnect("far")
    cluster = await core.clusters.site("far").connect()
    assert "notice" not in core.clusters.describe("far")["connection"]
    assert (await cluster.client.transport.run(["/bin/sh", "-c", "echo $EDITED"])).stdout == b"yes\n"
