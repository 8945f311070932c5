"""Serve a Jupyter inside its job: ``python -u serve.py JOBDIR``. Python 3.8+, standard library only.

It is the newest Jupyter that this Python has. It listens on the node's loopback, on a port that it binds itself, under
the address that its session has for life; the token lies in a file that only this user can read, and reaches Jupyter in
another one. ``served.json`` in the job directory says where it listens, once it answers. It ends with its job, when
nobody has used it for as long as the record says, or by itself; ``end.json`` then says why.

``python serve.py --check`` tells whether this Python has a Jupyter: exit code 0, or 3 and what it lacks.
"""

from __future__ import annotations

import contextlib
import datetime
import glob
import http.client
import json
import os
import re
import runpy
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

LACKING = 3
_FIRST, _LAST = 20_000, 32_000  # ports that systems do not hand out by themselves
_RETRIES = 200
_STARTS = 300.0  # seconds within which a Jupyter answers, also from a slow disk
_ENDS = 10.0  # seconds for its kernels to end
_QUICK, _SLOW = 0.1, 1.0  # seconds between two looks: while it starts, and afterwards
_PATIENCE = 30.0  # seconds for an answer
_NOT_ITS_OWN = re.compile(r"(JPY_|JUPYTERHUB_|JUPYTER_(TOKEN|PORT|RUNTIME_DIR|SERVER_URL|SERVER_ROOT)|NOTEBOOK_)")
_PR_SET_PDEATHSIG = 1
_SIGNS = ("jpserver-*.json", "nbserver-*.json")


class CannotServe(Exception):
    """There will be no Jupyter; the message and ``hint`` are for the person."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def find_jupyter() -> Any:
    """Return the module of the newest Jupyter of this Python, its version, and whether it is of the new kind."""
    versions = {name: _version(name) for name in ("jupyterlab", "notebook", "jupyter_server")}
    lab, notebook, server = (versions[name] for name in ("jupyterlab", "notebook", "jupyter_server"))
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
    raise CannotServe(
        f"{sys.executable} has no Jupyter.",
        f"{shlex.quote(sys.executable)} -m pip install jupyterlab gives it one; python=PATH and env=NAME "
        "choose another Python.",
    )


def _version(name: str) -> Any:
    """Return the version of a distribution as text and as numbers; None: it is not there."""
    from importlib import metadata

    try:
        text = metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
    return text, tuple(int(part) for part in re.findall(r"\d+", text)[:2])


def configuration(token: str, root: str, base_url: str, *, is_new: bool) -> dict[str, Any]:
    """Return what Jupyter is told in a file; ``is_new``: it is served by jupyter_server, and not by notebook < 7."""
    port = _FIRST + secrets.randbelow(_LAST - _FIRST)
    told: dict[str, Any] = {"ip": "127.0.0.1", "port": port, "port_retries": _RETRIES, "open_browser": False}
    told.update(base_url=base_url, allow_remote_access=False, allow_root=True)
    # Files of the person's own may say otherwise of another Jupyter.
    told.update(allow_origin="", certfile="", keyfile="", disable_check_xsrf=False)
    if not is_new:
        return {"NotebookApp": dict(told, notebook_dir=root, token=token, password="")}
    told["root_dir"] = root
    server = _version("jupyter_server")
    if server and server[1] < (2,):
        return {"ServerApp": dict(told, token=token, password="")}
    identity = {"IdentityProvider": {"token": token}, "PasswordIdentityProvider": {"hashed_password": ""}}
    return dict(identity, ServerApp=told)


def environment(runtime: str) -> dict[str, str]:
    """Return the environment of Jupyter: what another Jupyter set for itself is not its own."""
    env = {name: value for name, value in os.environ.items() if not _NOT_ITS_OWN.match(name)}
    if not os.path.isdir(env.get("XDG_RUNTIME_DIR", "/")):
        del env["XDG_RUNTIME_DIR"]  # of the machine that the job comes from
    env["JUPYTER_RUNTIME_DIR"] = runtime
    return env


def _die_with_parent() -> None:
    """Have the kernel tell Jupyter to end when this process is gone, however it goes."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


