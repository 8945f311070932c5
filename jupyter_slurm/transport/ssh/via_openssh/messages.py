"""OpenSSH's messages: its questions as prompts, and the cause of its end as an error.

Source: readpass.c, sshconnect.c and sshconnect2.c of OpenSSH 7.4 to 10; its messages are not translated.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from jupyter_slurm.errors import HostKeyRevoked, LoginFailed, SlurmError, TransportError
from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig
from jupyter_slurm.transport.ssh.hostkeys.host_key_verification import (
    changed_at,
    host_key_prompt,
    host_names,
    openssh_adds,
    unknown_key,
)
from jupyter_slurm.transport.ssh.keys.public_keys import SHORT_KEY_HINT, copy_key_hint
from jupyter_slurm.transport.ssh.prompts import Prompt, Question, printable
from jupyter_slurm.transport.ssh.protocols import ClosedEarly, LinkLost

__all__ = ["AskpassQuestion", "AskpassQuestions", "failure", "user_text"]

Meaning = Literal["secret", "host-key", "confirm", "notice"]

_DEBUG: Final = re.compile(
    r"debug[123]: .*|Authenticated (?:to|using|with) .*|Transferred: .*|Bytes per second: .*|OpenSSH_.*"
)
_REJECTED_TEXT: Final = "That was not accepted. Try again."
_KEY: Final = re.compile(r"(?<!\S)(\S+) key fingerprint is ((?:SHA256|MD5):[^\s]+?)\.?$", re.MULTILINE)
_TYPED: Final = re.compile(r"^debug1: Next authentication method: (?:password|keyboard-interactive)", re.MULTILINE)
_OFFER: Final = re.compile(r"^debug1: Offering public key: (\S+)", re.MULTILINE)

_AUTHENTICATED: Final = re.compile(r"^(?:debug1: )?Authenticated to ", re.MULTILINE)


@dataclass(frozen=True)
class AskpassQuestion:
    """A question of OpenSSH.

    Attributes
    ----------
    prompt : Prompt
        Prompt for the user.
    meaning : str
        Use of the answer: a ``secret`` is passed on, for ``host-key`` and ``confirm`` only yes counts, a ``notice`` has
        no answer.
    fingerprint : str
        Of the host key in question.
    """

    prompt: Prompt
    meaning: Meaning
    fingerprint: str = ""


class AskpassQuestions:
    """The questions of one login through all hosts of a route."""

    def __init__(self, route: Sequence[HostConfig]) -> None:
        self._route, self._answered = tuple(route), set[str]()

    def read(self, text: str, hint: str, process: int, message: str) -> AskpassQuestion:
        """Parse a question; ``process`` asks it, and ``said`` is the output before it."""
        host = self._host(text, process)
        if match := _KEY.search(text):
            remark = "keys of other types are known for this host" if "keys of different" in text else ""
            return AskpassQuestion(host_key_prompt(host, match[1], match[2], remark), "host-key", match[2])
        if hint == "none":
            return AskpassQuestion(Prompt(host.label, "keyboard-interactive", "OpenSSH", printable(text)), "notice")
        notice = "\n".join(part for part in (message, self._notice(host, text)) if part)
        if hint == "confirm":
            question = Question(f"{printable(text).strip()} (yes/no)", echo=True)
            return AskpassQuestion(
                Prompt(host.label, "keyboard-interactive", "OpenSSH", notice, (question,)), "confirm"
            )
        return AskpassQuestion(self._secret(host, text, notice), "secret")

    def _secret(self, host: HostConfig, text: str, notice: str) -> Prompt:
        if match := re.fullmatch(r"Enter passphrase for (?:\S+ )?key '(.*)': ?", text, re.DOTALL):
            wrong = "That passphrase is wrong." if _REJECTED_TEXT in notice else ""
            question = Question(f"Passphrase for {printable(match[1])}")
            return Prompt(host.label, "passphrase", "Your key is locked", wrong, (question,))
        if text.startswith("Enter PIN"):
            return Prompt(host.label, "passphrase", "Security key", notice, (Question(printable(text).strip()),))
        if re.fullmatch(r"\S{1,255}@\S{1,255}'s password: ?", text):
            question = Question(f"Password for {host.user}@{host.name}")
            return Prompt(host.label, "password", "Password", notice, (question,))
        asked = printable(re.sub(r"^\((\S{1,255}@\S{1,255})\) ", "", text)).strip()
        head, _, last = asked.rpartition("\n")
        instruction = "\n".join(part for part in (notice, head) if part)
        return Prompt(host.label, "keyboard-interactive", "", instruction, (Question(last or "Answer"),))

    def _notice(self, host: HostConfig, text: str) -> str:
        key = f"{host.name}\0{text}"
        again = key in self._answered
        self._answered.add(key)
        return _REJECTED_TEXT if again else ""

    def _host(self, text: str, process: int) -> HostConfig:
        """Return the asking host: the host to which the process connects, else the host in the question."""
        with contextlib.suppress(OSError), open(f"/proc/{process}/cmdline", "rb") as file:
            words = file.read().rstrip(b"\0").split(b"\0")
            for host in self._route[:-1]:  # the target stands at the end of the own command
                if words and words[-1].decode(errors="replace") == host.name:
                    return host
            if words and words[-1].decode(errors="replace") == self._route[-1].name:
                return self._route[-1]
        return _named(text, self._route) or self._route[-1]


def user_text(log: str) -> str:
    """Return OpenSSH's output for the user, without debug lines and messages reported otherwise."""
    lines = [line for line in log.replace("\r", "").split("\n") if line and not _DEBUG.fullmatch(line)]
    dull = ("Permission denied, please try again.", "Warning: Permanently added", "Pseudo-terminal will not")
    return printable("\n".join(line for line in lines if not line.startswith(dull)), 2000)


