"""Tests of permissions in a real Jupyter server, started as a user starts it."""

from __future__ import annotations

import http.client
import re
import string
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import Phase, find, settings
from hypothesis import strategies as st

from jupyter_slurm.agent.api.schema import load_document

pytestmark = pytest.mark.slurm

LETTERS = string.ascii_letters + string.digits + "/-._"
ANY_EXAMPLE = settings(phases=[Phase.generate], database=None, derandomize=True)
VERBS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
ADDRESSES = [
    "v1/agent",
    "v1/agent/stop",
    "v1/events",
    "v1/clusters",
    "v1/clusters/local/jobs/1/stream",
    "v1/no/such/address",
    "",
]


@pytest.fixture(scope="module")
def server(walked: Any) -> Any:
    return walked[0]


@pytest.fixture
def client(server: Any) -> Iterator[httpx.Client]:
    """Provide a client with the token."""
    with httpx.Client(headers={"Authorization": f"token {server.token}"}, timeout=60) as client:
        yield client


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("path", ADDRESSES)
def test_without_a_token_or_with_a_wrong_one_nothing_is_answered(server: Any, verb: str, path: str) -> None:
    for headers in ({}, {"Authorization": "token " + "0" * 32}, {"Authorization": "Bearer x"}, {"Cookie": "_xsrf=1"}):
        # No certificate authorities: two hundred reads of their list take longer than all the rest.
        answer = httpx.request(verb, server.api(path), headers=headers, verify=False)
        assert answer.status_code == 403, (headers, answer.text)
        assert "jupyter-slurm:error" not in answer.text


def test_the_server_finds_no_handler_of_ours_without_authentication(server: Any, client: httpx.Client) -> None:
    assert client.get(server.api("v1/agent")).status_code == 200
    assert "AgentHandler" not in re.sub(r"(?m)^\[.*$", "", server.log)


@pytest.mark.parametrize("verb", ["PUT", "PATCH", "DELETE", "OPTIONS"])
def test_verbs_that_the_api_lacks_are_refused_in_words(server: Any, client: httpx.Client, verb: str) -> None:
    answer = client.request(verb, server.api("v1/agent"))
    assert answer.status_code == 405
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]


def test_the_cookie_of_a_browser_needs_the_xsrf_token_as_well(server: Any) -> None:
    with httpx.Client(follow_redirects=True, timeout=60) as browser:
        browser.get(server.url, params={"token": server.token})
        assert browser.get(server.api("v1/agent")).status_code == 200
        preview = {"only_idle": True}
        assert browser.post(server.api("v1/agent/stop"), json=preview).status_code == 403
        wrong = {"X-XSRFToken": "2|00000000|" + "0" * 32 + "|0"}
        assert browser.post(server.api("v1/agent/stop"), json=preview, headers=wrong).status_code == 403
        address = {"slurm_conf": "not absolute", "path": None}
        browser.get(server.url + "tree")  # a page sets the cookie
        token = {"X-XSRFToken": browser.cookies["_xsrf"]}
        answer = browser.post(server.api("v1/clusters"), json=address, headers=token)
        assert answer.status_code == 400, answer.text
        assert "slurm_conf" in answer.json()["detail"]


def test_another_site_is_refused(server: Any, client: httpx.Client) -> None:
    with httpx.Client(follow_redirects=True, timeout=60) as browser:
        browser.get(server.url, params={"token": server.token})
        answer = browser.get(server.api("v1/agent"), headers={"Origin": "http://elsewhere.example"})
        assert answer.status_code in (403, 404)
        answer = browser.get(server.api("v1/agent"), headers={"Host": "rebound.example"})
        assert answer.status_code == 403


@pytest.mark.parametrize(
    "target",
    [
        "jupyter-slurm/api/v1/clusters/../agent",
        "jupyter-slurm/api/v1/clusters/%2e%2e/jobs",
        "jupyter-slurm/api/v1/clusters/local%2Fjobs",
        "jupyter-slurm/api/v1/clusters/local/jobs/..%2f..%2f..%2fagent",
        "jupyter-slurm/api//v1/agent",
        "jupyter-slurm/api/v1/agent/",
        "jupyter-slurm/api/http://127.0.0.1:1/v1/agent",
        "jupyter-slurm/api/v1/openapi.yaml/../agent",
        "jupyter-slurm/apiv1/agent",
    ],
)
def test_no_path_leads_past_the_table_of_the_agent(server: Any, target: str) -> None:
    parts = urlsplit(server.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=60)
    try:
        connection.request("GET", parts.path + target, headers={"Authorization": f"token {server.token}"})
        assert connection.getresponse().status == 404
    finally:
        connection.close()


