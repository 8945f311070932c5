"""Tests of sessions through a Jupyter server with a prefix, as in a hub: the browser has only its cookie."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from jupyter_slurm.errors import TunnelUnproven
from jupyter_slurm.server.session_proxy.http_client import SessionHttpClient

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.xdist_group("session-proxy"),  # they share a Jupyter server and its sessions
]


LOGS_ALL = """
everything = {"class": "logging.StreamHandler", "level": "DEBUG"}
c.ServerApp.logging_config = {
    "handlers": {"everything": everything}, "loggers": {"": {"level": "DEBUG", "handlers": ["everything"]}}
}
"""


@pytest.fixture(scope="module")
def hub_server(start_jupyter: Callable[..., Any]) -> Any:
    """Provide a server with a prefix, as a hub starts it, with the debug log of all libraries."""
    files = {"log.py": LOGS_ALL}
    return start_jupyter("server", "--ServerApp.base_url=/user/ana/", "--debug", "--config=log.py", files=files)


class Owner:
    """Client of that server's API, with its token."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.http = httpx.Client(headers={"Authorization": f"token {server.token}"}, timeout=120)
        (self.cluster,) = self.http.get(server.api("v1/clusters")).json()

    def launch(self, *options: str, **more: Any) -> dict[str, Any]:
        env = {"PATH": os.environ["PATH"], "SLURM_CONF": self.cluster["slurm_conf"]}
        context = {"cwd": str(self.server.home), "env": env, "umask": 0o22, "limits": {}}
        key = time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + "-" + secrets.token_hex(8)
        asked = {"key": key, "idle": 86_400.0, "options": list(options), "python": sys.executable, "context": context}
        given = {name: value for name, value in {**asked, **more}.items() if value is not None}
        answer = self.http.post(self.address(), json=given)
        assert answer.status_code == 201, answer.text
        told: dict[str, Any] = answer.json()
        return told

    def address(self, *more: str) -> str:
        found: str = self.server.api("/".join(["v1/clusters", self.cluster["id"], "sessions", *more]))
        return found

    def told(self, key: str) -> dict[str, Any]:
        told: dict[str, Any] = self.http.get(self.address(key)).json()
        assert told["session"]["state"] != "ended", told
        return told

    def is_ready(self, key: str) -> Any:
        told = self.told(key)
        return told if told["session"]["state"] == "ready" else None

    def stop(self, key: str) -> None:
        self.http.post(self.address(key, "stop"))


@pytest.fixture(scope="module")
def owner(hub_server: Any) -> Iterator[Owner]:
    owner = Owner(hub_server)
    yield owner
    owner.http.close()


@pytest.fixture(scope="module")
def session(owner: Owner, wait_for: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    """Provide a ready session, launched through that server: Python, folder and environment are the server's."""
    told = owner.launch("-p", "arandu", "-t", "10", python=None, context=None)
    assert (told["work_dir"], told["session"]["path"][:10]) == (str(owner.server.home), "/user/ana/")
    key = told["key"]
    yield wait_for(lambda: owner.is_ready(key), "the session")
    owner.stop(key)


@pytest.fixture
def browser(hub_server: Any) -> Iterator[httpx.Client]:
    """Provide a client that is logged in with a cookie, and has not opened a session."""
    with httpx.Client(timeout=60, base_url=hub_server.url.removesuffix("/user/ana/")) as browser:
        browser.get("/user/ana/tree", params={"token": hub_server.token}, follow_redirects=True)
        for name in [name for name in browser.cookies if name == "_xsrf"]:
            browser.cookies.delete(name)
        yield browser


def opened(browser: httpx.Client, path: str) -> str:
    """Open a session in the browser; return its path with a ticket, which stands for the cookies."""
    found = browser.get(path)
    assert (found.status_code, found.headers["Cache-Control"]) == (302, "no-store"), found.text
    address: str = found.headers["Location"]
    assert re.fullmatch(re.escape(path[:-1]) + "~[0-9A-Za-z_-]{43}/", address)
    assert browser.get(path).headers["Location"] == address, "one ticket for all pages"
    return address


def token_of(server: Any, job: dict[str, Any]) -> str:
    """Return the token of the session, which no browser may see."""
    return Path(job["folder"], "serving", "token").read_text()


def message(code: str) -> dict[str, Any]:
    header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "username": "", "session": "s"}
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    header["version"] = "5.3"
    return {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}


