"""Who may ask what of a real Jupyter server, started as a person starts it."""

from __future__ import annotations

import http.client
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

pytestmark = pytest.mark.slurm

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
def server(start_jupyter: Callable[..., Any]) -> Any:
    return start_jupyter("server", "--ServerApp.allow_unauthenticated_access=False")


@pytest.fixture
def client(server: Any) -> Iterator[httpx.Client]:
    """What has the token."""
    with httpx.Client(headers={"Authorization": f"token {server.token}"}, timeout=60) as client:
        yield client


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("path", ADDRESSES)
def test_without_a_token_or_with_a_wrong_one_nothing_is_answered(server: Any, verb: str, path: str) -> None:
    for headers in ({}, {"Authorization": "token " + "0" * 32}, {"Authorization": "Bearer x"}, {"Cookie": "_xsrf=1"}):
        answer = httpx.request(verb, server.api(path), headers=headers)
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
            for verb in ("POST", "PUT", "PATCH", "DELETE"):
                answer = client.request(verb, server.api("v1/agent/stop"), json={})
                assert answer.status_code == 403
                assert answer.json()["detail"]
