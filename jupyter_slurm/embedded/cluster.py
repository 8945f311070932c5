"""An embedded cluster, with its start and stop."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from jupyter_slurm.embedded import accounting, configuration, owner_watch
from jupyter_slurm.embedded.configuration import Machine, Ports
from jupyter_slurm.embedded.control import ClusterControl
from jupyter_slurm.embedded.daemons import Daemons, PortTaken
from jupyter_slurm.embedded.description import Description, load_description
from jupyter_slurm.embedded.layout import check_reachable, default_directory, missing_parents
from jupyter_slurm.embedded.machine import cgroups
from jupyter_slurm.embedded.machine.cgroups import CgroupTree
from jupyter_slurm.embedded.machine.installation import Installation
from jupyter_slurm.embedded.machine.network import Hosts, check_address, free_ports
from jupyter_slurm.embedded.machine.processes import kill_all
from jupyter_slurm.embedded.state import State, locked
from jupyter_slurm.errors import EmbeddedError

__all__ = ["EmbeddedCluster"]

READY_TIMEOUT_S = 15.0
READY_TIMEOUT_WITH_ACCOUNTING_S = 30.0
PORT_ATTEMPTS = 5


class EmbeddedCluster(ClusterControl):
    """A real Slurm in one private directory.

    Parameters
    ----------
    description : Description, optional
        Description of the cluster; by default the Arandu example in the package.
    directory : Path, optional
        Directory of the cluster, created by :meth:`start` and removed by :meth:`stop`.
    installation : Installation, optional
        Slurm to run; by default that of this machine.
    hosts : Hosts, optional
        Hosts of the daemons; by default this machine. The caller ends the hosts that it has created.

    Attributes
    ----------
    notes : tuple of str
        After :meth:`start`: features that the cluster cannot have on this machine.

    Notes
    -----
    The daemons outlive this object and its process. Another object with the same directory is equivalent. A context
    manager stops the cluster at its end.
    """

    def __init__(
        self,
        description: Description | None = None,
        *,
        directory: Path | None = None,
        installation: Installation | None = None,
        hosts: Hosts | None = None,
    ) -> None:
        super().__init__(directory or default_directory(), installation)
        self._hosts = hosts
        self.description = description or load_description()
        self.notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the ClusterName."""
        state = State.load(self.layout)
        return state.name if state else self.description.name

    def __enter__(self) -> EmbeddedCluster:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def start(self, timeout: float | None = None, *, until: int | None = None) -> None:
        """Start all daemons, and return when every node is idle.

        Parameters
        ----------
        timeout : float, optional
            Seconds; by default 15, or 30 with accounting.
        until : int, optional
            A process ID: the cluster is stopped after that process has ended, in any way. Tests pass their own.

        Raises
        ------
        MissingPackages
            Programs are not installed; the hint is the command that installs them.
        EmbeddedError
            The cluster runs already, cannot use that directory, or was not ready in time. Then nothing of it remains.
        """
        self.installation.check(accounting=self.description.accounting)
        if self._hosts is None:
            check_address()
        if os.geteuid() != 0 and any(group.hidden for group in self.description.nodes):
            raise EmbeddedError(
                "nodes.hidden: only root can hide a directory from a node.",
                hint="Run the command as root, or remove `hidden` from the description.",
            )
        if timeout is None:
            timeout = READY_TIMEOUT_WITH_ACCOUNTING_S if self.description.accounting else READY_TIMEOUT_S
        try:
            self._start_alone(time.monotonic() + timeout, until)
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            raise EmbeddedError(
                f"A cluster cannot be created in {self.directory}: {error.strerror or error}{where}.",
                hint="Choose a directory on a local disk that can be created: --dir DIR.",
            ) from error

    def _start_alone(self, deadline: float, until: int | None) -> None:
        parents = missing_parents(self.directory)
        with locked(self.layout):
            self._prepare_directory()
            try:
                self._start(deadline, parents)
                if until is not None:
                    owner_watch.start(self.daemons, until)
            except BaseException:
                self._clear(parents=parents)
                raise

    def stop(self) -> bool:
        """End every process of the cluster and remove its directory. Return False if there was no cluster."""
        if State.load(self.layout) is None and not self.layout.new_state_file.exists():
            return False
        with locked(self.layout):
            state = State.load(self.layout)
            if state is None and self._strangers():
                return False
            self._clear(parents=[Path(parent) for parent in state.parents] if state else [])
        return state is not None

    def _prepare_directory(self) -> None:
        """Refuse a directory in use; clean up a directory that a cluster left when the machine went down."""
        state = State.load(self.layout)
        if state is not None:
            if self.processes(state):
                raise self._in_use()
            self._clear(keep_directory=True)
        elif strangers := self._strangers():
            raise EmbeddedError(
                f"{self.directory} holds files that do not belong to a cluster: {', '.join(strangers[:3])}.",
                hint="Choose a directory that is empty or does not exist: --dir DIR.",
            )

    def _in_use(self) -> EmbeddedError:
        missing = self.status().missing
        if missing:
            return EmbeddedError(
                f"The cluster in {self.directory} is only partly running: {', '.join(missing)} is missing.",
                hint=f"Stop it first: `jupyter slurm embedded stop --dir {shlex.quote(str(self.directory))}`.",
            )
        return EmbeddedError(
            f"A cluster is already running in {self.directory}.",
            hint=f"Use it with `export SLURM_CONF={shlex.quote(str(self.slurm_conf))}`.",
        )

    def _strangers(self) -> list[str]:
        """Return foreign files in a directory without a state file, which is created first and removed last."""
        return sorted(path.name for path in self.directory.iterdir() if path != self.layout.new_state_file)

    def _start(self, deadline: float, parents: list[Path]) -> None:
        """Start on free ports. Try other ports if a program took one between the choice and the daemon's bind."""
        for attempt in range(1, PORT_ATTEMPTS + 1):
            try:
                self._start_daemons(deadline, parents)
                return
            except PortTaken:
                if attempt == PORT_ATTEMPTS:
                    raise
                self._clear(keep_directory=True)

    def _start_daemons(self, deadline: float, parents: list[Path]) -> None:
        description, layout = self.description, self.layout
        state, ports = self._prepare(parents)
        daemons = Daemons(layout, state, self.installation, self._hosts)
        wait = daemons.waiter(deadline)
        daemons.start_munged(wait)
        if description.accounting:
            accounting.start_database(daemons, wait)
            daemons.start_slurmdbd(wait)
            accounting.add_cluster(daemons, description)
        daemons.start_controller(wait)
        if description.accounting:
            accounting.fill_database(daemons, description, wait)
        for name in ports.nodes:
            daemons.start_node(name)
        self._wait_for_nodes(daemons, deadline)

    def _prepare(self, parents: list[Path]) -> tuple[State, Ports]:
        """Create directories, control groups and configuration; the state first, so that the rest can be undone."""
        description, layout = self.description, self.layout
        names = description.node_names
        controller, database, *numbers = free_ports(len(names) + 2)
        ports = Ports(controller, database, dict(zip(names, numbers, strict=True)))
        plugin, reason = cgroups.detect()
        state = State(
            name=description.name,
            mark=secrets.token_hex(16),
            nodes=names,
            accounting=description.accounting,
            controller_port=controller,
            database_port=database,
            parents=[str(parent) for parent in parents],
            hidden={name: list(group.hidden) for group in description.nodes for name in group.names if group.hidden},
            cgroup_plugin=plugin,
            slurm_root=self.installation.root,
        )
        state.save(layout)
        layout.create()
        if plugin:
            CgroupTree(state.mark).create(layout.cgroup)
        self._write_configuration(ports, Machine.detect(self.installation, plugin, self._hosts))
        self.notes = self._notes(reason)
        return state, ports

    def _notes(self, without_cgroups: str) -> tuple[str, ...]:
        notes = []
        if without_cgroups:
            notes.append(f"CPU masks and memory limits of jobs are not enforced: {without_cgroups}.")
        if os.geteuid() != 0:
            notes.append(f"Only {Machine.user_name()} can run jobs. Start the cluster as root for several users.")
        elif closed := check_reachable(self.directory):
            notes.append(f"Only root can run jobs: {closed}. Use --dir DIR for another directory.")
        return tuple(notes)

    def _write_configuration(self, ports: Ports, machine: Machine) -> None:
        layout, description = self.layout, self.description
        texts = {
            layout.slurm_conf: configuration.slurm_conf(description, layout, ports, machine),
            layout.slurm_conf.with_name("gres.conf"): configuration.gres_conf(description, layout),
            layout.slurm_conf.with_name("cgroup.conf"): configuration.cgroup_conf(layout, machine),
        }
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
            path.chmod(0o644)
        if description.accounting:
            # slurmdbd refuses a file readable by others.
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
                raise EmbeddedError(
                    f"Not all nodes were ready in time: {', '.join(late) or 'no answer'}.",
                    hint="Try again, or describe fewer nodes: the computer may be too slow.",
                )
            time.sleep(0.05)
            states = daemons.node_states()

    def _clear(self, *, keep_directory: bool = False, parents: list[Path] | None = None) -> None:
        """End the processes and remove the files; the caller holds the lock."""
        state = State.load(self.layout)
        if state is not None:
            if left := kill_all(lambda: self.processes(state)):
                raise EmbeddedError(
                    f"These processes do not end: {', '.join(str(p.pid) for p in left)}.",
                    hint="End them with `kill -9 PID`.",
                )
            if state.cgroup_plugin and not state.stale:
                CgroupTree(state.mark).remove()
        for path in self.directory.iterdir():
            # The state goes last: if this process is killed, the cluster can be stopped again.
            if path != self.layout.state_file:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        self.layout.state_file.unlink(missing_ok=True)
        if keep_directory:
            return
        for path in (self.directory, *(parents or [])):
            # A parent may contain other files by now.
            with suppress(OSError):
                path.rmdir()
