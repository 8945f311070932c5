"""Tests of the ends of routes: each is closed when no tunnel needs it, also while it is being made."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jupyter_slurm.config import Settings
from jupyter_slurm.errors import TunnelError
from jupyter_slurm.services.tunnels.local_tunnels import Tunnels
from jupyter_slurm.services.tunnels.login_routes import RouteTarget
from jupyter_slurm.services.tunnels.node_routes import NodeRoutes
from jupyter_slurm.services.tunnels.tunnel import Tunnel


class _Route:
    """Route to a node."""

    proof_lasts = False

    def __init__(self, node: str) -> None:
        self.node, self.is_alive = node, True

    def find(self, port: int) -> str:
        return "127.0.0.1"

    def close(self) -> None:
        self.is_alive = False


class _Site:
    """Tunnels to one job, on a node of the test's choice.

    Attributes
    ----------
    node : str
        Present node of the job.
    made : list of _Route
        All routes so far.
    opened : asyncio.Event
        Set while logins on nodes are answered.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.node, self.made = "n1", list[_Route]()
        self.begun, self.opened, self.located = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.opened.set()
        self.located.set()
        reach = NodeRoutes(*cast(Any, (None, None, None, None)))

        async def find_task(reference: str) -> Any:
            return SimpleNamespace(key="key", id=None, submitted=None, is_array=False)

        async def log_in(goal: RouteTarget, prompter: Any) -> _Route:
            self.begun.set()
            await self.opened.wait()
            self.made.append(_Route(goal.node))
            return self.made[-1]

        async def locate(tunnel: Tunnel, cluster: Any) -> RouteTarget:
            self.begun.set()
            await self.located.wait()
            return RouteTarget(self.node, "7")

        monkeypatch.setattr(reach, "_ssh", log_in)
        monkeypatch.setattr(Tunnel, "_goal", locate)
        cluster = cast(Any, SimpleNamespace(id="far", jobs=SimpleNamespace(find_task=find_task)))
        self.tunnels = Tunnels(Settings(state_dir=str(folder)), lambda _: cluster)
        self.tunnels._reaches["far"] = (cluster, reach)

    async def reach(self, port: int) -> Tunnel:
        return await self.tunnels.reach("far", {"job": "7", "port": port})

    async def close(self) -> None:
        (told,) = self.tunnels.list_to_api("far")
        await self.tunnels.close("far", told["id"])

    async def until_alive(self, *nodes: str) -> None:
        """Wait until the routes that are alive are those to some nodes."""
        async with asyncio.timeout(60):
            while [route.node for route in self.made if route.is_alive] != list(nodes):
                await asyncio.sleep(0.01)


@pytest.fixture
async def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    site = _Site(tmp_path, monkeypatch)
    yield site
    await site.tunnels.stop()


async def test_after_a_requeue_the_route_to_the_former_node_is_closed(site: _Site) -> None:
    """As soon as the last tunnel has left it; what was found in advance was for the job on that node, too."""
    first, second = await site.reach(1), await site.reach(2)
    site.tunnels._ahead["far", "key"] = first.goal
    site.node = "n2"
    await first.prepare()
    await site.until_alive("n1", "n2")
    assert first.goal.node != second.goal.node == "n1"
    await second.prepare()
    await site.until_alive("n2")
    assert site.tunnels._ahead == {}


async def test_a_route_that_another_job_needs_stays(site: _Site) -> None:
    tunnel = await site.reach(1)
    former = site.tunnels._ahead["far", "other"] = tunnel.goal
    site.node = "n2"
    await tunnel.prepare()
    _, reach = site.tunnels._reaches["far"]
    assert set(reach._places) == {former, tunnel.goal}
    site.tunnels.leave("far", "other")
    await site.until_alive("n2")


@pytest.mark.parametrize("waits", ["opened", "located"])
async def test_a_tunnel_that_is_closed_while_its_route_is_made_leaves_none(site: _Site, waits: str) -> None:
    getattr(site, waits).clear()
    opening = asyncio.gather(*(site.reach(1) for _ in range(2)), return_exceptions=True)
    await site.begun.wait()
    await site.close()
    _, reach = site.tunnels._reaches["far"]
    async with asyncio.timeout(60):
        while reach._places:
            await asyncio.sleep(0.01)
    getattr(site, waits).set()
    for error in await opening:
        assert isinstance(error, TunnelError)
        assert "was closed" in error.message
    await site.until_alive()
    assert len(site.made) <= 1
    assert not reach._places
