"""Tests of the state of a tunnel while its route is not known yet."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_slurm.client.clusters.tunnel import sentence
from jupyter_slurm.errors import HostKeyUnknown, TransportError
from jupyter_slurm.services.tunnels import tunnel as tunnel_module
from jupyter_slurm.services.tunnels.tunnel import ReachedCluster, Tunnel, TunnelSpec


async def test_while_a_question_is_open_nothing_is_said_about_the_owner() -> None:
    answered, asked = asyncio.Event(), asyncio.Event()

    async def find_route(goal: Any, *, is_requested: bool) -> Any:
        asked.set()
        await answered.wait()
        raise HostKeyUnknown("The key was not accepted.", hint="Answer yes.")

    reach: Any = SimpleNamespace(find_route=find_route, kind=lambda goal: "", failed=lambda goal: {})
    spec = TunnelSpec("0" * 16, "far", "", None, "gateway", 5000, None, None, 0.0)
    cluster: Any = None  # a host on the route belongs to no job
    tunnel = Tunnel(spec, socket.create_server(("127.0.0.1", 0)), lambda: ReachedCluster(cluster, reach))
    try:
        preparing = asyncio.create_task(tunnel.prepare())
        async with asyncio.timeout(60):
            await asked.wait()
        told = tunnel.as_dict()
        assert told["state"] == "preparing"
        said = sentence(told)
        assert "cannot be verified" not in said
        assert "If a question about a host is open, answer it." in said
        answered.set()
        await asyncio.gather(preparing, return_exceptions=True)
        assert tunnel.as_dict()["state"] == "broken"
    finally:
        tunnel.close()


class _Route:
    """Route whose network may be silent."""

    def __init__(self, network: threading.Event, *, proof_lasts: bool) -> None:
        self._network, self.is_alive, self.proof_lasts = network, True, proof_lasts

    def find(self, port: int) -> str:
        assert self._network.wait(60)
        return "127.0.0.1"

    def dial(self, address: str, port: int, timeout: float) -> Any:
        raise TransportError("The connection broke.")


@pytest.mark.parametrize("ends", [False, True])
async def test_after_a_break_of_the_network_a_tunnel_that_works_is_open(
    ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a TLS entrance a proof does not expire; of a route that ended there is another, on a laptop that slept."""
    monkeypatch.setattr(tunnel_module, "_ROUTE_TIMEOUT_S", 0.05)
    monkeypatch.setattr(tunnel_module, "elapsed", lambda: time.monotonic() + 3600)
    network = threading.Event()
    network.set()
    routes = [_Route(network, proof_lasts=not ends)]

    async def find_route(goal: Any, *, is_requested: bool) -> Any:
        if not routes[-1].is_alive:
            await asyncio.to_thread(network.wait, 60)
            routes.append(_Route(network, proof_lasts=False))
        return routes[-1]

    reach: Any = SimpleNamespace(find_route=find_route, kind=lambda goal: "", failed=lambda goal: {})
    spec, cluster = TunnelSpec("0" * 16, "far", "", None, "", 5000, None, None, 0.0), None
    tunnel = Tunnel(spec, socket.create_server(("127.0.0.1", 0)), lambda: ReachedCluster(cluster, reach))  # type: ignore[arg-type]
    try:
        await tunnel.prepare(is_requested=False)
        network.clear()
        routes[0].is_alive = not ends
        with socket.create_connection(("127.0.0.1", tunnel.spec.local_port or 0), 60) as sock:
            while tunnel.as_dict()["state"] != "broken":
                await asyncio.sleep(0.01)
            await asyncio.to_thread(sock.close)
        network.set()
        await tunnel.prepare(is_requested=False)  # of the session, which sees the broken tunnel
        assert (tunnel.as_dict()["state"], tunnel.as_dict()["message"]) == ("open", "")
        assert len(routes) == 1 + ends
    finally:
        network.set()
        tunnel.close()
