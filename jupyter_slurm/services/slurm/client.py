"""Client of one Slurm: execution and environment of its commands, and errors in their answers."""

from __future__ import annotations

import asyncio
import math
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from jupyter_slurm.documentation import page_url
from jupyter_slurm.domain.environment_variables import is_inside_job, question_environment, submission_environment
from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.options.commands import is_repeatable
from jupyter_slurm.domain.options.option_parser import OptionTable
from jupyter_slurm.domain.queries import cluster, job_detail, queue
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.slurm_values import parse_count
from jupyter_slurm.errors import CommandError, ConfigError, ControllerError, SlurmError, TransportError
from jupyter_slurm.services.large_answers import parse_answer
from jupyter_slurm.services.slurm.accounting import ACCOUNTING_COMMANDS, Accounting
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.services.slurm.rate_limit import TokenBucket
from jupyter_slurm.services.slurm.unreachable_controller import is_silence
from jupyter_slurm.transport.base import Completed, Context, Transport

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = [
    "SlurmClient",
    "cluster_name",
    "decode_output",
    "job_memory",
    "printable",
]

_T = TypeVar("_T")

_MAX_ATTEMPTS = 3
_CONTROLLER_RESTART_S = 2.0
_QUEUE_TIMEOUT_S = 45.0  # seconds that a query about a job named by the user may wait
_SILENT_WAIT_S = 0.5  # seconds that a user's command may wait without a message

# With one of these arguments a command contacts no daemon.
_LOCAL_OPTIONS = frozenset({"--help", "--usage", "--version", "-V"})

_NOWHERE = re.compile(
    rb"could not establish a configuration source|unable to establish configuration source|resolve_ctls_from_dns_srv",
    re.IGNORECASE,
)

_NO_HISTORY = "This cluster keeps no history (it has no slurmdbd). List your own jobs with `jupyter_slurm.jobs()`."

_MISTYPED = re.compile(rb"(unrecognized|invalid|ambiguous) option|requires an argument", re.IGNORECASE)


def decode_output(raw: bytes) -> str:
    """Decode what a command printed; odd bytes survive as surrogates."""
    return raw.decode("utf-8", "surrogateescape")


