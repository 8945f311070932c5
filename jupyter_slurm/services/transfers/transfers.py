"""Running and recent transfers of an agent."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, cast
from weakref import WeakValueDictionary

from jupyter_slurm.config import Settings
from jupyter_slurm.errors import CommandMissing, LoginFailed, NotConnected, SlurmError, TransportError, UsageError
from jupyter_slurm.services.event_bus import EventBus
from jupyter_slurm.services.staging.local_path_seal import MachineSeal
from jupyter_slurm.services.transfers.carriers import ArchiveCarrier, Carrier, RsyncCarrier, WithinCluster, has_rsync
from jupyter_slurm.services.transfers.cluster_side import ClusterSide
from jupyter_slurm.services.transfers.copy_job import JobWithinCluster, cancel_job
from jupyter_slurm.services.transfers.local_side import LocalSide
from jupyter_slurm.services.transfers.transfer import Transfer, TransferRequest, copy_files

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.services.clusters.cluster import Cluster
    from jupyter_slurm.transport.base import Transport

__all__ = ["Transfers"]

log = logging.getLogger(__name__)

_MAX_ENDED: Final = 50
_MAX_ATTEMPTS: Final = 5
_PAUSE_S: Final = 2.0  # seconds before the next attempt after a broken connection
_FINAL_ERRORS: Final = (NotConnected, LoginFailed, CommandMissing)


class Transfers:
    """Transfers of all clusters.

    Parameters
    ----------
    settings : Settings
        User's settings.
    cluster : callable
        Returns a cluster by its name.
    transport : callable
        Returns name and transport of the host that carries the files of a cluster; it may log in there.
    bus : EventBus
        Publishes changes.
    """

    def __init__(
        self,
        settings: Settings,
        cluster: Callable[[str], Cluster],
        transport: Callable[[str], Awaitable[tuple[str, Transport]]],
        bus: EventBus,
    ) -> None:
        self._settings, self._cluster, self._transport, self._bus = settings, cluster, transport, bus
        self._running: dict[str, Transfer] = {}
        self._ended: deque[Transfer] = deque(maxlen=_MAX_ENDED)
        self._waiting = set[Transfer]()  # for the end of another one
        self._have_rsync: dict[tuple[str, int], bool] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def held(self) -> int:
        """Return the number of running transfers."""
        return len(self._running)

    async def start(self, cluster: str, asked: api.TransferWanted) -> api.Transfer:
        """Start a transfer; the same request again returns the running one.

        Raises
        ------
        UsageError
            A path of this computer is not absolute.
        SlurmError
            The login to a host for transfers failed.
        """
        self._cluster(cluster)
        request = TransferRequest(
            cluster,
            asked["kind"],
            tuple(asked["sources"]),
            asked["dest"],
            asked.get("to_cluster") or (cluster if asked["kind"] == "copy" else None),
            asked.get("overwrite", False) or asked["kind"] == "stage",
            asked.get("delete", False),
            asked.get("job"),
        )
        _check_paths(request)
        if request.to_cluster:
            self._cluster(request.to_cluster)
        if not request.is_on_login_node:
            for name in {cluster, request.to_cluster or cluster}:
                await self._transport(name)  # here a user can answer prompts
        seals = MachineSeal(self._settings.state_dir)
        owner = await asyncio.to_thread(seals.seal, "transfers")
        key = request.digest(owner)
        if (transfer := self._running.get(key)) is None:
            transfer = self._running[key] = Transfer(key, request, self._publish)
            self._ended = deque((one for one in self._ended if one.id != key), maxlen=_MAX_ENDED)
            transfer.task = asyncio.create_task(self._run(transfer, owner), name=f"transfer {key}")
            self._publish(transfer)
        return transfer.to_api()

    def list_to_api(self, cluster: str) -> list[api.Transfer]:
        """Return the running and the recent transfers of a cluster, the latest last."""
        self._cluster(cluster)
        both = sorted([*self._ended, *self._running.values()], key=lambda transfer: transfer.started)
        return [one.to_api() for one in both if cluster in (one.request.cluster, one.request.to_cluster)]

    def transfer_to_api(self, transfer_id: str) -> api.Transfer:
        """Return a transfer."""
        return self._find(transfer_id).to_api()

    async def stop_transfer(self, transfer_id: str) -> api.Transfer:
        """Stop a transfer, and cancel its job; what has arrived is kept for the next run."""
        transfer = self._find(transfer_id)
        await _end(transfer)
        await cancel_job(self._cluster(transfer.request.cluster), transfer)
        return transfer.to_api()

    async def stop(self) -> None:
        """Stop all transfers, at the end of the agent."""
        for transfer in list(self._running.values()):
            await _end(transfer)

    def _find(self, transfer_id: str) -> Transfer:
        for transfer in [*self._running.values(), *self._ended]:
            if transfer.id == transfer_id:
                return transfer
        raise UsageError(f"There is no transfer {transfer_id}.", hint="List them: `%slurm transfers`.")

    def _publish(self, transfer: Transfer) -> None:
        self._bus.publish("transfer", transfer.to_api())

    async def _run(self, transfer: Transfer, owner: str) -> None:
        try:
            await self._copy(transfer, owner)
            transfer.state = "finished"
        except asyncio.CancelledError:
            transfer.state = "stopped"
        except SlurmError as error:
            transfer.state, transfer.error = "failed", error
        except Exception as error:
            log.exception("transfer %s", transfer.id)
            transfer.state = "failed"
            transfer.error = SlurmError(f"{type(error).__name__}: {error}", hint="Report this error.")
        transfer.ended = time.time()
        if transfer.state == "finished" and transfer.total is not None:
            transfer.done = transfer.total
        self._running.pop(transfer.id, None)
        self._ended.append(transfer)
        self._publish(transfer)

    async def _copy(self, transfer: Transfer, owner: str) -> None:
        request = transfer.request
        async with self._alone(f"{request.to_cluster or request.cluster} {request.dest.rstrip('/')}"):
            tried = 0
            while True:
                try:
                    await self._copy_once(transfer, owner)
                    return
                except TransportError as error:
                    if error.details.get("why") == "no-session" and (others := self._others(transfer)):
                        await self._wait_for_one(transfer, others)
                        continue
                    tried += 1
                    if isinstance(error, _FINAL_ERRORS) or tried == _MAX_ATTEMPTS:
                        raise
                    log.info("transfer %s: %s", transfer.id, error.message)
                await asyncio.sleep(_PAUSE_S)

    def _others(self, transfer: Transfer) -> list[asyncio.Task[None]]:
        """Return the tasks of the transfers of the same clusters that do not wait for another one themselves."""
        found = [one for one in self._running.values() if one is not transfer and one not in self._waiting]
        return [one.task for one in found if one.task is not None and transfer.request.shares_cluster(one.request)]

    async def _wait_for_one(self, transfer: Transfer, others: list[asyncio.Task[None]]) -> None:
        """Wait for the end of a transfer: each takes a session, of which a login has few."""
        transfer.waits = "It waits for the end of another transfer, because the host allows no more sessions."
        self._waiting.add(transfer)
        transfer.changed(transfer)
        try:
            await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiting.discard(transfer)
            transfer.waits = None

    async def _copy_once(self, transfer: Transfer, owner: str) -> None:
        request, partial = transfer.request, f".jupyter-slurm-partial-{transfer.id}"
        if request.kind == "stage":
            await (self._stage_within(transfer, partial) if request.to_cluster else self._stage(transfer))
            return
        far = await self._side(request.cluster, on_login_node=request.is_on_login_node)
        if request.to_cluster == request.cluster:
            await copy_files(transfer, far, far, self._within(transfer, far), partial)
        elif request.to_cluster:
            await self._copy_through(transfer, far, await self._side(request.to_cluster), owner, partial)
        else:
            is_pull = request.kind == "get"
            carrier = await self._carrier(far, request.cluster, owner, is_pull=is_pull)
            source, dest = (far, LocalSide()) if is_pull else (LocalSide(), far)
            await copy_files(transfer, source, dest, carrier, partial)

    async def _stage(self, transfer: Transfer) -> None:
        """Send a folder as ``stage=`` of a job does, to the directory that such a job would use."""
        request, staging = transfer.request, self._cluster(transfer.request.cluster).staging
        folders: list[api.StageFolder] = [{"source": request.sources[0], "dest": request.dest or None}]
        stage: api.Stage = {"folders": folders, "delete": request.delete}
        staged = await staging.prepare(cast("api.Submission", {"stage": stage}))
        if staged is None:
            raise AssertionError
        folder = staged.folders[0]
        transfer.dest = folder.dest

        def sent(done: int, total: int) -> None:
            transfer.total = total
            transfer.note_bytes(done)

        sync = await staging.folder_sync(folder)
        done = await staging.push_folder(sync, staged.record(), sent)
        transfer.files, transfer.total, transfer.unchanged = done.files, done.bytes, done.unchanged
        transfer.warnings = done.warnings

    async def _stage_within(self, transfer: Transfer, partial: str) -> None:
        """Copy a folder of a cluster to the directory that is for it, on the same cluster."""
        from jupyter_slurm.services.transfers.stage_within import FolderWithin

        request, cluster = transfer.request, self._cluster(transfer.request.cluster)
        side = await self._side(request.cluster, on_login_node=request.is_on_login_node)
        within = FolderWithin(side)
        folder = await within.find(request.sources[0], request.dest or None)
        transfer.dest = folder.dest
        async with cluster.staging.alone(folder.dest):
            carrier = self._within(transfer, side)
            await within.copy(transfer, folder, carrier, partial, delete=request.delete)

    async def _copy_through(
        self, transfer: Transfer, source: ClusterSide, dest: ClusterSide, owner: str, partial: str
    ) -> None:
        """Copy between two clusters through a private folder of this computer, which is removed at the end."""
        request = transfer.request
        folder = os.path.join(self._settings.state_dir, "transfers", transfer.id)
        await asyncio.to_thread(os.makedirs, folder, 0o700, exist_ok=True)
        got = TransferRequest(request.cluster, "get", request.sources, folder + "/", overwrite=True)
        pull = await self._carrier(source, request.cluster, owner, is_pull=True)
        first = Transfer(transfer.id, got, transfer.follow)
        await copy_files(first, source, LocalSide(), pull, partial, mirrors=True)  # an earlier run may have left files
        names = sorted(await asyncio.to_thread(os.listdir, folder))
        paths = tuple(os.path.join(folder, name) for name in names)
        put = TransferRequest(str(request.to_cluster), "put", paths, request.dest, overwrite=request.overwrite)
        push = await self._carrier(dest, str(request.to_cluster), owner, is_pull=False)
        second = Transfer(transfer.id, put, transfer.follow)
        await copy_files(second, LocalSide(), dest, push, partial)
        transfer.follow(second)
        await LocalSide().remove(folder)

    def _within(self, transfer: Transfer, side: ClusterSide) -> Carrier:
        """Return the job that copies within a cluster, if one was requested, else the host for transfers."""
        if (job := transfer.request.job) is None:
            return WithinCluster(side.transport)
        return JobWithinCluster(self._cluster(transfer.request.cluster), side, transfer, job)

    async def _carrier(self, side: ClusterSide, cluster: str, owner: str, *, is_pull: bool) -> Carrier:
        """Return rsync if both sides have it, else tar; each connection is asked once."""
        key = (cluster, side.transport.generation)
        if key not in self._have_rsync:
            self._have_rsync[key] = await has_rsync(side.transport, cluster)
        if self._have_rsync[key]:
            return RsyncCarrier(side.transport, owner, is_pull=is_pull)
        return ArchiveCarrier(side.transport, is_pull=is_pull)

    async def _side(self, name: str, *, on_login_node: bool = False) -> ClusterSide:
        cluster = self._cluster(name)
        login = cluster.client.transport
        host, transport = (cluster.location.host, login) if on_login_node else await self._transport(name)
        return ClusterSide(transport, host, login, cluster.location)

    def _alone(self, key: str) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())


def _check_paths(request: TransferRequest) -> None:
    local = {"put": request.sources, "get": (request.dest,)}.get(request.kind, ())
    if request.kind == "stage" and request.to_cluster is None:
        local = request.sources
    if request.kind == "stage" and request.to_cluster not in (None, request.cluster):
        raise UsageError(
            f"The folder is on {request.cluster}, but its copy would be on {request.to_cluster}.",
            hint="Copy it between the clusters: `%slurm copy CLUSTER:FOLDER CLUSTER:DEST`.",
        )
    if request.kind == "stage" and len(request.sources) > 1:
        raise UsageError("Only one folder can be staged at a time.", hint="Stage the folders one after the other.")
    if request.job is not None and (request.kind not in ("copy", "stage") or request.to_cluster != request.cluster):
        raise UsageError("A job copies only within one cluster.", hint="Omit where=job and the options of sbatch.")
    if not request.dest and request.kind != "stage":
        raise UsageError("The destination is missing.", hint="Name it as the last word.")
    if bad := [path for path in local if not os.path.isabs(path)]:
        raise UsageError(f"{bad[0]} is not an absolute path of this computer.", hint="Write the whole path.")
    if any("\0" in path for path in (*request.sources, request.dest)):
        raise UsageError("A path holds a NUL byte, which no file has in its name.", hint="Remove the NUL byte.")


async def _end(transfer: Transfer) -> None:
    if transfer.task is not None and not transfer.task.done():
        transfer.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await transfer.task
