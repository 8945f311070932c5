"""Login by OpenSSH, which continues in the background as a master, and whose questions are passed to the user.

Sources: ssh(1) (``SSH_ASKPASS``), ssh_config(5).
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from importlib import resources
from typing import Any, Final

from jupyter_slurm.domain.scripts.script import quote_argv
from jupyter_slurm.errors import CommandMissing, LoginDeclined, LoginFailed, SlurmError, TransportError
from jupyter_slurm.transport.peer_credentials import is_same_user
from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig
from jupyter_slurm.transport.ssh.hostkeys.host_key_verification import is_yes
from jupyter_slurm.transport.ssh.prompts import Asker, Prompt
from jupyter_slurm.transport.ssh.protocols import LinkLost
from jupyter_slurm.transport.ssh.via_openssh.login_target import LoginTarget, MasterSockets
from jupyter_slurm.transport.ssh.via_openssh.messages import AskpassQuestion, AskpassQuestions, failure, user_text
from jupyter_slurm.transport.ssh.via_openssh.private_folder import write_private

__all__ = ["OpenSshLogin"]

_CHECK_INTERVAL_S: Final = 0.05  # seconds between two checks whether OpenSSH is done
_SILENCE_TIMEOUT_S: Final = 45.0  # seconds without output of OpenSSH and without a question, after which it is given up
_MAX_LOG_BYTES: Final = 16 << 20  # bytes of OpenSSH's output during a login, with the messages of the hosts
_NOTICE_DELAY_S: Final = 1.0  # seconds after which a host's message without a question is shown by itself
_JUMP_HOST_TIMEOUT_S: Final = 660  # seconds for a host behind others to answer: a user logs in to those meanwhile
_FIRST_HOST_TIMEOUT_S: Final = 30  # seconds
_SYSTEM_CONFIG: Final = "/etc/ssh/ssh_config"
# The first value wins: the user's file, which follows, does not change these.
_PREFACE: Final = """Host *
    ServerAliveInterval 5
    ServerAliveCountMax 2
    ControlMaster no
    FingerprintHash sha256
    VisualHostKey no
    UpdateHostKeys no
    ForwardAgent no
    ForwardX11 no
    PermitLocalCommand no
    ExitOnForwardFailure no
    GatewayPorts no
    Tunnel no
