"""Execution of a command on the login node: live output, limits, exit code."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import pwd
import secrets
import signal
import time
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Final

from jupyter_slurm.domain.environment_variables import submission_environment
from jupyter_slurm.errors import AgentBusy, CommandError, ConfigError, UsageError
from jupyter_slurm.services.login_commands.login_shell import AfterStartup, ahead_argv, shell_argv
from jupyter_slurm.services.login_commands.output_queue import OutputQueue
from jupyter_slurm.services.slurm.client import printable
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.transport.base import Context, Transport

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["LoginCommands"]

_TIME_LIMIT_S: Final = 600
_CPU_LIMIT_S: Final = 300
_MAX_RUNNING: Final = 2  # a connection has few sessions, which jobs need, too
_RETRY_AFTER_S: Final = 5
_STREAMS: Final = {1: "stdout", 2: "stderr"}
_SHELL: Final = ["/bin/sh", "-c", 'printf "%s\\n" "$SHELL"']

Event = tuple[str, Mapping[str, object]]


class LoginCommands:
    """Commands on the login node of one cluster.

    Parameters
    ----------
    transport : Transport
        Runs the commands.
    location : ClusterLocation
        Location of the cluster, with the limits of its profile.
    """

    def __init__(self, transport: Transport, location: ClusterLocation) -> None:
        self._transport, self._location = transport, location
        limits = location.commands
        self._is_allowed = limits.get("allowed", True)
        self._time_limit = limits.get("time_limit", _TIME_LIMIT_S)
        self._cpu_limit = limits.get("cpu_limit", _CPU_LIMIT_S)
        self._starts_ahead = limits.get("start_ahead", True)
        self._mark = secrets.token_hex(16)  # one for all commands, because the next one may have started already
        self._running = 0
        self._shell: tuple[int, str] | None = None  # with the generation of the connection

    def check_allowed(self) -> None:
        """Refuse a command that the profile forbids, or one too many.

        Raises
        ------
        ConfigError
            The profile allows no commands on the login node.
        AgentBusy
            Two commands are running.
        """
        name = self._location.id
        if not self._is_allowed:
            raise ConfigError(
                f"The site profile of {name} does not allow commands on the login node.",
                hint="Run the command as a job: `%%sbatch` in a notebook, or `sbatch` in a terminal.",
            )
        if self._running >= _MAX_RUNNING:
            raise AgentBusy(
                f"{_MAX_RUNNING} commands are running on the login node of {name}, the maximum.",
                hint="Wait for their end, or run the command as a job.",
                retry_after=_RETRY_AFTER_S,
            )

    async def stream(self, text: str, context: api.Context) -> AsyncGenerator[Event, None]:
        """Run a text in the login shell; yield ``output`` events and a last ``end`` event.

        Closing the generator ends the command and its children.

        Raises
        ------
        CommandError
            The start-up files of the login shell ended it before the text began.
        TransportError
            The connection broke, or the command cannot be started.
        """
        if "\0" in text:
            raise UsageError("The command holds a NUL byte, which no shell can read.", hint="Remove the NUL byte.")
        self._running += 1
        try:
            async for event in self._stream(text, context):
                yield event
        finally:
            self._running -= 1

    async def _stream(self, text: str, context: api.Context) -> AsyncGenerator[Event, None]:
        output, began = OutputQueue(), time.monotonic()
        running = asyncio.ensure_future(self._run(text, context, output))
        running.add_done_callback(lambda done: output.close())
        after = {1: AfterStartup(self._mark), 2: AfterStartup(self._mark)}
        try:
            while (piece := await output.take()) is not None:
                stream, data = piece
                if data := after[stream].feed(data):
                    yield "output", {"stream": _STREAMS[stream], "data": base64.b64encode(data).decode("ascii")}
            exit_code = await running
        finally:
            output.close()
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await running
        reason = self._reason(exit_code, time.monotonic() - began)
        if not after[1].has_begun and not reason:
            raise self._not_begun(exit_code, after[1].noise + after[2].noise)
        yield "end", {"exit_code": exit_code, "reason": reason}

    async def _run(self, text: str, context: api.Context, output: OutputQueue) -> int:
        shell, is_login = await self._login_shell(), self._location.login_shell
        return await self._transport.run_live(
            shell_argv(shell, self._mark, is_login=is_login),
            text.encode("utf-8", "surrogateescape"),
            output.put,
            time_limit=self._time_limit,
            context=self._context(context),
            ahead=ahead_argv(shell, self._mark, is_login=is_login) if self._starts_ahead else None,
        )

    async def _login_shell(self) -> str:
        """Return the path of the user's login shell."""
        if not self._location.is_remote:
            try:
                return pwd.getpwuid(os.getuid()).pw_shell
            except KeyError:  # a container without the user
                return ""
        generation = self._transport.generation
        if self._shell is None or self._shell[0] != generation:
            done = await self._transport.run(_SHELL)
            self._shell = (generation, done.stdout.decode("utf-8", "surrogateescape").strip())
        return self._shell[1]

    def _context(self, requested: api.Context) -> Context:
        limits = {"t": f"{self._cpu_limit:.0f}"}
        if self._location.is_remote:
            return Context(limits=limits, env=self._location.environment)
        env = submission_environment(requested.get("env") or dict(os.environ))
        cwd = requested.get("cwd") or self._location.home
        limits = {**(requested.get("limits") or {}), **limits}
        return Context(cwd=cwd, env=env, umask=requested.get("umask"), limits=limits)

    def _reason(self, exit_code: int, seconds: float) -> str:
        """Return why a limit ended the command; empty if none did."""
        if exit_code == 128 + signal.SIGXCPU:
            return f"It used more than {self._cpu_limit:g} s of CPU time, the limit of the cluster."
        if exit_code in (128 + signal.SIGTERM, 128 + signal.SIGKILL) and seconds >= self._time_limit:
            return f"It ran for {self._time_limit:g} s, the time limit of the cluster."
        return ""

    def _not_begun(self, exit_code: int, noise: bytes) -> CommandError:
        said = printable(noise[-400:].decode("utf-8", "replace")).strip()
        return CommandError(
            "The start-up files of your login shell ended it before the command" + (f": {said}" if said else "."),
            hint="Check that they do not end the shell, replace it (exec fish) or redirect its output.",
            exit_code=exit_code,
        )
