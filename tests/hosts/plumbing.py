"""Core that answers at once and records its calls, for tests of the parts between a client and a core."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from jupyter_slurm.errors import JobNotFound, UsageError
from jupyter_slurm.services.connections.clients import ClientRegistry
from jupyter_slurm.services.connections.pending_prompts import PromptQueue
from jupyter_slurm.services.event_bus import EventBus
from jupyter_slurm.transport.ssh.prompts import Prompt, Question

__all__ = ["PlumbingCore"]

_PROMPT = Prompt("gateway", "password", "Log in", "", (Question("Password: "),))


class PlumbingJobs:
    """Jobs of :class:`PlumbingCluster`: every job whose ID begins with 1 exists."""

    def __init__(self, core: PlumbingCore) -> None:
        self._core = core

    async def list_jobs(self, *, active: bool, days: float | None = None) -> list[dict[str, Any]]:
        return [self._core.job("12")]

    async def describe(self, reference: str) -> dict[str, Any]:
        return self._core.job(reference)

    async def find(self, reference: str) -> dict[str, Any]:
        return self._core.job(reference)

    async def tasks(self, reference: str, *, parameters: bool) -> dict[str, Any]:
        self._core.job(reference)
        table = {"names": ["lr"], "parameters": [["1e-3"]]} if parameters else {"names": [], "parameters": []}
        return {"columns": ["task", "state"], "rows": [[0, "RUNNING"]], **table}

    async def task_values(self, reference: str, first: int) -> dict[str, Any]:
        self._core.job(reference)
        return {"values": [[first, "eA=="]], "next": None}


class PlumbingActions:
    """Actions of :class:`PlumbingCluster`."""

    def __init__(self, core: PlumbingCore) -> None:
        self._core = core

    async def act(self, act: str, refs: Sequence[str], time_limit: str | None = None) -> list[dict[str, Any]]:
        self._core.calls.append(("act", "local", act, *refs))
        return [{"job": ref, "error": None, "now": self._core.job(ref)} for ref in refs]

    async def cancel(self, ref: str, signal: str | None = None) -> dict[str, Any]:
        self._core.calls.append(("cancel", "local", ref, signal))
        return self._core.job(ref)


class PlumbingSteps:
    """Steps of :class:`PlumbingCluster`, with the kernels in them, and directories that are copied back."""

    def steps_to_api(self, allocation: dict[str, Any]) -> list[dict[str, Any]]:
        return [allocation]

    async def start(self, allocation: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
        return {**allocation, "key": asked["key"], "allocation": None}

    async def connection_to_api(self, step: dict[str, Any], wait: float) -> dict[str, Any]:
        return {"state": "PENDING", "finished": False, "node": None, "port": None, "stage": None}

    async def copy_back(self, job: dict[str, Any], also: Any = ()) -> None:
        pass


class PlumbingResults:
    """Results of :class:`PlumbingCluster`."""

    def __init__(self, core: PlumbingCore) -> None:
        self._core = core

    async def source(self, ref: str) -> bytes:
        self._core.job(ref)
        return b"print(1)\n"

    async def usage(self, ref: str) -> dict[str, Any]:
        self._core.job(ref)
        point = {"time": 1.5, "cpus": 0.5, "memory": 1024, "gpu": None, "gpu_memory": None}
        return {"node": "n1", "cpus": 2, "memory": None, "gpus": 0, "points": [point], "note": "It has no GPU."}

    async def script(self, ref: str) -> bytes:
        self._core.job(ref)
        return b"#!/bin/sh\n\xff\n"

    async def report(self, ref: str) -> dict[str, Any]:
        self._core.job(ref)
        return {"id": ref, "state": "COMPLETED", "source": None, "notes": [], "gpus": []}

    async def record(self, ref: str) -> dict[str, Any]:
        self._core.job(ref)
        told = {"key": "20260101-000000-00000000", "id": ref, "kind": "script", "created": 0.0, "script": "cell.sh"}
        return {**told, "argv": ["sbatch"], "versions": {}}

    async def output(self, ref: str, stream: str, offset: int, limit: int) -> tuple[bytes, int]:
        self._core.job(ref)
        text = b"0123456789"
        return text[offset:][:limit], len(text)

    async def stream(self, ref: str, offsets: dict[str, int]) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        for number in range(self._core.chunks):
            self._core.last_seen = number
            yield "output", {"stream": "stdout", "offset": number, "data": "eA==" * 10_000}
        if ref == "13":
            await asyncio.Event().wait()
        if ref == "14":
            raise UsageError("the stream failed", hint="ask again")
        yield "end", {}


class _Asked:
    """A fixed answer to a query of the inventory, and the recorded arguments."""

    def __init__(self, core: PlumbingCore, name: str, answer: Mapping[str, Any]) -> None:
        self._core, self._name, self._answer = core, name, answer

    async def to_api(self, **asked: Any) -> dict[str, Any]:
        self._core.calls.append((self._name, *asked.values()))
        return {
            **self._answer,
            **{name: asked[name] or number for number, name in enumerate(("start", "end")) if name in asked},
        }


class PlumbingInventory:
    """Empty inventory of :class:`PlumbingCluster`."""

    def __init__(self, core: PlumbingCore) -> None:
        known = {"asked_at": 0.0, "unknown_since": None, "said": ""}
        nothing: dict[str, Any] = {name: [] for name in ("gpus", "partitions", "nodes", "limits")}
        self.resources = _Asked(core, "resources", {**nothing, **known, "use": {}, "cost": None})
        nothing = {name: [] for name in ("columns", "rows")}
        others = {**nothing, **known, "interval": 30.0, "user": "a", "is_private": False}
        self.all_jobs = _Asked(core, "others", others)
        nothing = {name: [] for name in ("accounts", "sums", "jobs")}
        self.usage = _Asked(core, "accounted", {**nothing, "asked_at": 0.0, "user": "a", "left_out": 0, "cost": None})


class PlumbingCluster:
    """The cluster of :class:`PlumbingCore`."""

    def __init__(self, core: PlumbingCore) -> None:
        self._core = core
        self.jobs, self.actions, self.results = PlumbingJobs(core), PlumbingActions(core), PlumbingResults(core)
        self.inventory = PlumbingInventory(core)
        self.steps = self.kernels = self.staging = PlumbingSteps()

    async def submit(self, submission: dict[str, Any]) -> dict[str, Any]:
        self._core.calls.append(("submit", "local", submission))
        if submission["dry_run"]:
            return {"argv": ["sbatch", *submission["options"]], "script": submission["text"]}
        return {**self._core.job("12"), "key": submission["key"]}

    async def resubmit(self, ref: str, asked: dict[str, Any]) -> dict[str, Any]:
        self._core.calls.append(("resubmit", "local", ref, asked))
        return {**self._core.job(ref), "key": asked["key"]}

    async def run_command(self, argv: list[str], *, table: bool, context: dict[str, Any]) -> dict[str, Any]:
        self._core.calls.append(("command", argv, table, context))
        if argv == ["die"]:
            os._exit(9)
        shown = {"columns": ["A"], "rows": [["1"]]} if table else None
        return {"exit_code": 0, "stdout": "", "stderr": "", "table": shown}

    async def command_options(self, command: str) -> dict[str, Any]:
        option = {"name": "partition", "short": "p", "takes_value": "yes", "help": None}
        return {"command": command, "version": [22, 5], "options": [option]}


class PlumbingClusters:
    """The cluster registry of :class:`PlumbingCore`."""

    def __init__(self, core: PlumbingCore) -> None:
        self._core = core

    def _cluster(self, slurm_conf: str | None = None) -> dict[str, Any]:
        poll = {"seconds_since": None, "interval": 10.0, "error": None}
        users = self._core.users.clients_to_api("local")
        return {"id": "local", "name": "plumbing", "slurm_conf": slurm_conf, "poll": poll, "users": users}

    def list_clusters(self) -> list[dict[str, Any]]:
        return [self._cluster()]

    def describe(self, name: str) -> dict[str, Any]:
        self._core.cluster(name)
        return self._cluster()

    async def register(self, slurm_conf: str | None, path: str | None, profile: str | None = None) -> dict[str, Any]:
        self._core.calls.append(("register", slurm_conf, path, profile))
        return self._cluster(slurm_conf)

    async def connect(self, name: str) -> dict[str, Any]:
        await self._core.desk.ask(_PROMPT)
        return self._cluster()

    async def disconnect(self, name: str) -> dict[str, Any]:
        return self._cluster()

    def check_connected(self, name: str) -> None:
        self._core.cluster(name)

    def list_prompts(self) -> list[dict[str, Any]]:
        return self._core.desk.waiting()

    def answer_prompt(self, prompt: str, answers: list[str] | None) -> None:
        self._core.desk.answer(prompt, answers)

    async def list_names(
        self, name: str, kind: str, wait: float, partitions: str = "", start: str = ""
    ) -> dict[str, Any]:
        return {"taken": 0.0, "names": [{"name": f"a {kind}", "about": f"{wait:g}"}]}

    def reached(self) -> list[Any]:
        return []


class PlumbingExaminations:
    """Examinations of :class:`PlumbingCore`."""

    def __init__(self, core: PlumbingCore) -> None:
        self._core = core

    async def examine(self, cluster: str, *, job: str = "none", options: Sequence[str] = ()) -> dict[str, Any]:
        return self.to_api(cluster)

    def to_api(self, cluster: str) -> dict[str, Any]:
        self._core.cluster(cluster)
        found = {"status": "ok", "about": "way", "said": "this computer", "todo": ""}
        return {"findings": [found], "failed": False, "keyless": [{"host": "login", "public": "/k.pub"}]}

    async def admit(self, cluster: str, host: str) -> dict[str, Any]:
        self._core.cluster(cluster)
        return {"host": host, "public": "/k.pub", "is_new": True, "is_taken": None}


class PlumbingTunnels:
    """Tunnels of :class:`PlumbingCore`."""

    def __init__(self, core: PlumbingCore) -> None:
        self._core = core

    def _tunnel(self, cluster: str, job: str | None, port: int) -> dict[str, Any]:
        told = {"id": "0" * 16, "cluster": cluster, "job": job, "node": "node1", "port": port, "local_port": 8000}
        told |= {"socket": None, "url": "http://127.0.0.1:8000/", "way": "ssh", "failed": {}, "proven": True}
        return {**told, "state": "open", "message": "", "since": 0.0, "connections": 0}

    def list_to_api(self, cluster: str) -> list[dict[str, Any]]:
        return [self._tunnel(cluster, "12", 8888)]

    async def open(self, cluster: str, wanted: dict[str, Any]) -> dict[str, Any]:
        self._core.calls.append(("tunnel", cluster, wanted))
        if wanted.get("job"):
            self._core.cluster(cluster)
            self._core.job(wanted["job"])
        return self._tunnel(cluster, wanted.get("job"), wanted["port"])

    async def close(self, cluster: str, tunnel: str) -> dict[str, Any]:
        return self._tunnel(cluster, "12", 8888)


class PlumbingSessions:
    """Sessions of :class:`PlumbingCore`."""

    def __init__(self, core: PlumbingCore) -> None:
        self._core = core

    def _one(self, cluster: str) -> dict[str, Any]:
        session = {"state": "ready", "message": "", "url": "http://127.0.0.1:8000/jupyter-slurm/1/", "idle": 60.0}
        session["path"] = "/jupyter-slurm/1/"
        self._core.cluster(cluster)
        return {**self._core.job("1"), "kind": "session", "label": "jupyter-1", "session": session}

    async def launch(self, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["dry_run"]:
            return {"argv": ["sbatch", *asked["options"]], "script": "#!/bin/sh\n"}
        return {**self._one(name), "key": asked["key"]}

    def list_to_api(self, name: str, *, active: bool) -> list[dict[str, Any]]:
        return [self._one(name)]

    async def session_to_api(self, name: str, reference: str) -> dict[str, Any]:
        self._core.cluster(name)
        self._core.job(reference)
        return self._one(name)

    async def open(self, name: str, reference: str) -> dict[str, Any]:
        return {**(await self.session_to_api(name, reference)), "page": "/page.html"}

    async def end(self, name: str, reference: str) -> dict[str, Any]:
        return await self.session_to_api(name, reference)

    async def rename(self, name: str, reference: str, wanted: str) -> dict[str, Any]:
        return {**(await self.session_to_api(name, reference)), "label": wanted}

    async def session_route(self, clusters: Iterable[Any], key: str) -> dict[str, Any]:
        return {"port": 8000, "path": f"/jupyter-slurm/{key}/", "base_url": f"/jupyter-slurm/{key}/", "token": "t"}


class PlumbingEnvironments:
    """Python environments of the core that answers at once."""

    def __init__(self, core: PlumbingCore) -> None:
        self._core = core

    async def submit_build(self, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        self._core.cluster(name)
        return {"job": None, "environment": self._made(), "preview": None}

    async def list_to_api(self, name: str) -> dict[str, Any]:
        self._core.cluster(name)
        return {"folder": "/environments", "environments": [self._made()]}

    async def remove(self, name: str, environment: str) -> dict[str, Any]:
        self._core.cluster(name)
        return {"removed": ["/environments/a"]}

    def _made(self) -> dict[str, Any]:
        text = dict.fromkeys(("tool", "python", "source", "job"))
        return {"name": "a", "path": "/environments/a", **text, "made": None, "packages": None}


class PlumbingImages:
    """Images that exist, and one that a job builds."""

    def __init__(self, core: PlumbingCore) -> None:
        self._core = core

    async def submit_image(self, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["dry_run"]:
            return {"argv": ["sbatch"], "script": "#!/bin/sh\n", "warnings": []}
        self._core.cluster(name)
        return self._core.job("1")

    async def list_to_api(self, name: str) -> dict[str, Any]:
        self._core.cluster(name)
        text = dict.fromkeys(("path", "node", "runtime", "size", "made", "source", "user", "job"))
        return {"folder": "/images", "images": [{"image": "a:1", **text, "shared": False, "environments": ["a"]}]}

    async def remove(self, name: str, image: str) -> dict[str, Any]:
        self._core.cluster(name)
        return {"removed": ["/images/a.sif"], "nodes": []}


class PlumbingHousekeeping:
    """Housekeeping of :class:`PlumbingCore`."""

    def __init__(self, core: PlumbingCore) -> None:
        self._core = core

    async def clean(self, *, older_than_days: float | None, dry_run: bool) -> dict[str, Any]:
        self._core.calls.append(("clean", older_than_days, dry_run))
        return {"removed": [], "kept": 0}


class PlumbingTransfers:
    """Transfers of files, which have finished at once."""

    def __init__(self, core: PlumbingCore) -> None:
        self._core = core

    async def start(self, cluster: str, asked: dict[str, Any]) -> dict[str, Any]:
        self._core.cluster(cluster)
        said = {"cluster": cluster, "to_cluster": None, **asked}
        said.pop("overwrite", None)
        numbers = {"bytes": 0, "total": 0, "files": 0, "unchanged": 0, "rate": None, "started": 1.0, "ended": 2.0}
        return {"id": "0" * 12, "state": "finished", "warnings": [], "error": None, **numbers, **said}

    def list_to_api(self, cluster: str) -> list[dict[str, Any]]:
        self._core.cluster(cluster)
        return []

    def transfer_to_api(self, transfer: str) -> dict[str, Any]:
        raise UsageError(f"there is no transfer {transfer}", hint="List them.")

    async def stop_transfer(self, transfer: str) -> dict[str, Any]:
        return self.transfer_to_api(transfer)


class PlumbingTerminals:
    """Terminals, of which there are none."""

    def __init__(self, core: PlumbingCore) -> None:
        self._core = core

    async def list_to_api(self, cluster: str) -> list[dict[str, Any]]:
        self._core.cluster(cluster)
        return []

    async def start(self, cluster: str, asked: dict[str, Any]) -> dict[str, Any]:
        self._core.cluster(cluster)
        return {"id": "0" * 8, "job": asked["job"], "host": "login1", "started": 1.0}

    async def attach(self, cluster: str, terminal: str) -> dict[str, Any]:
        raise UsageError(f"there is no terminal {terminal}", hint="List them.")

    async def close(self, cluster: str, terminal: str) -> list[dict[str, Any]]:
        return await self.list_to_api(cluster)


class PlumbingCore:
    """Core that answers at once and records its calls, for tests of the parts between a client and a core.

    Attributes
    ----------
    local : PlumbingCluster
        The only cluster; a search for it raises ``failure``.
    """

    def __init__(self) -> None:
        self.bus = EventBus()
        self.clusters = PlumbingClusters(self)
        self.users = ClientRegistry(lambda cluster: self.bus.publish("cluster", self.clusters.list_clusters()[0]))
        self.desk = PromptQueue("local", self.bus, timeout=5)
        self.local = PlumbingCluster(self)
        self.examinations, self.housekeeping = PlumbingExaminations(self), PlumbingHousekeeping(self)
        self.tunnels, self.sessions, self.images = PlumbingTunnels(self), PlumbingSessions(self), PlumbingImages(self)
        self.transfers, self.terminals = PlumbingTransfers(self), PlumbingTerminals(self)
        self.environments = PlumbingEnvironments(self)
        self.held: dict[str, int] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.loop: asyncio.AbstractEventLoop | None = None
        self.chunks = 3
        self.last_seen = 0
        self.failure: Exception | None = None

    async def start(self) -> None:
        self.loop = asyncio.get_running_loop()

    async def stop(self) -> None:
        self.bus.close()

    def count_holders(self) -> dict[str, int]:
        return dict(self.held)

    def warnings(self) -> list[str]:
        return []

    def publish(self, event: str, data: dict[str, Any]) -> None:
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self.bus.publish, event, data)

    def cluster(self, name: str) -> PlumbingCluster:
        if self.failure is not None:
            raise self.failure
        if name != "local":
            raise UsageError(f"there is no cluster {name!r}", hint="Register it first.")
        return self.local

    def job(self, ref: str) -> dict[str, Any]:
        if not ref.startswith("1"):
            raise JobNotFound(f"there is no job {ref}", hint="Look.")
        return {"key": None, "cluster": "local", "id": ref, "state": "RUNNING", "known": True}
