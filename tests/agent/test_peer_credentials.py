"""Access for the same user only, in both directions."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_slurm.agent.client.agent_client import AgentClient
from jupyter_slurm.agent.client.http_client import HttpClient
from jupyter_slurm.agent.hosting import discovery
from jupyter_slurm.agent.hosting.agent_host import ThreadedAgent
from jupyter_slurm.agent.hosting.endpoint import Endpoint, endpoint_at
from jupyter_slurm.config import Settings
from jupyter_slurm.errors import AgentRefused, AgentUnreachable
from jupyter_slurm.transport import peer_credentials
from jupyter_slurm.transport.peer_credentials import is_same_user, peer_uid

_STRANGER = 12345

_BECOME = f"""
import encodings.idna, os, socket, sys
os.setgroups([]); os.setgid({_STRANGER}); os.setuid({_STRANGER})
kind, where = sys.argv[1:3]
address = where if kind == "unix" else ("127.0.0.1", int(where))
sock = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET)
"""
_ASK = (
    _BECOME
    + """
sock.connect(address)
secret = sys.argv[3]
try:
    head = ["GET /v1/agent HTTP/1.1", f"Host: {sys.argv[4]}", f"Authorization: Bearer {secret}", "", ""]
    sock.sendall("\\r\\n".join(head).encode())
    print(repr(sock.recv(1000)))
except ConnectionError:
    print(repr(b""))
"""
)
_LISTEN = (
    _BECOME
    + """
sock.bind(address); sock.listen(); print(sock.getsockname()[1] if kind == "tcp" else where, flush=True)
while True:
    connection, _ = sock.accept()
    data = connection.recv(1000)
    print(repr(data), flush=True)
    connection.close()
