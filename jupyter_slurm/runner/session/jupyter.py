"""Search, start and queries of Jupyter in its job, for ``serve.py``. Python 3.8+, standard library only.

Imports before the start of Jupyter delay the user. Later imports and work compete with the start of Jupyter for the
single CPU that a job may have. So slow modules are imported only where needed.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import socket
import subprocess
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes as long to load as everything else in this module
    from typing import Any

if "load" not in globals():  # load() sets it in the modules that it loads
    import runpy

    loader = runpy.run_path(__file__[: -len("session/jupyter.py")] + "loader.py")
    load, path_of = loader["load"], loader["path_of"]
if TYPE_CHECKING:
    from jupyter_slurm.runner import proc
    from jupyter_slurm.runner.job_directory import JobDirectory
    from jupyter_slurm.runner.session import command
    from jupyter_slurm.runner.session.command import SessionStartError
else:
    command = load("session.command")
    proc = command.proc
    SessionStartError = command.SessionStartError


class NoJupyter(SessionStartError):
    """Missing Jupyter in this Python."""


_KINDS = ("jupyterlab", "notebook", "jupyter_server")
_INSTALLED = re.compile(
    r"(jupyterlab|notebook|jupyter[-_.]server)-(\d[^-]*)(-.*)?\.(dist-info|egg-info|egg)", re.IGNORECASE
)
_PORT_RETRIES = 200
_EARLY_POLL_S, _NEAR_POLL_S = (
    0.05,
    0.005,
)  # seconds between two checks: before Jupyter has written its file, and then until it answers
_MAX_ANSWER_TIMEOUT_S = 30.0  # seconds for an answer
_END_ALONE_S = 2.0  # seconds to end after SIGTERM without kernels and terminals
_BUSY_CPU_SHARE = 0.05  # share of a CPU; a kernel that waits for input uses less
_NOT_ITS_OWN = (
    *("JPY_", "JUPYTERHUB_", "NOTEBOOK_", "JUPYTER_TOKEN", "JUPYTER_PORT", "JUPYTER_RUNTIME_DIR"),
    *("JUPYTER_SERVER_URL", "JUPYTER_SERVER_ROOT"),
)
# Jupyter's own classes for files: what the user sets for one of them counts over the folder of the server.
_CONTENTS = ("FileContentsManager", "LargeFileManager", "AsyncFileContentsManager", "AsyncLargeFileManager")
_COOKIES = ("jupyter_cookie_secret", "notebook_cookie_secret")
# Without encryption, other users of the node could read the output of cells on a kernel's port. The server checks for
# support, because the check takes long.
_ENCRYPTION_SINCE = (2, 20)
_ENCRYPTED = """import zmq
from jupyter_client.manager import KernelManager
if zmq.has("curve") and hasattr(KernelManager, "transport_encryption"):  # an older one starts no kernel with it
    c.MappingKernelManager.transport_encryption = "auto"
"""
_ENDED_BY = "ended-by"  # written by module_start.py
_SIGNS = ("jpserver-", "nbserver-")


def find_jupyter() -> Any:
    """Return module and version of the newest Jupyter of this Python, and whether it is based on jupyter_server."""
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
        "Install it with jupyter=install, or choose another Python with env=NAME or python=PATH.",
    )


def get_jupyter(place: JobDirectory) -> None:
    """Continue in a Python that has Jupyter in addition to all packages of this one."""
    with contextlib.suppress(SessionStartError):
        find_jupyter()
        return
    install = load("session.install")

    def report(text: str) -> None:
        sys.stderr.write(text + "\n")
        place.stage(text)

    image = os.environ.get("JUPYTER_SLURM_CONTAINER", "").partition(" ")[2]
    try:
        python = install.python_with_jupyter(image, place.job["session"], report)
    except install.RuntimeRefused as error:
        raise SessionStartError(str(error)) from None
    os.execv(python, [python, "-u", *sys.argv])  # noqa: S606 - an argument list, as everywhere


def _version(name: str) -> Any:
    """Return the version of a distribution as text and as numbers; None: not installed."""
    text = _versions().get(name)
    return text and (text, tuple(int(part) for part in re.findall(r"\d+", text)[:2]))


@functools.lru_cache(maxsize=None)
def _versions() -> dict[str, str]:
    """Return the versions of the possible servers, from the folders of the import system.

    importlib.metadata takes as long to load as everything else in this module. So importlib.metadata is used only if
    the folders have no result.
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


