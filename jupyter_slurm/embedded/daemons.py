"""Daemons of a cluster: start and readiness of each."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from jupyter_slurm.embedded.layout import Layout, check_reachable
from jupyter_slurm.embedded.machine.installation import Installation
from jupyter_slurm.embedded.machine.network import Hosts
from jupyter_slurm.embedded.machine.processes import MARK, Process, find_daemons, listens
from jupyter_slurm.embedded.machine.processes import spawn as spawn_process
from jupyter_slurm.embedded.state import State
from jupyter_slurm.errors import EmbeddedError

__all__ = ["Daemons", "PortTaken", "Wait"]

Wait = Callable[[Callable[[], bool], str, str], None]
"""``wait(condition, role, failure)`` returns when the condition holds; see :meth:`Daemons.waiter`."""


_HIDE = 'while [ "$1" != -- ]; do mount -t tmpfs -o mode=755 none "$1" || exit; shift; done; shift; exec "$@"'
"""``hide DIRECTORY… -- COMMAND``: the directories are arguments, never text of the script."""

_FAILED_CHECKS = 3
"""Number of attempts to find a daemon: a process cannot be identified during execve(2)."""


class PortTaken(EmbeddedError):
    """A daemon could not bind its port: a program took it after it had been chosen."""

    code = "embedded-port-taken"


@dataclass(frozen=True)
class Daemons:
    """Starter and monitor of the daemons of one cluster."""

    layout: Layout
    state: State
    installation: Installation
    hosts: Hosts | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that every program of the cluster gets: its configuration, and its mark."""
        return {"LC_ALL": "C.UTF-8", "SLURM_CONF": str(self.layout.slurm_conf), MARK: self.state.mark}

    def running(self) -> dict[str, Process]:
        """Return the running daemons, by role."""
        ours = find_daemons(self.state.mark)
        # Before its exec, a daemon has the name of the program that starts it.
        return {p.role: p for p in ours if p.name in (p.role.split("/")[0], "setsid", "unshare", "sh")}

    def spawn(self, role: str, *argv: str, env: Mapping[str, str] | None = None) -> None:
        """Start one daemon, with its standard output in the log directory."""
        log = self.layout.log / f"{role.replace('/', '-')}.out"
        enter = self._enter(role)
        spawn_process(argv, role, self.state.mark, log=log, env={**self.environment, **(env or {})}, enter=enter)

    def _enter(self, role: str) -> tuple[str, ...]:
        host = self.hosts.find_host(role) if self.hosts else None
        return host.enter if host else ()

    def start_munged(self, wait: Wait) -> None:
        """Start munged with its own key."""
        key, directory = self.layout.munge_key, self.layout.munge_key.parent
        with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(secrets.token_bytes(128))
        self.spawn(
            "munged",
            self.installation.program("munged"),
            "--foreground",
            # Below a directory closed to others, only the user who starts the cluster can run jobs.
            *(["--force"] if os.geteuid() != 0 or check_reachable(self.layout.root) else []),
            f"--key-file={key}",
            f"--socket={self.layout.munge_socket}",
            f"--pid-file={self.layout.run}/munged.pid",
            f"--log-file={self.layout.log}/munged.log",
            f"--seed-file={directory}/munged.seed",
        )
        wait(self.layout.munge_socket.exists, "munged", "munged did not open its socket")

    def start_controller(self, wait: Wait) -> None:
        """Start slurmctld and wait until it answers."""
        self.spawn("slurmctld", self.installation.program("slurmctld"), "-D")
        wait(self.controller_answers, "slurmctld", "slurmctld did not answer")

    def start_slurmdbd(self, wait: Wait) -> None:
        """Start slurmdbd and wait until it listens, which happens after it has opened its database."""
        # MariaDB's client library connects to "localhost" through the socket in this variable.
        env = {"MYSQL_UNIX_PORT": str(self.layout.database_socket)}
        self.spawn("slurmdbd", self.installation.program("slurmdbd"), "-D", env=env)
        wait(lambda: self.listening("slurmdbd", self.state.database_port), "slurmdbd", "slurmdbd did not answer")

    def start_node(self, name: str) -> None:
        """Start a node's slurmd, with empty directories in place of those hidden from the node."""
        argv = [self.installation.program("slurmd"), "-D", "-N", name]
        if self.installation.stepd:
            argv += ["-d", self.installation.stepd]
        if hidden := self.state.hidden.get(name):
            argv = ["unshare", "--mount", "sh", "-c", _HIDE, "hide", *hidden, "--", *argv]
        self.spawn(f"slurmd/{name}", *argv)

    def controller_answers(self) -> bool:
        """Return whether slurmctld listens and reports that it is up (scontrol ping)."""
        return (
            self.listening("slurmctld", self.state.controller_port)
            and self.run_command("scontrol", "ping").returncode == 0
        )

    def listening(self, role: str, port: int) -> bool:
        """Return whether a daemon has its port, and not another program."""
        process = self.running().get(role)
        return process is not None and listens(process, port)

    def run_command(self, program: str, *argv: str, timeout: float = 20.0) -> subprocess.CompletedProcess[str]:
        """Run a Slurm command as the user who runs the cluster."""
        try:
            return subprocess.run(
                [*self._enter("slurmctld"), self.installation.program(program), *argv],
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **self.environment},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess([program, *argv], 124, "", f"no answer within {timeout:g} s")

    def node_states(self, timeout: float = 20.0) -> dict[str, str]:
        """Return the state of each node as sinfo(1) shows it; empty if the controller does not answer in time."""
        answer = self.run_command("sinfo", "--noheader", "--Node", "--format=%N %T", timeout=timeout)
        if answer.returncode != 0:
            return {}
        return dict(line.split() for line in answer.stdout.splitlines() if len(line.split()) == 2)

    def log_tail(self, role: str, lines: int = 12) -> str:
        """Return the end of a daemon's log."""
        name = role.replace("/", "-")
        texts = []
        for path in (self.layout.log / f"{name}.log", self.layout.log / f"{name}.out"):
            texts += _tail(path, lines)
        return "\n".join(dict.fromkeys(texts))

    def waiter(self, deadline: float) -> Wait:
        """Return ``wait(condition, role, failure)``, which gives up at the deadline or when the daemon has ended."""

        def wait(condition: Callable[[], bool], role: str, failure: str) -> None:
            while not condition():
                self.check_alive(role)
                if time.monotonic() > deadline:
                    raise EmbeddedError(
                        f"{failure} in time.\n{self.log_tail(role)}".rstrip(),
                        hint="See the log above. Stop the cluster before you start it again.",
                    )
                time.sleep(0.05)

        return wait

    def check_alive(self, *roles: str) -> None:
        """Raise if one of these daemons has ended; PortTaken if its port was the cause."""
        missing = set(roles)
        for _ in range(_FAILED_CHECKS):
            missing -= set(self.running())
            if not missing:
                return
            time.sleep(0.02)
        for role in roles:
            if role in missing:
                log = self.log_tail(role)
                error = PortTaken if "Address already in use" in log else EmbeddedError
                raise error(f"{role} ended as soon as it was started.\n{log}".rstrip())


def _tail(path: Path, lines: int) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
    except OSError:
        return []
