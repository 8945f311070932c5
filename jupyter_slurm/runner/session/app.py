"""Server that has a private socket or a secret of its own, for ``serve.py``: named apps, and commands with a {socket}.

An app without a login listens on a Unix socket in a folder that only its user can open. Connections come through a gate
(``user_gate.py``). An app with a login reads its secret from a file. Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import tempfile

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes as long to load as everything else in this module
    from typing import Any

if "load" not in globals():  # load() sets it in the modules that it loads
    import runpy

    loader = runpy.run_path(__file__[: -len("session/app.py")] + "loader.py")
    load, path_of = loader["load"], loader["path_of"]
if TYPE_CHECKING:
    from jupyter_slurm.runner import proc
    from jupyter_slurm.runner.job_directory import JobDirectory
    from jupyter_slurm.runner.session import command
else:
    # That of ``serve.py``, which catches its errors.
    command = sys.modules.get("jupyter_slurm_session_command") or load("session.command")
    proc = command.proc

_MAX_SOCKET_PATH = 100  # bytes of the path of a Unix socket; unix(7) has room for 107
_VERSION_TIMEOUT_S = 5.0
_VERSION = re.compile(r"\d+(?:\.\d+)+\S*")
_PYTHON = re.compile(rb"(?:\A#!|exec' )\s*\"?(/[^\"\n]*?python[0-9.]*)")  # in the beginning of a script of pip
_SYSTEM_FOLDERS = ("/usr/lib/rstudio-server/bin", "/opt/code-server/bin")


class AppProcess(command.CommandProcess):  # type: ignore[misc, unused-ignore]  # its class is loaded
    """Server of an app.

    Parameters
    ----------
    place : JobDirectory
        Job directory (``job_directory.py``).
    env : dict
        Environment of the server.
    """

    def __init__(self, place: JobDirectory, env: dict[str, str]) -> None:
        super().__init__(place.job["session"], env)
        self._asked, self._place, self._folder = place.job["session"], place, ""
        self._gate: Any = None
        self.env["PATH"] = os.pathsep.join([self.env["PATH"], *_SYSTEM_FOLDERS])
        self._secrets = os.path.join(place.folder, "serving")
        self._keeps = bool(place.job.get("resume"))

    def start(self) -> None:
        """Write its files, open the gate, and start the server."""
        self._check_installed()
        kept, port = self._secrets_before() if self._keeps else ("", "")
        shutil.rmtree(self._secrets, ignore_errors=True)  # of an earlier run: the job was requeued
        self._folder = tempfile.mkdtemp(prefix="slurm-app-")
        if len(os.fsencode(self._folder)) > _MAX_SOCKET_PATH - len("/socket"):
            os.rmdir(self._folder)
            self._folder = tempfile.mkdtemp(prefix="slurm-app-", dir="/tmp")
        if any("{secret_file}" in word for word in self.words):
            os.mkdir(self._secrets, 0o700)
            secret, self.wanted_port = kept or os.urandom(32).hex(), int(port or 0)
            self._place.put(os.path.join(self._secrets, "token"), secret)
            # By default, marimo signs its cookies with another key in each run.
            self.env["MARIMO_SESSION_SECRET"] = hashlib.sha256(f"cookie {secret}".encode()).hexdigest()
        for name, text in (self._asked.get("files") or {}).items():
            self._place.put(os.path.join(self._folder, os.path.basename(name)), self._filled(text))
        if "unix:{socket}" in self.words:  # gunicorn adds the port to the path
            os.symlink("socket:0", self._socket)
        if self._socket:
            self._gate = self._opened_gate()
        super().start()
        if os.path.isdir(self._secrets):  # cookies are named after the port
            self._place.put(os.path.join(self._secrets, "port"), str(self.port))
        if self._gate is not None:
            self.port = self._gate.port

    def _secrets_before(self) -> tuple[str, str]:
        """Return the secret and the port of the previous run, so that logged-in users stay logged in."""
        found = {"token": "", "port": ""}
        for name in found:
            with contextlib.suppress(OSError, ValueError), open(
                os.path.join(self._secrets, name), encoding="ascii"
            ) as file:
                found[name] = file.read()
        return found["token"], found["port"] if found["port"].isdigit() else ""

    @property
    def _socket(self) -> str:
        """Path of its Unix socket; empty where it listens on a port."""
        return os.path.join(self._folder, "socket") if any("{socket}" in word for word in self.words) else ""

    def _filled(self, text: str) -> str:
        """Return a word of the command. No shell expands the home directory in the value of an app's keyword."""
        is_home = text.startswith("~/") and bool(self._asked.get("app"))
        return os.path.expanduser(text) if is_home else str(super()._filled(text))

    def _placeholders(self) -> dict[str, str]:
        values: dict[str, str] = super()._placeholders()
        values["{socket}"] = os.path.join(self._folder, "socket")
        values["{secret_file}"] = os.path.join(self._secrets, "token")
        values["{state}"] = self._folder
        values["{user}"] = pwd.getpwuid(os.getuid()).pw_name if "{user}" in " ".join(self.words) else ""
        return values

    def _opened_gate(self) -> Any:
        try:
            gate = load("session.user_gate").UserGate(self._socket)
        except proc.NoFreePort as error:
            raise command.SessionStartError(str(error), error.hint) from None
        gate.open()
        return gate

    def _check_installed(self) -> None:
        """Refuse an app that the node does not have, and read the version of another one."""
        app = self._asked.get("app")
        found = shutil.which(self.words[0], path=self.env["PATH"])
        if not app:
            return
        if found is None:
            raise command.SessionStartError(
                f"{proc.node_name()} has no {self.words[0]}, which app={app} needs.", str(self._asked.get("install"))
            )
        self.version = self._version(found)
        self._check_version()
        if app == "tensorboard":
            self._program = [_python_of(found), path_of("session.tensorboard_start")]

    def _check_version(self) -> None:
        """Refuse a version that is too old, and take the command of an older version that has another one."""
        lowest = str(self._asked.get("lowest") or "")
        if self.version and _numbers(self.version) < _numbers(lowest):
            app, node = self._asked.get("app"), proc.node_name()
            raise command.SessionStartError(
                f"{node} has {self.words[0]} {self.version}. app={app} needs {lowest} or newer.",
                str(self._asked.get("install")),
            )
        for since, words in (self._asked.get("older") or {}).items():
            if self.version and _numbers(self.version) < _numbers(since):
                self.words = list(words)

    def _version(self, found: str) -> str:
        """Return the version: of the Python package beside the program, else that which the program prints."""
        package = self._asked.get("package")
        if package:
            for path in {found, os.path.realpath(found)}:
                top = glob.escape(os.path.dirname(os.path.dirname(path)))
                pattern = os.path.join(top, "lib", "python3*", "site-packages", f"{package}-[0-9]*.dist-info")
                for folder in glob.glob(pattern):
                    return os.path.basename(folder)[len(str(package)) + 1 : -len(".dist-info")]
            return ""
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done: Any = subprocess.run(
                [found, "--version"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self.env,
                timeout=_VERSION_TIMEOUT_S,
            )
            match = _VERSION.search(done.stdout.decode("utf-8", "replace"))
            return match[0][:50] if match else ""
        return ""

    def is_ready(self) -> bool:
        """Return whether the server answers on its socket, or on its port."""
        if not self._socket:
            return bool(super().is_ready())
        code = self.process.poll()
        if code is not None:
            raise command.SessionStartError(
                f"{self.module} ended before it was ready ({proc.describe_exit(code)}).",
                "Read the last lines of its log. The command must stay in the foreground.",
            )
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(command.CONNECT_TIMEOUT_S)
            connection.connect(self._socket)
        except OSError:
            connection.close()
            return False
        self._ask(connection, "localhost")
        return True

    def end(self) -> None:
        """End the server, and remove its files."""
        super().end()
        if self._gate is not None:
            self._gate.close()
        for folder in filter(None, (self._folder, "" if self._keeps else self._secrets)):
            shutil.rmtree(folder, ignore_errors=True)


def _numbers(version: str) -> list[int]:
    """Return the numbers at the beginning of a version: 2 and 18 of 2.18rc1."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return [int(number) for number in match[0].split(".")] if match else []


def _python_of(program: str) -> str:
    """Return the Python of a program that pip has installed."""
    with open(program, "rb") as file:
        match = _PYTHON.search(file.read(1024))
    return os.fsdecode(match[1]) if match else sys.executable
