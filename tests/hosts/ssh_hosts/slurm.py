"""Slurm with daemons on separate hosts, as on a cluster: slurmctld on one, a slurmd on each node."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ssh_hosts.machine import Machine

__all__ = ["SiteSlurm"]

_CONF = """
ClusterName={name}
SlurmctldHost=controller({controller})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge/socket
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool/%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd.log
SlurmdParameters=config_overrides
MailProg=/bin/true
ReturnToService=2
KillWait=5
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_interval=1
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
PartitionName=main Nodes=ALL Default=YES MaxTime=1-0 DefaultTime=60 DefMemPerCPU=100 State=UP
"""


class SiteSlurm:
    """The Slurm of a site. Hosts mount its configuration ``etc`` as /etc/slurm, so no variable is needed.

    Parameters
    ----------
    directory : Path
        Directory that all hosts see at the same path.
    """

    def __init__(self, directory: Path) -> None:
        self.directory, self.etc = directory, directory / "etc"
        directory.mkdir(mode=0o711)
        for name, mode in (("etc", 0o755), ("munge", 0o711), ("key", 0o700), ("state", 0o700), ("spool", 0o711)):
            (directory / name).mkdir()
            (directory / name).chmod(mode)
        self._controller: Machine | None = None

    def start(self, name: str, controller: tuple[Machine, str], nodes: Mapping[str, tuple[Machine, str]]) -> None:
        """Start all daemons on hosts with these addresses. See :meth:`wait_until_idle`."""
        conf = _CONF.format(name=name, controller=controller[1], directory=self.directory).lstrip()
        lines = [
            f"NodeName={node} NodeHostname={machine.name} NodeAddr={address} CPUs=8 RealMemory=4000 State=UNKNOWN\n"
            for node, (machine, address) in nodes.items()
        ]
        (self.etc / "slurm.conf").write_text("".join([conf, *lines]))
        (self.etc / "cgroup.conf").write_text("")
        self._controller = controller[0]
        self._start_munged(controller[0])
        self.start_controller()
        for node, (machine, _) in nodes.items():
            _daemon(machine, "slurmd", "-D", "-N", node)

    def start_controller(self) -> None:
        """Start slurmctld."""
        _daemon(self.controller, "slurmctld", "-D")

    def stop_controller(self) -> None:
        """Kill slurmctld and wait until it is gone."""
        self._signal(signal.SIGKILL)
        deadline = time.monotonic() + 120
        while "slurmctld" in self.controller.processes().values() and time.monotonic() < deadline:
            time.sleep(0.02)

    def freeze_controller(self) -> None:
        """Freeze slurmctld: it accepts connections and does not answer."""
        self._signal(signal.SIGSTOP)

    def thaw_controller(self) -> None:
        """Let slurmctld continue."""
        self._signal(signal.SIGCONT)

    def run(self, *argv: str, user: str | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a Slurm command on the controller's host."""
        return self.controller.run(*argv, user=user, **options)

    def wait_until_idle(self, nodes: int, timeout: float = 120) -> None:
        """Wait until this many nodes can accept jobs."""
        deadline = time.monotonic() + timeout
        while True:
            done = self.run("sinfo", "--noheader", "--Node", "--states=idle", "--format=%N", check=False)
            if len(done.stdout.split()) == nodes:
                return
            if time.monotonic() > deadline:
                log = self.controller.directory / "log" / "slurmctld.log"
                raise AssertionError(f"nodes are not idle: {done.stdout}{done.stderr}\n{log.read_text()[-3000:]}")
            time.sleep(0.05)

    @property
    def controller(self) -> Machine:
        """Return the host of slurmctld."""
        assert self._controller is not None, "not started"
        return self._controller

    def _start_munged(self, machine: Machine) -> None:
        key = self.directory / "key" / "munge.key"
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(128))
        files = {"key": key, "seed": key.with_suffix(".seed"), "pid": "/run/munged.pid", "log": "/var/log/munged.log"}
        socket = self.directory / "munge" / "socket"
        _daemon(machine, "munged", "--foreground", f"--socket={socket}", *(f"--{k}-file={v}" for k, v in files.items()))
        deadline = time.monotonic() + 120
        while not socket.exists():
            if time.monotonic() > deadline:
                raise AssertionError("munged did not open its socket")
            time.sleep(0.01)

    def _signal(self, number: int) -> None:
        for pid, name in self.controller.processes().items():
            if name == "slurmctld":
                os.kill(pid, number)


def _daemon(machine: Machine, *argv: str) -> None:
    """Start a daemon; its output goes to /var/log of the machine."""
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    with (machine.directory / "log" / f"{argv[0]}.out").open("ab") as log:
        subprocess.run(
            machine.command("setsid", "--fork", *argv),
            env={"PATH": path},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            check=True,
        )
