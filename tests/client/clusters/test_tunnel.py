"""Tests of the display of a tunnel."""

from __future__ import annotations

from typing import Any

import pytest

import jupyter_slurm
from jupyter_slurm.cli.main import main
from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.client.clusters.tunnel import Tunnel, open_tunnel, tunnels
from jupyter_slurm.errors import UsageError

_DATA = {
    "id": "0" * 16,
    "job": "12",
    "node": "node1",
    "port": 8888,
    "local_port": 8000,
    "socket": None,
    "url": "http://127.0.0.1:8000/",
    "way": "step",
    "failed": {},
    "proven": True,
    "state": "open",
    "message": "",
}


class Client:
    """Client with one tunnel, which records the API requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.open = [_DATA]

    def get(self, path: str) -> Any:
        if path == "/v1/clusters":
            return [{"id": "far", "connection": {"hosts": ["gateway", "arandu"]}}]
        return self.open

    def post(self, path: str, json: Any = None, timeout: float | None = 0) -> Any:
        self.asked.append((path, json))
        if path.endswith("/close"):
            self.open = []
            return {**_DATA, "state": "closed"}
        return _DATA


def test_a_tunnel_says_where_it_is_and_where_it_leads() -> None:
    client: Any = Client()
    cluster = Cluster(client, "far")
    with open_tunnel(cluster, "12", 8888, local_port=8000) as tunnel:
        assert (tunnel.port, tunnel.socket, tunnel.url) == (8000, None, "http://127.0.0.1:8000/")
        assert repr(tunnel) == "http://127.0.0.1:8000/ leads to port 8888 of job 12 on node1, by a step of the job"
        assert 'href="http://127.0.0.1:8000/"' in tunnel._repr_html_()
        assert repr(tunnels(cluster)) == f"[{tunnel!r}]"
    assert [path for path, _ in client.asked] == [
        "/v1/clusters/far/tunnels",
        f"/v1/clusters/far/tunnels/{'0' * 16}/close",
    ]
    assert client.asked[0][1] == {"job": "12", "port": 8888, "local_port": 8000, "node": None, "socket": False}
    assert "(closed)" in repr(tunnel.refresh())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"proven": False}, "cannot be verified"),
        ({"state": "broken", "message": "<b>gone</b>"}, "(broken: <b>gone</b>)"),
        ({"job": None, "node": None, "way": "login"}, "port 8888 of the login node"),
        ({"job": None, "node": "gateway", "way": "hop"}, "port 8888 of gateway"),
        ({"url": None, "local_port": None, "socket": "/run/x"}, "/run/x leads"),
    ],
)
def test_what_is_not_as_usual_is_told(changed: dict[str, Any], said: str) -> None:
    client: Any = Client()
    tunnel = Tunnel(Cluster(client, "far"), {**_DATA, **changed})
    assert said in repr(tunnel)
    assert "<b>" not in tunnel._repr_html_()


def test_of_a_tunnel_by_a_step_it_is_told_why_ssh_did_not_do() -> None:
    client: Any = Client()
    tunnel = Tunnel(Cluster(client, "far"), {**_DATA, "failed": {"ssh": "nobody has said yes to its key"}})
    assert repr(tunnel).endswith("by a step of the job (ssh to the node does not work: nobody has said yes to its key)")


@pytest.mark.parametrize(
    ("host", "node"), [("gateway", "gateway"), ("arandu", None), ("login", None), ("12", None), ("12_3", None)]
)
def test_a_host_on_the_way_is_told_from_a_job(
    host: str, node: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client: Any = Client()
    for place in ("client.clusters.cluster.current", "client.clusters.tunnel.current"):
        monkeypatch.setattr(f"jupyter_slurm.{place}", lambda: Cluster(client, "far"))
    assert main(["tunnel", host, "8888"]) == 0
    asked = client.asked[-1][1]
    assert (asked["job"], asked["node"]) == (host if host.startswith("12") else None, node)
    if host.startswith("12"):
        with pytest.raises(UsageError, match="is not a jump host"):
            jupyter_slurm.tunnel(8888, host)
    else:
        assert jupyter_slurm.tunnel(8888, host).port == 8000
        assert client.asked[-1][1] == asked
    assert capsys.readouterr().out.startswith("http://127.0.0.1:8000/ leads to port 8888")


def test_tunnels_of_all_clusters_are_listed_and_closed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = Client()
    monkeypatch.setattr("jupyter_slurm.client.clusters.cluster.every", lambda: [Cluster(client, "far")])
    assert main(["tunnel", "--list"]) == 0
    assert "http://127.0.0.1:8000/ leads to port 8888" in capsys.readouterr().out
    assert main(["tunnel", "--list", "--cluster", "near"]) == 0
    assert capsys.readouterr().out == "No tunnels.\n"
    assert main(["tunnel", "--close", "8000"]) == 0
    assert client.open == []


@pytest.mark.parametrize("port", [0, 65536, "abc", -1, 8888.0])
def test_what_is_no_port_is_refused_in_words(port: Any) -> None:
    with pytest.raises(UsageError) as refused:
        open_tunnel(Cluster(Client(), "far"), "12", port)
    assert "1 to 65535" in refused.value.hint