class SlurmClient:
    """Run the commands of one Slurm.

    Parameters
    ----------
    transport : Transport
        Transport to the host of the commands.
    location : ClusterLocation
        Location of that Slurm, and the environment that its commands need: PATH, SLURM_CONF …
    timeout : float
        Seconds that a query may take.
    """

    def __init__(self, transport: Transport, location: ClusterLocation, timeout: float) -> None:
        self.transport = transport
        self._location, self._env = location, dict(location.environment)
        self._timeout = timeout
        self.accounting = Accounting(self._ask, location, timeout)
        self._warned_commands: set[str] = set()
        self._cached_configuration: dict[str, str] = {}
        self._tables: dict[str, OptionTable] = {}
        self._asking_options = asyncio.Lock()
        self._version: tuple[int, int] | None = None
        # A notebook run from top to bottom may send fifteen queries at once: thirty RPCs, as allowed by sites with a
        # limit. A loop gets one query every ten seconds.
        self.people = TokenBucket(rate=0.1, burst=15)
        # A cancellation is urgent, and saves the controller work; only a runaway loop is slowed down.
        self.cancels = TokenBucket(rate=2, burst=200)
        # Queries about single jobs: the agent's own besides those of the poller, and those about jobs named by the
        # user.
        self.singles = TokenBucket(rate=0.05, burst=6)
        self.named = TokenBucket(rate=0.05, burst=6)

    def use_path(self, path: str | None) -> None:
        """Find the commands on another PATH: the user may have loaded a module."""
        if path and path != self._env.get("PATH"):
            self._env["PATH"] = path
            self._tables.clear()
            self._version = None

    async def query(self, argv: Sequence[str]) -> bytes:
        """Return the answer to a query of the agent; accounting has less time for it (:class:`Accounting`).

        Raises
        ------
        ControllerError
            The daemon does not answer.
        CommandError
            Slurm refuses the query.
        ConfigError
            SLURM_CONF names a missing file.
        """
        is_accounting = argv[0] in ACCOUNTING_COMMANDS
        return await (self.accounting.query(argv) if is_accounting else self._ask(argv, self._timeout))

    async def read(self, argv: Sequence[str], parse: Callable[[bytes], _T]) -> _T:
        """Return the parsed answer to a query; the event loop runs while a large one is parsed.

        Raises
        ------
        ControllerError
            The daemon does not answer, or with more than any Slurm has to say.
        CommandError, ConfigError
            As :meth:`query` does.
        ParseError
            The answer has another form.
        """
        return await parse_answer(argv, await self.query(argv), parse)

    async def _ask(self, argv: Sequence[str], timeout: float) -> bytes:
        await self._check_configuration(self._env)
        context = Context(cwd="/", env=question_environment(self._env))
        done = await self.transport.run(argv, context=context, timeout=timeout)
        return self.check_result(argv, done).stdout

    async def act(self, argv: Sequence[str]) -> Completed:
        """Run a command that changes jobs; the caller reads for which jobs it was refused.

        Raises
        ------
        ControllerError, ConfigError
            Slurm does not answer, or is not found: the outcome is unknown.
        """
        await self._check_configuration(self._env)
        context = Context(cwd="/", env=question_environment(self._env))
        done = await self.transport.run(argv, context=context, timeout=self._timeout)
        if (error := unanswered(argv, done)) is not None:
            raise error
        return done

    async def _check_configuration(self, env: Mapping[str, str]) -> None:
        """Report a missing slurm.conf at once: a command of Slurm would wait a minute for it."""
        path = env.get("SLURM_CONF")
        if not path or path in self._warned_commands:
            return
        try:
            await self.transport.stat(path)
            self._warned_commands.add(path)
        except FileNotFoundError:
            raise ConfigError(
                f"SLURM_CONF names {printable(path)}, which does not exist.",
                hint="Set SLURM_CONF to the slurm.conf of the cluster, or unset it if Slurm is found without it.",
            ) from None
        except TransportError:
            pass  # not readable, or the disk is unavailable: the command itself reports that

    def check_result(self, argv: Sequence[str], done: Completed) -> Completed:
        """Return ``done`` if successful, else raise the matching error."""
        if done.exit_code == 0:
            return done
        if (error := unanswered(argv, done)) is not None:
            raise error
        said = _output_text(done)
        details = {"argv": list(argv), "exit_code": done.exit_code, "stderr": said}
        raise CommandError(said, hint=next_step(argv[0], said), **details)

    async def queue(self) -> list[JobRecord]:
        """Run the poller's query: all jobs of the user that Slurm remembers."""
        mark = secrets.token_hex(8)
        return await self.read(queue.poll_argv(mark), lambda raw: queue.parse_poll(raw, mark))

    async def scripts(self) -> list[JobRecord]:
        """Query the script of each job of the user."""
        mark = secrets.token_hex(8)
        return await self.read(queue.lookup_argv(mark), lambda raw: queue.parse_lookup(raw, mark))

    async def output_files(self) -> list[JobRecord]:
        """Query the output files of each job of the user."""
        mark = secrets.token_hex(8)
        return await self.read(queue.files_argv(mark), lambda raw: queue.parse_files(raw, mark))

    async def find_script(self, path: str) -> JobRecord | None:
        """Find a job of the user by the path of its script, which is unique."""
        return next((record for record in await self.scripts() if queue.runs_script(record, path)), None)

    async def min_job_age(self) -> float:
        """Return for how many seconds after its end the controller remembers a job; infinite if it never forgets."""
        return job_memory(await self.configuration())

    async def describe(self, job: JobId) -> list[JobRecord]:
        """Ask slurmctld about a tracked job; return an empty list if slurmctld does not remember it."""
        await self.singles.acquire()
        return await self._describe(job)

    async def find_jobs(self, job: JobId) -> list[JobRecord]:
        """Ask slurmctld about a job named by the user; return an empty list if slurmctld does not remember it.

        Raises
        ------
        Throttled
            Too many jobs were named, for example in a loop over IDs.
        """
        await self.named.acquire(max_wait=_QUEUE_TIMEOUT_S)
        return await self._describe(job)

    async def _describe(self, job: JobId) -> list[JobRecord]:
        mark = secrets.token_hex(8)
        try:
            return await self.read(job_detail.detail_argv(job, mark), lambda raw: job_detail.parse_detail(raw, mark))
        except ControllerError:
            raise
        except CommandError:
            return []

    async def configuration(self) -> dict[str, str]:
        """Return ``scontrol show config`` as a mapping."""
        found = self._cached_configuration = await self.read(cluster.config_argv(), cluster.parse_config)
        return found

    async def cached_configuration(self) -> dict[str, str]:
        """Return the configuration of the last query; empty if unavailable."""
        try:
            return self._cached_configuration or await self.configuration()
        except SlurmError:
            return {}

    def forget_configuration(self) -> None:
        """Query the configuration again when next needed, because it seems to have changed."""
        self._cached_configuration = {}

    async def nodes(self) -> list[cluster.Node]:
        """Return the nodes."""
        mark = secrets.token_hex(8)
        return await self.read(cluster.nodes_argv(mark), lambda raw: cluster.parse_nodes(raw, mark))

    async def version(self) -> tuple[int, int] | None:
        """Return the version of the commands, as (22, 5)."""
        if self._version is None:
            found = re.search(rb"(\d{1,4})\.(\d{1,4})", await self.query(["sbatch", "--version"]))
            self._version = (int(found[1]), int(found[2])) if found else None
        return self._version

    async def options(self, command: str) -> OptionTable:
        """Return the options of a command in this Slurm with its plugins."""
        async with self._asking_options:
            if command not in self._tables:
                argv = [command, "--help"]
                if self._location.is_remote:  # few shells, which a controller that hangs may hold
                    version, told = await self.version(), await self.query(argv)
                else:
                    version, told = await asyncio.gather(self.version(), self.query(argv))
                self._tables[command] = OptionTable.for_command(command, version).with_help(decode_output(told))
            return self._tables[command]

    def submission_context(self, requested: api.Context) -> Context:
        """Return the context of sbatch from that of the cell: folder, environment, umask and limits."""
        limits = requested.get("limits") or {}
        return Context(
            cwd=requested.get("cwd") or self._location.home,
            env=submission_environment(self._environment(requested)),
            umask=requested.get("umask"),
            limits={
                k: v for k, v in limits.items() if re.fullmatch("[cdflmnpstv]", k) and re.fullmatch(r"\d+|unlimited", v)
            },
        )

    def _environment(self, requested: api.Context) -> Mapping[str, str]:
        """Return the environment set by a cell; over SSH, added to the environment that selects this Slurm."""
        env = requested.get("env")
        if env is None:
            return self._env
        return {**self._env, **env} if self._location.is_remote else env

    async def passthrough(
        self, argv: Sequence[str], requested: api.Context, *, parsed: bool, is_counted: bool = True
    ) -> Completed:
        """Run a command as typed by the user.

        Parameters
        ----------
        is_counted : bool
            Whether it counts as a query of the user: not if it repeats one, which would never have room for both.

        Raises
        ------
        Throttled
            The command comes too early: in a loop, one query is allowed every ten seconds.
        ControllerError, ConfigError
            Slurm does not answer, or is not found.
        """
        env = self._environment(requested)
        await self._check_configuration(env)
        bucket = self.cancels if argv[0] == "scancel" else self.people
        if is_counted and not _LOCAL_OPTIONS.intersection(argv):
            await bucket.acquire(max_wait=_SILENT_WAIT_S)
        if parsed:  # by the agent, but read by a user
            env = {**question_environment(env), "SLURM_TIME_FORMAT": env.get("SLURM_TIME_FORMAT") or "standard"}
        elif is_inside_job(env):
            env = submission_environment(env)
        context = Context(cwd=requested.get("cwd") or self._location.home, env=env, umask=requested.get("umask"))
        tries = _MAX_ATTEMPTS if is_repeatable(argv) else 1
        for left in range(tries - 1, -1, -1):
            begun = time.monotonic()
            done = await self.transport.run(argv, context=context, timeout=self._timeout)
            is_slow = time.monotonic() - begun > _CONTROLLER_RESTART_S  # the command itself has waited for an answer
            if not left or done.exit_code == 0 or is_slow or not is_silence(done.stderr, argv):
                break
            await asyncio.sleep(_CONTROLLER_RESTART_S)  # right after a restart the first call may fail
        if done.exit_code and _MISTYPED.search(done.stderr):
            bucket.return_tokens()  # it contacted no daemon
        if done.exit_code and (error := unanswered(argv, done)) is not None:
            raise error
        return done


