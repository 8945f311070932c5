"""Tests with a real JupyterHub: a URL prefix, two users, culling, a restart of the hub, and the end of a login."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from browser import LAB, NOTIFICATIONS
from notebooks import open_notebook, run_cell, write_notebook
from playwright.sync_api import Browser, Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.hub, pytest.mark.slurm, pytest.mark.root]

CONFIG = """
import json
told = json.load(open({facts!r}))
c.JupyterHub.bind_url = told["url"]
c.JupyterHub.hub_port = told["hub_port"]
c.JupyterHub.db_url = "sqlite:///" + told["folder"] + "/hub.sqlite"
c.JupyterHub.cookie_secret_file = told["folder"] + "/cookie_secret"
c.JupyterHub.log_level = "DEBUG"
c.JupyterHub.cleanup_servers = False  # a restart of the hub leaves the servers alone
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = told["password"]
c.Authenticator.allowed_users = set(told["users"])
c.ConfigurableHTTPProxy.should_start = False  # it runs apart, as a site would have it: a restart leaves it alone, too
c.ConfigurableHTTPProxy.api_url = told["proxy_api"]
c.ConfigurableHTTPProxy.auth_token = told["token"]
c.JupyterHub.spawner_class = "jupyterhub.spawner.LocalProcessSpawner"
c.Spawner.cmd = told["command"]
c.Spawner.args = ["--config=~/lab.py"]
c.Spawner.environment = told["env"]
c.Spawner.env_keep = ["PATH"]
c.Spawner.default_url = "/lab"
c.Spawner.http_timeout = c.Spawner.start_timeout = 180
c.JupyterHub.services = [{{"name": "cull", "api_token": told["token"]}}]
c.JupyterHub.load_roles = [
    {{
        "name": "cull",
        "services": ["cull"],
        "scopes": ["list:users", "read:users:activity", "read:servers", "delete:servers"],
    }}
]
"""
# The servers ask the hub about each login at once, which they otherwise do every five minutes.
NO_CACHE = "c.HubAuth.cache_max_age = 1\n"
STARTS = re.compile("^(Launch|Start|Restart) ", re.IGNORECASE)
OWN = ".jp-Slurm-own button"
LIVE = ".jp-Slurm-status button[data-connection=live]"


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@dataclass
class Hub:
    """A JupyterHub with its proxy, and what is known of both."""

    folder: Path
    url: str
    password: str
    token: str
    api: str
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the hub, again with its database."""
        command = [sys.executable, "-P", "-m", "jupyterhub", "-f", str(self.folder / "hub.py")]
        foreign = ("JUPYTER", "XDG_", "SLURM")
        env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        with (self.folder / "hub.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    def stop(self) -> None:
        """End the hub; the proxy ends with it."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(60)
            finally:
                self.process.kill()
                self.process.wait()

    def answers(self) -> bool:
        """Return whether the hub answers through its proxy."""
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}hub/health", timeout=60).status_code == 200
        return False

    def running(self, user: str) -> bool:
        """Return whether the hub runs a server of this user."""
        headers = {"Authorization": f"token {self.token}"}
        answer = httpx.get(f"{self.api}/users/{user}", headers=headers, timeout=60).raise_for_status()
        return bool(answer.json()["servers"])

    @contextlib.contextmanager
    def culling(self) -> Iterator[None]:
        """Run the culler, which stops servers without recent activity."""
        command = [sys.executable, "-P", "-m", "jupyterhub_idle_culler", "--timeout=1", "--cull-every=1"]
        env = {**os.environ, "JUPYTERHUB_API_TOKEN": self.token, "JUPYTERHUB_API_URL": self.api}
        with (self.folder / "culler.log").open("ab") as log:
            culler = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            culler.terminate()
            culler.wait(60)


@pytest.fixture(scope="module")
def hub(
    pytestconfig: pytest.Config,
    unavailable: Callable[[str], None],
    cluster: Any,
    short_tmp: Path,
    alice: str,
    bob: str,
    user_python: tuple[list[str], dict[str, str]],
    wait_for: Callable[..., Any],
) -> Iterator[Hub]:
    """Provide a JupyterHub below a prefix, whose users are two of this machine."""
    installed = Path(pytestconfig.rootpath, ".build", "hub", "node_modules", ".bin")
    program = shutil.which("configurable-http-proxy", path=os.pathsep.join([str(installed), os.environ["PATH"]]))
    if program is None or importlib.util.find_spec("jupyterhub") is None:
        unavailable("JupyterHub or its proxy is not installed; `make test-hub` installs them")
    folder = short_tmp / "hub"
    folder.mkdir(mode=0o700)
    ports = [_free_port() for _ in range(3)]
    url = f"http://127.0.0.1:{ports[0]}/science/jupyter/"
    hub = Hub(
        folder, url, secrets.token_hex(8), secrets.token_hex(16), f"http://127.0.0.1:{ports[1]}/science/jupyter/hub/api"
    )
    (python,), env = user_python
    prefix = Path(sys.prefix)
    installed = {
        "JUPYTER_PATH": str(prefix / "share" / "jupyter"),
        "JUPYTER_CONFIG_PATH": str(prefix / "etc" / "jupyter"),
        "JUPYTERLAB_DIR": str(prefix / "share" / "jupyter" / "lab"),
        "SLURM_CONF": str(cluster.slurm_conf),
    }
    facts = {
        "url": url.rstrip("/"),
        "hub_port": ports[1],
        "proxy_api": f"http://127.0.0.1:{ports[2]}",
        "folder": str(folder),
        "users": [alice, bob],
        "password": hub.password,
        "token": hub.token,
        "command": [python, "-m", "jupyterhub.singleuser"],
        "env": {**env, **installed},
    }
    (folder / "facts.json").write_text(json.dumps(facts))
    (folder / "hub.py").write_text(CONFIG.format(facts=str(folder / "facts.json")))
    for user in (alice, bob):
        _furnish(user)
    proxy = _start_proxy(program, folder, ports, hub.token)
    hub.start()
    try:
        wait_for(hub.answers, "the hub answers", 300)
        yield hub
    finally:
        hub.stop()
        os.killpg(proxy.pid, signal.SIGKILL)  # npm's Node.js may be a script with the program as its child
        proxy.wait()
        for user in (alice, bob):
            _end_processes(user)
        for log in sorted(folder.glob("*.log")):  # pytest shows them after a failure
            print(log.name, log.read_text(errors="replace"), sep="\n")


def _start_proxy(program: str, folder: Path, ports: list[int], token: str) -> subprocess.Popen[bytes]:
    listens = [f"--port={ports[0]}", f"--api-port={ports[2]}", "--ip=127.0.0.1", "--api-ip=127.0.0.1"]
    hub = [
        "--default-target",
        f"http://127.0.0.1:{ports[1]}",
        "--error-target",
        f"http://127.0.0.1:{ports[1]}/science/jupyter/hub/error",
    ]
    with (folder / "proxy.log").open("wb") as log:
        return subprocess.Popen(
            [program, *listens, *hub],
            env={**os.environ, "CONFIGPROXY_AUTH_TOKEN": token},
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip


def _furnish(user: str) -> None:
    """Write the home files of a user."""
    home = Path(pwd.getpwnam(user).pw_dir)
    for name, text in {"lab.py": LAB + NO_CACHE, NOTIFICATIONS: '{"fetchNews": "false"}'}.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    subprocess.run(["chown", "--recursive", f"{user}:", home], check=True)


def _end_processes(user: str) -> None:
    """End what a user runs: the servers, and their agents."""
    subprocess.run(["pkill", "--signal", "KILL", "--uid", user], check=False)


def _log_in(browser: Browser, hub: Hub, user: str) -> Page:
    """Return a tab on the JupyterLab that the hub starts for a user."""
    page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
    page.set_default_timeout(120_000)
    page.goto(hub.url)
    page.get_by_label("Username").fill(user)
    page.get_by_label("Password").fill(hub.password)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_selector("#jp-main-statusbar")
    page.evaluate("window.jupyterapp.restored")
    expect(page.locator(LIVE)).to_have_text("Slurm: no jobs", timeout=120_000)
    return page


def _see_own_job(page: Page, hub: Hub, user: str) -> None:
    """A job of a cell is in the panel, below the prefix."""
    path = Path(pwd.getpwnam(user).pw_dir, "one.ipynb")
    write_notebook(path, "%load_ext jupyter_slurm", "%%sbatch as=training\n#!/bin/bash\nsleep 600")
    shutil.chown(path, user)
    open_notebook(page, f"{hub.url}user/{user}/lab/tree/one.ipynb")
    run_cell(page, 0)
    expect(run_cell(page, 1)).to_contain_text("RUNNING")
    expect(page.locator(LIVE)).to_have_text("Slurm: 1 running")
    page.evaluate("window.jupyterapp.commands.execute('jupyter-slurm:open').then(() => null)")
    expect(page.locator(".jp-Slurm-body [role=row] .jp-Slurm-name")).to_have_text("training")


def _open_session(page: Page) -> Page:
    """Launch a session by the form, and return its page below the address of the user's server."""
    page.evaluate("window.jupyterapp.commands.execute('jupyter-slurm:launch').then(() => null)")
    form = page.get_by_role("form", name="GPU notebook on arandu")
    expect(form.get_by_label("Partition")).to_be_focused()
    form.get_by_role("button", name="Launch").click()
    session = page.locator(".jp-Slurm-session")
    expect(session).to_have_attribute("data-session", "ready", timeout=180_000)
    with page.context.expect_page() as opened:
        session.get_by_role("link", name="Open session").click()
    expect(opened.value.locator(OWN)).to_have_attribute("data-standing", "running", timeout=120_000)
    return opened.value


def _see_nothing_of_another(foreign: Page, hub: Hub, owner: str, user: str, key: str) -> None:
    for address, status in (
        (f"{hub.url}user/{owner}/jupyter-slurm/api/v1/clusters", 403),
        (f"{hub.url}user/{owner}/jupyter-slurm/{key}/", 403),
        (f"{hub.url}user/{user}/jupyter-slurm/{key}/", 404),
    ):
        assert foreign.request.get(address).status == status, address
    assert httpx.get(f"{hub.url}user/{owner}/jupyter-slurm/api/v1/clusters", timeout=60).status_code == 403


def _start_again(inner: Page) -> None:
    """After the hub has stopped the server, the page of the session says so, and leads to the hub; then it is loaded."""
    lost = inner.locator(".jp-Dialog")  # the only one: JupyterLab's own words for it are gone
    expect(lost).to_contain_text("JupyterHub has stopped your server. Session jupyter-1 continues on ")
    expect(inner.locator(OWN)).to_have_attribute("data-standing", "ended")
    inner.screenshot(path=Path("test-results", "session-hub-stopped.png"))
    with inner.context.expect_page() as opened:
        lost.get_by_role("button", name="Start it").click()
    page = opened.value
    page.get_by_role("button", name=STARTS).or_(page.get_by_role("link", name=STARTS)).first.click()
    expect(page.locator(OWN)).to_have_attribute("data-standing", "running", timeout=180_000)
    page.close()
    expect(lost).to_contain_text("Reload this page to connect it to session jupyter-1 again.")
    inner.screenshot(path=Path("test-results", "session-hub-started.png"))
    lost.get_by_role("button", name="Reload").click()
    expect(inner.locator(OWN)).to_have_attribute("data-standing", "running", timeout=120_000)


@pytest.mark.timeout(1800)
def test_two_users_of_a_hub(
    browser: Browser, cluster: Any, hub: Hub, alice: str, bob: str, wait_for: Callable[..., Any]
) -> None:
    """A job and a session of one user, through a restart of the hub, a culled server and a log-out."""
    page = _log_in(browser, hub, alice)
    _see_own_job(page, hub, alice)
    inner = _open_session(page)
    (key,) = re.findall("/jupyter-slurm/([0-9a-f-]+)~", inner.url)
    foreign = _log_in(browser, hub, bob)
    _see_nothing_of_another(foreign, hub, alice, bob, key)
    foreign.context.close()

    hub.stop()
    hub.start()
    wait_for(hub.answers, "the hub answers again", 300)
    expect(page.locator(LIVE)).to_have_text("Slurm: 2 running")
    page.close()
    inner.reload()
    expect(inner.locator(OWN)).to_have_attribute("data-standing", "running", timeout=120_000)

    with hub.culling():
        wait_for(lambda: not hub.running(alice), "the culler stops the server")
    _start_again(inner)

    out = inner.context.new_page()
    out.goto(f"{hub.url}hub/logout")
    expect(out.get_by_label("Username")).to_be_visible()
    assert out.request.get(f"{hub.url}user/{alice}/jupyter-slurm/api/v1/clusters").status == 403
    out.goto(f"{hub.url}user/{alice}/jupyter-slurm/{key}/")
    expect(out.get_by_label("Username")).to_be_visible()
    ticket = inner.url.partition("/lab")[0]
    script = {"Sec-Fetch-Mode": "cors"}
    wait_for(
        lambda: httpx.get(f"{ticket}/api/status", headers=script, timeout=60).status_code == 403,
        "the page of the session has no access any more",
    )
    expect(inner.locator(".jp-Dialog")).to_contain_text("Reload this page")
    inner.context.close()
