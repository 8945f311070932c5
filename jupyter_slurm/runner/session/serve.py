"""Server of a session inside its job: ``python -u serve.py JOBDIR``. Python 3.8+, standard library only.

The server is the newest Jupyter of this Python, or the command of the record (``command.py``). Jupyter listens on the
node's loopback, on a port that it binds itself, under the constant address of its session. The token is in a file that
only this user can read, and Jupyter reads it from another such file. Once the server answers, ``served.json`` in the
job directory contains its address. The session ends with its job, by itself, or after the time without use in the
record. ``end.json`` then says why. After SIGTERM it says only that the server has ended, so that nobody has to
wait for Slurm.

``python serve.py --check`` checks whether this Python has Jupyter: exit code 0, or 3 and the missing package.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes as long to load as everything else in this module
    from typing import Any


def _read_loader() -> Any:
    """Return the function that loads other files of the runner, which is not a package. runpy takes long to load."""
    told: dict[str, Any] = {"__name__": "loader", "__file__": __file__[: -len("session/serve.py")] + "loader.py"}
    with open(told["__file__"], encoding="utf-8") as file:
        exec(compile(file.read(), told["__file__"], "exec"), told)  # noqa: S102 - a file of the runner
    return told["load"]


load = _read_loader()
if TYPE_CHECKING:
    from jupyter_slurm.runner import proc
    from jupyter_slurm.runner.job_directory import JobDirectory
    from jupyter_slurm.runner.session import command, jupyter
    from jupyter_slurm.runner.session.command import SessionStartError
else:
    jupyter = load("session.jupyter")
    command, proc = jupyter.command, jupyter.proc
    SessionStartError = command.SessionStartError
LACKING = 3
_START_TIMEOUT_S = 300.0  # seconds for the first answer, also from a slow disk
_MEASURE_DELAY_S = 5.0  # seconds from its start without measurements, unless it answers earlier
_CHECK_INTERVAL_S = 1.0  # seconds between two checks of a server that answers
_OWN_USE_S = 2.0  # seconds of apparent use caused by the runner's own requests


def server_of(place: JobDirectory) -> Any:
    """Return the server of a session, not started yet."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(place.folder, "served.json"))  # of an earlier run
    place.stage("")
    asked = place.job["session"]
    if asked.get("ssh"):
        return load("session.ssh_server").SshServer(place, jupyter.environment())
    if not asked.get("command"):
        return jupyter.JupyterServer(place)
    if asked.get("app") or any("{socket}" in word for word in asked["command"]):
        return load("session.app").AppProcess(place, jupyter.environment())
    return command.CommandProcess(asked, jupyter.environment())


