"""What each operation of ``openapi.yaml`` answers. Thin: the work is done by the core."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping

from jupyter_slurm.agent.api.app import Answer, Call, Reply
from jupyter_slurm.agent.api.presence import Presence
from jupyter_slurm.agent.api.schema import Document
from jupyter_slurm.agent.api.sse import latest_only, send_events
from jupyter_slurm.agent.protocols import CoreLike, Json
from jupyter_slurm.errors import AgentBusy
from jupyter_slurm.transport.peer_credentials import peer_pid

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
)
"""What a client can count on. A name is added when something new can be asked, and stays within one API version."""

_MOST_STREAMS = 512
_STREAM_AGAIN = 10


class Routes:
    """The answers, by operation id.

    Parameters
    ----------
    core : CoreLike
        Does the work.
    document : Document
        The API description.
    describe : callable
        Returns what ``GET /v1/agent`` says.
    stop : callable
        ``stop(only_idle)`` asks the agent to end; raises AgentError (409) when it must not.
    """

    def __init__(
        self, core: CoreLike, document: Document, describe: Callable[[], Json], stop: Callable[[bool], None]
    ) -> None:
        self._core, self._document, self._describe, self._stop = core, document, describe, stop
        self.presence = Presence(core.users)
        self._open: set[asyncio.Task[None]] = set()
        self._holding: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def streams(self) -> int:
        """Event streams that are open now, less those that need no agent to stay for them."""
        return len(self._holding)

    async def close_streams(self) -> None:
        """Break off all event streams, so that their clients ask for them again."""
        if not self._closing.done():
            self._closing.set_result(None)
        if self._open:
            await asyncio.wait(self._open, timeout=5)

    def answers(self) -> Mapping[str, Answer]:
        """Return the coroutine of each operation."""
        return {
            "getDocument": self._get_document,
            "getAgent": self._get_agent,
            "stopAgent": self._stop_agent,
            "listClusters": self._list_clusters,
            "getCluster": self._get_cluster,
            "registerCluster": self._register_cluster,
            "connectCluster": self._connect_cluster,
            "disconnectCluster": self._disconnect_cluster,
            "examineCluster": self._examine_cluster,
            "getExamination": self._get_examination,
            "admitKey": self._admit_key,
            "listPrompts": self._list_prompts,
            "answerPrompt": self._answer_prompt,
            "listJobs": self._list_jobs,
            "submitJob": self._submit_job,
            "getJob": self._get_job,
            "cancelJob": self._cancel_job,
            "actOnJobs": self._act_on_jobs,
            "resubmitJob": self._resubmit_job,
            "listTasks": self._list_tasks,
            "getValues": self._get_values,
            "listSteps": self._list_steps,
            "startStep": self._start_step,
            "getKernel": self._get_kernel,
            "getScript": self._get_script,
            "getSource": self._get_source,
            "getRecord": self._get_record,
            "getReport": self._get_report,
            "bringResults": self._bring_results,
            "getUsage": self._get_usage,
            "getOutput": self._get_output,
            "streamJob": self._stream_job,
            "streamEvents": self._stream_events,
            "runCommand": self._run_command,
            "listOptions": self._list_options,
            "listNames": self._list_names,
            "getResources": self._get_resources,
            "getQueue": self._get_queue,
            "getAccountedUsage": self._get_accounted,
            "listTunnels": self._list_tunnels,
            "openTunnel": self._open_tunnel,
            "closeTunnel": self._close_tunnel,
            "listImages": self._list_images,
            "makeImage": self._make_image,
            "removeImage": self._remove_image,
            "listSessions": self._list_sessions,
            "launchSession": self._launch_session,
            "getSession": self._get_session,
            "openSession": self._open_session,
            "stopSession": self._stop_session,
            "renameSession": self._rename_session,
            "getWay": self._get_way,
            "clean": self._clean,
        }

    async def _get_document(self, call: Call) -> Reply:
        return Reply(self._document.text, media_type="application/yaml")

    async def _get_agent(self, call: Call) -> Reply:
        return Reply(self._describe())

    async def _stop_agent(self, call: Call) -> Reply:
        self._stop(call.body.get("only_idle", False))
        return Reply(self._describe(), status=202)

    async def _list_clusters(self, call: Call) -> Reply:
        return Reply(self._core.clusters())

    async def _get_cluster(self, call: Call) -> Reply:
        return Reply(self._core.cluster(call.path["cluster"]))

    async def _register_cluster(self, call: Call) -> Reply:
        asked = call.body
        return Reply(
            await self._core.register_cluster(asked.get("slurm_conf"), asked.get("path"), asked.get("profile"))
        )

    async def _connect_cluster(self, call: Call) -> Reply:
        cluster, client = call.path["cluster"], call.body.get("client")
        answer = await self._core.connect(cluster)
        if client is None:
            return Reply(answer)
        self.presence.seen(call.exchange, client, cluster)
        return Reply(self._core.cluster(cluster))

    async def _disconnect_cluster(self, call: Call) -> Reply:
        return Reply(await self._core.disconnect(call.path["cluster"]))

    async def _examine_cluster(self, call: Call) -> Reply:
        asked = call.body
        return Reply(
            await self._core.examine(
                call.path["cluster"], job=asked.get("job", "none"), options=asked.get("options", ())
            )
        )

    async def _get_examination(self, call: Call) -> Reply:
        return Reply(self._core.examination(call.path["cluster"]))

    async def _admit_key(self, call: Call) -> Reply:
        return Reply(await self._core.admit(call.path["cluster"], call.body["host"]))

    async def _list_prompts(self, call: Call) -> Reply:
        return Reply(self._core.prompts())

    async def _answer_prompt(self, call: Call) -> Reply:
        self._core.answer(call.path["prompt"], call.body["answers"])
        return Reply(self._core.prompts())

    async def _list_jobs(self, call: Call) -> Reply:
        jobs = await self._core.jobs(call.path["cluster"], active=call.query["state"] == "active")
        if (most := call.query.get("finished")) is not None:
            finished = itertools.count(1)  # the newest come first
            jobs = [job for job in jobs if not job.get("finished") or next(finished) <= most]
        return Reply(jobs)

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
            self._core.check_connected(cluster)
            self.presence.seen(call.exchange, client, cluster)
        answer = await self._core.submit(cluster, submission)
        return Reply(answer, status=200 if submission["dry_run"] else 201)

    async def _get_job(self, call: Call) -> Reply:
        return Reply(await self._core.job(call.path["cluster"], call.path["job"]))

    async def _cancel_job(self, call: Call) -> Reply:
        return Reply(await self._core.cancel(call.path["cluster"], call.path["job"], call.body.get("signal")))

    async def _act_on_jobs(self, call: Call) -> Reply:
        asked = call.body
        return Reply(await self._core.act(call.path["cluster"], asked["act"], asked["jobs"], asked.get("time_limit")))

    async def _resubmit_job(self, call: Call) -> Reply:
        return Reply(await self._core.resubmit(call.path["cluster"], call.path["job"], call.body), status=201)

    async def _list_tasks(self, call: Call) -> Reply:
        cluster, job = call.path["cluster"], call.path["job"]
        return Reply(await self._core.tasks(cluster, job, parameters=call.query["parameters"]))

    async def _get_values(self, call: Call) -> Reply:
        return Reply(await self._core.values(call.path["cluster"], call.path["job"], call.query["first"]))

    async def _list_steps(self, call: Call) -> Reply:
        return Reply(await self._core.list_steps(call.path["cluster"], call.path["job"]))

    async def _start_step(self, call: Call) -> Reply:
        return Reply(await self._core.start_step(call.path["cluster"], call.path["job"], call.body), status=201)

    async def _get_kernel(self, call: Call) -> Reply:
        return Reply(await self._core.kernel(call.path["cluster"], call.path["job"], call.query["wait"]))

    async def _get_script(self, call: Call) -> Reply:
        return Reply(await self._core.script(call.path["cluster"], call.path["job"]))

    async def _get_source(self, call: Call) -> Reply:
        return Reply(await self._core.source(call.path["cluster"], call.path["job"]))

    async def _get_record(self, call: Call) -> Reply:
        return Reply(await self._core.record(call.path["cluster"], call.path["job"]))

    async def _bring_results(self, call: Call) -> Reply:
        return Reply(await self._core.bring_results(call.path["cluster"], call.path["job"]))

    async def _get_report(self, call: Call) -> Reply:
        return Reply(await self._core.report(call.path["cluster"], call.path["job"]))

    async def _get_usage(self, call: Call) -> Reply:
        return Reply(await self._core.usage(call.path["cluster"], call.path["job"]))

    async def _get_output(self, call: Call) -> Reply:
        query = call.query
        data, total = await self._core.output(
            call.path["cluster"], call.path["job"], query["stream"], query["offset"], query["limit"]
        )
        return Reply(data, headers={"X-Total-Size": str(total)})

    async def _stream_job(self, call: Call) -> Reply:
        cluster, job = call.path["cluster"], call.path["job"]
        await self._core.job(cluster, job)  # an unknown job is a 404, not a stream
        asked = ("stdout", "stderr", "display")
        offsets = {stream: call.query[stream] for stream in asked if call.query[stream] is not None}
        return await self._send(call, self._core.stream(cluster, job, offsets))

    async def _stream_events(self, call: Call) -> Reply:
        holds = call.query["holds"]
        return await self._send(call, self._bus_events(holds), holds=holds)

    async def _bus_events(self, is_looked_at: bool) -> AsyncGenerator[tuple[str, Json], None]:
        async with self._core.bus.subscribe(is_looked_at=is_looked_at) as events:
            async for event, data in latest_only(events):
                yield event, dict(data)

    async def _send(self, call: Call, events: AsyncIterator[tuple[str, Json]], *, holds: bool = True) -> Reply:
        if len(self._open) >= _MOST_STREAMS:
            raise AgentBusy(
                f"{_MOST_STREAMS} event streams are open, and there cannot be more.",
                hint="Close notebooks or browser tabs.",
                retry_after=_STREAM_AGAIN,
            )
        sending = asyncio.ensure_future(send_events(call.exchange, events, self._closing))
        self._open.add(sending)
        if holds:
            self._holding.add(sending)
            sending.add_done_callback(self._holding.discard)
        sending.add_done_callback(self._open.discard)
        await sending
        return Reply(None)

    async def _run_command(self, call: Call) -> Reply:
        argv = call.body["argv"]
        context = call.body.get("context", {})
        return Reply(
            await self._core.command(call.path["cluster"], argv, table=call.body.get("table", False), context=context)
        )

    async def _list_options(self, call: Call) -> Reply:
        return Reply(await self._core.options(call.path["cluster"], call.path["command"]))

    async def _list_names(self, call: Call) -> Reply:
        query = call.query
        return Reply(await self._core.names(call.path["cluster"], call.path["kind"], query["wait"], query["partition"]))

    async def _get_resources(self, call: Call) -> Reply:
        asked = {"wait": call.query["wait"], "is_newer": call.query["newer"], "has_nodes": call.query["nodes"]}
        return Reply(await self._core.resources(call.path["cluster"], **asked))

    async def _get_queue(self, call: Call) -> Reply:
        return Reply(await self._core.others(call.path["cluster"], wait=call.query["wait"]))

    async def _get_accounted(self, call: Call) -> Reply:
        asked = {"start": call.query["start"], "end": call.query["end"], "account": call.query["account"]}
        return Reply(await self._core.accounted(call.path["cluster"], **asked, has_jobs=call.query["jobs"]))

    async def _list_tunnels(self, call: Call) -> Reply:
        return Reply(self._core.list_tunnels(call.path["cluster"]))

    async def _open_tunnel(self, call: Call) -> Reply:
        return Reply(await self._core.open_tunnel(call.path["cluster"], call.body), status=201)

    async def _close_tunnel(self, call: Call) -> Reply:
        return Reply(await self._core.close_tunnel(call.path["cluster"], call.path["tunnel"]))

    async def _list_images(self, call: Call) -> Reply:
        return Reply(await self._core.images.told(call.path["cluster"]))

    async def _make_image(self, call: Call) -> Reply:
        asked = {"options": [], "dry_run": False, "context": {}, **call.body}
        answer = await self._core.images.make(call.path["cluster"], asked)
        return Reply(answer, status=200 if asked["dry_run"] else 201)

    async def _remove_image(self, call: Call) -> Reply:
        return Reply(await self._core.images.remove(call.path["cluster"], call.body["image"]))

    async def _list_sessions(self, call: Call) -> Reply:
        return Reply(self._core.sessions.told(call.path["cluster"], active=call.query["state"] == "active"))

    async def _launch_session(self, call: Call) -> Reply:
        asked = {"options": [], "args": [], "python": None, "dry_run": False, "context": {}, **call.body}
        asked["dry_run"] |= asked.get("test_only", False)
        answer = await self._core.sessions.launch(call.path["cluster"], asked)
        return Reply(answer, status=200 if asked["dry_run"] else 201)

    async def _get_session(self, call: Call) -> Reply:
        return Reply(await self._core.sessions.one(call.path["cluster"], call.path["session"]))

    async def _open_session(self, call: Call) -> Reply:
        return Reply(await self._core.sessions.open(call.path["cluster"], call.path["session"]))

    async def _stop_session(self, call: Call) -> Reply:
        return Reply(await self._core.sessions.end(call.path["cluster"], call.path["session"]))

    async def _rename_session(self, call: Call) -> Reply:
        cluster, session = call.path["cluster"], call.path["session"]
        return Reply(await self._core.sessions.rename(cluster, session, call.body["name"]))

    async def _get_way(self, call: Call) -> Reply:
        return Reply(await self._core.session_way(call.path["key"]))

    async def _clean(self, call: Call) -> Reply:
        return Reply(
            await self._core.clean(
                older_than_days=call.body.get("older_than_days"), dry_run=call.body.get("dry_run", False)
            )
        )
