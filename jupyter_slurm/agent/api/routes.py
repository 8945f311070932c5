"""Routes: for each operation of ``openapi.yaml``, the call of the service that does the work."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from jupyter_slurm.agent.api.app import Answer, Call, Reply
from jupyter_slurm.agent.api.file_routes import FILES
from jupyter_slurm.agent.api.presence import Presence
from jupyter_slurm.agent.api.schema import Document
from jupyter_slurm.agent.api.sse import SEND_TIMEOUT_S, Event, latest_only, send_events
from jupyter_slurm.errors import AgentBusy
from jupyter_slurm.transport.peer_credentials import peer_pid

if TYPE_CHECKING:  # slow import, which a client that only calls does not need
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.services.agent_core import Core
    from jupyter_slurm.services.clusters.cluster import Cluster
    from jupyter_slurm.services.submission.request import SubmissionRequest

__all__ = ["CAPABILITIES", "Routes"]

CAPABILITIES = (
    "clusters",
    "jobs",
    "output",
    "stream",
    "events",
    "commands",
    "tables",
    "options",
    "housekeeping",
    "profiles",
    "prompts",
    "tunnels",
    "users",
    "arrays",
    "records",
    "doctor",
    "steps",
    "names",
    "processes",
    "sessions",
    "acts",
    "resources",
    "queue",
    "images",
    "results",
    "login-commands",
    "transfers",
    "files",
    "terminals",
    "environments",
)
"""Features on which a client can rely. A new feature adds a name, which stays within one API version."""

_MAX_STREAMS = 512
_STREAM_RETRY_AFTER_S = 10


Handler = Callable[["Core", Call], Any]
"""Function that returns an operation's answer or a coroutine; a Reply if the answer is more than its content."""


def _cluster(core: Core, call: Call) -> Cluster:
    return core.cluster(call.path["cluster"])


async def _list_jobs(core: Core, call: Call) -> list[api.Job]:
    catalog = _cluster(core, call).jobs
    jobs = await catalog.list_jobs(active=call.query["state"] == "active", days=call.query.get("days"))
    if (most := call.query.get("finished")) is not None:
        finished = itertools.count(1)  # the newest first
        jobs = [job for job in jobs if not job.get("finished") or next(finished) <= most]
    return jobs


async def _list_steps(core: Core, call: Call) -> list[api.Job]:
    cluster = _cluster(core, call)
    return cluster.steps.steps_to_api(await cluster.jobs.find(call.path["job"]))


async def _start_step(core: Core, call: Call) -> Reply:
    cluster = _cluster(core, call)
    allocation = await cluster.jobs.find(call.path["job"])
    return Reply(await cluster.steps.start(allocation, call.body), status=201)


async def _get_kernel(core: Core, call: Call) -> api.KernelPlace:
    cluster = _cluster(core, call)
    return await cluster.kernels.connection_to_api(await cluster.jobs.find(call.path["job"]), call.query["wait"])


async def _bring_results(core: Core, call: Call) -> api.Job:
    cluster = _cluster(core, call)
    await cluster.staging.copy_back(await cluster.jobs.find(call.path["job"]), call.body.get("also", ()))
    return await cluster.jobs.describe(call.path["job"])


async def _resubmit_job(core: Core, call: Call) -> Reply:
    return Reply(await _cluster(core, call).resubmit(call.path["job"], call.body), status=201)


async def _get_output(core: Core, call: Call) -> Reply:
    query = call.query
    results = _cluster(core, call).results
    data, total = await results.output(call.path["job"], query["stream"], query["offset"], query["limit"])
    return Reply(data, headers={"X-Total-Size": str(total)})


async def _open_tunnel(core: Core, call: Call) -> Reply:
    return Reply(await core.tunnels.open(call.path["cluster"], call.body), status=201)


async def _start_terminal(core: Core, call: Call) -> Reply:
    return Reply(await core.terminals.start(call.path["cluster"], call.body), status=201)


async def _make_image(core: Core, call: Call) -> Reply:
    asked = {"options": [], "dry_run": False, "context": {}, **call.body}
    answer = await core.images.submit_image(call.path["cluster"], cast("api.ImageWanted", asked))
    return Reply(answer, status=200 if asked["dry_run"] else 201)


