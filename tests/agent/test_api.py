"""HTTP API: accepted requests, refused requests, and the texts of refusals."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from importlib import resources
from typing import Any

import fastjsonschema
import httpx
import openapi_spec_validator
import pytest
import yaml

from jupyter_slurm.agent.api import routes
from jupyter_slurm.agent.api.app import MAX_BODY_BYTES
from jupyter_slurm.agent.api.schema import load_document
from jupyter_slurm.agent.hosting import discovery
from jupyter_slurm.agent.hosting.endpoint import Endpoint, endpoint_at
from jupyter_slurm.config import Settings
from jupyter_slurm.errors import SubmitRefused, Throttled

KEY = "20260101-120000-0123456789abcdef"
JOBS = "/v1/clusters/local/jobs"
SUBMISSION = {"key": KEY, "kind": "script", "text": "#!/bin/sh\n"}


@pytest.fixture
def http(agent: object, settings: Settings, plain_http: Callable[[Endpoint], httpx.Client]) -> Iterator[httpx.Client]:
    endpoint = endpoint_at(discovery.search_locations(settings)[0])
    assert endpoint is not None
    with plain_http(endpoint) as client:
        yield client


def _problem(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    assert document["status"] == status
    assert document["type"].startswith("urn:jupyter-slurm:error:")
    assert document["detail"]
    assert document["hint"]
    return document


def test_the_document_is_valid_and_served(http: httpx.Client) -> None:
    shipped = resources.files("jupyter_slurm.agent").joinpath("openapi.yaml").read_bytes()
    response = http.get("/v1/openapi.yaml")
    assert response.content == shipped
    openapi_spec_validator.validate(yaml.safe_load(shipped))


def test_every_schema_is_used() -> None:
    text = load_document().text.decode()
    for name in load_document().spec["components"]["schemas"]:
        assert f"#/components/schemas/{name}" in text, name


def test_a_validator_contains_only_the_schemas_that_it_needs() -> None:
    """Check the definition, which stands in each error of a validator: with all schemas, a name would take 40 ms."""
    for operation in (one for methods in load_document().operations.values() for one in methods.values()):
        for place, check in operation._parameter_validators.items():
            with pytest.raises(fastjsonschema.JsonSchemaValueException) as caught:
                check(object())
            assert "components" not in caught.value.definition, (operation.operation_id, place)
        operation.prepare()  # which fails if a schema is missing


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v2/agent", "/v1/agent/", "/v1/clusters/a/b", "/v1/clusters/local/jobs/12/x"]
)
def test_an_unknown_address(http: httpx.Client, path: str) -> None:
    _problem(http.get(path), 404)


@pytest.mark.parametrize("job", ["%2e%2e", "..%2f..", "a%0a", "a%20b", "%ff", "x" * 200, "%00", "-x"])
def test_an_impossible_name_is_not_found(http: httpx.Client, job: str) -> None:
    response = http.send(http.build_request("GET", http.base_url.copy_with(raw_path=f"{JOBS}/{job}".encode())))
    assert response.status_code in (400, 404)
    _problem(response, response.status_code)


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "POST", "TRACE"])
def test_an_unknown_method(http: httpx.Client, method: str) -> None:
    response = http.request(method, "/v1/agent")
    _problem(response, 405)
    assert response.headers["allow"] == "GET"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://localhost:8888"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Host": "evil.example"}, 421),
        ({"Host": "jupyter-slurm.evil.example"}, 421),
        ({"Host": ""}, 421),
    ],
)
def test_no_browser_and_no_other_host(http: httpx.Client, headers: dict[str, str], status: int) -> None:
    for path in ("/v1/agent", "/nowhere"):
        _problem(http.get(path, headers=headers), status)


def test_a_refused_request_reaches_nothing(http: httpx.Client, core: Any) -> None:
    _problem(http.post(JOBS, json=SUBMISSION, headers={"Origin": "http://localhost"}), 403)
    assert core.calls == []


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_bodies_are_json(http: httpx.Client, content_type: str, core: Any) -> None:
    _problem(http.post(JOBS, content=json.dumps(SUBMISSION), headers={"Content-Type": content_type}), 415)
    assert core.calls == []


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"key": NaN}',
        b"1" * 5000,
        b"[" * 100_000,
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b'"\\ud800"',
        json.dumps({**SUBMISSION, "text": "\ud800"}).encode("utf-16-le"),
        json.dumps(SUBMISSION).encode("utf-16"),
        json.dumps({**SUBMISSION, "resume": 0}).replace('"resume": 0', '"resume": 1e999').encode(),
        b"",
    ],
)
def test_what_is_not_a_submission_is_refused(http: httpx.Client, body: bytes, core: Any) -> None:
    document = _problem(http.post(JOBS, content=body, headers={"Content-Type": "application/json"}), 400)
    assert core.calls == []
    assert document["detail"].startswith("The request body cannot be read") or body in (b"[]", b"null"), document


@pytest.mark.parametrize(
    "change",
    [
        {"key": "../../etc"},
        {"key": KEY + "\n"},
        {"key": None},
        {"kind": "shell"},
        {"text": 1},
        {"text": "x" * (8 * 1024 * 1024 + 1)},
        {"options": "--wrap=x"},
        {"options": ["a\0b"]},
        {"options": ["a"] * 10_001},
        {"args": [["nested"]]},
        {"python": "relative/python"},
        {"dry_run": "yes"},
        {"surprise": True},
        {"context": {"cwd": "relative"}},
        {"options": ["x" * 131_072]},
        {"args": ["a"] * 10_001},
        {"python": "/" + "x" * 4095},
        {"context": {"cwd": "/" + "x" * 4095}},
        {"context": {"env": {"A": "x" * 131_073}}},
        {"context": {"env": dict.fromkeys(map(str, range(10_001)), "x")}},
        {"context": {"cwd": "/a\0b"}},
        {"context": {"umask": 512}},
        {"context": {"umask": -1}},
        {"context": {"env": {"A=B": "x"}}},
        {"context": {"env": {"": "x"}}},
        {"context": {"env": {"A": "x\0y"}}},
        {"context": {"env": {"A": {"deep": "x"}}}},
        {"context": {"limits": {"n; rm -rf /": "1"}}},
        {"context": {"limits": {"n": "1; rm -rf /"}}},
        {"context": {"limits": {"n": "1\n"}}},
    ],
)
def test_a_bad_submission_is_refused_where_it_is_bad(http: httpx.Client, change: dict[str, Any], core: Any) -> None:
    document = _problem(http.post(JOBS, json={**SUBMISSION, **change}), 400)
    (name,) = change
    assert name in document["detail"]
    assert len(document["detail"]) < 2000
    assert core.calls == []


@pytest.mark.parametrize(
    ("path", "body", "said", "hint"),
    [
        (
            "/acts",
            {"act": "limit", "jobs": ["1"], "time_limit": "banana"},
            "'banana' is not a valid time limit.",
            "4:00",
        ),
        ("/acts", {"act": "hold", "jobs": ["1", "-x"]}, "'-x' is not a valid job.", "12_3"),
        ("/jobs/1/cancel", {"signal": "usr one"}, "'usr one' is not a valid signal.", "USR1"),
        (
            "/transfers",
            {"kind": "put", "sources": ["/a"], "dest": "b", "to_cluster": "-"},
            "'-' is not a valid",
            "profile",
        ),
        ("/terminals", {"job": "-", "columns": 80, "rows": 24}, "'-' is not a valid job.", "12_3"),
    ],
)
def test_a_wrong_value_of_a_command_is_named_in_words(
    http: httpx.Client, path: str, body: Any, said: str, hint: str
) -> None:
    document = _problem(http.post(JOBS.removesuffix("/jobs") + path, json=body), 400)
    assert document["detail"].startswith(said)
    assert hint in document["hint"]
    assert "openapi" not in document["hint"]


def test_a_name_that_nothing_can_have_is_repeated_in_words(http: httpx.Client) -> None:
    document = _problem(http.post(JOBS.removesuffix("/jobs") + "/transfers/999/stop"), 404)
    assert document["detail"] == "There is no transfer '999'."
    assert document["hint"] == "`%slurm transfers` lists the transfers."
    assert _problem(http.get(f"{JOBS}/a%20b"), 404)["detail"] == "There is no job 'a b'."


def test_too_large_a_body_is_refused(http: httpx.Client, core: Any) -> None:
    headers = {"Content-Type": "application/json"}
    _problem(http.post(JOBS, content=b" " * (MAX_BODY_BYTES + 1), headers=headers), 413)

    def endless() -> Iterator[bytes]:  # no Content-Length: chunked
        for _ in range(MAX_BODY_BYTES // 1_000_000 + 2):
            yield b" " * 1_000_000

    _problem(http.post(JOBS, content=endless(), headers=headers), 413)
    assert core.calls == []


def test_a_submission_arrives_as_it_was_sent(http: httpx.Client, core: Any, settings: Any) -> None:
    """Check names and values that are not UTF-8 (PEP 383), and the defaults of missing fields."""
    context = {"cwd": "/tmp/\udcff", "env": {"A": "\udc80b\n", "Ü": ""}, "umask": 18, "limits": {"n": "unlimited"}}
    body = {**SUBMISSION, "options": ["-p", "a b;$(x)\n"], "context": context}
    sent = json.dumps(body).encode("ascii")
    response = http.post(JOBS, content=sent, headers={"Content-Type": "application/json; charset=utf-8"})
    assert response.status_code == 201
    _, _, arrived = core.calls[0]
    assert {name: arrived[name] for name in body} == body
    assert (arrived["args"], arrived["python"], arrived["label"], arrived["dry_run"]) == ([], None, None, False)
    assert arrived["process"] == (os.getpid() if settings.agent_socket == "unix" else None)  # reported by the system
    assert http.post(JOBS, json={**body, "options": [], "context": {}, "process": 1}).status_code == 400


def test_numbers_that_are_whole_are_whole(http: httpx.Client, core: Any) -> None:
    body = b'{"key": "%s", "kind": "script", "text": "", "context": {"umask": 18.0}}' % KEY.encode()
    assert http.post(JOBS, content=body, headers={"Content-Type": "application/json"}).status_code == 201
    assert repr(core.calls[0][2]["context"]["umask"]) == "18"


def test_a_preview_is_no_job(http: httpx.Client) -> None:
    response = http.post(JOBS, json={**SUBMISSION, "options": ["-n1"], "dry_run": True})
    assert response.status_code == 200
    assert response.json() == {"argv": ["sbatch", "-n1"], "script": "#!/bin/sh\n"}
    launch = {"key": KEY, "idle": 60, "options": ["-n1"], "test_only": True}
    response = http.post("/v1/clusters/local/sessions", json=launch)
    assert (response.status_code, response.json()["argv"]) == (200, ["sbatch", "-n1"])


def test_of_what_has_finished_the_newest_are_told(
    http: httpx.Client, core: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = [
        {"key": None, "cluster": "local", "id": str(number), "state": state, "known": True, "finished": finished}
        for number, state, finished in ((15, "FAILED", True), (14, "PENDING", False), (13, "COMPLETED", True))
    ] + [{"key": None, "cluster": "local", "id": "12", "state": "RUNNING", "known": True}]

    async def jobs(*, active: bool, days: float | None = None) -> list[dict[str, Any]]:
        return table

    monkeypatch.setattr(core.local.jobs, "list_jobs", jobs)
    for query, ids in (("", "15 14 13 12"), ("&finished=1", "15 14 12"), ("&finished=0", "14 12")):
        assert [job["id"] for job in http.get(f"{JOBS}?state=all{query}").json()] == ids.split()


@pytest.mark.parametrize("query", ["state=gone", "state=", "state=all&state=all", "state=%ff", "finished=-1"])
def test_a_bad_query_is_refused(http: httpx.Client, query: str) -> None:
    _problem(http.get(f"{JOBS}?{query}"), 400)


@pytest.mark.parametrize(
    "query", ["offset=x", "offset=1.0", "limit=-1", "limit=1e3", "offset=" + "9" * 30, "stream=stdin"]
)
def test_a_bad_piece_is_refused(http: httpx.Client, query: str) -> None:
    _problem(http.get(f"{JOBS}/12/output?{query}"), 400)


def test_output_comes_in_pieces(http: httpx.Client) -> None:
    response = http.get(f"{JOBS}/12/output", params={"offset": 2, "limit": 3})
    assert response.content == b"234"
    assert response.headers["x-total-size"] == "10"
    assert response.headers["content-type"] == "application/octet-stream"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert http.get(f"{JOBS}/12/script").content == b"#!/bin/sh\n\xff\n"


def test_errors_keep_their_class_and_hint(http: httpx.Client) -> None:
    document = _problem(http.get(f"{JOBS}/99"), 404)
    assert (document["type"], document["hint"]) == ("urn:jupyter-slurm:error:job-not-found", "Look.")


def test_what_nobody_foresaw_shows_no_inside(http: httpx.Client, core: Any, caplog: pytest.LogCaptureFixture) -> None:
    core.failure = RuntimeError("the inside: password=hunter2")
    document = _problem(http.get(f"{JOBS}/12"), 500)
    assert "hunter2" not in json.dumps(document)
    assert "agent logs" in document["hint"]
    assert any("hunter2" in str(record.exc_info) for record in caplog.records)  # the owner's log has it
    core.failure = SubmitRefused("no", hint="do", argv=["sbatch"], stderr="x")
    assert _problem(http.get(f"{JOBS}/12"), 422)["details"] == {"argv": ["sbatch"], "stderr": "x"}


def test_a_stop_that_must_not_be(http: httpx.Client, core: Any) -> None:
    """Check that an agent within another process, or one with work left, is not stopped."""
    _problem(http.post("/v1/agent/stop", json={"only_idle": True}), 409)
    core.held = {"submissions": 2}
    assert _problem(http.post("/v1/agent/stop", json={"only_idle": True}), 409)["details"] == {
        "holds": {"submissions": 2}
    }
    assert http.get("/v1/agent").status_code == 200


def test_commands_and_housekeeping(http: httpx.Client, core: Any) -> None:
    body = {"argv": ["squeue", "--me"], "table": True, "context": {"cwd": "/tmp"}}
    answer = http.post("/v1/clusters/local/commands", json=body)
    assert answer.json()["table"] == {"columns": ["A"], "rows": [["1"]]}
    assert http.post("/v1/housekeeping").status_code == 200
    assert http.post("/v1/housekeeping", json={"older_than_days": 0.5, "dry_run": True}).status_code == 200
    assert http.post(f"{JOBS}/12/cancel").status_code == 200
    assert http.post(f"{JOBS}/12/cancel", json={"signal": "USR1"}).status_code == 200
    _problem(http.post(f"{JOBS}/12/cancel", json={"signal": "--user=bob"}), 400)
    assert core.calls == [
        ("command", ["squeue", "--me"], True, {"cwd": "/tmp"}),
        ("clean", None, False),
        ("clean", 0.5, True),
        ("cancel", "local", "12", None),
        ("cancel", "local", "12", "USR1"),
    ]


@pytest.mark.parametrize("length", ["abc", "-5", "1e3", "\xb2", "0x10", "1 2"])
def test_a_length_that_is_no_number_is_the_clients_mistake(agent: object, settings: Settings, length: str) -> None:
    endpoint = endpoint_at(discovery.search_locations(settings)[0])
    assert endpoint is not None
    with socket.socket(socket.AF_UNIX if endpoint.port is None else socket.AF_INET) as raw:
        raw.connect(endpoint.place.socket if endpoint.port is None else ("127.0.0.1", endpoint.port))
        headers = {"Host": endpoint.base_url.removeprefix("http://"), **endpoint.headers, "Content-Length": length}
        lines = [f"POST {JOBS} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        raw.sendall("\r\n".join(lines).encode("latin-1"))
        raw.settimeout(20)
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert b"application/problem+json" in answer


def test_who_asks_too_much_is_told_when_to_try_again(http: httpx.Client, core: Any) -> None:
    core.failure = Throttled("Slurm was asked too much.", hint="Try again in 12 s.", retry_after=12)
    response = http.get(f"{JOBS}/12")
    assert _problem(response, 429)["details"] == {"retry_after": 12}
    assert response.headers["retry-after"] == "12"


def test_one_stream_too_many_is_told_so(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "_MAX_STREAMS", 1)
    with http.stream("GET", "/v1/events") as first:
        assert first.status_code == 200
        response = http.get("/v1/events")
        assert "browser tabs" in _problem(response, 503)["hint"]
        assert response.headers["retry-after"].isdecimal()


def test_a_question_ends_with_its_client_and_a_submission_does_not(
    http: httpx.Client, core: Any, wait_for: Callable[..., Any]
) -> None:
    begun, ends = threading.Semaphore(0), dict[str, str]()

    def never_ending(name: str) -> Callable[..., Any]:
        async def wait(*args: object, **more: object) -> None:
            begun.release()
            try:
                await asyncio.sleep(1.5)
                ends[name] = "in its own time"
            except asyncio.CancelledError:
                ends[name] = "cancelled"
                raise

        return wait

    core.local.run_command, core.local.submit = never_ending("command"), never_ending("submit")
    core.local.jobs.describe = never_ending("job")
    body = {"argv": ["squeue"], "context": {}}
    for method, path, content in [
        ("POST", "/v1/clusters/local/commands", body),
        ("GET", f"{JOBS}/12", None),
        ("POST", JOBS, SUBMISSION),
    ]:
        with pytest.raises(httpx.ReadTimeout):
            http.request(method, path, json=content, timeout=0.3)
        assert begun.acquire(timeout=60)
    wait_for(lambda: len(ends) == 3, "the ends")
    assert ends == {"command": "cancelled", "job": "cancelled", "submit": "in its own time"}
