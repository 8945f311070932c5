"""Verification of host keys by known_hosts, and the user's decision about unknown keys.

Sources: sshd(8), SSH_KNOWN_HOSTS FILE FORMAT; ssh_config(5). Measured against ``ssh`` and ``ssh-keygen -F``.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, MutableSet, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from jupyter_slurm.domain.scripts.script import quote_argv
from jupyter_slurm.errors import HostKeyChanged, HostKeyError, HostKeyRevoked, HostKeyUnknown
from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig
from jupyter_slurm.transport.ssh.hostkeys.known_hosts_entries import KnownHostEntry, entries_for, hashed_name
from jupyter_slurm.transport.ssh.keys.public_keys import (
    CERTIFICATE,
    SHORT_KEY_HINT,
    bare_key,
    certificate,
    fault,
    fingerprint,
    in_revoked_file,
    key_type,
    short_key_reason,
    signer,
)
from jupyter_slurm.transport.ssh.prompts import Prompt, Question

__all__ = [
    "HostKeyVerdict",
    "add",
    "changed_at",
    "check_host_key",
    "host_key_order",
    "host_key_prompt",
    "host_names",
    "is_yes",
    "may_confirm_key",
    "openssh_adds",
    "unknown_key",
    "verify",
]

log = logging.getLogger(__name__)

_NOWHERE: Final = os.devnull
_KINDS: Final = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)
_ALGORITHMS: Final = (*(kind + CERTIFICATE for kind in _KINDS), *_KINDS)


@dataclass(frozen=True)
class HostKeyVerdict:
    """Result of the verification of a host's key.

    Attributes
    ----------
    status : str
        ``known``, ``unknown``, ``changed`` or ``revoked``.
    fingerprint, key_type : str
        Those of the offered key, as ``ssh-keygen -l`` prints them.
    name : str
        The name in known_hosts: ``host`` or ``[host]:port``.
    entry : KnownHostEntry or None
        The decisive line.
    remark : str
        Why a certificate was not accepted.
    """

    status: Literal["known", "unknown", "changed", "revoked"]
    fingerprint: str
    key_type: str
    name: str
    entry: KnownHostEntry | None = None
    remark: str = ""


def host_names(host: HostConfig) -> list[str]:
    """Return the names under which a host is looked up; for a non-default port, the plain name comes second.

    A key that differs under the second name does not count as changed: it may be of another host.
    """
    if host.host_key_alias:
        return [name.lower() for name in (host.host_key_alias, host.host_key_second) if name]
    plain = host.hostname.lower()
    return [plain] if host.port == 22 else [f"[{plain}]:{host.port}", plain]


def _files(host: HostConfig) -> list[str]:
    return [*host.user_known_hosts, *host.global_known_hosts]


def check_host_key(host: HostConfig, blob: bytes, *, clock: Callable[[], float] = time.time) -> HostKeyVerdict:
    """Judge the key or certificate that a host offered, as ``ssh`` would."""
    names = host_names(host)
    first = _check_entries(host, names[0], blob, clock())
    if first.status == "unknown" and len(names) > 1:
        plain = _check_entries(host, names[1], blob, clock())
        if plain.status in ("known", "revoked"):
            return plain
    return first


def _check_entries(host: HostConfig, name: str, blob: bytes, now: float) -> HostKeyVerdict:
    entries = list(entries_for(name, _files(host)))
    plain, found, remark = bare_key(blob), certificate(blob), ""
    authority = signer(found) if found is not None else None

    def verdict(
        status: Literal["known", "unknown", "changed", "revoked"], entry: KnownHostEntry | None
    ) -> HostKeyVerdict:
        return HostKeyVerdict(status, fingerprint(plain), key_type(plain), name, entry, remark)

    for entry in entries:
        if entry.marker == "revoked" and bare_key(entry.blob) in (plain, authority):
            return verdict("revoked", entry)
    if found is not None:
        principal = name if host.host_key_alias else host.hostname.lower()
        for entry in entries:
            if entry.marker == "cert-authority" and entry.blob == authority:
                remark = fault(found, blob, principal, now, host.ca_signature_algorithms) or ""
                if not remark:
                    return verdict("known", entry)
    others = [entry for entry in entries if not entry.marker]
    for entry in others:
        if entry.blob == plain:
            return verdict("known", entry)
    same_type = [entry for entry in others if entry.key_type == key_type(plain)]
    # A key of another type beside known keys counts as changed, as in OpenSSH: the host was asked for the known types
    # first, and did not have them.
    return verdict("changed", [*same_type, *others][0]) if others else verdict("unknown", None)


def host_key_order(host: HostConfig, available: Sequence[str] = _ALGORITHMS) -> list[str]:
    """Return host key algorithms in the order of preference, so that the host offers a known key.

    Parameters
    ----------
    available : sequence of str
        Supported algorithms, those of certificates under their own names. Algorithms that the configuration excludes
        are left out.
    """
    wanted = [name for name in host.host_key_algorithms if name in available] or list(available)
    first, *more = host_names(host)
    entries = list(entries_for(first, _files(host)))
    if not entries and host.host_key_second:
        entries = list(entries_for(more[0], _files(host)))
    known = {entry.key_type for entry in entries if not entry.marker}
    authority = any(entry.marker == "cert-authority" for entry in entries)
    asked = [name for name in wanted if (authority and name.endswith(CERTIFICATE)) or _key_type(name) in known]
    return list(dict.fromkeys([*asked, *wanted]))


def _key_type(algorithm: str) -> str:
    return "ssh-rsa" if algorithm.startswith("rsa-sha2-") else algorithm


def add(host: HostConfig, blob: bytes) -> str:
    """Record the key of a host as OpenSSH does, and return the file.

    Raises
    ------
    HostKeyError
        The file cannot be written.
    """
    path = _user_file(host)
    if path is None:
        raise HostKeyError(
            f"The key of {host.label} cannot be stored, because there is no known_hosts file to write to.",
            hint="Set UserKnownHostsFile in ~/.ssh/config to a file.",
        )
    line = f"{_line_for(host, blob)}\n".encode()
    try:
        with _opened(path) as descriptor:
            size = os.fstat(descriptor).st_size
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            # a single write, so that lines of other processes never mix in
            os.write(descriptor, b"\n" + line if torn else line)
    except OSError as error:
        raise HostKeyError(
            f"The key of {host.label} cannot be written to {path}: {error.strerror}.",
            hint=f"Make {path} writable, or set UserKnownHostsFile in ~/.ssh/config to another file.",
        ) from None
    return path


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    """Open a file of keys for appending; create it if missing."""
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        os.mkdir(folder, 0o700)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _unwritable_reason(host: HostConfig) -> str:
    """Explain why a host key cannot be recorded; empty if it can, as far as known in advance."""
    path = _user_file(host)
    if path is None:
        return "UserKnownHostsFile names no file"
    try:
        with _opened(path):
            return ""
    except OSError as error:
        return f"{path}: {error.strerror}"


def _user_file(host: HostConfig) -> str | None:
    return next((path for path in host.user_known_hosts if path != _NOWHERE), None)


def _line_for(host: HostConfig, blob: bytes) -> str:
    name, plain = host_names(host)[0], bare_key(blob)
    shown = hashed_name(name) if host.hash_known_hosts else name
    return f"{shown} {key_type(plain)} {base64.b64encode(plain).decode()}"


def _adding(host: HostConfig, blob: bytes) -> str:
    """Return the command equivalent to :func:`add`."""
    return f"echo {quote_argv([_line_for(host, blob)])} >>{quote_argv([_user_file(host) or '~/.ssh/known_hosts'])}"


def verify(
    host: HostConfig,
    blob: bytes,
    prompt: Callable[[Prompt], Sequence[str] | None],
    accepted: MutableSet[tuple[str, bytes]] | None = None,
) -> HostKeyVerdict:
    """Accept a known key, ask the user about an unknown key, and refuse all others. Blocks during the question.

    Parameters
    ----------
    accepted : set, optional
        Keys that the user accepted but that could not be recorded, by host name. The user is not asked again about
        them. The set grows.

    Raises
    ------
    HostKeyUnknown, HostKeyChanged, HostKeyRevoked, HostKeyError
        Nothing may be sent to the host.
    """
    verdict = check_host_key(host, blob)
    facts = {"host": host.name, "fingerprint": verdict.fingerprint, "key_type": verdict.key_type}
    if why := short_key_reason(host, blob):
        raise HostKeyError(f"The key of {host.label} is too short: {why}.", hint=SHORT_KEY_HINT, **facts)
    if verdict.status == "revoked" or in_revoked_file(host, blob):
        where = f"{verdict.entry.file}, line {verdict.entry.line}" if verdict.entry else host.revoked_host_keys
        raise HostKeyRevoked(
            f"The key of {host.label} was revoked: {verdict.fingerprint} ({where}).",
            hint="Do not connect. Ask the administrators of the host.",
            **facts,
        )
    if verdict.status == "changed":
        assert verdict.entry is not None
        raise _changed(host, verdict, facts, _adding(host, blob))
    shown = (host_names(host)[0], bare_key(blob))
    if verdict.status == "unknown" and shown not in (accepted or ()):
        if not may_confirm_key(host) or not _accepted(host, verdict, prompt):
            raise unknown_key(host, verdict.fingerprint, verdict.key_type, _adding(host, blob))
        try:
            add(host, blob)
        except HostKeyError as error:  # as in OpenSSH: the user has confirmed the host
            log.warning("%s", error.message)
            if accepted is not None:
                accepted.add(shown)
    return verdict


def _changed(host: HostConfig, verdict: HostKeyVerdict, facts: dict[str, str], adding: str) -> HostKeyChanged:
    """Return the error for another key; ``adding``: the command that accepts it beside the known one."""
    entry = verdict.entry
    assert entry is not None
    command = quote_argv(["ssh-keygen", "-f", entry.file, "-R", verdict.name])
    other = "" if entry.key_type == verdict.key_type else f", of another type ({entry.key_type})"
    if entry.file in host.user_known_hosts:
        replacing = f"If the host was reinstalled, forget its old key and connect again: {command}"
    else:
        replacing = f"If the host was reinstalled, tell the administrators of this computer, who maintain {entry.file}."
    return HostKeyChanged(
        f"The key of {host.label} has changed. The host shows {verdict.fingerprint}, but "
        f"{entry.file}, line {entry.line}, has {fingerprint(entry.blob)}{other}. An attacker may intercept the "
        "connection, several hosts share the name, or the host was reinstalled.",
        hint="Ask the administrators of the host for the fingerprints of its keys. If several login nodes share this "
        f"name, and this is the key of one of them, add it beside the known key: {adding} {replacing}",
        file=entry.file,
        line=entry.line,
        command=command,
        add_command=adding,
        known_fingerprint=fingerprint(entry.blob),
        **facts,
    )


def _accepted(host: HostConfig, verdict: HostKeyVerdict, prompt: Callable[[Prompt], Sequence[str] | None]) -> bool:
    remark = f"Its certificate cannot be used: {verdict.remark}." if verdict.remark else ""
    answer = prompt(host_key_prompt(host, verdict.key_type, verdict.fingerprint, remark))
    return answer is not None and is_yes(answer[0], verdict.fingerprint)


def host_key_prompt(host: HostConfig, key_type: str, fingerprint: str, remark: str = "") -> Prompt:
    """Return the question whether an unknown key is the host's; :func:`is_yes` reads the answer.

    If the key cannot be recorded, the question says so, and why.
    """
    why_not = _unwritable_reason(host)
    return Prompt(
        host.label,
        "host-key",
        "This host is not known yet",
        f"{key_type} key fingerprint is {fingerprint}\n"
        + (f"{remark}\n" if remark else "")
        + ("Compare it with the one that the site publishes: your passwords are sent to the owner of this key.")
        + (f"\nThe key cannot be stored, so the next login will ask again: {why_not}" if why_not else ""),
        (Question(f"Connect{'' if why_not else ', and remember this key'} (yes/no, or the fingerprint)?", echo=True),),
    )


def is_yes(answer: str, fingerprint: str) -> bool:
    """Return whether the user confirmed a key, by "yes" or by the fingerprint."""
    said = answer.strip()
    return said.lower() == "yes" or said == fingerprint


def changed_at(host: HostConfig, key_text: str, shown_type: str, file: str, line: int) -> HostKeyError:
    """Return the error for a key that differs from a line of known_hosts; both are shown by their fingerprints."""
    for name in host_names(host):
        for entry in entries_for(name, [file]):
            if entry.line == line:
                verdict = HostKeyVerdict("changed", key_text, shown_type, name, entry)
                facts = {"host": host.name, "fingerprint": key_text, "key_type": shown_type}
                return _changed(host, verdict, facts, _openssh_adds_beside(host))
    return HostKeyChanged(
        f"The key of {host.label} has changed. The host shows {key_text}, but {file}, line {line}, has another key.",
        hint=f"Ask the administrators of the host, and check {file}.",
        host=host.name,
        fingerprint=key_text,
    )


def may_confirm_key(host: HostConfig) -> bool:
    """Return whether a host's configuration allows asking the user about its key."""
    return host.strict != "yes" and not host.batch_mode