"""
)


def _where(settings: Settings) -> tuple[str, str, str, str]:
    place = discovery.search_locations(settings)[0]
    endpoint = endpoint_at(place)
    assert endpoint is not None
    if endpoint.port is None:
        return "unix", place.socket, "", "jupyter-slurm"
    return "tcp", str(endpoint.port), endpoint.secret, f"127.0.0.1:{endpoint.port}"


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_another_user_is_not_answered(
    agent: ThreadedAgent, settings: Settings, run_python: Callable[..., subprocess.Popen[str]]
) -> None:
    """Check with an open directory and a known secret: not one byte is sent."""
    kind, where, secret, host = _where(settings)
    place = discovery.search_locations(settings)[0]
    os.chmod(os.path.dirname(place.folder), 0o755)
    os.chmod(place.folder, 0o755)
    if kind == "unix":
        os.chmod(place.socket, 0o666)
    with run_python(_ASK, kind, where, secret, host) as process:
        out, err = process.communicate(timeout=60)
    assert (out.strip(), err) == ("b''", "")
    os.chmod(place.folder, 0o700)
    with AgentClient.connect(settings, start=False) as client:  # and its own user still has access
        assert client.info["pid"] == os.getpid()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_another_users_server_hears_nothing(
    kind: str, make_settings: Callable[..., Settings], run_python: Callable[..., subprocess.Popen[str]]
) -> None:
    """Check that neither secret nor request is sent to another user on the remembered port or socket path."""
    place = discovery.place_to_start(make_settings())
    os.chmod(os.path.dirname(place.folder), 0o777)
    os.chmod(place.folder, 0o777)
    with run_python(_LISTEN, kind, place.socket if kind == "unix" else "0") as process:
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        os.chmod(place.folder, 0o700)
        endpoint = Endpoint(place, None if kind == "unix" else int(said), "hush")
        assert not endpoint.answers()
        assert process.stdout.readline().strip() == "b''"
        with pytest.raises(AgentRefused, match=f"user {_STRANGER}"):
            HttpClient(endpoint).request("GET", "/v1/agent")
        assert process.stdout.readline().strip() == "b''"
        with pytest.raises(AgentUnreachable):
            AgentClient.connect(make_settings(), start=False)
        process.kill()


def test_a_peer_is_named_on_both_kinds_of_socket() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_uid(ours) == os.geteuid()
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        with near, far:
            assert peer_uid(far) == peer_uid(near) == os.geteuid()


def test_a_peer_is_named_without_netlink_and_after_it_has_said_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError

    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        with near, far:
            near.shutdown(socket.SHUT_WR)
            assert peer_uid(far) == os.geteuid()
            monkeypatch.setattr(peer_credentials, "_query_socket", forbidden)
            assert peer_uid(far) == os.geteuid()
            near.close()
            assert peer_uid(far) == -1


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_connection_that_is_not_accepted_yet_belongs_to_who_listens(
    run_python: Callable[..., subprocess.Popen[str]],
) -> None:
    """Check that a user's client recognises a busy agent, although the kernel reports root until it accepts."""
    code = (
        "import sys; from jupyter_slurm.transport.peer_credentials import is_same_user, peer_uid"
        + _BECOME
        + """
sock.bind(address); sock.listen()
near = socket.create_connection(sock.getsockname())
print(peer_uid(near))
far, _ = sock.accept()
print(peer_uid(near), peer_uid(far))
"""
    )
    with run_python(code, "tcp", "0") as process:
        out, err = process.communicate(timeout=60)
    assert (out.split(), err) == ([str(_STRANGER)] * 3, "")
    listen = "sock.bind(address); sock.listen(); print(sock.getsockname()[1], flush=True); sys.stdin.read()"
    with run_python(_BECOME + listen, "tcp", "0", stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        with socket.create_connection(("127.0.0.1", int(process.stdout.readline()))) as near:
            assert peer_uid(near) == _STRANGER
        process.communicate(timeout=60)


@pytest.mark.skipif(shutil.which("lsof") is None, reason="needs lsof")
def test_a_peer_is_named_by_lsof_on_other_systems(
    monkeypatch: pytest.MonkeyPatch, run_python: Callable[..., subprocess.Popen[str]]
) -> None:
    monkeypatch.setattr(peer_credentials.sys, "platform", "darwin")
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as near:
            assert is_same_user(near), "not accepted yet: the listener will have it"
            with server.accept()[0] as far:
                assert is_same_user(far)
                assert is_same_user(near)
                monkeypatch.setattr(peer_credentials.shutil, "which", lambda *_, **__: None)
                assert not is_same_user(far), "nobody says whose it is"
                monkeypatch.undo()
                monkeypatch.setattr(peer_credentials.sys, "platform", "darwin")
        if os.geteuid() == 0:
            with run_python(_BECOME + "sock.connect(address); print(flush=True); sys.stdin.read()", "tcp",
                            str(server.getsockname()[1]), stdin=subprocess.PIPE) as process:  # fmt: skip
                with server.accept()[0] as far:
                    assert peer_uid(far) == -1
                    assert not is_same_user(far)
                process.communicate(timeout=60)


def test_a_peer_that_is_gone_is_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        with far:
            near.close()
            far.recv(1)
            assert peer_uid(far) == -1


def test_the_secret_is_asked_for(
    make_settings: Callable[..., Settings], core: object, plain_http: Callable[..., Any]
) -> None:
    from jupyter_slurm.agent.hosting.agent_host import serve_in_thread

    settings = make_settings(agent_host="inprocess", agent_socket="tcp")
    agent = serve_in_thread(settings, core)  # type: ignore[arg-type]
    assert agent is not None
    try:
        place = discovery.search_locations(settings)[0]
        endpoint = endpoint_at(place)
        assert endpoint is not None
        assert os.stat(place.secret).st_mode & 0o777 == 0o600
        assert endpoint.secret not in repr(endpoint)
        for secret, status in ((endpoint.secret, 200), ("x", 403), ("wrong", 403), (endpoint.secret + "x", 403)):
            with plain_http(Endpoint(place, endpoint.port, secret)) as http:
                assert http.get("/v1/agent").status_code == status
    finally:
        agent.stop()
    assert os.listdir(place.folder) == [os.path.basename(place.lock)]


def test_threads_share_one_client(client: AgentClient) -> None:
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            for _ in range(20):
                assert client.get("/v1/clusters/local/jobs/12")["id"] == "12"
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
