"""Serve a Jupyter inside its job: ``python -u serve.py JOBDIR``. Python 3.8+, standard library only.

It is the newest Jupyter that this Python has, or the command of the record (``program.py``). Jupyter listens on the
node's loopback, on a port that it binds itself, under the address that its session has for life; the token lies in a
file that only this user can read, and reaches Jupyter in another one. ``served.json`` in the job directory says where
the server listens, once it answers. It ends with its job, when nobody has used it for as long as the record says, or by
itself; ``end.json`` then says why.

``python serve.py --check`` tells whether this Python has a Jupyter: exit code 0, or 3 and what it lacks.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import glob
import importlib
import json
import os
import re
import runpy
import secrets
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

# The files of the runner are no package: each is read by its path.
beside = runpy.run_path(__file__[: -len("serve.py")] + "beside.py")["beside"]
program: Any = beside("program")
CannotServe: Any = program.CannotServe


class NoJupyter(CannotServe):  # type: ignore[misc]  # it is read by its path
    """It is not installed for this Python."""


LACKING = 3
_KINDS = ("jupyterlab", "notebook", "jupyter_server")
_INSTALLED = re.compile(
    r"(jupyterlab|notebook|jupyter[-_.]server)-(\d[^-]*)(-.*)?\.(dist-info|egg-info|egg)", re.IGNORECASE
)
_RETRIES = 200
_STARTS = 300.0  # seconds within which a server answers, also from a slow disk
_QUICK, _SLOW = 0.02, 1.0  # seconds between two looks: while it starts, and afterwards
_PATIENCE = 30.0  # seconds for an answer
_WORKS = 0.05  # of a CPU; a kernel that waits for its person takes less
_SETTLES = 2.0  # seconds by which what we ask a server may look like use
_NOT_ITS_OWN = re.compile(r"(JPY_|JUPYTERHUB_|JUPYTER_(TOKEN|PORT|RUNTIME_DIR|SERVER_URL|SERVER_ROOT)|NOTEBOOK_)")
_COOKIES = ("jupyter_cookie_secret", "notebook_cookie_secret")
# Who is on the node could else read on a port of a kernel what its cells print. Asking takes long, and is done there.
_ENCRYPTS = (2, 20)
_ENCRYPTED = """import zmq
c.MappingKernelManager.transport_encryption = "auto" if zmq.has("curve") else "disabled"
"""
_SIGNS = ("jpserver-*.json", "nbserver-*.json")


def find_jupyter() -> Any:
    """Return the module of the newest Jupyter of this Python, its version, and whether it is of the new kind."""
    lab, notebook, server = map(_version, _KINDS)
    if lab and lab[1] >= (3,):
        return "jupyterlab", lab[0], True
    if notebook and notebook[1] >= (7,):
        return "notebook", notebook[0], True
    if server and not (lab or notebook):
        return "jupyter_server", server[0], True
    if lab:
        return "jupyterlab", lab[0], False
    if notebook:
        return "notebook", notebook[0], False
    raise NoJupyter(
        f"{sys.executable} has no Jupyter.",
        "jupyter=install in the launch puts one beside it; python=PATH and env=NAME choose another Python.",
    )


def get_jupyter(place: Any) -> None:
    """Go on as a Python that has a Jupyter, beside all that this one has."""
    with contextlib.suppress(CannotServe):
        find_jupyter()
        return
    install = beside("install")

    def say(text: str) -> None:
        sys.stderr.write(text + "\n")
        place.stage(text)

    image = os.environ.get("JUPYTER_SLURM_CONTAINER", "").partition(" ")[2]
    try:
        python = install.python_with_jupyter(image, place.job["session"], say)
    except install.Refused as error:
        raise CannotServe(f"{error}.") from None
    os.execv(python, [python, "-u", *sys.argv])  # noqa: S606 - an argument list, as everywhere


def _version(name: str) -> Any:
    """Return the version of a distribution as text and as numbers; None: it is not there."""
    text = _versions().get(name)
    return text and (text, tuple(int(part) for part in re.findall(r"\d+", text)[:2]))


@functools.lru_cache(maxsize=None)
def _versions() -> dict[str, str]:
    """Return the versions of what can serve, by the folders of the import system.

    importlib.metadata takes as long to load as all the rest here; it is asked where they tell nothing.
    """
    found: dict[str, str] = {}
    for folder in sys.path:
        with contextlib.suppress(OSError):
            for match in filter(None, map(_INSTALLED.fullmatch, os.listdir(folder or "."))):
                found.setdefault(re.sub("[-.]", "_", match[1].lower()), match[2])
    if found:
        return found
    from importlib import metadata

    for name in _KINDS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def configuration(token: str, root: str, base_url: str, *, is_new: bool) -> dict[str, Any]:
    """Return what Jupyter is told in a file; ``is_new``: it is served by jupyter_server, and not by notebook < 7."""
    port = program.FIRST + secrets.randbelow(program.LAST - program.FIRST)
    told: dict[str, Any] = {"ip": "127.0.0.1", "port": port, "port_retries": _RETRIES, "open_browser": False}
    told.update(base_url=base_url, allow_remote_access=False, allow_root=True)
    # Files of the person's own may say otherwise of another Jupyter.
    told.update(allow_origin="", certfile="", keyfile="", client_ca="", ssl_options={}, disable_check_xsrf=False)
    by_token = {"token": token, "password": "", "password_required": False}
    if not is_new:
        return {"NotebookApp": dict(told, notebook_dir=root, **by_token)}
    told.update(root_dir=root, sock="")
    server = _version("jupyter_server")
    if server and server[1] < (2,):
        return {"ServerApp": dict(told, **by_token)}
    told["identity_provider_class"] = "jupyter_server.auth.identity.PasswordIdentityProvider"
    password = {"hashed_password": "", "password_required": False}
    return {"IdentityProvider": {"token": token}, "PasswordIdentityProvider": password, "ServerApp": told}


def environment() -> dict[str, str]:
    """Return the environment of a server: what another Jupyter set for itself is not its own."""
    env = {name: value for name, value in os.environ.items() if not _NOT_ITS_OWN.match(name)}
    if not os.path.isdir(env.get("XDG_RUNTIME_DIR", "/")):
        del env["XDG_RUNTIME_DIR"]  # of the machine that the job comes from
    return env


class Server:
    """One Jupyter: its files, its process, and how it is asked.

    Parameters
    ----------
    place : Place
        Of the job (``cell.py``).
    """

    patience = _PATIENCE
    warnings: tuple[str, ...] = ()  # its configuration has it on the loopback

    def __init__(self, place: Any) -> None:
        asked, folder = place.job["session"], place.folder
        self.patience = max(1.0, min(_PATIENCE, float(asked["idle"]) / 4))
        self.heard = self.looked = time.monotonic()
        self.silent = 0.0  # seconds
        self.work: dict[int, float] = {}  # seconds of CPU time by process
        self._write, self.folder, self.base_url = place.put, folder, str(asked["base_url"])
        if asked.get("jupyter"):
            get_jupyter(place)
        self.module, self.version, self.is_new = find_jupyter()
        self.root, self.name = program.root_of(asked.get("dir")), str(place.job.get("label") or "")
        self.place = os.path.join(folder, "serving")
        self.keeps = bool(place.job.get("resume"))
        self.port = 0
        self.process: Any = None

    def start(self) -> None:
        """Start it."""
        runtime = os.path.join(self.place, "runtime")
        kept = self._kept() if self.keeps else {}
        shutil.rmtree(self.place, ignore_errors=True)  # of a run before this one: the job was requeued
        os.mkdir(self.place, 0o700)
        os.mkdir(runtime, 0o700)
        self.token = kept.pop("token", "") or secrets.token_hex(32)
        for name, text in kept.items():
            self._write(os.path.join(self.place, name), text)
        config = os.path.join(self.place, "jupyter_config.json")
        told = configuration(self.token, self.root, self.base_url, is_new=self.is_new)
        if self.module == "jupyterlab" and self.name:
            # A layout of its own: several in one home would else open and close what the others show.
            told["LabApp"] = {"default_url": "/lab/workspaces/" + self.name.replace(".", "-")}
        self._write(config, json.dumps(told))
        if self.is_new and (_version("jupyter_server") or ("", ()))[1] >= _ENCRYPTS:
            self._write(os.path.join(self.place, "jupyter_config.py"), _ENCRYPTED)  # it reads both
        self._write(os.path.join(self.place, "token"), self.token)
        self.process = subprocess.Popen(
            [sys.executable, "-m", self.module, "--config=" + config],
            stdin=subprocess.DEVNULL,
            cwd=self.root,
            env=dict(environment(), JUPYTER_RUNTIME_DIR=runtime),
            preexec_fn=program.dying_with_us(),
        )
        importlib.import_module("http.client")  # takes as long as all the rest here: best while the server begins

    def _kept(self) -> dict[str, str]:
        """Return the secrets of the run before this one: whoever was logged in still is."""
        found = {}
        for name in ("token", *(os.path.join("runtime", name) for name in _COOKIES)):
            path = os.path.join(self.place, name)
            with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as file:
                found[name] = file.read()
        return found

    def is_ready(self) -> bool:
        """Tell whether it answers."""
        code = self.process.poll()
        if code is not None:
            raise CannotServe(
                f"{self.module} {self.version} ended before it was ready ({program.words_of(code)}).",
                "The last lines of its log say why.",
            )
        for pattern in _SIGNS:
            for path in glob.glob(os.path.join(glob.escape(self.place), "runtime", pattern)):
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                    with open(path, encoding="utf-8") as file:
                        self.port = int(json.load(file)["port"])
                    return isinstance(self.ask("api"), dict)
        return False

    def ask(self, path: str) -> Any:
        """Return what its API says; None where it says nothing, or somebody else has taken its port."""
        import http.client

        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.patience)
        try:
            listens = program.own_listeners(self.port, self.process.pid)
            connection.connect()
            if not listens & program.own_listeners(self.port, self.process.pid):
                return None
            connection.request("GET", self.base_url + path, headers={"Authorization": "token " + self.token})
            answer = connection.getresponse()
            self.heard = time.monotonic()
            return json.loads(answer.read().decode("utf-8")) if answer.status == 200 else None
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()

    def unused_for(self) -> float:
        """Return for how many seconds nobody has asked it for anything and no kernel was at work.

        Nobody can use one that does not answer at all: from its last answer on it is unused. Not so while what it has
        started computes: that may be what keeps it from answering, and is somebody's work in any case.
        """
        began, before = time.monotonic(), self.looked
        status = self.ask("api/status")
        is_at_work = self._is_at_work()
        if self.heard >= began or is_at_work:
            self.silent = 0.0
        if self.heard < began:
            return 0.0 if is_at_work else self._silent_for(self.looked - max(before, self.heard))
        kernels = self.ask("api/kernels?no_track_activity=1")
        try:
            if any(kernel["execution_state"] == "busy" for kernel in kernels):
                return 0.0
            last = re.sub(r"(\.\d+)?(Z|\+00:00)$", "", status["last_activity"])
            at = datetime.datetime.strptime(last, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=datetime.timezone.utc)
            return time.time() - at.timestamp()
        except (KeyError, TypeError, ValueError):
            return 0.0  # it is busy, or tells nothing: not known to be unused

    def _silent_for(self, passed: float) -> float:
        """Count the time since the look before, though no more than two looks take: a suspended job asks nothing."""
        if not self.silent:
            sys.stderr.write(
                f"{self.module} does not answer. If that goes on, and nothing that it has started computes, this "
                "session ends as one that nobody uses.\n"
            )
        self.silent += min(passed, 2 * self.patience)
        return self.silent

    def _is_at_work(self) -> bool:
        """Tell whether something that it has started computes, by what the CPUs did since this was asked before."""
        looked, before = self.looked, self.work
        self.looked, self.work = time.monotonic(), program.cpu_times(self.process.pid)
        enough = _WORKS * (self.looked - looked)
        return any(seconds - before.get(pid, 0.0) > enough for pid, seconds in self.work.items())

    def end(self) -> None:
        """Have it end, with its kernels."""
        program.end(self.process)
        if not self.keeps:
            shutil.rmtree(self.place, ignore_errors=True)  # the token is of no use any more


def server_of(place: Any) -> Any:
    """Return what a session runs, not started yet."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(place.folder, "served.json"))  # of a run before this one
    place.stage("")
    asked = place.job["session"]
    return program.Program(asked, environment()) if asked.get("command") else Server(place)


