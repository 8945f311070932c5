"""Control of a running cluster: its status, commands in it, and deliberate disturbances of its parts."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from jupyter_slurm.embedded.daemons import Daemons
from jupyter_slurm.embedded.layout import Layout
from jupyter_slurm.embedded.machine.cgroups import CgroupTree
from jupyter_slurm.embedded.machine.installation import Installation
from jupyter_slurm.embedded.machine.network import Hosts
from jupyter_slurm.embedded.machine.processes import (
    MARK,
    Process,
    descendants,
    find_daemons,
    find_job_processes,
    inspect_process,
    kill_all,
)
from jupyter_slurm.embedded.machine.slurm_versions import installation_for
from jupyter_slurm.embedded.state import State
from jupyter_slurm.errors import CommandError, EmbeddedError

__all__ = ["ClusterControl", "ClusterStatus"]

FOREIGN_VARIABLE_PREFIXES = (
    "SLURM_",
    "SLURMD_",
    "SBATCH_",
    "SALLOC_",
    "SRUN_",
    "SQUEUE_",
    "SINFO_",
    "SACCT_",
    "SCANCEL_",
    "SCONTROL_",
)
"""Prefixes of variables that would direct Slurm's commands to another cluster or an enclosing job."""

ANSWER_TIMEOUT_S = 5.0
"""Seconds after which a controller counts as not answering."""


