"""Diagnosis of a connection while it is made: each host is reached, is the right host, and accepts the login."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import paramiko

from jupyter_slurm.domain.findings import Finding
from jupyter_slurm.errors import SlurmError, TransportError
from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig
from jupyter_slurm.transport.ssh.hostkeys.host_key_verification import check_host_key
from jupyter_slurm.transport.ssh.prompts import printable
from jupyter_slurm.transport.ssh.via_paramiko.connection import HostVerifier

__all__ = ["HopReport", "LoginDiagnosis", "LoginLogDiagnosis"]

_MAX_NOISE_BYTES: Final = 1 << 20  # bytes
_MAX_LINE_BYTES: Final = 1 << 16


@dataclass(frozen=True)
class HopReport:
    """A host of a route that has accepted the login.

    Attributes
    ----------
    host : HostConfig
    tried : tuple of str
        The attempts and their results: ``key PATH: accepted`` …
    transport : paramiko.Transport or None
        The connection to the host; None: only OpenSSH has it.
    """

    host: HostConfig
    used_methods: tuple[str, ...]
    transport: paramiko.Transport | None = None

    @property
    def accepted(self) -> list[str]:
        """Return the accepted credential: ``key PATH``, ``certificate PATH``, ``password`` …"""
        return [line.removesuffix(": accepted") for line in self.used_methods if line.endswith(": accepted")]

    @property
    def refused_keys(self) -> bool:
        """Return whether the host accepts keys in general, but none of the user's."""
        shown = [line for line in self.used_methods if line.startswith(("key ", "certificate "))]
        return any(": refused" in line for line in shown) and not any(line.endswith(": accepted") for line in shown)

    def run(self, script: str, timeout: float = 30.0) -> tuple[int, str]:
        """Run text in ``/bin/sh`` on the host, whatever the login shell; return exit code and output. Blocks.

        Raises
        ------
        TransportError
            The host runs no command, or the command does not end in time.
        """
        if self.transport is None:
            raise TransportError(
                f"No command can be run on {self.host.label} with the login of OpenSSH.",
                hint=f"Copy your key in a terminal: `ssh-copy-id {self.host.user}@{self.host.name}`.",
            )
        out = b""
        try:
            with contextlib.closing(self.transport.open_session(timeout=timeout)) as channel:
                channel.settimeout(timeout)
                channel.set_combine_stderr(True)
                channel.exec_command("exec /bin/sh -s")
                channel.sendall(script.encode("utf-8", "surrogateescape"))
                channel.shutdown_write()
                while len(out) < _MAX_NOISE_BYTES and (data := channel.recv(1 << 16)):
                    out += data
                code = channel.recv_exit_status() if channel.status_event.wait(timeout) else -1
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise TransportError(
                f"No command can be run on {self.host.label}: {printable(str(error), 300)}",
                hint=f"Run `ssh {self.host.name} true` in a terminal to see the cause.",
            ) from error
        return code, printable(out, 4000).strip()


