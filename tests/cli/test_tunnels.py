"""Tests of the tunnels that a command in a terminal lists and closes."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_slurm.cli.main import main
from jupyter_slurm.client.clusters import cluster as clusters


class TwoClusters:
    """Agent with a Slurm of another SLURM_CONF and a far cluster, each with a tunnel."""

    def __init__(self) -> None:
        self.closed: list[str] = []

    def get(self, path: str) -> Any:
        if path == "/v1/clusters":
            return [{"id": name} for name in ("local-0a1b2c3d", "far")]
        if path == "/v1/clusters/local-0a1b2c3d":
            return {"id": "local-0a1b2c3d"}
        port, name = (8001, "near") if "local-0a1b2c3d" in path else (8002, "far")
        way = {"way": "ssh", "failed": {}, "proven": True, "state": "open", "message": ""}
        place = {"local_port": port, "socket": None, "url": f"http://127.0.0.1:{port}/", "node": name, "port": 80}
        return [{"id": name, "job": None, **place, **way}]

    def post(self, path: str, *, json: Any = None) -> Any:
        if path == "/v1/clusters":
            assert json["slurm_conf"] == "/opt/slurm.conf"
            return {"id": "local-0a1b2c3d"}
        self.closed.append(path)
        return {}

    def close(self) -> None:
        pass


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> TwoClusters:
    made = TwoClusters()
    monkeypatch.setenv("SLURM_CONF", "/opt/slurm.conf")
    monkeypatch.setattr(clusters, "_client", made)
    monkeypatch.setattr(clusters, "_clusters", {})
    return made


@pytest.mark.parametrize(
    ("options", "ports"),
    [
        ([], {"8001", "8002"}),
        (["--cluster", "local"], {"8001"}),
        (["--cluster", "local-0a1b2c3d"], {"8001"}),
        (["--cluster", "far"], {"8002"}),
    ],
)
def test_tunnels_of_the_named_cluster_are_listed(
    agent: TwoClusters, options: list[str], ports: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tunnel", "--list", *options]) == 0
    shown = capsys.readouterr().out
    assert {port for port in ("8001", "8002") if port in shown} == ports


def test_a_tunnel_of_this_computer_is_closed_by_the_name_local(agent: TwoClusters) -> None:
    assert main(["tunnel", "--close", "8001", "--cluster", "local"]) == 0
    assert agent.closed == ["/v1/clusters/local-0a1b2c3d/tunnels/near/close"]