def unknown_key(host: HostConfig, fingerprint: str, key_type: str, command: str) -> HostKeyUnknown:
    """Return the error for an unaccepted key.

    Parameters
    ----------
    command : str
        Command that adds the key, for cases without a question.
    """
    if may_confirm_key(host):
        hint = "Compare the fingerprint with the one that the site publishes, connect again, and answer yes."
    else:
        line = "StrictHostKeyChecking yes" if host.strict == "yes" else "BatchMode yes"
        hint = (
            f"Your ssh configuration has `{line}` for {host.name}, which forbids prompts. Compare the "
            f"fingerprint with the one that the site publishes. If it is the same, add the key: {command}"
        )
    return HostKeyUnknown(
        f"The key of {host.label} is unknown, and you have not accepted it: {fingerprint}.",
        hint=hint,
        host=host.name,
        fingerprint=fingerprint,
        key_type=key_type,
    )


def _openssh_adds_beside(host: HostConfig) -> str:
    """Return the OpenSSH commands that ask about a host's key, and add it beside other keys of the host."""
    known = os.path.expanduser(_user_file(host) or "~/.ssh/known_hosts")
    new = f"{known}.new"
    asking = openssh_adds(host, f"UserKnownHostsFile={new}", "GlobalKnownHostsFile=/dev/null")
    return f"{asking}; cat {quote_argv([new])} >>{quote_argv([known])}; rm {quote_argv([new])}"


def openssh_adds(host: HostConfig, *options: str) -> str:
    """Return the OpenSSH command that asks about a host's key, and adds it."""
    words = ["ssh", *(["-F", host.config_file] if host.config_file else []), *(f"-o{option}" for option in options)]
    words += ["-o", "StrictHostKeyChecking=ask", *(["-o", "BatchMode=no"] if host.batch_mode else [])]
    words += ["-J", ",".join(host.through)] if host.through else []
    words += ["-l", host.user, *(["-p", str(host.port)] if host.port != 22 else []), host.name, "true"]
    return quote_argv(words)