"""


class OpenSshLogin:
    """One login attempt.

    Parameters
    ----------
    target : LoginTarget
        Destination.
    route : sequence of HostConfig
        The hosts of the route, from the configuration.
    asker : Asker
        Asks the user.
    sockets : MasterSockets
        Control sockets of the master.
    on_line : callable, optional
        Called with OpenSSH's ``-v`` output as it arrives.
    """

    def __init__(
        self,
        target: LoginTarget,
        route: Sequence[HostConfig],
        asker: Asker,
        sockets: MasterSockets,
        on_line: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._target, self._route, self._asker, self._hops = target, tuple(route), asker, sockets.hops
        self._path, self._idle, self._on_line, self._reported_lines = sockets.path, sockets.idle, on_line, 0
        self._log = f"{sockets.path}.log"
        self._desk_path = os.path.join(os.path.dirname(sockets.path), secrets.token_hex(5))
        self._questions = AskpassQuestions(route)
        self._lock = threading.Lock()
        self._read, self._open, self._answered = 0, 0, False
        self._is_key_last = False  # the last answer has accepted a host key
        self._broken: BaseException | None = None
        self._declined, self._closed = threading.Event(), threading.Event()

    def close(self) -> None:
        """End the attempt at any point."""
        self._closed.set()

    def run(self) -> None:
        """Log in, and leave a master running.

        Raises
        ------
        LoginDeclined, LoginFailed, HostKeyError, LinkLost
            As with paramiko.
        CommandMissing
            OpenSSH is not installed.
        """
        try:
            self._run()
        except (LinkLost, LoginFailed) as error:
            # A host hangs up while the user is asked about its key (LoginGraceTime); now the key is known.
            is_late = self._is_key_last and (isinstance(error, LinkLost) or "reason" in error.details)
            if not is_late or self._closed.is_set():
                raise
            self._is_key_last, self._read, self._reported_lines = False, 0, 0
            self._run()

    def _run(self) -> None:
        desk = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            desk.bind(self._desk_path)
            os.chmod(self._desk_path, 0o600)
            desk.listen(4)
            desk.settimeout(_CHECK_INTERVAL_S)
            process = self._start()
            try:
                self._attend(process, desk)
            finally:
                if process.poll() is None:
                    _end(process)
                with contextlib.suppress(OSError):
                    if os.stat(self._log).st_size > _MAX_LOG_BYTES:
                        os.truncate(self._log, 0)
        finally:
            desk.close()
            with contextlib.suppress(OSError):
                os.unlink(self._desk_path)

    # OpenSSH --------------------------------------------------------------------------------------------------------

    def _start(self) -> subprocess.Popen[bytes]:
        folder = os.path.dirname(self._path)
        write_private(f"{self._path}.conf", self._config().encode(), 0o600)
        helper = str(resources.files("jupyter_slurm.transport.ssh.via_openssh") / "askpass.py")
        program = _executable(folder, f'#!/bin/sh\nexec {quote_argv([sys.executable, "-I", "-S", helper])} "$@"\n')
        for hop in self._hops.values():  # of a broken login: they would block the path for the next
            with contextlib.suppress(FileNotFoundError):
                os.unlink(hop)
        argv = ["ssh", "-F", f"{self._path}.conf", "-v", "-M", "-N", "-T", "-S", self._path.replace("%", "%%")]
        for option in (f"ControlPersist={max(1, round(self._idle))}", "ClearAllForwardings=yes", "ControlMaster=yes"):
            argv += ["-o", option]
        argv += [*self._target.options, "--", self._target.name]
        log = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=self._environment(program),
                start_new_session=True,
            )
        except FileNotFoundError:
            raise CommandMissing(
                "There is no `ssh` on the PATH of this computer.",
                hint='Install OpenSSH, or set carrier = "paramiko" under [login] in the profile.',
                argv=["ssh"],
            ) from None
        finally:
            os.close(log)

    def _environment(self, program: str) -> Mapping[str, str]:
        ours = {"SSH_ASKPASS": program, "SSH_ASKPASS_REQUIRE": "force", "JUPYTER_SLURM_ASK": self._desk_path}
        # Before 8.4, OpenSSH uses SSH_ASKPASS only with a display and without a terminal.
        return {"DISPLAY": "none:0", **os.environ, **ours}

    def _config(self) -> str:
        """Return the configuration: the required settings, then those of the user and the system."""
        lines = []
        for number, host in enumerate(self._route):
            behind = number > 0 or host.proxy_command is not None
            timeout = _JUMP_HOST_TIMEOUT_S if behind else round(host.connect_timeout or _FIRST_HOST_TIMEOUT_S)
            lines += [f"Host {host.name}", f"    StrictHostKeyChecking {host.strict}", f"    ConnectTimeout {timeout}"]
            if path := self._hops.get(host.name):  # for the life of the connection through the host
                place = path.replace("%", "%%")
                lines += ["    ControlMaster yes", f'    ControlPath "{place}"', "    ControlPersist no"]
        own = self._target.config_file
        files = [own] if own else [os.path.join(pwd.getpwuid(os.getuid()).pw_dir, ".ssh", "config"), _SYSTEM_CONFIG]
        include = "".join(f'Include "{os.path.abspath(file)}"\n' for file in files if file.lower() != "none")
        return "\n".join(lines) + "\n" + _PREFACE + include

    def _attend(self, process: subprocess.Popen[bytes], desk: socket.socket) -> None:
        """Wait for OpenSSH's end, and answer its questions meanwhile."""
        notice = _Notice(self._asker, self._route[-1].label)
        size, changed = 0, time.monotonic()
        try:
            while process.poll() is None:
                with contextlib.suppress(TimeoutError):
                    client, _ = desk.accept()
                    notice.end()
                    threading.Thread(target=self._serve, args=(client,), name="jupyter-slurm-ask", daemon=True).start()
                    changed = time.monotonic()
                self._check_cancelled()
                before, size = size, os.stat(self._log).st_size
                if size != before or self._open:
                    changed = time.monotonic()
                if size != before:
                    self._check_size(size)
                    self._pass_on()
                quiet = time.monotonic() - changed
                if quiet > _SILENCE_TIMEOUT_S:
                    raise self._failure("no answer")
                if quiet > _NOTICE_DELAY_S and not self._open and (said := self._new_user_text()):
                    notice.show(said)
                if notice.is_declined:
                    self._declined.set()
        finally:
            notice.end()
            self._pass_on()
        self._check_cancelled()
        if process.returncode != 0:
            raise self._failure("")

    def _check_size(self, size: int) -> None:
        if size > _MAX_LOG_BYTES:
            host = self._route[-1]
            raise LinkLost(
                f"The login to {host.label} was ended, because a host sends messages without an end.",
                hint=f"Check the login in a terminal: `ssh {host.name}`.",
                host=host.name,
            )

    def _pass_on(self) -> None:
        """Pass on the output since the last call."""
        with open(self._log, "rb") as file:
            file.seek(self._reported_lines)
            data = file.read(1 << 20)
        self._reported_lines += len(data)
        self._on_line(data.decode("utf-8", "replace"))

    def _check_cancelled(self) -> None:
        if self._broken is not None:
            raise self._broken
        if self._closed.is_set():
            raise LinkLost(f"The connection to {self._route[-1].label} was closed.", host=self._route[-1].name)
        if self._declined.is_set():
            host = self._route[-1]
            raise LoginDeclined(
                f"The login to {host.label} was not answered.",
                hint="Connect again, and answer the prompt in time.",
                host=host.name,
            )

    def _failure(self, more: str) -> SlurmError:
        with open(self._log, "rb") as file:
            log = file.read(1 << 20).decode("utf-8", "replace")
        return failure(log + more, self._route, is_requested=self._answered)

    def _new_user_text(self) -> str:
        """Return the output for the user since the last call."""
        with self._lock, open(self._log, "rb") as file:
            file.seek(self._read)
            text = file.read(1 << 16).decode("utf-8", "replace")
            self._read = file.tell()
        return user_text(text)

    # Questions ------------------------------------------------------------------------------------------------------

    def _serve(self, client: socket.socket) -> None:
        """Answer one question. Its end, or that of the asking process, withdraws it."""
        with self._lock:
            self._open += 1
        try:
            with client, contextlib.suppress(OSError, ValueError, EOFError):
                client.settimeout(10)
                if not is_same_user(client):
                    return
                question = json.loads(_line(client))
                said = self._new_user_text()
                asked = self._questions.read(question["text"], question["hint"], int(question["process"]), said)
                answer = self._answer(asked, client)
                while self._declined.is_set() and not _wait_closed(client):
                    pass  # OpenSSH would take a missing answer for an empty one and continue, so it is ended
                client.sendall(json.dumps(answer).encode() + b"\n")
        finally:
            with self._lock:
                self._open -= 1

    def _answer(self, question: AskpassQuestion, client: socket.socket) -> str | None:
        future = self._asker.start(question.prompt)
        client.settimeout(_CHECK_INTERVAL_S)
        try:
            while not future.done():
                if self._closed.is_set() or _wait_closed(client):
                    return None
            answers = future.result()
        except CancelledError:
            answers = None
        except Exception as error:  # noqa: BLE001 - the login reports it
            self._broken, answers = error, None
            self._declined.set()
        finally:
            future.cancel()
            client.settimeout(10)
        if question.meaning == "notice":
            if answers is None:
                self._declined.set()
            return None
        self._answered = True
        self._is_key_last = False
        if question.meaning == "host-key":
            self._is_key_last = answers is not None and is_yes(answers[0], question.fingerprint)
            return "yes" if self._is_key_last else "no"
        if answers is None:
            self._declined.set()
            return None
        if any(0xD800 <= ord(char) <= 0xDFFF for char in answers[0]):
            host = self._route[-1]
            self._broken = LoginFailed(
                f"The answer for {question.prompt.host} cannot be sent, because it is not UTF-8 text.",
                hint="Type it again, and check the encoding of the terminal and the keyboard.",
                host=host.name,
            )
            self._declined.set()
            return None
        if question.meaning == "confirm":
            return "yes" if answers[0].strip().lower() in ("yes", "y") else None
        return answers[0]