def _named(text: str, route: Sequence[HostConfig]) -> HostConfig | None:
    for host in route:
        where = re.escape(host.host_key_alias or host.hostname)
        if re.search(rf"(?<![\w.-]){re.escape(host.user)}@{where}(?![\w.-])", text, re.IGNORECASE):
            return host
    for host in route:
        for name in host_names(host):
            if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text, re.IGNORECASE):
                return host
    return None


# Causes of an end ----------------------------------------------------------------------------------------------------


def failure(log: str, route: Sequence[HostConfig], *, is_requested: bool) -> SlurmError:
    """Return the error for a login that ended with this log; ``asked``: the user has answered a question."""
    said = user_text(log)
    for find in (_host_key, _login_error, _reach, _odd):
        if (error := find(log, said, route)) is not None:
            return error
    host = _named(said.rpartition("\n")[2], route) or route[-1]
    last = said[-500:].strip() or "no reason given"
    if is_requested or log.count("SSH2_MSG_SERVICE_ACCEPT received") > len(
        _AUTHENTICATED.findall(log)
    ):  # during the login
        return LoginFailed(
            f"{host.label} ended the login: {last}",
            hint="Try again in a few minutes, or as the message says.",
            host=host.name,
            reason=last,
        )
    return LinkLost(
        f"{host.label} cannot be reached: {last}",
        hint="Check the network of this computer, and the VPN if the site needs one.",
        host=host.name,
    )


def _host_key(log: str, message: str, route: Sequence[HostConfig]) -> SlurmError | None:
    if "Host key verification failed" not in message and "host key" not in message.lower():
        return None
    revoked = re.search(
        r"host key for (\S+) (?:is marked as|was) revoked|Host key (\S+) (\S+) revoked by file", message
    )
    changed = re.search(r"Host key for (\S+) has changed", message)
    unknown = re.search(r"No (\S+) host key is known for (\S+) and you", message)
    line = next((match[0] for match in (revoked, changed, unknown) if match), "")
    host = _named(line, route) or _last_key_host(log, route)
    shown = re.findall(r"^debug1: Server host (?:key|certificate): (\S+) ([^\s,]+)", log, re.MULTILINE)
    kind, fingerprint = shown[-1] if shown else ("", "")
    full, kind = kind.partition("-cert-")[0], kind.removeprefix("ssh-").partition("-")[0].upper()
    facts = {"host": host.name, "fingerprint": fingerprint, "key_type": kind}
    if revoked:
        return HostKeyRevoked(
            f"The key of {host.label} was revoked: {fingerprint}.",
            hint="Do not connect. Ask the administrators of the host.",
            **facts,
        )
    if changed and (where := re.search(r"Offending (\S+) key in (.+):(\d+)", message)):
        return changed_at(host, fingerprint, full, where[2], int(where[3]))
    if "Host key verification failed" in message:
        return unknown_key(host, fingerprint, kind, openssh_adds(host))
    return None


def _last_key_host(log: str, route: Sequence[HostConfig]) -> HostConfig:
    """Return the host whose key was checked last."""
    found = re.findall(r"^debug1: Authenticating to (\S+?):(\d+) as '(.*)'", log, re.MULTILINE)
    for hostname, port, _ in reversed(found[-1:]):
        for host in route:
            if (host.hostname.lower(), str(host.port)) == (hostname.lower(), port):
                return host
    return route[-1]