class _Steps:
    """Progress of a diagnosis, and its reports.

    Parameters
    ----------
    route : sequence of HostConfig
        The hosts.
    report : callable
        Called with each finding, in another thread.
    clock : callable, optional
        Seconds.

    Attributes
    ----------
    hops : list of HopReport
        The hosts that have accepted the login so far.
    """

    def __init__(
        self,
        route: Sequence[HostConfig],
        report: Callable[[Finding], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._route, self._report, self._clock = tuple(route), report, clock
        self._hop, self._step, self._since = 0, "reached", clock()
        self.hops: list[HopReport] = []

    @property
    def is_over(self) -> bool:
        """Return whether all hosts have accepted the login, regardless of later breaks and reconnects."""
        return self._hop >= len(self._route)

    def failure(self, error: SlurmError) -> Finding:
        """Return the meaning of an error that ended the diagnosis."""
        host, todo = self._route[min(self._hop, len(self._route) - 1)], error.hint
        if isinstance(error.__cause__, socket.gaierror):
            todo = (
                "Check the name of the host (`host` in the profile, HostName in ~/.ssh/config), the network "
                "of this computer, and the VPN if the site needs one."
            )
        return Finding("failed", f"{host.name}, {self._step}", error.message, todo)

    def _reached(self, host: HostConfig) -> None:
        self._ok(host, f"{host.label} answers after {self._clock() - self._since:.2f} s")
        self._step = "host key"

    def _add_known(self, host: HostConfig, where: str, key_type: str, fingerprint: str) -> None:
        self._ok(host, f"known ({where or 'known_hosts from now on'}): {key_type} {fingerprint}")
        self._step = "login"

    def _entered(self, hop: HopReport, version: str) -> None:
        how = f" by {' and '.join(hop.accepted)}" if hop.accepted else ""
        self._ok(hop.host, f"{hop.host.user} is logged in{how} ({printable(version, 100)})")
        if not self.is_over:
            self.hops.append(hop)
        self._hop, self._step, self._since = self._hop + 1, "reached", self._clock()

    def _ok(self, host: HostConfig, message: str) -> None:
        if not self.is_over:
            self._report(Finding("ok", f"{host.name}, {self._step}", message))


class LoginDiagnosis(_Steps):
    """Diagnosis of a connection by paramiko.

    Parameters
    ----------
    route, report, clock
        As for :class:`LoginLogDiagnosis`.
    new_gate : callable
        Takes a callback for accepted logins, returns the verifier whose calls are passed on.
    """

    def __init__(
        self,
        route: Sequence[HostConfig],
        new_gate: Callable[[Callable[[HostConfig, tuple[str, ...]], None]], HostVerifier],
        report: Callable[[Finding], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(route, report, clock=clock)
        self._opened: dict[HostConfig, tuple[str, ...]] = {}
        self._inner = new_gate(self._opened.__setitem__)
        self.gate = HostVerifier(self._verify, self._login, self._inner.key_types)

    def _verify(self, host: HostConfig, key: paramiko.PKey) -> None:
        if self.is_over:
            self._inner.verify(host, key)
            return
        self._reached(host)
        certificate = getattr(key, "public_blob", None)
        blob = certificate.key_blob if certificate is not None else key.asbytes()
        before = check_host_key(host, blob)
        self._inner.verify(host, key)
        where = f"{before.entry.file}, line {before.entry.line}" if before.entry else ""
        if before.status == "unknown" and check_host_key(host, blob).status == "unknown":
            where = "for this connection only: it could not be stored"
        self._add_known(host, where, before.key_type, before.fingerprint)

    def _login(self, host: HostConfig, transport: paramiko.Transport) -> None:
        self._inner.login(host, transport)
        if not self.is_over:
            self._entered(HopReport(host, self._opened.get(host, ()), transport), str(transport.remote_version))


class LoginLogDiagnosis(_Steps):
    """Diagnosis of a connection by OpenSSH, from the ``-v`` output of its processes for all hosts.

    Parameters
    ----------
    route : sequence of HostConfig
        The hosts.
    report : callable
        Called with each finding, in another thread.
    clock : callable, optional
        Seconds.
    """

    def __init__(
        self,
        route: Sequence[HostConfig],
        report: Callable[[Finding], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(route, report, clock=clock)
        self._rest, self._version, self._key, self._config_line = "", "", ("", ""), ""
        self._offered, self._offered_methods = "", list[str]()
        self._rules: Sequence[tuple[re.Pattern[str], Callable[[re.Match[str]], None]]] = tuple(
            (re.compile(f"(?:debug1: )?{pattern}"), act)
            for pattern, act in (
                (r"Remote protocol version \S+ remote software version (.*)", self._read_version),
                (r"Authenticating to (\S+):(\d+) as '.*'", self._read_reached),
                (r"Server host key: (?:ssh-)?(\S+) (\S+)", self._read_key),
                (r"Found (?:CA )?key in (.+):(\d+)", self._read_config_line),
                (r"SSH2_MSG_NEWKEYS received", self._read_keys_set),
                (r"Offering (?:\S+ )?public key: (.*)", self._read_offer),
                (r'Authenticated (?:using "([\w-]+)" )?with partial success\.', self._read_partial),
                (r'Authenticated to .* \(.*\)(?: using "([\w-]+)")?\.', self._read_authenticated),
            )
        )

    def read_log(self, text: str) -> None:
        """Process the output since the last call."""
        if self.is_over:
            return
        *lines, self._rest = (self._rest + text).split("\n")
        self._rest = self._rest[-_MAX_LINE_BYTES:]
        for line in lines:
            for pattern, act in self._rules:
                if (match := pattern.fullmatch(line.rstrip("\r"))) is not None and not self.is_over:
                    act(match)

    @property
    def _host(self) -> HostConfig:
        return self._route[self._hop]

    def _read_version(self, match: re.Match[str]) -> None:
        self._version, self._config_line = match[1], ""

    def _read_reached(self, match: re.Match[str]) -> None:
        """Record a host that answers. Earlier silent hosts (a ProxyCommand without ``-v``) have accepted the login."""
        found = (host.hostname.lower() == match[1].lower() and str(host.port) == match[2] for host in self._route)
        numbers = [number for number, here in enumerate(found) if here and number >= self._hop]
        self._hop = numbers[0] if numbers else self._hop
        self._reached(self._host)

    def _read_key(self, match: re.Match[str]) -> None:
        kind = match[1].partition("-")[0].upper()
        self._key = (kind, match[2])

    def _read_config_line(self, match: re.Match[str]) -> None:
        self._config_line = f"{match[1]}, line {match[2]}"

    def _read_keys_set(self, match: re.Match[str]) -> None:
        if self._step == "host key":
            self._add_known(self._host, self._config_line, *self._key)

    def _read_offer(self, match: re.Match[str]) -> None:
        self._refuse()
        path, _, rest = match[1].partition(" SHA256:")
        path, _, kind = path.rpartition(" ") if rest else (path, "", "")
        self._offered = f"{'certificate' if kind.endswith('-CERT') else 'key'} {printable(path, 1000)}"

    def _read_partial(self, match: re.Match[str]) -> None:
        self._accept(match[1] or "publickey")

    def _read_authenticated(self, match: re.Match[str]) -> None:
        self._accept(match[1] or "")
        self._entered(HopReport(self._host, tuple(self._offered_methods)), self._version)
        self._offered_methods = []

    def _accept(self, method: str) -> None:
        names = {"password": "password", "keyboard-interactive": "questions of the host"}
        names |= {"gssapi-with-mic": "Kerberos ticket", "gssapi-keyex": "Kerberos ticket", "hostbased": "host-based"}
        if method == "publickey" and self._offered:
            self._offered_methods.append(f"{self._offered}: accepted")
            self._offered = ""
            return
        self._refuse()
        if method in names:
            self._offered_methods.append(f"{names[method]}: accepted")

    def _refuse(self) -> None:
        if self._offered:
            self._offered_methods.append(f"{self._offered}: refused")
        self._offered = ""
