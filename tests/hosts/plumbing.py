"""A core that answers at once and remembers what it was asked: for tests of what lies between a client and a core."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from jupyter_slurm.errors import JobNotFound, UsageError
from jupyter_slurm.services.connections.clients import ClientRegistry
from jupyter_slurm.services.connections.prompts import PromptQueue
from jupyter_slurm.services.event_bus import EventBus
from jupyter_slurm.transport.ssh.prompts import Prompt, Question

__all__ = ["PlumbingCore"]

_PROMPT = Prompt("gateway", "password", "Log in", "", (Question("Password: "),))


class PlumbingSessions:
    """Those of :class:`PlumbingCore`."""

    def __init__(self, job: Callable[[str, str], dict[str, Any]]) -> None:
        self._job = job

    def _one(self, cluster: str) -> dict[str, Any]:
        session = {"state": "ready", "message": "", "url": "http://127.0.0.1:8000/jupyter-slurm/1/", "idle": 60.0}
        session["path"] = "/jupyter-slurm/1/"
        return {**self._job(cluster, "1"), "kind": "session", "label": "jupyter-1", "session": session}

    async def launch(self, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["dry_run"]:
            return {"argv": ["sbatch", *asked["options"]], "script": "#!/bin/sh\n"}
        return {**self._one(name), "key": asked["key"]}

    def told(self, name: str, *, active: bool) -> list[dict[str, Any]]:
        return [self._one(name)]

    async def one(self, name: str, reference: str) -> dict[str, Any]:
        self._job(name, reference)
        return self._one(name)

    async def open(self, name: str, reference: str) -> dict[str, Any]:
        return {**(await self.one(name, reference)), "page": "/page.html"}

    async def end(self, name: str, reference: str) -> dict[str, Any]:
        return await self.one(name, reference)

    async def rename(self, name: str, reference: str, wanted: str) -> dict[str, Any]:
        return {**(await self.one(name, reference)), "label": wanted}


class PlumbingImages:
    """Images that are there, and one that a job makes."""

    def __init__(self, find: Callable[[str, str], dict[str, Any]]) -> None:
        self.find = find

    async def make(self, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["dry_run"]:
            return {"argv": ["sbatch"], "script": "#!/bin/sh\n", "warnings": []}
        return self.find(name, "1")

    async def told(self, name: str) -> dict[str, Any]:
        self.find(name, "1")
        text = dict.fromkeys(("path", "node", "runtime", "size", "made", "source", "user", "job"))
        return {"folder": "/images", "images": [{"image": "a:1", **text, "shared": False, "environments": ["a"]}]}

    async def remove(self, name: str, image: str) -> dict[str, Any]:
        self.find(name, "1")
        return {"removed": ["/images/a.sif"], "nodes": []}


class PlumbingCore:
    """Answers at once and remembers what it was asked: for tests of what lies between a client and a core."""

    def __init__(self) -> None:
        self.bus = EventBus()
        self.users = ClientRegistry(lambda cluster: self.bus.publish("cluster", self._cluster()))
        self.desk = PromptQueue("local", self.bus, patience=5)
        self.sessions = PlumbingSessions(self._job)
        self.images = PlumbingImages(self._job)
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

    def holds(self) -> dict[str, int]:
        return dict(self.held)

    def publish(self, event: str, data: dict[str, Any]) -> None:
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self.bus.publish, event, data)

    def _cluster(self, slurm_conf: str | None = None) -> dict[str, Any]:
        poll = {"seconds_since": None, "interval": 10.0, "error": None}
        users = self.users.of("local")
        return {"id": "local", "name": "plumbing", "slurm_conf": slurm_conf, "poll": poll, "users": users}

    def clusters(self) -> list[dict[str, Any]]:
        return [self._cluster()]

    def cluster(self, cluster: str) -> dict[str, Any]:
        self._job(cluster, "1")
        return self._cluster()

    async def register_cluster(
        self, slurm_conf: str | None, path: str | None, profile: str | None = None
    ) -> dict[str, Any]:
        self.calls.append(("register", slurm_conf, path, profile))
        return self._cluster(slurm_conf)

    async def connect(self, cluster: str) -> dict[str, Any]:
        await self.desk.ask(_PROMPT)
        return self._cluster()

    async def disconnect(self, cluster: str) -> dict[str, Any]:
        return self._cluster()

    async def examine(self, cluster: str, *, job: str = "none", options: Sequence[str] = ()) -> dict[str, Any]:
        return self.examination(cluster)

    def check_connected(self, cluster: str) -> None:
        self._job(cluster, "1")

    def examination(self, cluster: str) -> dict[str, Any]:
        self._job(cluster, "1")
        found = {"status": "ok", "about": "way", "said": "this machine", "todo": ""}
        return {"findings": [found], "failed": False, "keyless": [{"host": "login", "public": "/k.pub"}]}

    async def admit(self, cluster: str, host: str) -> dict[str, Any]:
        self._job(cluster, "1")
        return {"host": host, "public": "/k.pub", "is_new": True, "is_taken": None}

    def prompts(self) -> list[dict[str, Any]]:
        return self.desk.waiting()

    def answer(self, prompt: str, answers: list[str] | None) -> None:
        self.desk.answer(prompt, answers)

    def _job(self, cluster: str, ref: str) -> dict[str, Any]:
        if self.failure is not None:
            raise self.failure
        if cluster != "local":
            raise UsageError(f"there is no cluster {cluster!r}", hint="Register it first.")
        if not ref.startswith("1"):
            raise JobNotFound(f"there is no job {ref}", hint="Look.")
        return {"key": None, "cluster": cluster, "id": ref, "state": "RUNNING", "known": True}

    async def submit(self, cluster: str, submission: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(("submit", cluster, submission))
        if submission["dry_run"]:
            return {"argv": ["sbatch", *submission["options"]], "script": submission["text"]}
        return {**self._job(cluster, "12"), "key": submission["key"]}

    async def jobs(self, cluster: str, *, active: bool) -> list[dict[str, Any]]:
        return [self._job(cluster, "12")]

    async def job(self, cluster: str, ref: str) -> dict[str, Any]:
        return self._job(cluster, ref)

    async def act(
        self, cluster: str, act: str, refs: Sequence[str], time_limit: str | None = None
    ) -> list[dict[str, Any]]:
        self.calls.append(("act", cluster, act, *refs))
        return [{"job": ref, "error": None, "now": self._job(cluster, ref)} for ref in refs]

    async def bring_results(self, cluster: str, ref: str) -> dict[str, Any]:
        self.calls.append(("bring", cluster, ref))
        return self._job(cluster, ref)

    async def cancel(self, cluster: str, ref: str, signal: str | None = None) -> dict[str, Any]:
        self.calls.append(("cancel", cluster, ref, signal))
        return self._job(cluster, ref)

    async def resubmit(self, cluster: str, ref: str, asked: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(("resubmit", cluster, ref, asked))
        return {**self._job(cluster, ref), "key": asked["key"]}

    async def start_step(self, cluster: str, ref: str, asked: dict[str, Any]) -> dict[str, Any]:
        return {**self._job(cluster, ref), "key": asked["key"], "allocation": None}

    async def list_steps(self, cluster: str, ref: str) -> list[dict[str, Any]]:
        return [self._job(cluster, ref)]

    def _tunnel(self, cluster: str, job: str | None, port: int) -> dict[str, Any]:
        told = {"id": "0" * 16, "cluster": cluster, "job": job, "node": "node1", "port": port, "local_port": 8000}
        told |= {"socket": None, "url": "http://127.0.0.1:8000/", "way": "ssh", "failed": {}, "proven": True}
        return {**told, "state": "open", "message": "", "since": 0.0, "connections": 0}

    def list_tunnels(self, cluster: str) -> list[dict[str, Any]]:
        return [self._tunnel(cluster, "12", 8888)]

    async def open_tunnel(self, cluster: str, wanted: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(("tunnel", cluster, wanted))
        if wanted.get("job"):
            self._job(cluster, wanted["job"])
        return self._tunnel(cluster, wanted.get("job"), wanted["port"])

    async def close_tunnel(self, cluster: str, tunnel: str) -> dict[str, Any]:
        return self._tunnel(cluster, "12", 8888)

    async def source(self, cluster: str, ref: str) -> bytes:
        self._job(cluster, ref)
        return b"print(1)\n"

    async def tasks(self, cluster: str, ref: str, *, parameters: bool) -> dict[str, Any]:
        self._job(cluster, ref)
        table = {"names": ["lr"], "parameters": [["1e-3"]]} if parameters else {"names": [], "parameters": []}
        return {"columns": ["task", "state"], "rows": [[0, "RUNNING"]], **table}

    async def usage(self, cluster: str, ref: str) -> dict[str, Any]:
        self._job(cluster, ref)
        point = {"time": 1.5, "cpus": 0.5, "memory": 1024, "gpu": None, "gpu_memory": None}
        return {"node": "n1", "cpus": 2, "memory": None, "gpus": 0, "points": [point], "note": "It has no GPU."}

    async def values(self, cluster: str, ref: str, first: int) -> dict[str, Any]:
        self._job(cluster, ref)
        return {"values": [[first, "eA=="]], "next": None}

    async def kernel(self, cluster: str, ref: str, wait: float) -> dict[str, Any]:
        self._job(cluster, ref)
        return {"state": "PENDING", "finished": False, "node": None, "port": None, "stage": None}

    async def script(self, cluster: str, ref: str) -> bytes:
        self._job(cluster, ref)
        return b"#!/bin/sh\n\xff\n"

    async def report(self, cluster: str, ref: str) -> dict[str, Any]:
        self._job(cluster, ref)
        return {"id": ref, "state": "COMPLETED", "source": None, "notes": [], "gpus": []}

    async def record(self, cluster: str, ref: str) -> dict[str, Any]:
        self._job(cluster, ref)
        told = {"key": "20260101-000000-00000000", "id": ref, "kind": "script", "created": 0.0, "script": "cell.sh"}
        return {**told, "argv": ["sbatch"], "versions": {}}

    async def output(self, cluster: str, ref: str, stream: str, offset: int, limit: int) -> tuple[bytes, int]:
        self._job(cluster, ref)
        text = b"0123456789"
        return text[offset:][:limit], len(text)

    async def stream(
        self, cluster: str, ref: str, offsets: dict[str, int]
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        for number in range(self.chunks):
            self.last_seen = number
            yield "output", {"stream": "stdout", "offset": number, "data": "eA==" * 10_000}
        if ref == "13":
            await asyncio.Event().wait()
        if ref == "14":
            raise UsageError("the stream failed", hint="ask again")
        yield "end", {}

    async def command(self, cluster: str, argv: list[str], *, table: bool, context: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(("command", argv, table, context))
        if argv == ["die"]:
            os._exit(9)
        return {
            "exit_code": 0,
            "stdout": "",
            "stderr": "",
            "table": {"columns": ["A"], "rows": [["1"]]} if table else None,
        }

    async def options(self, cluster: str, command: str) -> dict[str, Any]:
        option = {"name": "partition", "short": "p", "takes_value": "yes", "help": None}
        return {"command": command, "version": [22, 5], "options": [option]}

    async def names(self, cluster: str, kind: str, wait: float, partitions: str = "") -> dict[str, Any]:
        return {"taken": 0.0, "names": [{"name": f"a {kind}", "about": f"{wait:g}"}]}

    async def resources(self, cluster: str, *, wait: float, is_newer: bool, has_nodes: bool) -> dict[str, Any]:
        self.calls.append(("resources", wait, is_newer, has_nodes))
        nothing: dict[str, Any] = {name: [] for name in ("gpus", "partitions", "nodes", "limits")}
        return {**nothing, "asked_at": 0.0, "unknown_since": None, "said": "", "use": {}, "cost": None}

    async def others(self, cluster: str, *, wait: float) -> dict[str, Any]:
        self.calls.append(("others", wait))
        nothing: dict[str, Any] = {name: [] for name in ("columns", "rows")}
        known = {"asked_at": 0.0, "unknown_since": None, "said": "", "interval": 30.0}
        return {**nothing, **known, "user": "a", "is_private": False}

    async def accounted(
        self, cluster: str, *, start: int | None, end: int | None, account: str | None, has_jobs: bool
    ) -> dict[str, Any]:
        self.calls.append(("accounted", start, end, account, has_jobs))
        nothing: dict[str, Any] = {name: [] for name in ("accounts", "sums", "jobs")}
        return {
            **nothing,
            "asked_at": 0.0,
            "start": start or 0,
            "end": end or 1,
            "user": "a",
            "left_out": 0,
            "cost": None,
        }

    async def session_way(self, key: str) -> dict[str, Any]:
        return {"port": 8000, "path": f"/jupyter-slurm/{key}/", "base_url": f"/jupyter-slurm/{key}/", "token": "t"}

    async def clean(self, *, older_than_days: float | None, dry_run: bool) -> dict[str, Any]:
        self.calls.append(("clean", older_than_days, dry_run))
        return {"removed": [], "kept": 0}
