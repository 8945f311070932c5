"""Client side of the authentication protocol on one connection, a message at a time.

paramiko's own handler signs with every key without asking whether the server accepts it (so a passphrase is asked for
in vain). It forgets which methods are left, keeps the password as long as the connection lives, and waits for a user in
the thread that reads the network. This class replaces the handler. It uses three private names of paramiko
(``_handler_table``, ``_send_message``, ``_auth_trigger``). Tests check them with the oldest and the newest release.

Sources: RFC 4252, RFC 4256.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import paramiko
from paramiko import Message
from paramiko.auth_handler import AuthHandler

from jupyter_slurm.transport.ssh.prompts import printable

__all__ = [
    "InfoRequest",
    "LoginAccepted",
    "LoginConnectionLost",
    "LoginRefused",
    "PasswordExpired",
    "Reply",
    "SignatureRequested",
    "Userauth",
]

T = TypeVar("T")

_SERVICE_REQUEST, _SERVICE_ACCEPT = 5, 6
_REQUEST, _FAILURE, _SUCCESS, _BANNER, _SIXTY, _INFO_RESPONSE = 50, 51, 52, 53, 60, 61
_ANSWER_TIMEOUT_S: Final = 120.0  # seconds for an answer of the server: some servers delay after a wrong password
_PUSH_TIMEOUT_S: Final = 600.0  # seconds: the server may wait for a telephone
_CHECK_INTERVAL_S: Final = 0.2  # seconds between two checks of the connection
_MAX_QUESTIONS: Final = 32


class LoginConnectionLost(Exception):
    """The connection ended; ``refusal``: the server closed it and gave a reason."""

    def __init__(self, reason: str, *, refusal: bool = False) -> None:
        super().__init__(reason)
        self.refusal = refusal


@dataclass(frozen=True)
class LoginAccepted:
    """The server accepted the login, or continues with the authentication."""


@dataclass(frozen=True)
class LoginRefused:
    """The server refused this method. ``methods`` may follow; ``partial``: it succeeded, and another is required."""

    methods: tuple[str, ...]
    partial: bool


@dataclass(frozen=True)
class SignatureRequested:
    """The server would accept this key."""


@dataclass(frozen=True)
class InfoRequest:
    """The server sent questions: their text, and whether the answer may be shown."""

    title: str
    instruction: str
    questions: tuple[tuple[str, bool], ...]


@dataclass(frozen=True)
class PasswordExpired:
    """The password is right, but has to be changed."""


Reply = LoginAccepted | LoginRefused | SignatureRequested | InfoRequest | PasswordExpired


class Userauth(AuthHandler):  # type: ignore[misc]
    """Authentication of one user on one verified transport, from a thread that may block.

    Parameters
    ----------
    transport : paramiko.Transport
        Transport after the key exchange.
    user : str
        User name on the server.

    Attributes
    ----------
    notice, remark : str
        The server's messages beside its answers: all, and those since the last request.
    """

    def __init__(self, transport: paramiko.Transport, user: str) -> None:
        super().__init__(transport)
        self.username = user
        self.notice = ""
        self.remark = ""
        self._link = transport
        self._method = ""
        self._replies: queue.SimpleQueue[Reply | None] = queue.SimpleQueue()
        self._server_message = ""
        # paramiko only logs the reason of a disconnect, which the user has to know ("Too many authentication …").
        transport._parse_disconnect = self._disconnected

    # In the transport's thread

    @property
    def _handler_table(self) -> dict[int, Callable[[Message], None]]:
        return {
            _SERVICE_ACCEPT: lambda _: self._replies.put(LoginAccepted()),
            _SUCCESS: self._succeeded,
            _FAILURE: self._failed,
            _BANNER: self._banner,
            _SIXTY: self._sixty,
        }

    def _succeeded(self, _: Message) -> None:
        self.authenticated = True
        self._link._auth_trigger()
        self._replies.put(LoginAccepted())

    def _failed(self, message: Message) -> None:
        methods = tuple(printable(message.get_binary(), 1024).split(","))
        self._replies.put(LoginRefused(methods, message.get_boolean()))

    def _banner(self, message: Message) -> None:
        text = printable(message.get_binary())
        self.notice = printable(f"{self.notice}{text}\n")
        self.remark = printable(f"{self.remark}{text}\n")

    def _sixty(self, message: Message) -> None:
        """Read the message whose meaning depends on the method."""
        if self._method == "publickey":
            self._replies.put(SignatureRequested())
        elif self._method == "password":
            self._replies.put(PasswordExpired())
        else:
            title, instruction = printable(message.get_binary()), printable(message.get_binary())
            message.get_binary()  # the language
            count = message.get_int()
            if count > _MAX_QUESTIONS:
                raise paramiko.SSHException(f"{count} questions at once")
            asked = tuple((printable(message.get_binary(), 1024), message.get_boolean()) for _ in range(count))
            self._replies.put(InfoRequest(title, instruction, asked))

    def _disconnected(self, message: Message) -> None:
        message.get_int()
        self._server_message = printable(message.get_binary(), 500)

    def abort(self) -> None:
        """Wake the waiting thread: the transport has ended."""
        self._replies.put(None)

    # In the login's thread

    def request_service(self) -> None:
        """Request the service.

        Raises
        ------
        LoginConnectionLost
        """
        self._link.auth_handler = self
        message = Message()
        message.add_byte(bytes([_SERVICE_REQUEST]))
        message.add_string("ssh-userauth")
        self._send(message)
        self._reply(_ANSWER_TIMEOUT_S)

    def request(self, method: str, *fields: str | bytes | bool) -> Reply:
        """Try a method, and return the server's answer.

        Raises
        ------
        LoginConnectionLost
        """
        self._method, self.remark = method, ""
        self._send(self._request(method, fields))
        return self._reply(_PUSH_TIMEOUT_S if method == "keyboard-interactive" else _ANSWER_TIMEOUT_S)

    def signed_text(self, algorithm: str, blob: bytes) -> bytes:
        """Return the text that a key's signature covers (RFC 4252, section 7)."""
        message = Message()
        message.add_string(self._link.session_id)
        return bytes(message.asbytes() + self._request("publickey", (True, algorithm, blob)).asbytes())

    def answer(self, answers: Sequence[str], on_wait: Callable[[], None] = lambda: None) -> Reply:
        """Answer the questions. ``meanwhile`` is called periodically while the server works, and may raise.

        Raises
        ------
        LoginConnectionLost
        """
        message = Message()
        message.add_byte(bytes([_INFO_RESPONSE]))
        message.add_int(len(answers))
        for text in answers:
            message.add_string(text)
        self._send(message)
        return self._reply(_PUSH_TIMEOUT_S, on_wait)

    def wait(self, future: Future[T]) -> T:
        """Wait for another party while the connection lives.

        Raises
        ------
        LoginConnectionLost
        """
        while True:
            try:
                return future.result(_CHECK_INTERVAL_S)
            except TimeoutError:
                if future.done():
                    return future.result()
                if not self._link.is_active():
                    future.cancel()
                    raise self._lost() from None

    def _request(self, method: str, fields: Sequence[str | bytes | bool]) -> Message:
        message = Message()
        message.add_byte(bytes([_REQUEST]))
        for text in (self.username, "ssh-connection", method):
            message.add_string(text)
        for field in fields:
            if isinstance(field, bool):
                message.add_boolean(field)
            else:
                message.add_string(field)
        return message

    def _send(self, message: Message) -> None:
        try:
            self._link._send_message(message)
        except (OSError, EOFError, paramiko.SSHException):
            raise self._lost() from None

    def _reply(self, timeout: float, on_wait: Callable[[], None] = lambda: None) -> Reply:
        deadline = time.monotonic() + timeout
        while True:
            try:
                reply = self._replies.get(timeout=_CHECK_INTERVAL_S)
            except queue.Empty:
                on_wait()
                if not self._link.is_active():
                    raise self._lost() from None
                if time.monotonic() > deadline:
                    raise LoginConnectionLost(f"no answer within {timeout:.0f} s") from None
                continue
            if reply is None:
                raise self._lost()
            return reply

    def _lost(self) -> LoginConnectionLost:
        if self._server_message:
            return LoginConnectionLost(f"it hung up: {self._server_message}", refusal=True)
        reason: Any = self._link.get_exception()
        said = printable(str(reason or ""), 500)
        return LoginConnectionLost(f"the connection ended ({said})" if said else "it hung up")