def unanswered(argv: Sequence[str], done: Completed) -> SlurmError | None:
    """Return the error of a command that could not reach Slurm; None for any other complaint."""
    said = _output_text(done)
    details = {"argv": list(argv), "exit_code": done.exit_code, "stderr": said}
    if _NOWHERE.search(done.stderr):
        return ConfigError(
            f"Slurm is not found: {said.splitlines()[-1]}.",
            hint="On a login node, set SLURM_CONF to the path of slurm.conf, or over SSH `conf` under "
            "[slurm] in the profile. On a laptop, run `jupyter slurm init` in a terminal, then "
            f"`%slurm use CLUSTER` in a notebook. See {page_url('getting-started/quickstart-laptop')}",
            **details,
        )
    if is_silence(done.stderr, argv):
        return ControllerError(
            f"Slurm does not answer: {said}",
            hint="Try again in a minute. Jobs continue without the controller, and the last known state is shown.",
            **details,
        )
    return None


def _output_text(done: Completed) -> str:
    return printable(decode_output(done.stderr)).strip() or f"exit code {done.exit_code}"


def job_memory(configuration: Mapping[str, str]) -> float:
    """Return for how many seconds after its end the controller remembers a job; infinite if always, 0 if unknown."""
    age = parse_count(configuration.get("MinJobAge", "").partition(" ")[0])
    return 0.0 if age is None else age or math.inf