def test_an_absolute_address_is_not_followed(server: Any) -> None:
    parts = urlsplit(server.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=60)
    try:
        connection.request("GET", "http://127.0.0.1:1/v1/agent", headers={"Authorization": f"token {server.token}"})
        assert connection.getresponse().status == 404
    finally:
        connection.close()


WEBSOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
STRANGERS: list[dict[str, str]] = [
    {},
    {"Authorization": "token " + "0" * 32},
    {"Authorization": "Bearer x"},
    {"Cookie": "_xsrf=1; username-localhost=x"},
]


@pytest.fixture(scope="module")
def asked(walked: Any) -> list[tuple[str, str, dict[str, str]]]:
    """Return requests that reach each handler: method, path, headers."""
    found = []
    for route in walked[1]:
        paths = st.from_regex(route["pattern"].rstrip("$"), fullmatch=True, alphabet=LETTERS)
        path = find(paths, lambda _: True, settings=ANY_EXAMPLE)
        found += [(method, path, {}) for method in route["methods"]]
        if route["websocket"]:
            found.append(("GET", path, WEBSOCKET))
    return found


@pytest.fixture(scope="module")
def operations() -> list[tuple[str, str]]:
    """Return each operation of the API, with unused names."""
    values = defaultdict(
        lambda: "0123456789abcdef", job="1", kind="accounts", command="sbatch", key="20260101-000000-00000000"
    )
    return [
        (operation.method, template.format_map(values))
        for template, methods in load_document().operations.items()
        for operation in methods.values()
    ]


def ask(server: Any, method: str, path: str, headers: dict[str, str], client: httpx.Client) -> httpx.Response:
    return client.request(method, server.url.removesuffix("/") + path, headers=headers)


def test_the_routes_are_found(walked: Any) -> None:
    routes = walked[1]
    assert {route["handler"] for route in routes} >= {"AgentHandler", "SessionHandler"}
    assert any(route["websocket"] for route in routes)
    assert all(route["pattern"].startswith("/jupyter-slurm/") for route in routes)


def test_no_route_answers_a_stranger(
    server: Any, asked: list[tuple[str, str, dict[str, str]]], operations: list[tuple[str, str]]
) -> None:
    stranger_at = httpx.Client(timeout=60)
    api = [(method, urlsplit(server.api(path.lstrip("/"))).path, {}) for method, path in operations]
    for method, path, headers in [*asked, *api]:
        for stranger in STRANGERS:
            answer = ask(server, method, path, {**headers, **stranger}, stranger_at)
            stranger_at.cookies.clear()
            what = f"{method} {path} {headers} {stranger}: {answer.status_code} {answer.text}"
            is_page = method in ("GET", "HEAD") and not headers and "/api/" not in path
            assert answer.status_code == (302 if is_page else 403), what
            if is_page:
                assert urlsplit(answer.headers["Location"]).path == "/login", what
            assert "error:" not in answer.text, what
    stranger_at.close()
    assert not re.findall(r"(?m)^- \w+ of \w+ registered for .*jupyter-slurm.*$", server.log)


@pytest.fixture
def browser(server: Any) -> Iterator[httpx.Client]:
    """Provide a client that is logged in with a cookie."""
    with httpx.Client(timeout=60) as browser:
        browser.get(server.url + "tree", params={"token": server.token}, follow_redirects=True)
        assert browser.cookies
        yield browser


def test_a_cookie_alone_changes_nothing(
    server: Any, asked: list[tuple[str, str, dict[str, str]]], browser: httpx.Client
) -> None:
    for method, path, _ in asked:
        if method in ("GET", "HEAD", "OPTIONS"):
            continue
        foreign = {"Origin": "http://elsewhere.example", "Sec-Fetch-Site": "cross-site"}
        for headers in ({}, {"X-XSRFToken": "2|00000000|" + "0" * 32 + "|0"}, {"Sec-Fetch-Site": "same-site"}, foreign):
            answer = ask(server, method, path, headers, browser)
            assert answer.status_code in (403, 404), (method, path, headers, answer.text)
            assert "_xsrf" in answer.text or "XSRF" in answer.text or "Origin" in headers, (method, path, answer.text)


