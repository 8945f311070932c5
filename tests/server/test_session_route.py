"""Tests of the headers and paths between a browser and a session."""

from __future__ import annotations

import pytest

from jupyter_slurm.server.session_route import SessionRoute, request_headers, response_headers

SAME = SessionRoute(8000, "/user/ana/jupyter-slurm/K/", "/user/ana/jupyter-slurm/K/", "secret")
ROOT = SessionRoute(8000, "/user/ana/jupyter-slurm/K/", "/", None)


@pytest.mark.parametrize(
    ("asked", "query", "target"),
    [
        ("lab", "token=x&a=1&&to%6ben=y", "/lab?a=1&"),
        ("a%2Fb/../%2e%2e//c", "", "/a%2Fb/../%2e%2e//c"),
        ("a\\b|\"<>^`{}'", "", "/a\\b|\"<>^`{}'"),
        ("\xe4#b", "c#\xff", "/%E4%23b?c%23%FF"),
        ("/evil.example", "", "//evil.example"),
    ],
)
def test_a_target_is_the_path_as_it_came(asked: str, query: str, target: str) -> None:
    assert ROOT.target(ROOT.path + asked, query) == target
    assert SAME.target(SAME.path + asked, query) == SAME.base_url + target[1:]


@pytest.mark.parametrize(
    ("told", "same", "root"),
    [
        ("lab?x=1#y", "lab?x=1#y", "lab?x=1#y"),
        ("/there", "/there", ROOT.path + "there"),
        ("http://127.0.0.1:8000/there?x", "/there?x", ROOT.path + "there?x"),
        ("http://localhost:8000/there", "/there", ROOT.path + "there"),
        ("http://127.0.0.1:8000//evil.example/x", "/evil.example/x", ROOT.path + "evil.example/x"),
        ("http://127.0.0.1:8000/\\evil.example/x", "/evil.example/x", ROOT.path + "evil.example/x"),
        ("http://127.0.0.1:8001/x", "http://127.0.0.1:8001/x", "http://127.0.0.1:8001/x"),
        ("http://[x/", "http://[x/", "http://[x/"),
    ],
)
def test_a_redirection_of_the_session_to_itself_stays_here(told: str, same: str, root: str) -> None:
    assert SAME.location(told) == same
    assert ROOT.location(told) == root


def test_what_is_of_one_connection_or_of_this_server_stays_here() -> None:
    given = (
        "Cookie Authorization X-Forwarded-For X_Forwarded_Host X-Hop Proxy Proxy-Connection Origin X-XSRFToken X-Own"
    )
    headers = [("Connection", "keep-alive, x-hop"), *((name, "1") for name in given.split())]
    kept = request_headers(headers, SAME)
    assert kept == [("X-Own", "1"), ("Accept-Encoding", "identity"), ("Authorization", "token secret")]
    assert request_headers(headers, ROOT) == kept[:-1]


def test_what_would_hold_for_all_of_this_server_stays_there() -> None:
    given = (
        "Set-Cookie Set_Cookie Clear-Site-Data Strict-Transport-Security Alt-Svc NEL Public-Key-Pins-Report-Only X-Hop "
        "Service-Worker-Allowed Access-Control-Allow-Origin Proxy-Authenticate Server Keep-Alive X-Own "
        "WWW-Authenticate Accept-CH Report-To Reporting-Endpoints Origin-Agent-Cluster Speculation-Rules"
    )
    headers = [("connection", "X-Hop"), *((name, "1") for name in given.split()), ("location", "/there")]
    assert response_headers(headers, ROOT) == [("X-Own", "1"), ("location", ROOT.path + "there")]


def test_a_route_with_a_ticket_leads_to_the_same_place() -> None:
    for route in (SAME, ROOT):
        found = route.with_ticket("T")
        assert found.path == "/user/ana/jupyter-slurm/K~T/"
        assert found.target(found.path + "lab", "a=1&token=x") == route.target(route.path + "lab", "a=1")
        assert found.location(route.base_url + "lab") == found.path + "lab"
    assert SAME.with_ticket("T").location("/user/ana/lab") == "/user/ana/lab", "the server's own page"
