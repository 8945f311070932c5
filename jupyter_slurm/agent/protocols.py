"""What the agent asks of whoever does the work."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from jupyter_slurm.services.connections.clients import ClientUse

__all__ = ["CoreLike", "Json", "UsersLike"]

Json = dict[str, Any]


class BusLike(Protocol):
    """A broadcast of (event, data)."""

    def subscribe(self, *, is_looked_at: bool = True) -> Any:
        """Return an async context manager that gives an async iterator."""


class UsersLike(Protocol):
    """Who is told: :class:`jupyter_slurm.services.connections.clients.ClientRegistry`."""

    def join(self, user: ClientUse, cluster: str) -> None: ...  # noqa: D102
    def leave(self, user: ClientUse) -> None: ...  # noqa: D102


class SessionsLike(Protocol):
    """What the routes ask of sessions: :class:`jupyter_slurm.services.sessions.manager.Sessions`."""

    async def launch(self, name: str, asked: Json) -> Json: ...
    def told(self, name: str, *, active: bool) -> list[Json]: ...
    async def one(self, name: str, reference: str) -> Json: ...
    async def open(self, name: str, reference: str) -> Json: ...
    async def end(self, name: str, reference: str) -> Json: ...
    async def rename(self, name: str, reference: str, wanted: str) -> Json: ...


class ImagesLike(Protocol):
    """What the routes ask of images: :class:`jupyter_slurm.services.images.manager.Images`."""

    async def make(self, name: str, asked: Json) -> Json: ...
    async def told(self, name: str) -> Json: ...
    async def remove(self, name: str, image: str) -> Json: ...


class CoreLike(Protocol):
    """What the routes call: :class:`jupyter_slurm.services.agent_core.Core`, or what a test puts in its place."""

    @property
    def bus(self) -> BusLike: ...  # noqa: D102
    @property
    def users(self) -> UsersLike: ...  # noqa: D102
    @property
    def images(self) -> ImagesLike: ...  # noqa: D102
    @property
    def sessions(self) -> SessionsLike: ...  # noqa: D102
    async def start(self) -> None: ...  # noqa: D102
    async def stop(self) -> None: ...  # noqa: D102
    def holds(self) -> dict[str, int]: ...  # noqa: D102
    def clusters(self) -> list[Json]: ...  # noqa: D102
    def cluster(self, cluster: str) -> Json: ...  # noqa: D102
    async def register_cluster(self, slurm_conf: str | None, path: str | None, profile: str | None = None) -> Json: ...  # noqa: D102
    async def connect(self, cluster: str) -> Json: ...  # noqa: D102
    def check_connected(self, cluster: str) -> None: ...  # noqa: D102
    async def disconnect(self, cluster: str) -> Json: ...  # noqa: D102
    async def examine(self, cluster: str, *, job: str = "none", options: Sequence[str] = ()) -> Json: ...  # noqa: D102
    def examination(self, cluster: str) -> Json: ...  # noqa: D102
    async def admit(self, cluster: str, host: str) -> Json: ...  # noqa: D102
    def prompts(self) -> list[Json]: ...  # noqa: D102
    def answer(self, prompt: str, answers: list[str] | None) -> None: ...  # noqa: D102
    async def submit(self, cluster: str, submission: Json) -> Json: ...  # noqa: D102
    async def jobs(self, cluster: str, *, active: bool) -> list[Json]: ...  # noqa: D102
    async def job(self, cluster: str, ref: str) -> Json: ...  # noqa: D102
    async def cancel(self, cluster: str, ref: str, signal: str | None = None) -> Json: ...  # noqa: D102
    async def act(self, cluster: str, act: str, refs: Sequence[str], time_limit: str | None = None) -> list[Json]: ...  # noqa: D102
    async def resubmit(self, cluster: str, ref: str, asked: Json) -> Json: ...  # noqa: D102
    async def tasks(self, cluster: str, ref: str, *, parameters: bool) -> Json: ...  # noqa: D102
    async def values(self, cluster: str, ref: str, first: int) -> Json: ...  # noqa: D102
    async def start_step(self, cluster: str, ref: str, asked: Json) -> Json: ...  # noqa: D102
    async def list_steps(self, cluster: str, ref: str) -> list[Json]: ...  # noqa: D102
    async def kernel(self, cluster: str, ref: str, wait: float) -> Json: ...  # noqa: D102
    async def script(self, cluster: str, ref: str) -> bytes: ...  # noqa: D102
    async def source(self, cluster: str, ref: str) -> bytes: ...  # noqa: D102
    async def record(self, cluster: str, ref: str) -> Json: ...  # noqa: D102
    async def bring_results(self, cluster: str, ref: str) -> Json: ...  # noqa: D102
    async def report(self, cluster: str, ref: str) -> Json: ...  # noqa: D102
    async def usage(self, cluster: str, ref: str) -> Json: ...  # noqa: D102
    async def output(self, cluster: str, ref: str, stream: str, offset: int, limit: int) -> tuple[bytes, int]: ...  # noqa: D102
    def stream(self, cluster: str, ref: str, offsets: dict[str, int]) -> AsyncIterator[tuple[str, Json]]: ...  # noqa: D102
    async def command(self, cluster: str, argv: list[str], *, table: bool, context: Json) -> Json: ...  # noqa: D102
    async def options(self, cluster: str, command: str) -> Json: ...  # noqa: D102
    async def names(self, cluster: str, kind: str, wait: float, partitions: str = "") -> Json: ...  # noqa: D102
    async def resources(self, cluster: str, *, wait: float, is_newer: bool, has_nodes: bool) -> Json: ...  # noqa: D102
    async def others(self, cluster: str, *, wait: float) -> Json: ...  # noqa: D102
    async def accounted(  # noqa: D102
        self, cluster: str, *, start: int | None, end: int | None, account: str | None, has_jobs: bool
    ) -> Json: ...
    def list_tunnels(self, cluster: str) -> list[Json]: ...  # noqa: D102
    async def open_tunnel(self, cluster: str, wanted: Json) -> Json: ...  # noqa: D102
    async def close_tunnel(self, cluster: str, tunnel: str) -> Json: ...  # noqa: D102
    async def session_way(self, key: str) -> Json: ...  # noqa: D102
    async def clean(self, *, older_than_days: float | None, dry_run: bool) -> Json: ...  # noqa: D102