def cluster_name(configuration: Mapping[str, str], fallback: str) -> str:
    """Return Slurm's name for the cluster."""
    name = configuration.get("ClusterName", "")
    return name if re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name) else fallback


def next_step(command: str, message: str) -> str:
    """Return the user's next step after a refused command."""
    low = message.lower()
    help_of = "`%%sbatch?`" if command == "sbatch" else f"`%{command} --help`"
    if re.search(r"(?:unknown arguments|unrecognized option)[^|>]*(?:\||>)(?:\s|$)", low):
        return f"Leave out | and >, because no shell reads this line. Keep the output with `x = %{command} …`."
    rules = [
        (
            "invalid job id",
            ("The job has left the queue, or never was in it. `jupyter_slurm.jobs()` lists your jobs with their ends."),
        ),
        ("accounting storage is disabled", _NO_HISTORY),
        ("not running a supported accounting_storage", _NO_HISTORY),
        ("invalid user", "Check the user's name."),
        ("invalid partition", "`%sinfo -s` lists the partitions."),
        ("or use the --jobid option", "Name a running job: `%sbcast --jobid {job} FILE /tmp/FILE`."),
        (
            "access/permission denied",
            ("The job belongs to another user, or the command needs an operator: ask the administrators."),
        ),
        ("unrecognized option", f"{help_of} lists the options of this version."),
        ("invalid option", f"{help_of} lists the options of this version."),
    ]
    return next((hint for sign, hint in rules if sign in low), f"{help_of} shows its options.")


def printable(text: str) -> str:
    """Replace the invalid bytes of a text, so that it fits into JSON."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