class _Notice:
    """A notice shown while OpenSSH waits: "press 1 on your phone"."""

    def __init__(self, asker: Asker, host: str) -> None:
        self._asker, self._host = asker, host
        self._prompt: Any = None

    def show(self, text: str) -> None:
        """Show the notice in place of the previous one."""
        self.end()
        self._prompt = self._asker.start(Prompt(self._host, "keyboard-interactive", "", text))

    def end(self) -> None:
        """Withdraw the notice."""
        if self._prompt is not None:
            self._prompt.cancel()
            self._prompt = None

    @property
    def is_declined(self) -> bool:
        """Return whether the user declined to wait."""
        shown = self._prompt
        return shown is not None and shown.done() and not shown.cancelled() and shown.result() is None


def _executable(folder: str, text: str) -> str:
    """Write a small program, and return its path; a directory mounted noexec raises an error."""
    path = os.path.join(folder, "askpass")
    write_private(path, text.encode("utf-8", "surrogateescape"), 0o700)
    if not os.access(path, os.X_OK):
        raise TransportError(
            f"Programs in {folder} cannot be run: the file system may be mounted with noexec.",
            hint="Set c.JupyterSlurm.runtime_dir to a directory of yours on another local disk.",
        )
    return path


def _line(client: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n") and len(data) < 1 << 16:
        piece = client.recv(1 << 12)
        if not piece:
            raise EOFError
        data += piece
    return data


def _wait_closed(client: socket.socket) -> bool:
    """Wait a moment, and return whether the peer has closed meanwhile."""
    try:
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """End OpenSSH, and the processes that it started for jump hosts."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 15)
    try:
        process.wait(2)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()
