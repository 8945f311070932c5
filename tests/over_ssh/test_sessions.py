"""Tests of a session behind a real site: laptop -> gateway with a one-time code -> login node -> compute node."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from sessions import Page, ended, hurried, run_a_cell, run_in, start_kernel  # noqa: F401 - one is a fixture
from ssh_hosts import Site
from ssh_hosts.laptop import NAME, Laptop

from jupyter_slurm.transport.ssh.link.persistent import PersistentLink

_VISIT = """
import ssl, sys, urllib.request as u
context = ssl._create_unverified_context()
print(u.build_opener(u.ProxyHandler({}), u.HTTPSHandler(context=context)).open(sys.argv[1], timeout=20).read())
"""

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.usefixtures("hurried")]


@pytest.fixture
async def site(ssh_site: Site) -> AsyncIterator[Site]:
    yield ssh_site
    ssh_site.gateway.restore()
    ssh_site.slurm.run("scancel", f"--user={ssh_site.user}")


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch, site: Site, tmp_path: Path) -> list[object]:
    """Return the attempts to connect; all times of a link are a tenth of the real ones, so that cuts seem long.

    A cut is detected after 2 s instead of 17, an attempt ends after 1 s instead of 30, with 3 s instead of 30 between
    two. A client that opens a page meanwhile gets an error after 2 s instead of 60.
    """
    made, opens = list[object](), PersistentLink._open

    async def counted(link: PersistentLink) -> Any:
        made.append(link)
        return await opens(link)

    monkeypatch.setattr(PersistentLink, "_open", counted)
    for name, seconds in (("ping", 0.5), ("deadline", 1.2), ("pause", 0.05)):
        monkeypatch.setitem(PersistentLink.__init__.__kwdefaults__ or {}, name, seconds)
    monkeypatch.setattr("jupyter_slurm.services.tunnels.tunnel._ROUTE_TIMEOUT_S", 2.0)
    config = tmp_path / "impatient"
    config.write_text("ConnectTimeout 1\n" + site.ssh_config.read_text())
    monkeypatch.setattr(site, "ssh_config", config)
    return made


@pytest.fixture
async def laptop(
    site: Site, tmp_path: Path, at_laptop: Callable[..., Any], remote_carrier: str, attempts: list[object]
) -> AsyncIterator[Laptop]:
    async with at_laptop(site, tmp_path, carrier=remote_carrier) as there:
        yield there


def session(laptop: Laptop, key: str) -> dict[str, Any]:
    """Return a session as shown by a list of sessions."""
    return next(one for one in laptop.core.sessions.list_to_api(NAME, active=False) if one["key"] == key)


async def until(laptop: Laptop, key: str, wanted: str) -> dict[str, Any]:
    await laptop.until(lambda: session(laptop, key)["session"]["state"] in (wanted, "ended"), wanted)
    told = session(laptop, key)
    assert told["session"]["state"] == wanted, told
    return told


async def launched(
    laptop: Laptop, user_python: tuple[list[str], dict[str, str]], name: str = "mine", wanted: str = "ready"
) -> dict[str, Any]:
    """Launch a session on the first node; return its API object when it is ready."""
    (python,), _ = user_python
    env = {} if python == sys.executable else {"PYTHONPATH": sysconfig.get_path("purelib")}
    asked = {**laptop.submission("#!", "--nodelist=node1"), "python": python, "context": {"env": env}}
    del asked["kind"], asked["text"]
    await laptop.core.sessions.launch(NAME, {**asked, "idle": 3600.0, "name": name})
    return await until(laptop, asked["key"], wanted)


async def test_a_session_outlives_a_link_that_is_cut_for_long(
    laptop: Laptop, site: Site, user_python: tuple[list[str], dict[str, str]], attempts: list[object]
) -> None:
    before = await launched(laptop, user_python)
    key = before["key"]
    page = Page((await laptop.core.sessions.open(NAME, "mine"))["page"])
    assert await page.get("api/contents") == 403
    await page.log_in()
    kernel = await start_kernel(page)
    assert await run_in(page, kernel, "import os; kept = 42; print(os.uname().nodename)") == f"{before['nodes']}\n"
    assert len(laptop.asked) == laptop.transport._link.generation, "commands, files and the tunnel share one log-in"

    site.gateway.drop()
    told = await until(laptop, key, "reconnecting")
    assert "The connection to far is lost" in told["session"]["message"]
    tried = len(attempts)
    with pytest.raises(httpx.TransportError):  # a client that opens the page meanwhile gets an error soon
        await page.get("api/contents")
    await laptop.until(lambda: len(attempts) >= tried + 5, "it is tried again and again")
    assert session(laptop, key)["session"]["state"] == "reconnecting"
    site.gateway.restore()
    after = (await until(laptop, key, "ready"))["session"]
    names = ("url", "port", "local_port", "way", "ready_time")
    assert [after[name] for name in names] == [before["session"][name] for name in names]
    assert await page.get("api/contents") == 200
    assert await run_in(page, kernel, "print(kept)") == "42\n"
    assert len(laptop.asked) == laptop.transport._link.generation, "each new connection asked once"

    await laptop.core.sessions.end(NAME, "mine")
    assert session(laptop, key)["session"]["state"] == "ended"
    await ended(before["folder"])
    await laptop.until(lambda: not laptop.core.tunnels.list_to_api(NAME), "its tunnel is closed")
    queue = ("squeue", "--noheader", "--states=running,completing", f"--user={site.user}")
    await laptop.until(lambda: not site.slurm.run(*queue).stdout, "its job has ended, too")


@pytest.mark.remote
async def test_a_node_without_ssh_and_steps_lets_its_person_in_and_nobody_else(
    site: Site, tmp_path: Path, at_laptop: Callable[..., Any], user_python: tuple[list[str], dict[str, str]]
) -> None:
    """From the login node, over the network of the site, to a port of its range."""
    port = 27_100
    ways = {"ways": ["ssh", "nested", "direct"], "node_ports": [port, port]}
    for node in site.nodes.values():
        node.stop()
    try:
        async with at_laptop(site, tmp_path, tunnels=ways) as laptop:
            told = await launched(laptop, user_python)
            assert told["session"]["way"] == "direct"
            page = Page((await laptop.core.sessions.open(NAME, "mine"))["page"])
            assert await page.get("api/contents") == 403
            await page.log_in()
            assert await run_a_cell(page, "import os; print(os.uname().nodename)") == f"{told['nodes']}\n"
            (tunnel,) = laptop.core.tunnels.list_to_api(NAME)
            assert (tunnel["proven"], sorted(tunnel["failed"])) == (True, ["nested", "ssh"])

            (tmp_path / "another").mkdir()
            async with at_laptop(
                site, tmp_path / "another", tunnels=ways
            ) as another:  # the same login, another machine
                found = await until(another, told["key"], "ready")
                assert found["session"]["port"] == told["session"]["port"]
                assert found["session"]["local_port"] != told["session"]["local_port"]
                there = Page((await another.core.sessions.open(NAME, "mine"))["page"])
                await there.log_in()
                assert await there.get("api/contents") == 200
            assert await page.get("api/contents") == 200

            node = site.nodes[told["nodes"]]
            listening = node.run("ss", "-Hltn").stdout.split()[3::5]
            assert f"*:{port}" in listening
            assert f"127.0.0.1:{told['session']['port']}" in listening, "Jupyter itself is on the loopback"
            url = f"{node.address}:{port}{told['session']['path']}api"
            for scheme in ("http", "https"):
                argv = ["/usr/bin/python3", "-c", _VISIT, f"{scheme}://{url}"]
                visit = site.logins["login1"].run(*argv, user="nobody", check=False)
                assert (visit.returncode, visit.stdout) == (1, ""), visit.stderr
            assert all(Path(told["folder"], name).stat().st_mode & 0o77 == 0 for name in ("door.pem", "served.json"))
            other = await launched(laptop, user_python, "other", "unreachable")
            why = f"node1 opens no port for this session: all ports from {port} to {port} are taken"
            assert other["session"]["message"] == why
            for one in (told, other):
                await laptop.core.sessions.end(NAME, one["key"])
                await ended(one["folder"])
    finally:
        for node in site.nodes.values():
            node.start()