async def _make_environment(core: Core, call: Call) -> api.MakeEnvironmentResponse:
    asked = {"options": [], "dry_run": False, "context": {}, **call.body}
    return await core.environments.submit_build(call.path["cluster"], cast("api.EnvironmentWanted", asked))


async def _launch_session(core: Core, call: Call) -> Reply:
    asked = {"options": [], "args": [], "python": None, "dry_run": False, "context": {}, **call.body}
    asked["dry_run"] |= asked.get("test_only", False)
    answer = await core.sessions.launch(call.path["cluster"], cast("api.Launch", asked))
    return Reply(answer, status=200 if asked["dry_run"] else 201)


async def _start_transfer(core: Core, call: Call) -> Reply:
    return Reply(await core.transfers.start(call.path["cluster"], call.body), status=201)


def _answer_prompt(core: Core, call: Call) -> list[api.Prompt]:
    core.clusters.answer_prompt(call.path["prompt"], call.body["answers"])
    return core.clusters.list_prompts()


_CLUSTERS: Mapping[str, Handler] = {
    "listClusters": lambda core, call: core.clusters.list_clusters(),
    "getCluster": lambda core, call: core.clusters.describe(call.path["cluster"]),
    "registerCluster": lambda core, call: core.clusters.register(
        call.body.get("slurm_conf"), call.body.get("path"), call.body.get("profile")
    ),
    "disconnectCluster": lambda core, call: core.clusters.disconnect(call.path["cluster"]),
    "examineCluster": lambda core, call: core.examinations.examine(
        call.path["cluster"], job=call.body.get("job", "none"), options=call.body.get("options", ())
    ),
    "getExamination": lambda core, call: core.examinations.to_api(call.path["cluster"]),
    "admitKey": lambda core, call: core.examinations.admit(call.path["cluster"], call.body["host"]),
    "listPrompts": lambda core, call: core.clusters.list_prompts(),
    "answerPrompt": _answer_prompt,
    "runCommand": lambda core, call: _cluster(core, call).run_command(
        call.body["argv"], table=call.body.get("table", False), context=call.body.get("context", {})
    ),
    "listOptions": lambda core, call: _cluster(core, call).command_options(call.path["command"]),
    "listNames": lambda core, call: core.clusters.list_names(
        call.path["cluster"], call.path["kind"], call.query["wait"], call.query["partition"], call.query["start"]
    ),
    "getResources": lambda core, call: _cluster(core, call).inventory.resources.to_api(
        wait=call.query["wait"], is_newer=call.query["newer"], has_nodes=call.query["nodes"]
    ),
    "getQueue": lambda core, call: _cluster(core, call).inventory.all_jobs.to_api(wait=call.query["wait"]),
    "getRunningUse": lambda core, call: _cluster(core, call).inventory.running.to_api(wait=call.query["wait"]),
    "getRoom": lambda core, call: _cluster(core, call).inventory.room.to_api(
        wait=call.query["wait"], is_newer=call.query["newer"]
    ),
    "getAccountedUsage": lambda core, call: _cluster(core, call).inventory.usage.to_api(
        start=call.query["start"], end=call.query["end"], account=call.query["account"], has_jobs=call.query["jobs"]
    ),
    "clean": lambda core, call: core.housekeeping.clean(
        older_than_days=call.body.get("older_than_days"), dry_run=call.body.get("dry_run", False)
    ),
}

