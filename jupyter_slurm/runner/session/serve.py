"""Serve a Jupyter inside its job: ``python -u serve.py JOBDIR``. Python 3.8+, standard library only.

It is the newest Jupyter that this Python has, or the command of the record (``command.py``). Jupyter listens on the
node's loopback, on a port that it binds itself, under the address that its session has for life; the token lies in a
file that only this user can read, and reaches Jupyter in another one. ``served.json`` in the job directory says where
the server listens, once it answers. It ends with its job, when nobody has used it for as long as the record says, or by
itself; ``end.json`` then says why.

``python serve.py --check`` tells whether this Python has a Jupyter: exit code 0, or 3 and what it lacks.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes as long as all the rest here
    from typing import Any


def _read_loader() -> Any:
    """Return what loads the other files of the runner, which are no package; runpy takes long to load itself."""
    told: dict[str, Any] = {"__name__": "loader", "__file__": __file__[: -len("session/serve.py")] + "loader.py"}
    with open(told["__file__"], encoding="utf-8") as file:
        exec(compile(file.read(), told["__file__"], "exec"), told)  # noqa: S102 - a file of ours
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
_START_TIMEOUT_S = 300.0  # seconds within which a server answers, also from a slow disk
_MEASURE_DELAY_S = 5.0  # seconds from its start for which it has the CPU to itself, unless it answers before
_CHECK_INTERVAL_S = 1.0  # seconds between two looks at one that answers
_OWN_USE_S = 2.0  # seconds by which what we ask a server may look like use


def server_of(place: JobDirectory) -> Any:
    """Return what a session runs, not started yet."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(place.folder, "served.json"))  # of a run before this one
    place.stage("")
    asked = place.job["session"]
    return (
        command.CommandProcess(asked, jupyter.environment()) if asked.get("command") else jupyter.JupyterServer(place)
    )


class SessionRun:
    """The server, from its first moment to its end."""

    def __init__(self, place: JobDirectory) -> None:
        self.place, self.is_ending, self.is_measured = place, False, False
        self.door: Any = None
        self.served: dict[str, Any] = {}
        self.idle = float(place.job["session"]["idle"])
        self.before, self.ready = self._unused_before(), time.monotonic()
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: Any) -> None:
        self.is_ending = True

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
            lacks = {"lacks": "jupyter"} if isinstance(error, jupyter.NoJupyter) else {}
            return self._give_up(str(error), error.hint, **lacks)
        except OSError as error:
            where = error.filename or self.place.folder
            return self._give_up(f"{where}: {error.strerror or error}.", "Is the disk full, or a quota used up?")
        finally:
            if self.door is not None:
                self.door.close()
            if server is not None:
                server.end()

    def _give_up(self, why: str, hint: str, **more: str) -> int:
        with contextlib.suppress(OSError):  # where there is no space, there is none for this
            sys.stderr.write(f"{why} {hint}\n")
            self.place.end(1, session={"why": why, "hint": hint, **more})
        return 1

    def _await(self, server: Any) -> bool:
        """Wait until it answers; False: it is to end before that."""
        began = time.monotonic()
        while not self.is_ending and not server.is_ready():
            if time.monotonic() > began + _START_TIMEOUT_S:
                raise SessionStartError(
                    f"{server.module} did not answer within {_START_TIMEOUT_S:g} s.", "Its log may say why."
                )
            if time.monotonic() > began + _MEASURE_DELAY_S:
                self._measure()
            time.sleep(server.pause)
        return not self.is_ending

    def _measure(self) -> None:
        """Begin to measure what is used, once: not while the server begins, whose person waits for it."""
        if not self.is_measured:
            self.is_measured = True
            load("lifecycle.usage").watch(self.place)

    def _door(self, port: int) -> Any:
        """Open another way in where the site wants one; return what is told of it."""
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
        self.served = told
        self._put()

    def _put(self) -> None:
        self.place.put(os.path.join(self.place.folder, "served.json"), json.dumps(self.served))

    def _warn(self, warnings: list[str]) -> None:
        """Tell what is wrong with the server, or that nothing is any more."""
        if warnings != self.served.get("warnings", []):
            self.served["warnings"] = warnings
            with contextlib.suppress(OSError):
                self._put()
            self.place.publish_event("warned")

    def unused(self, server: Any) -> float:
        """Return for how many seconds nobody has used it: with those of the runs before, if nobody came back since."""
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
                said = {"why": why, "hint": "Its log may say why."} if code else {}
                self.place.end(128 - code if code < 0 else code, session=said)
                return 128 - code if code < 0 else int(code)
            if time.monotonic() - looked >= min(30.0, self.idle / 10):
                looked, unused = time.monotonic(), self.unused(server)
                self._warn(list(server.warnings))
                if unused >= self.idle:
                    why = f"Nobody has used this session for {self.idle:g} s: it ends."
                    sys.stderr.write(why + "\n")
                    server.end()
                    self.place.end(0, session={"idle": self.idle})
                    return 0
            time.sleep(_CHECK_INTERVAL_S)
            self._measure()
        server.end()
        return 143  # Slurm says why it ends


def main() -> int:
    """Claim the directory, serve, tell the end."""
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