def test_another_name_of_this_host_is_not_answered(
    server: Any, asked: list[tuple[str, str, dict[str, str]]], browser: httpx.Client
) -> None:
    """A page whose host name leads to this computer meanwhile (DNS rebinding) sends the name, here with the cookie."""
    for method, path, headers in asked:
        answer = ask(server, method, path, {**headers, "Host": "rebound.example"}, browser)
        assert answer.status_code == 403, (method, path, answer.text)
        assert answer.headers["X-Content-Type-Options"] == "nosniff", "else another site could run it as a script"


def test_another_site_opens_no_websocket(
    server: Any, asked: list[tuple[str, str, dict[str, str]]], browser: httpx.Client
) -> None:
    sockets = [(method, path, headers) for method, path, headers in asked if headers]
    assert sockets
    for method, path, headers in sockets:
        answer = ask(server, method, path, {**headers, "Origin": "http://elsewhere.example"}, browser)
        assert answer.status_code == 403, answer.text


def test_what_is_not_for_browsers_is_not_passed_on(server: Any) -> None:
    way = ("GET", "v1/sessions/20260101-000000-00000000/way")
    for method, path in (way, ("POST", "v1/clusters/local/login-commands")):
        headers = {"Authorization": f"token {server.token}"}
        answer = httpx.request(method, server.api(path), headers=headers)
        assert (answer.status_code, answer.json()["detail"]) == (404, "This URL does not exist."), path


def test_every_body_is_checked(server: Any, client: httpx.Client, operations: list[tuple[str, str]]) -> None:
    posts = [path for method, path in operations if method == "POST"]
    others: tuple[str, ...] = ("/open", "/stop", "/disconnect", "/close", "/results", "/keep")
    others += ("/login-commands", "/transfers", "/join", "/terminals", "/attach")  # not passed on
    with_body = [path for path in posts if not path.endswith(others)]
    assert len(with_body) > 8
    for path in with_body:
        answer = client.post(server.api(path.lstrip("/")), json={"no such": 1})
        assert answer.status_code == 400, (path, answer.text)
        assert "no such" in answer.json()["detail"] or "must contain" in answer.json()["detail"], (path, answer.text)


def test_a_body_without_measure_is_refused(server: Any, client: httpx.Client) -> None:
    address, headers = server.api("v1/clusters"), {"Content-Type": "application/json"}

    def pieces() -> Iterator[bytes]:
        for _ in range(20):
            yield b" " * 2**20

    for body in (b" " * 100_000_000, pieces()):
        answer = client.post(address, content=body, headers=headers)
        assert answer.status_code == 413
        assert answer.json()["detail"].startswith("The request body is larger than")
    for nested in (b"[" * 10_000 + b"]" * 10_000, b'{"a":' * 10_000 + b"1" + b"}" * 10_000):
        answer = client.post(address, content=nested, headers=headers)
        assert answer.status_code == 400
        assert answer.json()["detail"].startswith("The request body cannot be read")
    for nonsense in (b"", b"\xff", b"{", b"NaN", b"null"):
        assert client.post(address, content=nonsense, headers=headers).status_code in (400, 200)
    assert client.get(server.api("v1/agent")).status_code == 200
    assert "Traceback" not in server.log


READER = """
from jupyter_server.auth import Authorizer

class ReadOnly(Authorizer):
    def is_authorized(self, handler, user, action, resource):
        return resource != "jupyter-slurm" or action == "read"

c.ServerApp.authorizer_class = ReadOnly
"""


def test_who_may_only_read_may_not_write_whatever_was_asked_before(start_jupyter: Callable[..., Any]) -> None:
    server = start_jupyter("server", "--config=reader.py", files={"reader.py": READER})
    with httpx.Client(headers={"Authorization": f"token {server.token}"}, timeout=60) as client:
        for _ in range(2):
            assert client.get(server.api("v1/agent")).status_code == 200
            assert client.get(f"{server.url}jupyter-slurm/20260101-000000-00000000/").status_code == 403
            assert client.get(server.api("server/kernelspecs")).status_code == 200
            assert client.post(server.api("server/kernelspecs"), json={"words": ["arandu"]}).status_code == 403
            assert client.delete(server.api("server/kernelspecs/x")).status_code == 403
            assert client.get(server.api("server/moves")).json() == {"moves": []}
            assert client.post(server.api("server/moves"), json={"notebook": "x"}).status_code == 403
            assert client.delete(server.api("server/moves/0123456789abcdef")).status_code == 403
            for verb in ("POST", "PUT", "PATCH", "DELETE"):
                answer = client.request(verb, server.api("v1/agent/stop"), json={})
                assert answer.status_code == 403
                assert answer.json()["detail"]