def _login_error(log: str, message: str, route: Sequence[HostConfig]) -> SlurmError | None:
    tried = [f"key {path}" for path in dict.fromkeys(_OFFER.findall(log))]
    if "Too many authentication failures" in message:
        host = _named(message, route) or _last_key_host(log, route)
        return LoginFailed(
            f"{host.label} ended the login after too many attempts.{_list(tried)}",
            hint="The host limits the attempts (MaxAuthTries). If your ssh-agent holds many keys, name the "
            f"right one in ~/.ssh/config: Host {host.name}, IdentityFile …, IdentitiesOnly yes.",
            host=host.name,
            tried=tried,
        )
    match = re.search(r"^(.*): Permission denied \(([^)]*)\)\.?$", message, re.MULTILINE)
    if match is None:
        return None
    host, methods = _named(match[1], route) or route[-1], match[2].split(",")
    return LoginFailed(
        f"Login to {host.label} as {host.user} failed. The host accepts: {', '.join(methods)}.{_list(tried)}",
        hint=_hint(host, methods, tried, typed=_TYPED.search(log) is not None),
        host=host.name,
        tried=tried,
        methods=methods,
    )


def _hint(host: HostConfig, methods: Sequence[str], tried: Sequence[str], *, typed: bool) -> str:
    if any("gssapi" in method for method in methods) and not {"password", "keyboard-interactive"} & {*methods}:
        return (
            "Get a Kerberos ticket with `kinit`, and try again. `klist` shows your tickets. If ssh does "
            f"not use them, set `GSSAPIAuthentication yes` in ~/.ssh/config for Host {host.name}."
        )
    if host.batch_mode and {"password", "keyboard-interactive"} & {*methods}:
        return "Remove BatchMode from ~/.ssh/config for this host, because it forbids prompts."
    named = f"~/.ssh/config (IdentityFile, for Host {host.name})"
    if typed:
        return (
            f"Check that {host.user} is your user name on this host. Some sites lock an account for a "
            "while after several wrong answers."
        )
    if not tried and "publickey" in methods:
        return f"Create a key with `jupyter slurm init`, or name yours in {named}."
    return copy_key_hint(host, methods)


def _list(methods: Sequence[str]) -> str:
    return "".join(f"\n  {line}: refused" for line in methods)


def _reach(log: str, message: str, route: Sequence[HostConfig]) -> SlurmError | None:
    vpn = "Check the network of this computer, and the VPN if the site needs one."
    if match := re.search(r"Could not resolve hostname (\S+):", message):
        host = next((one for one in route if one.hostname.lower() == match[1].lower()), route[-1])
        return LinkLost(
            f"{host.label} cannot be reached: the name {host.hostname} is unknown.", hint=vpn, host=host.name
        )
    if match := re.search(r"connect to host (\S+) port (\d+): (.*)", message):
        host = next((one for one in route if one.hostname.lower() == match[1].lower()), route[0])
        reason, hint = match[3].strip(), vpn
        if "refused" in reason.lower():
            reason, hint = "connection refused", f"Check the name of the host and its port, {host.port}."
        elif "timed out" in reason.lower():
            reason = "no answer"
        return LinkLost(f"{host.label} cannot be reached: {reason}.", hint=hint, host=host.name)
    if re.search(r"^(?:kex|ssh)_exchange_identification: .*(?:closed|reset)", message, re.MULTILINE):
        by = re.search(r"^Connection (?:closed|reset) by (\S+) port", message, re.MULTILINE)
        host = next((one for one in route if by and one.hostname == by[1]), route[-1])
        return ClosedEarly(host.label, host.name)
    if match := re.search(r"open failed: (.*)", message):
        host, before = route[-1], route[-2].name if len(route) > 1 else "the host before it"
        return LinkLost(
            f"{host.label} cannot be reached: {match[1]}.",
            hint=f"Check the name of the host, and whether {before} may forward connections (AllowTcpForwarding).",
            host=host.name,
        )
    return None


def _odd(log: str, message: str, route: Sequence[HostConfig]) -> SlurmError | None:
    """Return a permanent error."""
    for words, hint in (
        (r"Bad configuration option.*|.*Bad owner or permissions.*", "Correct ~/.ssh/config, or the file it names."),
        (r"Bad server host key: .*", SHORT_KEY_HINT),
        (
            r"Unable to negotiate with .*",
            "Ask the administrators: the server is old, or ~/.ssh/config restricts the algorithms.",
        ),
        (
            r"ssh_askpass: exec.*",
            "Set c.JupyterSlurm.runtime_dir to a directory on another disk. This one may be mounted with noexec.",
        ),
        (r"unix_listener: .*|.*too long for Unix domain socket.*", "Set c.JupyterSlurm.runtime_dir to a shorter path."),
    ):
        if match := re.search(words, message):
            return TransportError(
                f"OpenSSH cannot connect to {route[-1].name}: {match[0][:500]}", hint=hint, host=route[-1].name
            )
    return None