_JOBS: Mapping[str, Handler] = {
    "listJobs": _list_jobs,
    "getJob": lambda core, call: _cluster(core, call).jobs.describe(call.path["job"]),
    "cancelJob": lambda core, call: _cluster(core, call).actions.cancel(call.path["job"], call.body.get("signal")),
    "keepAllocation": lambda core, call: _cluster(core, call).keep_allocation(
        call.path["job"], call.body, peer_pid(call.exchange.connection.socket)
    ),
    "actOnJobs": lambda core, call: _cluster(core, call).actions.act(
        call.body["act"], call.body["jobs"], call.body.get("time_limit")
    ),
    "listActs": lambda core, call: _cluster(core, call).actions.progress.list_to_api(),
    "stopAct": lambda core, call: _cluster(core, call).actions.progress.stop(call.path["act"]),
    "resubmitJob": _resubmit_job,
    "listTasks": lambda core, call: _cluster(core, call).jobs.tasks(
        call.path["job"], parameters=call.query["parameters"]
    ),
    "getValues": lambda core, call: _cluster(core, call).jobs.task_values(call.path["job"], call.query["first"]),
    "joinJob": lambda core, call: _cluster(core, call).actions.joined.join(call.path["job"], call.body),
    "listSteps": _list_steps,
    "startStep": _start_step,
    "getKernel": _get_kernel,
    "getScript": lambda core, call: _cluster(core, call).results.script(call.path["job"]),
    "getForeignSubmission": lambda core, call: _cluster(core, call).foreign_submission(call.path["job"]),
    "getSource": lambda core, call: _cluster(core, call).results.source(call.path["job"]),
    "getRecord": lambda core, call: _cluster(core, call).results.record(call.path["job"]),
    "getReport": lambda core, call: _cluster(core, call).results.report(call.path["job"]),
    "bringResults": _bring_results,
    "getUsage": lambda core, call: _cluster(core, call).results.usage(call.path["job"]),
    "getOutput": _get_output,
}

_SESSIONS: Mapping[str, Handler] = {
    "listTunnels": lambda core, call: core.tunnels.list_to_api(call.path["cluster"]),
    "openTunnel": _open_tunnel,
    "closeTunnel": lambda core, call: core.tunnels.close(call.path["cluster"], call.path["tunnel"]),
    "listTransfers": lambda core, call: core.transfers.list_to_api(call.path["cluster"]),
    "startTransfer": _start_transfer,
    "getTransfer": lambda core, call: core.transfers.transfer_to_api(call.path["transfer"]),
    "stopTransfer": lambda core, call: core.transfers.stop_transfer(call.path["transfer"]),
    "listTerminals": lambda core, call: core.terminals.list_to_api(call.path["cluster"]),
    "startTerminal": _start_terminal,
    "attachTerminal": lambda core, call: core.terminals.attach(call.path["cluster"], call.path["terminal"]),
    "closeTerminal": lambda core, call: core.terminals.close(call.path["cluster"], call.path["terminal"]),
    "listImages": lambda core, call: core.images.list_to_api(call.path["cluster"]),
    "makeImage": _make_image,
    "removeImage": lambda core, call: core.images.remove(call.path["cluster"], call.body["image"]),
    "listEnvironments": lambda core, call: core.environments.list_to_api(call.path["cluster"]),
    "makeEnvironment": _make_environment,
    "removeEnvironment": lambda core, call: core.environments.remove(call.path["cluster"], call.body["name"]),
    "listSessions": lambda core, call: core.sessions.list_to_api(
        call.path["cluster"], active=call.query["state"] == "active"
    ),
    "launchSession": _launch_session,
    "getSession": lambda core, call: core.sessions.session_to_api(call.path["cluster"], call.path["session"]),
    "openSession": lambda core, call: core.sessions.open(call.path["cluster"], call.path["session"]),
    "stopSession": lambda core, call: core.sessions.end(call.path["cluster"], call.path["session"]),
    "renameSession": lambda core, call: core.sessions.rename(
        call.path["cluster"], call.path["session"], call.body["name"]
    ),
    "getWay": lambda core, call: core.sessions.session_route(core.clusters.reached(), call.path["key"]),
}