class SessionRun:
    """Server from its start to its end."""

    def __init__(self, place: JobDirectory) -> None:
        sys.stderr = load("job_directory").UncheckedModule(sys.stderr)  # a warning on a full disk ends no session
        self.place, self.is_ending, self.is_measured = place, False, False
        self.door: Any = None
        self.served: dict[str, object] = {}
        self.idle = float(place.job["session"]["idle"])
        self.before, self.ready = self._unused_before(), time.monotonic()
        # A sleep goes on after a signal; a wait for this pipe does not.
        self._wake, wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):  # in a step of an allocation, its holder sends SIGINT
            signal.signal(number, self._stop)

    def _stop(self, *_: Any) -> None:
        self.is_ending = True

    def _pause(self, seconds: float) -> None:
        """Wait, at most until a signal."""
        select.select([self._wake], [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)

    def run(self) -> int:
        """Serve until the end; return the exit code of the job."""
        server = None
        try:
            server = server_of(self.place)
            server.start()
            if self._await(server):
                self.ready = time.monotonic()
                self._write_served(server, self._door(server.port))
            return self._watch(server)
        except SessionStartError as error:
            if self.is_ending:
                return self._terminate(server)  # the signal has reached the server, too
            lacks = {"lacks": "jupyter"} if isinstance(error, jupyter.NoJupyter) else {}
            return self._give_up(str(error), error.hint, **lacks)
        except OSError as error:
            where = error.filename or self.place.folder
            return self._give_up(f"{where}: {error.strerror or error}.", "Check free space and your quota.")
        finally:
            if self.door is not None:
                self.door.close()
            if server is not None:
                server.end()

    def _give_up(self, why: str, hint: str, **more: str) -> int:
        with contextlib.suppress(OSError):  # on a full disk, this fails as well
            sys.stderr.write(f"{why} {hint}\n")
            self.place.end(1, session={"why": why, "hint": hint, **more})
        return 1

    def _await(self, server: Any) -> bool:
        """Wait for the first answer; False: the job is to end before."""
        began = time.monotonic()
        while not self.is_ending and not server.is_ready():
            if time.monotonic() > began + _START_TIMEOUT_S:
                raise SessionStartError(
                    f"{server.module} did not answer within {_START_TIMEOUT_S:g} s.", "Read its log."
                )
            if time.monotonic() > began + _MEASURE_DELAY_S:
                self._measure()
            self._pause(server.pause)
        return not self.is_ending

    def _measure(self) -> None:
        """Start to measure the usage, once, and not while the server starts and its user waits."""
        if not self.is_measured:
            self.is_measured = True
            load("lifecycle.usage").watch(self.place)

    def _door(self, port: int) -> Any:
        """Open the TLS door if the site requires it; return its entry for ``served.json``."""
        ports = self.place.job["session"].get("node_ports")
        if not ports:
            return None
        try:
            door = load("session.tls_door")
            self.door = door.TlsDoor(os.path.join(self.place.folder, door.NAME), ports, port)
        except (OSError, ValueError, ImportError) as error:
            why = f"{proc.node_name()} opens no port for this session: {error}"
            sys.stderr.write(f"{why}.\n")
            return {"error": why}
        self.door.open()
        return {"port": self.door.port}

    def _write_served(self, server: Any, door: Any) -> None:
        told = {"format": 1, "time": time.time(), "port": server.port, "pid": server.process.pid}
        gpus = os.environ.get("SLURM_GPUS_ON_NODE", "")
        told.update(server=server.module, version=server.version, nodes=os.environ.get("SLURM_JOB_NODELIST", ""))
        told.update(gpus=int(gpus) if gpus.isdigit() else 0, restarts=int(os.environ.get("SLURM_RESTART_COUNT") or 0))
        if door:
            told["door"] = door
        if getattr(server, "host", ""):
            told["host"] = server.host
        self.served = told
        self._put()

    def _put(self) -> None:
        self.place.put(os.path.join(self.place.folder, "served.json"), json.dumps(self.served))

    def _warn(self, warnings: list[str]) -> None:
        """Report the current problems of the server, or that there are none any more."""
        if warnings != self.served.get("warnings", []):
            self.served["warnings"] = warnings
            with contextlib.suppress(OSError):
                self._put()
            self.place.publish_event("warned")

    def unused(self, server: Any) -> float:
        """Return the seconds without use, plus those of earlier runs if nobody has used the session since."""
        unused, path = float(server.unused_for()), os.path.join(self.place.folder, "unused")
        if self.place.job.get("resume"):
            if unused + _OWN_USE_S >= time.monotonic() - self.ready:
                unused += self.before
            with contextlib.suppress(OSError):
                self.place.put(path, str(unused))
        return unused

    def _unused_before(self) -> float:
        path = os.path.join(self.place.folder, "unused")
        with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as file:
            return float(file.read())
        return 0.0

    def _watch(self, server: Any) -> int:
        looked = time.monotonic()
        while not self.is_ending:
            code = server.process.poll()
            if code is not None:
                why = f"{server.module} ended ({proc.describe_exit(code)})."
                said = {"why": why, "hint": "Read its log."} if code else {}
                self.place.end(128 - code if code < 0 else code, session=said)
                return 128 - code if code < 0 else int(code)
            if time.monotonic() - looked >= min(30.0, self.idle / 10):
                looked, unused = time.monotonic(), self.unused(server)
                self._warn(list(server.warnings))
                if unused >= self.idle:
                    why = f"This session was not used for {self.idle:g} s: it ends."
                    sys.stderr.write(why + "\n")
                    server.end()
                    self.place.end(0, session={"idle": self.idle})
                    return 0
            self._pause(_CHECK_INTERVAL_S)
            self._measure()
        return self._terminate(server)

    def _terminate(self, server: Any) -> int:
        """End the server after SIGTERM. The marker says so without a reason, which only Slurm knows."""
        if server is not None:
            server.end()
        self.place.end(143, terminated=True)
        return 143


def main() -> int:
    """Claim the directory, serve, record the end."""
    if sys.argv[1:] == ["--check"]:
        try:
            jupyter.find_jupyter()
        except SessionStartError as error:
            sys.stdout.write(json.dumps([str(error), error.hint]) + "\n")
            return LACKING
        return 0
    place = load("job_directory").JobDirectory(sys.argv[1])
    if not place.is_ours("serves this session"):
        return 0
    place.publish_event("started")
    return SessionRun(place).run()


if __name__ == "__main__":
    sys.exit(main())