def configuration(token: str, root: str, base_url: str, runtime: str, *, is_new: bool) -> dict[str, dict[str, object]]:
    """Return the configuration file of Jupyter; ``is_new``: served by jupyter_server, not by notebook < 7."""
    port = proc.random_port()
    told: dict[str, object] = {"ip": "127.0.0.1", "port": port, "port_retries": _PORT_RETRIES, "open_browser": False}
    told.update(base_url=base_url, allow_remote_access=False, allow_root=True)
    # Programs on one host name share their cookies, whatever their ports: browsers use a name of the session's own.
    told["local_hostnames"] = ["localhost", own_host(base_url)]
    # The user's own configuration files may set these for another Jupyter.
    told.update(allow_origin="", allow_origin_pat="", allow_credentials=False, disable_check_xsrf=False)
    told.update(certfile="", keyfile="", client_ca="", ssl_options={}, custom_display_url="", websocket_url="")
    told.update(
        runtime_dir=runtime, file_to_run="", shutdown_no_activity_timeout=0
    )  # the session has a rule of its own
    by_token = {"token": token, "password": "", "password_required": False}
    if not is_new:
        return {"NotebookApp": dict(told, notebook_dir=root, **by_token)}
    told.update(root_dir=root, preferred_dir=root, sock="")  # Jupyter refuses a preferred folder outside the root
    contents: dict[str, dict[str, object]] = {name: {"root_dir": root, "preferred_dir": ""} for name in _CONTENTS}
    server = _version("jupyter_server")
    if server and server[1] < (2,):
        return {"ServerApp": dict(told, **by_token), **contents}
    told["identity_provider_class"] = "jupyter_server.auth.identity.PasswordIdentityProvider"
    password = {"hashed_password": "", "password_required": False}
    return {"IdentityProvider": {"token": token}, "PasswordIdentityProvider": password, "ServerApp": told, **contents}


def own_host(base_url: str) -> str:
    """Return the name of this computer that only this session uses, from its key: browsers find it on the loopback."""
    return base_url.rstrip("/").rpartition("/")[2] + ".localhost"


