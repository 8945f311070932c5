"""Tests that only documented requests are forwarded, with a path built by the server."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jupyter_slurm.agent.api.schema import load_document
from jupyter_slurm.server.allowed_paths import find_address

DOCUMENT = load_document()


@pytest.mark.parametrize(
    ("path", "spelt"),
    [
        ("/v1/agent", "/v1/agent"),
        ("/v1/clusters/local/jobs", "/v1/clusters/local/jobs"),
        ("/v1/clusters/local/jobs/12_3/output", "/v1/clusters/local/jobs/12_3/output"),
        ("/v1/clusters/local/jobs/12%2B1", "/v1/clusters/local/jobs/12%2B1"),
        ("/v1/clusters/l%6Fcal/jobs/12+1", "/v1/clusters/local/jobs/12%2B1"),
    ],
)
def test_an_address_of_the_document_is_found(path: str, spelt: str) -> None:
    found = find_address(DOCUMENT, path)
    assert found is not None
    assert found.path == spelt


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/v1",
        "/v1/",
        "/v2/agent",
        "/v1/agent/",
        "//v1/agent",
        "/v1//agent",
        "/v1/./agent",
        "/v1/clusters/../agent",
        "/v1/clusters/%2e%2e/jobs",
        "/v1/clusters/..%2fagent/jobs",
        "/v1/clusters/a%2Fb/jobs",
        "/v1/clusters/a%252Fb/jobs",
        "/v1/clusters/a%5Cb/jobs",
        "/v1/clusters/a%00/jobs",
        "/v1/clusters/a%0d%0aX:1/jobs",
        "/v1/clusters/a%20b/jobs",
        "/v1/clusters/%C3%A4/jobs",
        "/v1/clusters/%ff/jobs",
        "/v1/clusters/a?b/jobs",
        "/v1/clusters/-x/jobs",
        "/v1/clusters//jobs",
        "http://elsewhere/v1/agent",
    ],
)
def test_anything_else_is_not(path: str) -> None:
    assert find_address(DOCUMENT, path) is None


@given(st.text(alphabet="a1.%2fF/-\\ \0ü", max_size=12), st.text(alphabet="a1.%2fF/-\\ \0ü", max_size=12))
@example("a", "%2e")
@example("a1", "1")
def test_whatever_is_found_has_only_plain_characters(cluster_name: str, job: str) -> None:
    found = find_address(DOCUMENT, f"/v1/clusters/{cluster_name}/jobs/{job}")
    assert found is None or re.fullmatch(r"(/(?!\.)[A-Za-z0-9._%+-]+)+", found.path)


def test_only_the_parameters_of_the_operation_travel() -> None:
    found = find_address(DOCUMENT, "/v1/clusters/local/jobs/12/output")
    assert found is not None
    given = {"offset": [b"5"], "stream": [b"a&b=c"], "token": [b"secret"], "_xsrf": [b"2|x"]}
    assert found.query("GET", given) == "offset=5&stream=a%26b%3Dc"
    assert found.query("DELETE", given) == ""