class Routes:
    """The answers, by operation ID.

    Parameters
    ----------
    core : Core
        Contains the services that do the work.
    document : Document
        The API description.
    describe : callable
        Returns the answer to ``GET /v1/agent``.
    stop : callable
        ``stop(only_idle)`` requests the agent's end; raises AgentError (409) if it must not end.
    """

    def __init__(
        self, core: Core, document: Document, describe: Callable[[], api.Agent], stop: Callable[[bool], None]
    ) -> None:
        self._core, self._document, self._describe, self._stop = core, document, describe, stop
        self.presence = Presence(core.users)
        self._open: set[asyncio.Task[None]] = set()
        self._holding: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def streams(self) -> int:
        """Return the number of open event streams, without those that need not keep the agent alive."""
        return len(self._holding)

    async def close_streams(self) -> None:
        """Break all event streams, so that their clients request them again."""
        if not self._closing.done():
            self._closing.set_result(None)
        if self._open:
            await asyncio.wait(self._open, timeout=5)

    def answers(self) -> Mapping[str, Answer]:
        """Return the coroutine of each operation."""
        own: Mapping[str, Answer] = {
            "getDocument": self._get_document,
            "getAgent": self._get_agent,
            "stopAgent": self._stop_agent,
            "connectCluster": self._connect_cluster,
            "submitJob": self._submit_job,
            "streamJob": self._stream_job,
            "streamEvents": self._stream_events,
            "runLoginCommand": self._run_login_command,
        }
        handlers = {**_CLUSTERS, **_JOBS, **_SESSIONS, **FILES}
        return {**own, **{operation: self._answer(handler) for operation, handler in handlers.items()}}

    def _answer(self, handler: Handler) -> Answer:
        async def answer(call: Call) -> Reply:
            value = handler(self._core, call)
            if inspect.isawaitable(value):
                value = await value
            return value if isinstance(value, Reply) else Reply(value)

        return answer

    async def _get_document(self, call: Call) -> Reply:
        return Reply(self._document.text, media_type="application/yaml")

    async def _get_agent(self, call: Call) -> Reply:
        return Reply(self._describe())

    async def _stop_agent(self, call: Call) -> Reply:
        self._stop(call.body.get("only_idle", False))
        return Reply(self._describe(), status=202)

    async def _connect_cluster(self, call: Call) -> Reply:
        cluster, client = call.path["cluster"], call.body.get("client")
        answer = await self._core.clusters.connect(cluster)
        if client is None:
            return Reply(answer)
        self.presence.register_client(call.exchange, client, cluster)
        return Reply(self._core.clusters.describe(cluster))

    async def _submit_job(self, call: Call) -> Reply:
        submission = {
            "options": [],
            "args": [],
            "python": None,
            "label": None,
            "dry_run": False,
            "context": {},
            **call.body,
            "process": peer_pid(call.exchange.connection.socket),
        }
        submission["dry_run"] |= submission.get("test_only", False)
        cluster, client = call.path["cluster"], submission.pop("client", None)
        if client is not None:
            self._core.clusters.check_connected(cluster)
            self.presence.register_client(call.exchange, client, cluster)
        answer = await self._core.cluster(cluster).submit(cast("SubmissionRequest", submission))
        return Reply(answer, status=200 if submission["dry_run"] else 201)

    async def _stream_job(self, call: Call) -> Reply:
        cluster, job = _cluster(self._core, call), call.path["job"]
        await cluster.jobs.describe(job)  # an unknown job is a 404, not a stream
        asked = ("stdout", "stderr", "display")
        offsets = {stream: call.query[stream] for stream in asked if call.query[stream] is not None}
        return await self._send(call, cluster.results.stream(job, offsets))

    async def _run_login_command(self, call: Call) -> Reply:
        commands = _cluster(self._core, call).login_commands
        commands.check_allowed()  # a refusal is an answer, not a stream
        return await self._send(call, commands.stream(call.body["text"], call.body.get("context", {})), deadline=None)

    async def _stream_events(self, call: Call) -> Reply:
        holds = call.query["holds"]
        return await self._send(call, self._bus_events(holds), holds=holds)

    async def _bus_events(self, is_watched: bool) -> AsyncGenerator[Event, None]:
        async with self._core.bus.subscribe(is_watched=is_watched) as events:
            async for event, data in latest_only(events):
                yield event, data

    async def _send(
        self,
        call: Call,
        events: AsyncIterator[Event],
        *,
        holds: bool = True,
        deadline: float | None = SEND_TIMEOUT_S,
    ) -> Reply:
        if len(self._open) >= _MAX_STREAMS:
            raise AgentBusy(
                f"{_MAX_STREAMS} event streams are open, the maximum.",
                hint="Close notebooks or browser tabs.",
                retry_after=_STREAM_RETRY_AFTER_S,
            )
        sending = asyncio.ensure_future(send_events(call.exchange, events, self._closing, deadline=deadline))
        self._open.add(sending)
        if holds:
            self._holding.add(sending)
            sending.add_done_callback(self._holding.discard)
        sending.add_done_callback(self._open.discard)
        await sending
        return Reply(None)