async def channel_of(browser: httpx.Client, path: str, **headers: str) -> WebSocketClientConnection:
    cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in browser.cookies.jar)
    url = str(browser.base_url.join(path)).replace("http", "ws", 1)
    return await websocket_connect(HTTPRequest(url, headers={"Cookie": cookies, **headers}), max_message_size=2**30)


async def hang_up(channel: WebSocketClientConnection) -> None:
    channel.close()
    while await channel.read_message() is not None:
        pass


async def run_a_cell(browser: httpx.Client, path: str, code: str) -> str:
    channel, asked, printed = await channel_of(browser, path), message(code), ""
    await channel.write_message(json.dumps(asked))
    async with asyncio.timeout(60):
        while (text := await channel.read_message()) is not None:
            told = json.loads(text)
            if told["parent_header"].get("msg_id") != asked["header"]["msg_id"]:
                continue
            if told["msg_type"] == "stream":
                printed += told["content"]["text"]
            if told["msg_type"] == "display_data":
                printed += told["content"]["data"]["text/plain"]
            if told["msg_type"] == "status" and told["content"]["execution_state"] == "idle":
                break
    await hang_up(channel)
    return printed


async def test_a_page_and_a_kernel_of_a_session(
    hub_server: Any, session: dict[str, Any], browser: httpx.Client
) -> None:
    path, token = session["session"]["path"], token_of(hub_server, session)
    assert path == f"/user/ana/jupyter-slurm/{session['key']}/"
    assert session["session"]["url"].endswith(path), "both ways have one address"
    plain, path = path, opened(browser, path)
    assert browser.get(plain.rstrip("/")).headers["Location"] == path
    assert browser.get(f"{plain}lab?a=1&token=x").headers["Location"] == f"{path}lab?a=1"
    page = browser.get(path, follow_redirects=True)
    assert page.status_code == 200, page.text
    assert page.url.path == f"{path}lab/workspaces/{session['label']}"
    assert "sandbox allow-scripts" in page.headers["Content-Security-Policy"]
    assert "allow-same-origin" not in page.headers["Content-Security-Policy"]
    assert (page.headers["Access-Control-Allow-Origin"], page.headers["Referrer-Policy"]) == ("null", "no-referrer")
    config = json.loads(
        re.findall(r'id="jupyter-config-data" type="application/json">\s*(\{.*?\})\s*</script>', page.text, re.S)[0]
    )
    assert (config["baseUrl"], config["token"]) == (path, "")
    assert f"{path}kernelspecs/" in browser.get(f"{path}api/kernelspecs").text
    browser.cookies.clear()  # a sandboxed page sends none
    asked_for = {"Origin": "null", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-own"}
    allowed = browser.options(f"{path}api/kernels", headers=asked_for)
    assert (allowed.status_code, allowed.headers["Access-Control-Allow-Headers"]) == (204, "x-own")
    foreign = {"Origin": "http://elsewhere.example"}
    assert browser.post(f"{path}api/kernels", json={}, headers=foreign).status_code == 403
    answer = browser.post(f"{path}api/kernels", json={}, headers={"Origin": "null", "Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 201, answer.text
    kernel = f"{path}api/kernels/{answer.json()['id']}/channels"
    assert await run_a_cell(browser, kernel, "import os; print(os.environ['SLURM_JOB_ID'])") == f"{session['id']}\n"
    large = "from IPython.display import display; display({'text/plain': 'x' * 20_000_000}, raw=True)"
    assert await run_a_cell(browser, kernel, large) == "x" * 20_000_000
    spoken = await channel_of(browser, kernel, **{"Sec-WebSocket-Protocol": "other, v1.kernel.websocket.jupyter.org"})
    assert spoken.selected_subprotocol == "v1.kernel.websocket.jupyter.org"
    await hang_up(spoken)
    with pytest.raises(HTTPClientError, match="404"):
        await channel_of(browser, f"{path}api/kernels/{uuid.uuid4()}/channels")
    with pytest.raises(HTTPClientError, match="403"):
        await channel_of(browser, kernel, **foreign)
    assert path not in hub_server.log, "its ticket"
    assert token not in page.text + str(page.headers) + hub_server.log
    assert "receive_response_headers" in hub_server.log, "of the agent's answers"
    assert "b'Set-Cookie'" not in hub_server.log, "one of them logs in to the session"
    assert hub_server.token not in Path(session["stderr"]).read_text()
    assert "Traceback" not in hub_server.log


async def test_what_a_notebook_launches_lies_below_the_address_of_its_server(
    hub_server: Any, owner: Owner, browser: httpx.Client
) -> None:
    own = owner.http.post(hub_server.url + "api/kernels", json={}).json()["id"]
    launch = "%load_ext jupyter_slurm\n%slurm launch --begin now+1hour name=noted\nprint('path', noted.path)"
    said = await run_a_cell(browser, f"/user/ana/api/kernels/{own}/channels", launch)
    (key,) = [one["key"] for one in owner.http.get(owner.address()).json() if one["label"] == "noted"]
    assert f"path /user/ana/jupyter-slurm/{key}/" in said
    owner.stop(key)
    owner.http.delete(hub_server.url + f"api/kernels/{own}")


async def test_a_ticket_is_good_for_one_session_and_a_cookie_for_none(
    session: dict[str, Any], browser: httpx.Client
) -> None:
    plain = session["session"]["path"]
    ticket = opened(browser, plain).partition("~")[2].rstrip("/")
    for method, path in (("POST", "api/kernels"), ("PUT", "api/contents/x"), ("DELETE", "api/contents/x")):
        assert browser.request(method, plain + path, headers={"Sec-Fetch-Site": "same-origin"}).status_code == 403
    with pytest.raises(HTTPClientError, match="403"):
        await channel_of(browser, f"{plain}api/events/subscribe")
    other = f"/user/ana/jupyter-slurm/20260101-000000-00000000~{ticket}/"
    browser.cookies.clear()
    for wrong in (other, f"{plain[:-1]}~{ticket[:-1]}/", f"{plain[:-1]}~{'x' * 43}/"):
        assert browser.post(f"{wrong}api/kernels", json={}).status_code == 403
        with pytest.raises(HTTPClientError, match="403"):
            await channel_of(browser, f"{wrong}api/events/subscribe")
        script = browser.get(f"{wrong}api/status", headers={"Sec-Fetch-Mode": "cors", "Origin": "null"})
        assert (script.status_code, script.headers["Access-Control-Allow-Origin"]) == (403, "null"), "it can read that"
        answer = browser.get(f"{wrong}lab?a=1")
        assert answer.status_code == 302
        assert "~" not in answer.headers["Location"], "to the address that asks for a login"


def test_the_use_of_a_session_is_activity_of_the_server(browser: httpx.Client, session: dict[str, Any]) -> None:
    def last_activity() -> str:
        told: dict[str, str] = browser.get("/user/ana/api/status", params={"no_track_activity": "1"}).json()
        return told["last_activity"]

    path = opened(browser, session["session"]["path"])
    before = last_activity()
    assert before == last_activity()
    assert browser.get(path + "api").status_code == 200
    assert last_activity() > before


def test_who_trusts_the_nodes_can_share_the_origin(
    start_jupyter: Callable[..., Any], wait_for: Callable[..., Any]
) -> None:
    shared = start_jupyter("server", "--ServerApp.base_url=/user/ana/", "--JupyterSlurm.isolate_sessions=False")
    found = Owner(shared)
    asked = found.launch("-p", "arandu", "-t", "10")
    wait_for(lambda: found.is_ready(asked["key"]), "the session")
    path = asked["session"]["path"]
    with httpx.Client(timeout=60, base_url=shared.url.removesuffix("/user/ana/")) as browser:
        browser.get("/user/ana/tree", params={"token": shared.token}, follow_redirects=True)
        browser.cookies.set("_xsrf", "of-the-local-port", domain="localhost.local", path=path)
        page = browser.get(f"{path}lab")
        assert page.status_code == 200
        assert "of-the-local-port" not in page.text
        assert "sandbox" not in page.headers["Content-Security-Policy"]
        xsrf = {"X-XSRFToken": browser.cookies["_xsrf"]}  # that of the session's local port was removed
        assert browser.get(f"{path}files/x", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
        assert browser.post(f"{path}api/kernels", json={}).status_code == 403
        assert browser.post(f"{path}api/kernels", json={}, headers=xsrf).status_code == 201
    found.stop(asked["key"])
    found.http.close()


def test_what_comes_back_is_what_was_there(hub_server: Any, session: dict[str, Any], browser: httpx.Client) -> None:
    path = opened(browser, session["session"]["path"])
    name = "odd name ä %41+&;.bin"
    quoted = (
        httpx.URL("http://x/").copy_with(path=f"/{name}").raw_path.decode().replace("+", "%2B").replace("%41", "%2541")
    )
    (hub_server.home / name).write_bytes(data := os.urandom(30_000_000))
    with browser.stream("GET", f"{path}files{quoted}?download=1&token=") as answer:
        assert answer.status_code == 200
        assert "Set-Cookie" not in answer.headers
        assert answer.read() == data
    made = browser.put(f"{path}api/contents/new.txt", json={"type": "file", "format": "text", "content": "ä"})
    assert made.status_code == 201, made.text
    assert (hub_server.home / "new.txt").read_text() == "ä"
    assert browser.delete(f"{path}api/contents/new.txt").status_code == 204
    plain = session["session"]["path"]
    assert browser.get(f"{plain}files/{name}", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    head = browser.head(f"{path}files{quoted}")
    assert (head.status_code, head.content) == (200, b"")
    # No port other than that of a session is reached, whatever the address contains.
    for other in (
        "20260101-000000-00000000",
        "127.0.0.1:22",
        f"{session['key']}@127.0.0.1:22",
        f"{session['key']}x",
    ):
        raw = httpx.URL(str(browser.base_url)).copy_with(raw_path=f"/user/ana/jupyter-slurm/{other}/".encode())
        assert browser.get(raw, follow_redirects=True).status_code == 404, other
    gone = browser.get("/user/ana/jupyter-slurm/20260101-000000-00000000/").text
    assert "This session has ended or is not yours." in gone
    assert '<a href="/user/ana/">Open the launcher</a>' in gone
    assert "jupyter slurm" not in gone  # no commands in a browser
    assert "Traceback" not in hub_server.log


# Returns the request; for /raw?HEX, the given bytes.
ECHO = """
import http.server, json, sys

class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path.startswith("/raw?"):
            self.wfile.write(bytes.fromhex(self.path[5:]))
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        told = json.dumps({"path": self.path, "headers": list(self.headers.items()), "body": body}).encode()
        self.send_response(302 if self.path == "/go" else 200)
        for name, value in (("Location", "/there?x=1"), ("Set-Cookie", "theirs=1"), ("X-Theirs", "1"),
                            ("Access-Control-Allow-Origin", "*"), ("Content-Length", str(len(told)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(told)

    do_POST = do_GET

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Echo).serve_forever()
"""


def test_nothing_that_this_server_knows_a_person_by_travels_on(
    hub_server: Any, owner: Owner, browser: httpx.Client, wait_for: Callable[..., Any]
) -> None:
    (hub_server.home / "echo.py").write_text(ECHO)
    asked = owner.launch("-p", "arandu", "-t", "10", command=[sys.executable, "echo.py", "{port}"])
    told = wait_for(lambda: owner.is_ready(asked["key"]), "the server")
    path, server = told["session"]["path"], hub_server.token
    assert path == f"/user/ana/jupyter-slurm/{told['key']}/"
    plain, path = path, opened(browser, path)
    browser.headers.update({"X-Own": "1", "Referer": "http://localhost/x", "X-Forwarded-For": "1.2.3.4"})
    answer = browser.get(f"{path}a%2Fb/../c%20d?x=1&token={server}&y=%26&t%6Fken={server}&z")
    assert answer.json()["path"] in ("/a%2Fb/../c%20d?x=1&y=%26&z", "/c%20d?x=1&y=%26&z")
    names = {name.lower() for name, _ in answer.json()["headers"]}
    assert "x-own" in names
    assert not names & {"cookie", "authorization", "referer", "origin", "x-forwarded-for", "x-xsrftoken"}, names
    assert server not in answer.text
    assert answer.headers["X-Theirs"] == "1"
    assert "set-cookie" not in {name.lower() for name in answer.headers}
    assert answer.headers.get_list("Access-Control-Allow-Origin") == ["null"]
    assert browser.get(f"{path}go").headers["Location"] == f"{path}there?x=1"

    def raw(status: str, headers: str, body: str = "") -> httpx.Response:
        text = f"HTTP/1.1 {status}\r\nConnection: close\r\n{headers}\r\n\r\n{body}"
        return browser.get(f"{path}raw?{text.encode().hex()}")

    said = raw("200 OK", 'Content-Length: 1\r\nX-Said: 日本 ä\r\nClear-Site-Data: "*"', "a").headers
    assert dict(said.raw)[b"X-Said"].decode() == "日本 ä"
    assert "Clear-Site-Data" not in said
    assert (raw("204 None", "Content-Length: 5").status_code, raw("304 Same", "Content-Length: 5").status_code) == (
        204,
        304,
    )
    assert raw("302 Found", "Content-Length: 0\r\nLocation: http://[x/").headers["Location"] == "http://[x/"
    assert raw("101 Switching", "Upgrade: other").status_code == 502
    assert "Traceback" not in hub_server.log
    assert browser.post(plain, content=b"a").status_code == 403
    for site in ("same-site", "cross-site", "same-origin", "none"):
        assert browser.post(plain, content=b"a", headers={"Sec-Fetch-Site": site}).status_code == 403
    answer = browser.post(path, content=b"a", headers={"Origin": "null"})
    assert answer.json()["body"] == "a"
    owner.stop(told["key"])
    wait_for(lambda: browser.get(plain).status_code == 410, "its end, not only that of its port")


def test_an_agent_that_was_killed_is_no_loss(
    hub_server: Any, owner: Owner, session: dict[str, Any], browser: httpx.Client, wait_for: Callable[..., Any]
) -> None:
    path = opened(browser, session["session"]["path"])
    os.kill(owner.http.get(hub_server.api("v1/agent")).json()["pid"], signal.SIGKILL)
    seen = []

    def shown() -> bool:
        answer = browser.get(f"{path}lab")
        seen.append((answer.status_code, answer.headers.get("Refresh")))
        return answer.status_code == 200

    wait_for(shown, "the page, with another agent")
    assert {status for status, _ in seen} <= {200, 503}
    assert all(refresh for status, refresh in seen if status == 503)


def test_who_may_not_see_it_or_no_longer(owner: Owner, browser: httpx.Client, wait_for: Callable[..., Any]) -> None:
    elsewhere = owner.launch("--begin", "now+1hour", prefix="/user/bob/")
    assert elsewhere["session"]["path"] == f"/user/bob/jupyter-slurm/{elsewhere['key']}/"
    answer = browser.get(f"/user/ana/jupyter-slurm/{elsewhere['key']}/")
    assert (answer.status_code, answer.headers["Content-Type"]) == (404, "text/html; charset=utf-8")
    assert elsewhere["session"]["path"] in answer.text
    waiting = owner.launch("--begin", "now+1hour", name="a-b.c")
    answer = browser.get(waiting["session"]["path"])
    assert (answer.status_code, answer.headers["Refresh"]) == (503, "3")
    assert "Session a-b.c is pending" in answer.text
    for job in (elsewhere, waiting):
        owner.stop(job["key"])
    answer = wait_for(
        lambda: (found := browser.get(waiting["session"]["path"])).status_code == 410 and found, "its end"
    )
    assert "Refresh" not in answer.headers
    assert "Session a-b.c is ended" in answer.text


LISTENER = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    print(server.accept()[0].recv(99), flush=True)
"""


async def test_somebody_else_on_the_port_is_told_nothing(alice: str) -> None:
    command = ["setpriv", "--reuid", alice, "--clear-groups", sys.executable, "-c", LISTENER]
    caller, headers = SessionHttpClient(), [("Authorization", "token secret")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            refused = f"Port {port} .* now belongs to another program. Nothing was sent"
            with pytest.raises(TunnelUnproven, match=refused):
                async with caller.request(port, "GET", "/", headers=headers, body=b""):
                    pass
            assert process.stdout.readline() == "b''\n"
            with pytest.raises(TunnelUnproven, match=refused):
                await caller.connect(port, "/", headers=headers, subprotocols=None)
            assert process.stdout.readline() == "b''\n"
        finally:
            process.terminate()
    await caller.close()
