"""Tests of the state of a tunnel while its route is not known yet."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

from jupyter_slurm.client.clusters.tunnel import sentence
from jupyter_slurm.errors import HostKeyUnknown
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