def _remove(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def environment() -> dict[str, str]:
    """Return the environment of a server, without variables that another Jupyter has set for itself."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_ITS_OWN)}
    if not os.path.isdir(env.get("XDG_RUNTIME_DIR", "/")):
        del env["XDG_RUNTIME_DIR"]  # of the host that submitted the job
    proc.be_interactive(env)
    return env


class JupyterServer:
    """Jupyter server: its files, its process, and its queries.

    Parameters
    ----------
    place : JobDirectory
        Job directory (``job_directory.py``).
    """

    patience, pause = _MAX_ANSWER_TIMEOUT_S, _EARLY_POLL_S
    warnings: tuple[str, ...] = ()  # none: its configuration restricts it to the loopback

    def __init__(self, place: JobDirectory) -> None:
        asked, folder = place.job["session"], place.folder
        self.answer_timeout = max(1.0, min(_MAX_ANSWER_TIMEOUT_S, float(asked["idle"]) / 4))
        self.answered_at = self.checked_at = time.monotonic()
        self.silent = 0.0  # seconds without an answer
        self.work: dict[int, float] = {}  # seconds of CPU time by process
        self.directory, self._write, self.base_url = place, place.put, str(asked["base_url"])
        if asked.get("jupyter"):
            get_jupyter(place)
        self.module, self.version, self.is_new = find_jupyter()
        self.root, self.name = command.root_of(asked.get("dir")), str(place.job.get("label") or "")
        self.place = os.path.join(folder, "serving")
        self.runtime = os.path.join(self.place, "runtime")
        self.keeps = bool(place.job.get("resume"))
        self.host = own_host(self.base_url)
        self.port = 0
        self.process: Any = None

    def start(self) -> None:
        """Start the server."""
        runtime = self.runtime
        kept = self._read_secrets() if self.keeps else {}
        if os.path.lexists(self.place):  # of an earlier run: the job was requeued
            _remove(self.place)
        os.mkdir(self.place, 0o700)
        os.mkdir(runtime, 0o700)
        self.token = kept.pop("token", "") or os.urandom(32).hex()
        for name, text in kept.items():
            self._write(os.path.join(self.place, name), text)
        config = os.path.join(self.place, "jupyter_config.json")
        told = configuration(self.token, self.root, self.base_url, runtime, is_new=self.is_new)
        if self.module == "jupyterlab" and self.name:
            # A separate layout: otherwise several sessions with one home would open and close the tabs of each other.
            told["LabApp"] = {"default_url": "/lab/workspaces/" + self.name.replace(".", "-")}
        self._write(config, json.dumps(told))
        if self.is_new:
            marks = load("session.page_marks")
            more = marks.settings(self.directory, self.base_url, os.path.join(self.place, "static"))
            is_encrypted = (_version("jupyter_server") or ("", ()))[1] >= _ENCRYPTION_SINCE
            more += _ENCRYPTED if is_encrypted else ""
            self._write(os.path.join(self.place, "jupyter_config.py"), more)  # Jupyter reads both files
        self._write(os.path.join(self.place, "token"), self.token)
        self.process = subprocess.Popen(
            [sys.executable, path_of("module_start"), self.module, "--config=" + config],
            stdin=subprocess.DEVNULL,
            cwd=self.root,
            env=dict(environment(), JUPYTER_RUNTIME_DIR=runtime),
            preexec_fn=proc.dying_with_us(),
        )

    def _read_secrets(self) -> dict[str, str]:
        """Return the secrets of the previous run, so that logged-in users stay logged in."""
        found = {}
        for name in ("token", *(os.path.join("runtime", name) for name in _COOKIES)):
            path = os.path.join(self.place, name)
            with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as file:
                found[name] = file.read()
        return found

    def is_ready(self) -> bool:
        """Return whether the server answers."""
        code = self.process.poll()
        if code is not None:
            why, hint = f"ended before it was ready ({proc.describe_exit(code)})", "Read the last lines of its log."
            with contextlib.suppress(OSError):
                path = os.path.join(self.runtime, _ENDED_BY)
                with open(path, encoding="utf-8", errors="surrogateescape") as file:
                    why, hint = f"{why}: {file.read(4096)}, ended it", "Edit that configuration file, or rename it."
            raise SessionStartError(f"{self.module} {self.version} {why}.", hint)
        names = os.listdir(self.runtime)
        if not names:
            return False
        self.pause = _NEAR_POLL_S
        for name in names:
            if name.startswith(_SIGNS) and name.endswith(".json"):
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                    with open(os.path.join(self.runtime, name), encoding="utf-8") as file:
                        self.port = int(json.load(file)["port"])
                    return isinstance(self.query("api"), dict)
        return False

    def query(self, path: str) -> Any:
        """Return the answer of the server's API; None without an answer, or if another process has taken the port."""
        try:
            listens = proc.own_listeners(self.port, self.process.pid)
            if not listens:
                return None
            with socket.create_connection(("127.0.0.1", self.port), self.answer_timeout) as connection:
                if not listens & proc.own_listeners(self.port, self.process.pid):
                    return None
                return self._answer(connection, path)
        except (OSError, ValueError):
            return None

    def _answer(self, connection: socket.socket, path: str) -> Any:
        """Return the answer, which ends with the connection in HTTP/1.0. http.client takes long to load."""
        asked = f"GET {self.base_url}{path} HTTP/1.0\r\nHost: 127.0.0.1:{self.port}\r\n"
        connection.sendall(f"{asked}Authorization: token {self.token}\r\n\r\n".encode("ascii"))
        answer = bytearray()
        while piece := connection.recv(65_536):
            answer += piece
            self.answered_at = time.monotonic()
        head, _, body = bytes(answer).partition(b"\r\n\r\n")
        return json.loads(body.decode("utf-8")) if head.split(b" ")[1:2] == [b"200"] else None

    def unused_for(self) -> float:
        """Return the seconds without a request and without a busy kernel.

        A server that does not answer at all cannot be used: it counts as unused from its last answer on. A server
        counts as used while one of its processes computes: the computation may block the answer, and has a user.
        """
        began, before = time.monotonic(), self.checked_at
        status = self.query("api/status")
        is_at_work = self._is_at_work()
        if self.answered_at >= began or is_at_work:
            self.silent = 0.0
        if self.answered_at < began:
            return 0.0 if is_at_work else self._silent_for(self.checked_at - max(before, self.answered_at))
        kernels = self.query("api/kernels?no_track_activity=1")
        import datetime

        try:
            if any(kernel["execution_state"] == "busy" for kernel in kernels):
                return 0.0
            last = re.sub(r"(\.\d+)?(Z|\+00:00)$", "", status["last_activity"])
            at = datetime.datetime.strptime(last, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=datetime.timezone.utc)
            return time.time() - at.timestamp()
        except (KeyError, TypeError, ValueError):
            return 0.0  # busy, or without information: not known to be unused

    def _silent_for(self, passed: float) -> float:
        """Add the time since the previous check, at most that of two checks: a suspended job sends no requests."""
        if not self.silent:
            sys.stderr.write(
                f"{self.module} does not answer. If that goes on, and nothing that it has started computes, this "
                "session ends as one that nobody uses.\n"
            )
        self.silent += min(passed, 2 * self.answer_timeout)
        return self.silent

    def _is_at_work(self) -> bool:
        """Return whether one of its processes computes, from the CPU time used since the previous call."""
        looked, before = self.checked_at, self.work
        self.checked_at, self.work = time.monotonic(), proc.cpu_times(self.process.pid)
        enough = _BUSY_CPU_SHARE * (self.checked_at - looked)
        return any(seconds - before.get(pid, 0.0) > enough for pid, seconds in self.work.items())

    def end(self) -> None:
        """End the server and its kernels. Without kernels, extensions that are slow to end are not waited for."""
        proc.end_process(self.process, alone=_END_ALONE_S)
        if not self.keeps:
            _remove(self.place)  # the token is no longer needed