class Session:
    """The server, from its first moment to its end."""

    def __init__(self, place: Any) -> None:
        self.place, self.is_ending = place, False
        self.door: Any = None
        self.told: dict[str, Any] = {}
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
            beside("usage").watch(self.place)  # now, since the server takes its time to begin
            if self._await(server):
                self.ready = time.monotonic()
                self._tell(server, self._door(server.port))
            return self._watch(server)
        except CannotServe as error:
            lacks = {"lacks": "jupyter"} if isinstance(error, NoJupyter) else {}
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
        deadline = time.monotonic() + _STARTS
        while not self.is_ending and not server.is_ready():
            if time.monotonic() > deadline:
                raise CannotServe(f"{server.module} did not answer within {_STARTS:g} s.", "Its log may say why.")
            time.sleep(_QUICK)
        return not self.is_ending

    def _door(self, port: int) -> Any:
        """Open another way in where the site wants one; return what is told of it."""
        ports = self.place.job["session"].get("node_ports")
        if not ports:
            return None
        try:
            door = beside("door")
            self.door = door.Door(os.path.join(self.place.folder, door.NAME), ports, port)
        except (OSError, ValueError, ImportError) as error:
            why = f"{program.node_name()} opens no port for this session: {error}"
            sys.stderr.write(f"{why}.\n")
            return {"error": why}
        self.door.open()
        return {"port": self.door.port}

    def _tell(self, server: Any, door: Any) -> None:
        told = {"format": 1, "time": time.time(), "port": server.port, "pid": server.process.pid}
        gpus = os.environ.get("SLURM_GPUS_ON_NODE", "")
        told.update(server=server.module, version=server.version, nodes=os.environ.get("SLURM_JOB_NODELIST", ""))
        told.update(gpus=int(gpus) if gpus.isdigit() else 0, restarts=int(os.environ.get("SLURM_RESTART_COUNT") or 0))
        if door:
            told["door"] = door
        self.told = told
        self._put()

    def _put(self) -> None:
        self.place.put(os.path.join(self.place.folder, "served.json"), json.dumps(self.told))

    def _warn(self, warnings: list[str]) -> None:
        """Tell what is wrong with the server, or that nothing is any more."""
        if warnings != self.told.get("warnings", []):
            self.told["warnings"] = warnings
            with contextlib.suppress(OSError):
                self._put()
            self.place.tell("warned")

    def unused(self, server: Any) -> float:
        """Return for how many seconds nobody has used it: with those of the runs before, if nobody came back since."""
        unused, path = float(server.unused_for()), os.path.join(self.place.folder, "unused")
        if self.place.job.get("resume"):
            if unused + _SETTLES >= time.monotonic() - self.ready:
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
                why = f"{server.module} ended ({program.words_of(code)})."
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
            time.sleep(_SLOW)
        server.end()
        return 143  # Slurm says why it ends


def main() -> int:
    """Claim the directory, serve, tell the end."""
    if sys.argv[1:] == ["--check"]:
        try:
            find_jupyter()
        except CannotServe as error:
            sys.stdout.write(json.dumps([str(error), error.hint]) + "\n")
            return LACKING
        return 0
    place = beside("cell").Place(sys.argv[1])
    if not place.is_ours("serves this session"):
        return 0
    place.tell("started")
    return Session(place).run()


if __name__ == "__main__":
    sys.exit(main())