class Server:
    """One Jupyter: its files, its process, and how it is asked.

    Parameters
    ----------
    place : Place
        Of the job (``cell.py``).
    """

    def __init__(self, place: Any) -> None:
        asked, folder = place.job["session"], place.folder
        self._write, self.folder, self.base_url = place.put, folder, str(asked["base_url"])
        self.module, self.version, self.is_new = find_jupyter()
        self.root = _root(asked.get("dir"))
        self.place = os.path.join(folder, "serving")
        self.token = secrets.token_hex(32)
        self.port = 0
        self.process: Any = None

    def start(self) -> None:
        """Start it."""
        runtime = os.path.join(self.place, "runtime")
        shutil.rmtree(self.place, ignore_errors=True)  # of a run before this one: the job was requeued
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.folder, "served.json"))
        os.mkdir(self.place, 0o700)
        os.mkdir(runtime, 0o700)
        config = os.path.join(self.place, "jupyter_config.json")
        told = configuration(self.token, self.root, self.base_url, is_new=self.is_new)
        self._write(config, json.dumps(told))
        self._write(os.path.join(self.place, "token"), self.token)
        self.process = subprocess.Popen(
            [sys.executable, "-m", self.module, "--config=" + config],
            stdin=subprocess.DEVNULL,
            cwd=self.root,
            env=environment(runtime),
            preexec_fn=_die_with_parent,
        )

    def is_ready(self) -> bool:
        """Tell whether it answers."""
        for pattern in _SIGNS:
            for path in glob.glob(os.path.join(glob.escape(self.place), "runtime", pattern)):
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                    with open(path, encoding="utf-8") as file:
                        self.port = int(json.load(file)["port"])
                    return isinstance(self.ask("api"), dict)
        return False

    def ask(self, path: str) -> Any:
        """Return what its API says; None where it says nothing."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE)
        try:
            connection.request("GET", self.base_url + path, headers={"Authorization": "token " + self.token})
            answer = connection.getresponse()
            return json.loads(answer.read().decode("utf-8")) if answer.status == 200 else None
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()

    def unused_for(self) -> float:
        """Return for how many seconds nobody has asked it for anything and no kernel was at work."""
        status, kernels = self.ask("api/status"), self.ask("api/kernels?no_track_activity=1")
        try:
            if any(kernel["execution_state"] == "busy" for kernel in kernels):
                return 0.0
            last = re.sub(r"(\.\d+)?(Z|\+00:00)$", "", status["last_activity"])
            at = datetime.datetime.strptime(last, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=datetime.timezone.utc)
            return time.time() - at.timestamp()
        except (KeyError, TypeError, ValueError):
            return 0.0  # it is busy, or tells nothing: not known to be unused

    def end(self) -> None:
        """Have it end, with its kernels."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(_ENDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _root(wanted: Any) -> str:
    """Return the folder that Jupyter shows."""
    root = os.path.join(os.getcwd(), os.path.expanduser(wanted)) if wanted else os.getcwd()
    if not os.path.isdir(root):
        raise CannotServe(f"{os.uname().nodename} has no folder {root}.", "dir=FOLDER names one that the node sees.")
    return root


class Session:
    """The server, from its first moment to its end."""

    def __init__(self, place: Any) -> None:
        self.place, self.is_ending = place, False
        self.idle = float(place.job["session"]["idle"])
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: Any) -> None:
        self.is_ending = True

    def run(self) -> int:
        """Serve until the end; return the exit code of the job."""
        server = None
        try:
            server = Server(self.place)
            server.start()
            self._await(server)
            self._tell(server)
            return self._watch(server)
        except CannotServe as error:
            sys.stderr.write(f"{error} {error.hint}\n")
            self.place.end(1, session={"why": str(error), "hint": error.hint})
            return 1
        finally:
            if server is not None:
                server.end()
                shutil.rmtree(server.place, ignore_errors=True)  # the token is of no use any more

    def _await(self, server: Server) -> None:
        """Wait until it answers."""
        deadline = time.monotonic() + _STARTS
        while not self.is_ending and not server.is_ready():
            if server.process.poll() is not None:
                code = server.process.returncode
                raise CannotServe(
                    f"{server.module} {server.version} ended before it was ready ({_code(code)}).",
                    "The last lines of its log say why.",
                )
            if time.monotonic() > deadline:
                raise CannotServe(f"Jupyter did not answer within {_STARTS:g} s.", "Its log may say why.")
            time.sleep(_QUICK)

    def _tell(self, server: Server) -> None:
        told = {"format": 1, "time": time.time(), "port": server.port, "pid": server.process.pid}
        gpus = os.environ.get("SLURM_GPUS_ON_NODE", "")
        told.update(server=server.module, version=server.version, nodes=os.environ.get("SLURM_JOB_NODELIST", ""))
        told["gpus"] = int(gpus) if gpus.isdigit() else 0
        self.place.put(os.path.join(self.place.folder, "served.json"), json.dumps(told))

    def _watch(self, server: Server) -> int:
        looked = time.monotonic()
        while not self.is_ending:
            code = server.process.poll()
            if code is not None:
                said = {"why": f"Jupyter ended ({_code(code)}).", "hint": "Its log may say why."} if code else {}
                self.place.end(128 - code if code < 0 else code, session=said)
                return 128 - code if code < 0 else int(code)
            if time.monotonic() - looked >= min(30.0, self.idle / 10):
                looked = time.monotonic()
                if server.unused_for() >= self.idle:
                    why = f"Nobody has used this session for {self.idle:g} s: it ends."
                    sys.stderr.write(why + "\n")
                    server.end()
                    self.place.end(0, session={"idle": self.idle})
                    return 0
            time.sleep(_SLOW)
        server.end()
        return 143  # Slurm says why it ends


def _code(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def main() -> int:
    """Claim the directory, serve, tell the end."""
    if sys.argv[1:] == ["--check"]:
        try:
            find_jupyter()
        except CannotServe as error:
            sys.stdout.write(json.dumps([str(error), error.hint]) + "\n")
            return LACKING
        return 0
    beside = runpy.run_path(__file__[: -len("serve.py")] + "beside.py")["beside"]
    place = beside("cell").Place(sys.argv[1])
    if not place.is_ours("serves this session"):
        return 0
    place.tell("started")
    return Session(place).run()


if __name__ == "__main__":
    sys.exit(main())