@dataclass(frozen=True)
class ClusterStatus:
    """Result of :meth:`ClusterControl.status`.

    ``state`` is ``running``, ``stopped``, ``silent`` (the controller does not answer), ``damaged`` (daemons are
    missing) or ``stale`` (the machine was rebooted since). ``daemons`` maps roles to process IDs.
    """

    state: str
    directory: str
    name: str = ""
    slurm_conf: str = ""
    version: str = ""
    accounting: bool = False
    cgroups: str = ""
    daemons: dict[str, int] | None = None
    missing: list[str] | None = None
    nodes: dict[str, str] | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the status as JSON values."""
        return asdict(self)


class ClusterControl:
    """The cluster in a directory, whichever process started it."""

    def __init__(self, directory: Path, installation: Installation | None = None) -> None:
        self.layout = Layout(directory.absolute())
        self._installation = installation
        self._hosts: Hosts | None = None

    # Properties ------------------------------------------------------------------------------------------------

    @property
    def directory(self) -> Path:
        """Return the private directory."""
        return self.layout.root

    @property
    def slurm_conf(self) -> Path:
        """Return the value of SLURM_CONF."""
        return self.layout.slurm_conf

    @property
    def state(self) -> State:
        """Return the recorded state. Raises EmbeddedError if there is no cluster."""
        state = State.load(self.layout)
        if state is None:
            raise EmbeddedError(
                f"There is no cluster in {self.directory}.", hint="Start one with `jupyter slurm embedded start`."
            )
        return state

    @property
    def installation(self) -> Installation:
        """Return the Slurm of the cluster."""
        if self._installation is None:
            state = State.load(self.layout)
            self._installation = installation_for(state.slurm_root if state else "")
        return self._installation

    @property
    def daemons(self) -> Daemons:
        """Return the daemons of the cluster."""
        return Daemons(self.layout, self.state, self.installation, self._hosts)

    def status(self) -> ClusterStatus:
        """Return the state of daemons and nodes. Stopped parts raise no error."""
        state = State.load(self.layout)
        if state is None:
            return ClusterStatus("stopped", str(self.directory))
        daemons = Daemons(self.layout, state, self.installation, self._hosts)
        running = {} if state.stale else daemons.running()
        missing = [role for role in state.roles if role not in running]
        nodes = {} if "slurmctld" in missing else daemons.node_states(ANSWER_TIMEOUT_S)
        return ClusterStatus(
            state="stale" if state.stale else "damaged" if missing else "running" if nodes else "silent",
            directory=str(self.directory),
            name=state.name,
            slurm_conf=str(self.slurm_conf),
            version=".".join(f"{number:02d}" for number in self.installation.version),
            accounting=state.accounting,
            cgroups=state.cgroup_plugin,
            daemons={role: running[role].pid for role in sorted(running)},
            missing=missing,
            nodes=nodes,
        )

    def processes(self, state: State, node: str = "") -> list[Process]:
        """Return all processes of the cluster, or of one node: daemons, steps, and the programs of jobs."""
        if state.stale:
            return []
        ours = find_daemons(state.mark)
        if node:
            ours = [process for process in ours if process.role == f"slurmd/{node}"]
        # A daemon that shows a title in ps may have overwritten its environment. It is found as a child of another.
        jobs = [*descendants(ours), *find_job_processes(self.slurm_conf, [node] if node else state.nodes)]
        if state.cgroup_plugin:
            jobs += [process for pid in CgroupTree(state.mark).pids(node) if (process := inspect_process(pid))]
        # A process inside the cluster that stops the cluster has to survive until the end.
        return [process for process in [*ours, *jobs] if process.pid != os.getpid()]

    # Commands in the cluster -----------------------------------------------------------------------------------

    def env(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return an environment (by default the current one) that points to this cluster instead of any other."""
        source = os.environ if base is None else base
        env = {key: value for key, value in source.items() if not key.startswith(FOREIGN_VARIABLE_PREFIXES)}
        env["SLURM_CONF"] = str(self.slurm_conf)
        if self.installation.path:
            env["PATH"] = f"{self.installation.path}{os.pathsep}{env.get('PATH', os.defpath)}"
        return env

    def owned(self) -> dict[str, str]:
        """Return a variable that makes a process part of the cluster: :meth:`stop` ends processes that have it."""
        return {MARK: self.state.mark}

    def run(
        self,
        *argv: str,
        user: str | None = None,
        stdin: str | None = None,
        cwd: Path | str | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
        timeout: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the cluster. Root may run it as any user, at home with a login's variables.

        ``stdin`` is text for its standard input, ``env`` is added to the environment. Raises CommandError with stderr
        if the command fails and ``check`` is true.
        """
        environment, options = self.env(), {}
        if user is not None:
            entry = pwd.getpwnam(user)
            groups = os.getgrouplist(user, entry.pw_gid)
            options = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": groups}
            environment |= {"HOME": entry.pw_dir, "USER": user, "LOGNAME": user, "SHELL": entry.pw_shell}
            cwd = cwd or entry.pw_dir
        done: subprocess.CompletedProcess[str] = subprocess.run(  # type: ignore[call-overload]
            argv,
            env={**environment, **(env or {})},
            cwd=cwd,
            timeout=timeout,
            text=True,
            errors="replace",
            capture_output=True,
            check=False,
            **({"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}),
            **options,
        )
        if check and done.returncode != 0:
            raise CommandError(
                f"{argv[0]} ended with exit code {done.returncode}: {(done.stderr or done.stdout).strip()}",
                hint="See the message of the command.",
                argv=list(argv),
                exit_code=done.returncode,
                stderr=done.stderr,
            )
        return done

    # Disturbances ----------------------------------------------------------------------------------------------

    def stop_controller(self, number: int = signal.SIGTERM) -> None:
        """End slurmctld and wait until it is gone; jobs continue."""
        self._end("slurmctld", number)

    def start_controller(self, timeout: float = 30.0) -> None:
        """Start slurmctld again and wait until it answers."""
        daemons = self.daemons
        daemons.start_controller(daemons.waiter(time.monotonic() + timeout))

    def restart_controller(self, number: int = signal.SIGTERM) -> None:
        """End slurmctld and start it again."""
        self.stop_controller(number)
        self.start_controller()

    def freeze_controller(self) -> None:
        """Freeze slurmctld: it accepts connections and does not answer."""
        for process in self._processes("slurmctld"):
            process.send(signal.SIGSTOP)

    def thaw_controller(self) -> None:
        """Let slurmctld continue."""
        for process in self._processes("slurmctld"):
            process.send(signal.SIGCONT)

    @contextmanager
    def frozen_controller(self) -> Iterator[None]:
        """Freeze slurmctld for the duration of the block."""
        self.freeze_controller()
        try:
            yield
        finally:
            self.thaw_controller()

    def stop_slurmdbd(self) -> None:
        """End slurmdbd and wait until it is gone."""
        self._end("slurmdbd", signal.SIGTERM)

    def start_slurmdbd(self, timeout: float = 30.0) -> None:
        """Start slurmdbd again."""
        daemons = self.daemons
        daemons.start_slurmdbd(daemons.waiter(time.monotonic() + timeout))

    def kill_node(self, name: str) -> None:
        """Cut a node's power: its slurmd, its steps and the programs of its jobs end at once.

        The controller notices after SlurmdTimeout.
        """
        state = self.state
        self._node_role(name)
        kill_all(lambda: self.processes(state, name))

    def start_node(self, name: str) -> None:
        """Start a node's slurmd again, without waiting for the controller to notice."""
        self._node_role(name)
        self.daemons.start_node(name)

    def _node_role(self, name: str) -> str:
        if name not in self.state.nodes:
            raise EmbeddedError(
                f"{name} is not a node of the cluster {self.state.name}.", hint="List its nodes with `sinfo -N`."
            )
        return f"slurmd/{name}"

    def _processes(self, role: str) -> list[Process]:
        return [process for process in find_daemons(self.state.mark) if process.role == role]

    def _end(self, role: str, number: int, timeout: float = 30.0) -> None:
        """Send a signal and wait. A daemon that does not end in time, or that is frozen, is killed."""
        for process in self._processes(role):
            process.send(number)
            process.send(signal.SIGCONT)
        deadline = time.monotonic() + timeout
        while self._processes(role) and time.monotonic() < deadline:
            time.sleep(0.02)
        kill_all(lambda: self._processes(role))
