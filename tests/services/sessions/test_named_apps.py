"""Tests of named apps with the real programs, each in an environment that ``make test-apps`` has made."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from browser import QUIET
from playwright.async_api import async_playwright, expect
from sessions import Page
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

# A named app and the folder of its environment, in that of $JUPYTER_SLURM_TEST_APPS.
ENVIRONMENTS = {
    "code-server": "code-server",
    "marimo": "boards",
    "mlflow 2": "mlflow-2",
    "mlflow 3": "mlflow-3",
    "tensorboard": "boards",
}
PAGE_TEXTS = {
    "code-server": "vscode-workbench-web-configuration",
    "marimo": "<marimo-filename",
    "mlflow 2": "<title>MLflow</title>",
    "mlflow 3": "<title>MLflow</title>",
    "tensorboard": "<tb-webapp|TensorBoard",
}
ASKS = """
import socket, sys
link = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
link.sendall(b"GET %s/ HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n" % sys.argv[2].encode())
print(link.recv(100))
"""
pytestmark = [
    pytest.mark.apps,
    pytest.mark.timeout(600),  # MLflow 3 starts slowly on a busy machine
    pytest.mark.slurm,
    pytest.mark.here_only("what an app serves does not depend on the way to the node"),
]


@pytest.fixture
def homes(tmp_path: Path) -> dict[str, str]:
    """Provide the folders in which an app keeps its own files."""
    return {f"XDG_{kind}_HOME": str(tmp_path / f".{kind.lower()}") for kind in ("CONFIG", "DATA")}


@pytest.fixture
async def begun(desk: Any, unavailable: Any, homes: dict[str, str]) -> AsyncIterator[Callable[..., Any]]:
    """Return ``await begun("mlflow 2", …)``, which launches an app and ends it after the test."""
    keys = []

    async def begin(name: str, **more: Any) -> Any:
        place = Path(os.environ.get("JUPYTER_SLURM_TEST_APPS", ".build/apps")).absolute() / ENVIRONMENTS[name]
        if not place.is_dir():
            unavailable(f"{place} is missing; run `make test-apps`")
        asked = desk.asked("#!", "-p", "arandu")
        asked = {key: asked[key] for key in ("key", "options", "context")}
        path = os.pathsep.join([str(place / "bin"), desk.env["PATH"]])
        asked["context"] = {**asked["context"], "env": {**desk.env, **homes, "PATH": path}}
        asked |= {"python": str(place / "bin/python"), "idle": 86400.0, "app": name.split()[0], **more}
        await desk.core.sessions.launch(desk.id, asked)
        keys.append(asked["key"])
        return await desk.until(asked["key"], lambda job: job["session"]["state"] in ("ready", "ended"), 300)

    yield begin
    await asyncio.gather(*(desk.core.sessions.end(desk.id, key) for key in keys))


async def get(url: str, **more: Any) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False, timeout=150, follow_redirects=True) as http:
        return await http.get(url, **more)


@pytest.mark.parametrize("name", sorted(PAGE_TEXTS))
async def test_its_page_is_reached_by_its_user_alone(name: str, desk: Any, begun: Any, tmp_path: Path) -> None:
    (tmp_path / "analysis.py").write_text("import marimo\napp = marimo.App()\n")
    values = {"tensorboard": {"logdir": str(tmp_path)}, "marimo": {"notebook": "analysis.py"}}.get(name, {})
    told = await begun(name, app_values=values, dir=str(tmp_path))
    session = told["session"]
    assert session["state"] == "ready", (session, told["error"], await desk.text(told["key"], "stderr"))
    assert re.match(r"\S+ \d+\.\d+", session["server"]), session
    opened = await desk.core.sessions.open(desk.id, told["key"])
    answer = await get(session["url"])
    if name == "marimo":
        assert not re.search(PAGE_TEXTS[name], answer.text), "its page asks for the password"
        page = Page(opened["page"])
        await page.log_in()
        answer = await asyncio.to_thread(page._ask, "GET", session["url"])
        await socket_of_marimo(session["url"], page)
    assert re.search(PAGE_TEXTS[name], answer.text), answer.text[:2000]
    if os.geteuid() == 0:
        argv = ["python3", "-c", ASKS, str(session["port"]), session["path"].rstrip("/")]
        tried = subprocess.run(argv, user=65534, capture_output=True, text=True, check=False)
        assert not re.search(PAGE_TEXTS[name], tried.stdout)
        assert name == "marimo" or "200" not in tried.stdout, tried
    over = await desk.core.sessions.end(desk.id, told["key"])
    assert (over["state"], over["session"]["state"]) == ("CANCELLED", "ended")


async def socket_of_marimo(url: str, page: Page) -> None:
    """Open the WebSocket of marimo: without the login it is refused."""
    address = url.replace("http", "ws", 1) + "ws?session_id=s_abcdef"
    cookie = "; ".join(f"{one.name}={one.value}" for one in page.cookies.jar)
    with pytest.raises(HTTPClientError, match="403"):
        await websocket_connect(HTTPRequest(address))
    headers = {"Cookie": cookie, "Origin": url.split("/jupyter")[0]}
    link = await websocket_connect(HTTPRequest(address, headers=headers))
    try:
        async with asyncio.timeout(150):
            assert "kernel-ready" in str(await link.read_message())
    finally:
        link.close()


async def test_the_editor_in_the_browser_opens_a_file_and_has_a_terminal_on_the_node(
    desk: Any, begun: Any, homes: dict[str, str], tmp_path: Path, wait_for: Any
) -> None:
    (tmp_path / "train.py").write_text("print('shown in the editor')\n")
    opened_last = Path(homes["XDG_DATA_HOME"], "code-server", "coder.json")
    opened_last.parent.mkdir(parents=True)
    opened_last.write_text('{"query": {"folder": "/usr"}}')
    told = await begun("code-server", dir=str(tmp_path))
    assert told["session"]["state"] == "ready", await desk.text(told["key"], "stderr")
    opened = await desk.core.sessions.open(desk.id, told["key"])
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=QUIET)
        page = await browser.new_page()
        page.set_default_timeout(120_000)
        await page.goto(opened["session"]["url"])
        await page.get_by_role("treeitem", name="train.py").dblclick()
        text = page.locator(".editor-group-container .view-lines")
        await expect(text).to_contain_text(re.compile(r"shown.in.the.editor"), timeout=120_000)
        await page.keyboard.press("Control+`")
        await page.get_by_role("button", name="Trust Folder & Continue").click()
        await page.locator(".xterm-helper-textarea").focus()
        await page.keyboard.type("echo $SLURM_JOB_ID >job-of-terminal\n")
        written = tmp_path / "job-of-terminal"
        await asyncio.to_thread(wait_for, lambda: written.exists() and written.read_text(), "the terminal")
        assert written.read_text().split() == [told["id"]]
        await browser.close()


async def test_the_login_outlives_the_time_limit(
    desk: Any, begun: Any, cluster: Any, wait_for: Any, tmp_path: Path
) -> None:
    (tmp_path / "analysis.py").write_text("import marimo\napp = marimo.App()\n")
    first = await begun("marimo", resume=1, app_values={"notebook": "analysis.py"}, dir=str(tmp_path))
    assert first["session"]["state"] == "ready", await desk.text(first["key"], "stderr")
    page = Page((await desk.core.sessions.open(desk.id, first["key"]))["page"])
    await page.log_in()
    soon = (datetime.datetime.now() + datetime.timedelta(seconds=6)).strftime("%Y-%m-%dT%H:%M:%S")
    cluster.run("scontrol", "update", f"jobid={first['id']}", f"endtime={soon}")
    cluster.run("scancel", "--batch", "--signal=USR1", first["id"])  # as Slurm does before the time limit
    await desk.until(first["key"], lambda job: job["session"]["state"] == "pending")

    def has_begun() -> bool:  # without the two minutes for which Slurm holds a requeued job
        cluster.run("scontrol", "update", f"jobid={first['id']}", "starttime=now", check=False)
        return "RUNNING" in str(cluster.run("squeue", "-h", "-j", first["id"], "-o", "%T").stdout)

    await asyncio.to_thread(wait_for, has_begun, "the second run")
    second = await desk.until(first["key"], lambda job: job["session"]["state"] == "ready")
    assert second["session"]["url"] == first["session"]["url"]
    assert second["session"]["port"] == first["session"]["port"]  # which names the cookie of marimo

    def reloaded() -> httpx.Response | None:
        with contextlib.suppress(httpx.TransportError):  # the way of the first run was still in use
            return page._ask("GET", second["session"]["url"])
        return None

    answer = await asyncio.to_thread(wait_for, reloaded, "the page answers")
    assert re.search(PAGE_TEXTS["marimo"], answer.text), "the login is not valid any more"
