"""The agent as a separate process: main program of the started process.

The starter passes the settings as JSON on standard input and reads one word from standard output: ``ready``, ``busy``
(another agent is the leader), or nothing, in which case the log has the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import json
import logging
import logging.handlers
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from jupyter_slurm.agent.hosting.discovery import open_private
from jupyter_slurm.errors import ConfigError, SlurmError

if TYPE_CHECKING:
    from jupyter_slurm.config import Settings

__all__ = ["main"]

_log = logging.getLogger(__name__)

_MAX_LOG_BYTES = 1_000_000
_MAX_LOG_FILES = 2


def main() -> int:
    """Run the agent until it ends. ``--foreground``: stay attached, settings from files, log to standard error."""
    if sys.argv[1:] == ["--foreground"]:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
        return _serve(None, announce=False)
    try:
        values = json.loads(sys.stdin.buffer.read())
    except ValueError:
        sys.stderr.write("The agent is started by its clients, or with --foreground.\n")
        return 2
    _detach()
    return _serve(values, announce=True)


def _detach() -> None:
    """Leave session, terminal and directory of the starter, and become a child of init."""
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():  # not the leader of its session: the process can never acquire a terminal
        os._exit(0)
    os.chdir("/")
    os.umask(0o077)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def _serve(values: dict[str, object] | None, *, announce: bool) -> int:
    gc.disable()  # what is imported now stays: to look for garbage among it would delay the first cell
    from jupyter_slurm.agent.hosting.leader_election import LeaderElsewhere

    try:
        settings = _settings(values)
        if announce:
            _log_to_file(settings)
        asyncio.run(_run(settings, announce))
    except LeaderElsewhere:
        _announce("busy", announce)
    except SlurmError as error:
        _log.error("cannot start: %s", error)
        return 1
    except Exception:  # noqa: BLE001 - the border of the process: whatever it is, the log has it
        _log.exception("the agent failed")
        return 1
    return 0


def _settings(values: dict[str, object] | None) -> Settings:
    from traitlets import TraitError

    from jupyter_slurm.config import Settings, load_settings

    if values is None:
        return load_settings()
    try:
        return Settings(**values)
    except TraitError as error:
        raise ConfigError(
            f"The settings cannot be used: {error}",
            hint="Correct the settings in jupyter_slurm_config.py, or in the environment variables.",
        ) from None


async def _run(settings: Settings, announce: bool) -> None:
    from jupyter_slurm.agent.hosting.agent_host import AgentHost

    host = AgentHost(settings, "daemon")
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, host.leave)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    await host.start()
    gc.freeze()
    gc.enable()
    _announce("ready", announce)
    try:
        await host.wait()
    finally:
        await host.stop()


def _announce(text: str, announce: bool) -> None:
    """Notify the starter, and redirect standard output from its pipe to the log."""
    if not announce:
        return
    with contextlib.suppress(OSError):  # the starter may have gone; other clients will come
        os.write(1, text.encode() + b"\n")
    os.dup2(2, 1)


class _Log(logging.handlers.RotatingFileHandler):
    """A rotating log with mode 0600, which standard error follows, so that it includes a crash of the interpreter."""

    def _open(self) -> Any:
        fd = open_private(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.dup2(fd, 2)
        return open(fd, "a", encoding="utf-8", errors="backslashreplace")

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        """Do nothing: on a full disk, standard error is this file."""


def _log_to_file(settings: Settings) -> None:
    path = _starters_log(settings)
    if path is None:
        logging.basicConfig(level=logging.INFO, stream=sys.stderr)
        return
    handler = _Log(path, maxBytes=_MAX_LOG_BYTES, backupCount=_MAX_LOG_FILES)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    faulthandler.enable(2)


def _starters_log(settings: Settings) -> str | None:
    """Return the log that the starter has opened as standard error, or else one that can be written."""
    from jupyter_slurm.agent.hosting import log_file

    for path in (log_file.log_path(settings), log_file.usual_log_path(settings)):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(2), os.stat(path)):
                return path
    path_or_none, fd = log_file.open_log(settings)
    os.close(fd)
    return path_or_none
