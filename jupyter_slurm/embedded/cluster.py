"""One embedded cluster: start it, look at it, disturb it, stop it."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from pathlib import Path
from types import TracebackType

from jupyter_slurm.embedded import accounting, cgroups, configuration
from jupyter_slurm.embedded.cgroups import CgroupTree
from jupyter_slurm.embedded.configuration import Machine, Ports
from jupyter_slurm.embedded.daemons import Daemons, PortTaken
from jupyter_slurm.embedded.description import Description, load_description
from jupyter_slurm.embedded.installation import Installation
from jupyter_slurm.embedded.layout import Layout, default_directory
from jupyter_slurm.embedded.ports import free_ports
from jupyter_slurm.embedded.processes import Process, descendants, find_daemons, find_job_processes, kill_all, look
from jupyter_slurm.embedded.state import State, locked
from jupyter_slurm.errors import EmbeddedError

__all__ = ["EmbeddedCluster"]

READY_WITHIN = 15.0
READY_WITHIN_WITH_ACCOUNTING = 30.0
PORT_ATTEMPTS = 5


class EmbeddedCluster:
    """A real Slurm in one private directory.

    Parameters
    ----------
    description : Description, optional
        What it is made of; the Arandu that ships with the package if not given.
    directory : Path, optional
        Where it lives. It is made by :meth:`start` and removed by :meth:`stop`.
    installation : Installation, optional
        Which Slurm to run; that of this machine if not given.

    Notes
    -----
    The daemons outlive this object and its process. As a context manager the cluster is stopped at the end.
    """

    def __init__(
        self,
        description: Description | None = None,
        *,
        directory: Path | None = None,
        installation: Installation | None = None,
    ) -> None:
        self.description = description or load_description()
        self.layout = Layout((directory or default_directory(self.description.name)).absolute())
        self.installation = installation or Installation()
        self.without_cgroups = ""

    # What it is ------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """ClusterName."""
        return self.description.name

    @property
    def directory(self) -> Path:
        """The private directory."""
        return self.layout.root

    @property
    def slurm_conf(self) -> Path:
        """What SLURM_CONF has to say."""
        return self.layout.slurm_conf

    def env(self) -> dict[str, str]:
        """Return our environment with this cluster in place of any other that it spoke of."""
        foreign = ("SLURM_", "SLURMD_", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SINFO_", "SACCT_", "SCANCEL_")
        env = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        env["SLURM_CONF"] = str(self.slurm_conf)
        if self.installation.path:
            env["PATH"] = f"{self.installation.path}{os.pathsep}{env.get('PATH', os.defpath)}"
        return env

    # Start and stop --------------------------------------------------------------------------------------------

    def __enter__(self) -> EmbeddedCluster:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def start(self, timeout: float | None = None) -> None:
        """Start all daemons and return when every node is idle.

        Parameters
        ----------
        timeout : float, optional
            Seconds; 15, or 30 with accounting, if not given.

        Raises
        ------
        MissingPackages
            Programs are not installed; the hint is the command to type.
        EmbeddedError
            It is running already, or did not get ready in time; then nothing of it is left.
        """
        self.installation.check(accounting=self.description.accounting)
        if timeout is None:
            timeout = READY_WITHIN_WITH_ACCOUNTING if self.description.accounting else READY_WITHIN
        deadline = time.monotonic() + timeout
        with locked(self.layout):
            self._make_room()
            for attempt in range(PORT_ATTEMPTS):
                try:
                    self._start_once(deadline)
                    return
                except PortTaken:
                    self._clear(keep_directory=True)
                    if attempt + 1 == PORT_ATTEMPTS:
                        raise
                except BaseException:
                    self._clear()
                    raise

    def _make_room(self) -> None:
        """Refuse a directory that is in use; clean one that a cluster left behind when the machine went down."""
        state = State.load(self.layout)
        if state is not None:
            if self._processes(state):
                raise EmbeddedError(
                    f"A cluster is running in {self.directory} already.",
                    hint=f"Use it with: export SLURM_CONF={self.slurm_conf}",
                )
            self._clear(keep_directory=True)
        elif strangers := [p.name for p in self.directory.iterdir() if p != self.layout.lock_file]:
            raise EmbeddedError(
                f"{self.directory} holds files that are not a cluster's: {', '.join(sorted(strangers)[:3])}.",
                hint="Choose a directory that is empty or does not exist.",
            )

    def _start_once(self, deadline: float) -> None:
        description, layout = self.description, self.layout
        names = description.node_names
        numbers = free_ports(len(names) + 2)
        ports = Ports(numbers[0], numbers[1], dict(zip(names, numbers[2:], strict=True)))
        plugin, self.without_cgroups = cgroups.detect()
        state = State(description.name, secrets.token_hex(16), names, description.accounting, ports.database, plugin)
        layout.create()
        state.save(layout)
        if plugin:
            CgroupTree(state.mark).create(layout.cgroup)
        machine = Machine.here(os.geteuid(), cgroup_plugin=plugin, version=self.installation.version)
        self._write_configuration(ports, machine)
        daemons = Daemons(layout, state, self.installation)
        wait = daemons.waiter(deadline)
        daemons.start_munged(wait)
        if description.accounting:
            accounting.start_database(daemons, wait)
            accounting.start_slurmdbd(daemons, wait)
            accounting.add_cluster(daemons, description.name)
        daemons.start_controller()
        wait(daemons.controller_answers, "slurmctld", "slurmctld did not answer")
        if description.accounting:
            accounting.fill_database(daemons, description, wait)
        for name in names:
            daemons.start_node(name)
        self._wait_for_nodes(daemons, deadline)

    def _write_configuration(self, ports: Ports, machine: Machine) -> None:
        layout, description = self.layout, self.description
        directory = layout.slurm_conf.parent
        layout.slurm_conf.write_text(configuration.slurm_conf(description, layout, ports, machine), encoding="utf-8")
        (directory / "gres.conf").write_text(configuration.gres_conf(description, layout), encoding="utf-8")
        (directory / "cgroup.conf").write_text(configuration.cgroup_conf(layout, machine), encoding="utf-8")
        for path in directory.iterdir():
            path.chmod(0o644)
        if description.accounting:
            # slurmdbd refuses a file that others can read.
            layout.slurmdbd_conf.touch(0o600)
            layout.slurmdbd_conf.write_text(configuration.slurmdbd_conf(layout, ports, machine), encoding="utf-8")
        configuration.make_devices(description, layout)

    def _wait_for_nodes(self, daemons: Daemons, deadline: float) -> None:
        states: dict[str, str] = {}
        roles = ["slurmctld", *(f"slurmd/{name}" for name in daemons.state.nodes)]
        while set(states.values()) != {"idle"} or len(states) < len(daemons.state.nodes):
            daemons.check_alive(*roles)
            if time.monotonic() > deadline:
                late = [f"{name} {state}" for name, state in states.items() if state != "idle"]
                raise EmbeddedError(f"Not all nodes were ready in time: {', '.join(late) or 'no answer'}.")
            time.sleep(0.1)
            states = daemons.node_states()

    def stop(self) -> bool:
        """End every process of the cluster and remove its directory. Returns False when there was nothing."""
        if not self.directory.exists():
            return False
        with locked(self.layout):
            if State.load(self.layout) is None:
                return False
            self._clear()
        return True

    def _processes(self, state: State) -> list[Process]:
        """Return all processes of the cluster: daemons, steps, and what runs in its jobs."""
        if state.stale:
            return []
        ours = find_daemons(state.mark)
        steps = [process for process in ours if process.name == "slurmstepd"]
        jobs = [*descendants(steps), *find_job_processes(self.slurm_conf, state.nodes)]
        if state.cgroup_plugin:
            jobs += [process for pid in CgroupTree(state.mark).pids() if (process := look(pid))]
        return [*ours, *jobs]

    def _clear(self, *, keep_directory: bool = False) -> None:
        """End what runs and remove what lies there; the caller holds the lock."""
        state = State.load(self.layout)
        if state is not None:
            left = kill_all(lambda: self._processes(state))
            if left:
                raise EmbeddedError(f"Processes that do not end: {', '.join(str(p.pid) for p in left)}.")
            if state.cgroup_plugin and not state.stale:
                CgroupTree(state.mark).remove()
        for path in self.directory.iterdir():
            # The state goes last: whoever ends us here leaves something that can be stopped again.
            if path not in (self.layout.lock_file, self.layout.state_file):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        self.layout.state_file.unlink(missing_ok=True)
        if not keep_directory:
            self.layout.lock_file.unlink(missing_ok=True)
            self.directory.rmdir()

    # What a test does to it ------------------------------------------------------------------------------------
