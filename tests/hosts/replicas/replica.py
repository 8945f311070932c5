"""Replica of a site: its hosts, its storage, its Slurm, its containers, and a laptop in front of it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from ssh_hosts.machine import Machine, run
from ssh_hosts.network import Lan, Link, Wire
from ssh_hosts.second_factor import WAYS_IN, Codes
from ssh_hosts.sshd import Options, SshHost, new_key

from jupyter_slurm.embedded import EmbeddedCluster
from jupyter_slurm.embedded.machine.network import Host, Hosts
from replicas.described import Site
from replicas.laptop import Laptop
from replicas.registry import BUNDLE, SiteRegistry, host_of, make_certificate
from replicas.runtimes import NodeDocker, put_programs, put_stand_ins, unpack

__all__ = ["Replica"]

_LOGIN_OPTIONS: dict[str, dict[str, str | int]] = {
    "key": {},
    "password": {"PasswordAuthentication": "yes", "AuthenticationMethods": "password"},
}
_PROFILE_FOLDER = "/etc/profile.d"


class Replica:
    """A replica. The test process is in the laptop's place, and reaches only the first host of the site.

    Attributes
    ----------
    name, site : str, Site
        The site's name, and its description.
    user, password : str
        The user's account.
    laptop : Laptop
        The user's own computer: profile, settings, notebooks.
    gateway, login, nodes : SshHost or None, SshHost, dict of SshHost
    controller : Machine
        Host of slurmctld; ``controller.run("sdiag")`` queries it.
    dockers : dict of NodeDocker
        Docker of each node.
    disk : Path
        Shared storage of the hosts, on this machine: ``disk / "home"`` is their /home.
    """

    def __init__(
        self,
        site: Site,
        directory: Path,
        *,
        user: str,
        password: str,
        key: Path,
        tars: Callable[[str], Path],
        path: Sequence[Path] = (),
        shared: Sequence[Path] = (),
    ) -> None:
        self.site, self.name, self.directory = site, site.name, directory
        self.user, self.password, self.key = user, password, key
        self.disk, self._inside, self._path = directory / "disk", directory / "inside", tuple(path)
        self._open = ExitStack()
        self._shared = (self._inside, *shared)
        try:
            self._make_folders()
            self._make_hosts()
            self._trust_inside()
            self._start_slurm()
            self._start_registry(tars)
            self._start_containers(tars)
            self.laptop = Laptop(self, directory / "laptop")
            self._open.callback(self.laptop.close)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all parts of the replica; only files remain."""
        self._open.close()

    @property
    def home(self) -> Path:
        """Return the path of the user's remote home on this machine."""
        return self.on_disk(self.site.storage.home)

    def on_disk(self, path: str) -> Path:
        """Return the path on this machine for a path that the hosts share."""
        return self.disk / path.lstrip("/")

    @property
    def machines(self) -> list[Machine]:
        """Return all hosts of the site."""
        first = [self.gateway] if self.gateway else []
        return [*first, self.login, *self.nodes.values(), self.controller]

    def containers(self) -> list[str]:
        """Return the Docker containers of all nodes."""
        return [f"{name}: {one}" for name, docker in self.dockers.items() for one in docker.containers()]

    def start_docker(self, node: str) -> NodeDocker:
        """Start a Docker on a node, with the node's lifetime."""
        (self._inside / "docker").mkdir(mode=0o711, exist_ok=True)
        return NodeDocker(self.nodes[node], self._inside / "docker" / node, self.user, self._inside / "toolkit")

    # ------------------------------------------------------------------------------------------------------------

    def _make_folders(self) -> None:
        storage = self.site.storage
        self._inside.mkdir()
        (self._inside / "slurm").mkdir()
        for name in ("slurm.conf", "gres.conf", "cgroup.conf"):
            (self._inside / "slurm" / name).symlink_to(self._inside / "c" / "etc" / name)
        for path in (storage.home, *storage.shared):
            self._own(self.on_disk(path))
        self.home.chmod(0o700)
        self._registries = {host_of(image) for image in self.site.software.registry}
        if self._registries:
            (self.directory / "registry").mkdir()
            self._bundle = make_certificate(self.directory / "registry", self._registries)
        self._hosts_file = self.directory / "hosts"
        self._hosts_file.touch()
        self._prolog = put_stand_ins(self._inside / "toolkit", self.site.software.gpu_variable)
        self._path = (*self._path, put_programs(self._inside / "programs", self.site.software.programs))
        self._start_up = self._inside / "profile.d"
        self._start_up.mkdir()
        lines = [f"export {name}={value}" for name, value in storage.variables.items()]
        lines.append(f"PATH={':'.join(map(str, self._path))}:$PATH")
        if self.site.software.modules:
            lines += [". /usr/share/modules/init/sh", f"module use {self._inside}/modules"]
        (self._start_up / "site.sh").write_text("\n".join([*lines, ""]))
        for name in self.site.software.modules:
            file = self._inside / "modules" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("#%Module1.0\n")

    def _own(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        account = pwd.getpwnam(self.user)
        os.chown(folder, account.pw_uid, account.pw_gid)

    def _mounts(self, node: str = "") -> tuple[dict[str, Path], list[str]]:
        """Return the private mounts of a host, and the private directories below /."""
        storage = self.site.storage
        paths = [*storage.shared, *([storage.home] if storage.home_on_nodes or not node else [])]
        mounts = {f"/{Path(path).parts[1]}": self.disk / Path(path).parts[1] for path in paths}
        for path in storage.local if node else ():
            self._own(self.directory / "local" / node / path.lstrip("/"))
            mounts[f"/{Path(path).parts[1]}"] = self.directory / "local" / node / Path(path).parts[1]
        own = [*mounts, *(["/home"] if "/home" not in mounts else [])]
        files = {"/etc/hosts": self._hosts_file, "/etc/slurm": self._inside / "slurm", _PROFILE_FOLDER: self._start_up}
        if self._registries:
            files[str(BUNDLE)] = self._bundle
        return {**mounts, **files}, own

    def _make_hosts(self) -> None:
        way, wires = self.site.way, list[Wire]()

        def attach(machine: Machine) -> Link:
            wires.append(Wire(machine))
            return wires[0]

        self.gateway: SshHost | None = None
        options, pam = self._asking(way.asks)
        if way.gateway:
            mounts = {"/etc/hosts": self._hosts_file, **pam}
            first = self.gateway = self._host("gateway", options, attach, mounts, [])
        else:
            mounts, own = self._mounts()
            first = self.login = self._host("login", options, attach, {**mounts, **pam}, own)
        if pam:
            self.codes = Codes(first.etc, self.user)
        behind = wires[0].behind
        # Otherwise packets to addresses behind the first host would leave by this machine's default route.
        run("ip", "route", "add", str(behind), "dev", wires[0].device)
        self._lan = Lan(behind, self.directory / "switch")
        self._open.callback(self._lan.close)
        if self.gateway:
            self._lan.plug(self.gateway)
            self.login = self._host("login", self._asking(way.login_asks)[0], self._lan.plug, *self._mounts())
            self._login_address = self.login.address
        else:
            self._login_address = self._lan.plug(self.login).address
        self.nodes = {
            name: self._host(name, {}, self._lan.plug, *self._mounts(name)) for name in self.site.cluster.node_names
        }
        mounts, own = self._mounts()
        self.controller = Machine(
            "controller", self.directory / "controller", mounts=mounts, own=own, shared=self._shared
        )
        self._open.callback(self.controller.close)
        self._controller_address = self._lan.plug(self.controller).address
        names = {name: host.address for name, host in self.nodes.items()}
        if self._registries:
            shared = (self.directory / "registry",)
            self._registry = Machine("registry", self.directory / "registry-host", shared=shared)
            self._open.callback(self._registry.close)
            names |= dict.fromkeys(self._registries, self._lan.plug(self._registry).address)
        names |= {"controller": self._controller_address, self.login.name: self._login_address}
        self._hosts_file.write_text("127.0.0.1 localhost\n" + "".join(f"{a} {n}\n" for n, a in names.items()))

    def _asking(self, asks: str) -> tuple[Options, dict[str, Path]]:
        """Return options of an sshd for this authentication, and the PAM service if needed."""
        if asks not in WAYS_IN:
            return _LOGIN_OPTIONS[asks], {}
        (self.directory / "pam").write_text(WAYS_IN[asks].pam)
        return WAYS_IN[asks].options(), {"/etc/pam.d/sshd": self.directory / "pam"}

    def _host(
        self,
        name: str,
        options: Options,
        attach: Callable[[Machine], Link],
        mounts: Mapping[str, Path],
        own: Sequence[str],
    ) -> SshHost:
        called = {"login": self.site.way.login.partition(".")[0], "gateway": self.site.way.gateway.partition(".")[0]}
        path = ":".join([*map(str, self._path), "/usr/local/bin", "/usr/bin", "/bin"])
        host = SshHost(
            called.get(name, name),
            self.directory / name,
            users=[self.user],
            key=self.key,
            options={"SetEnv": f"PATH={path}", **options},
            attach=attach,
            mounts=mounts,
            own=own,
            shared=self._shared if name != "gateway" else (),
        )
        self._open.callback(host.close)
        return host

    def _trust_inside(self) -> None:
        """Allow the user to log in from the login node to the nodes with a key in the home, as sites do."""
        account = pwd.getpwnam(self.user)
        (self.home / ".ssh").mkdir(mode=0o700)
        key = new_key(self.home / ".ssh" / "id_ed25519")
        for path in (key, key.with_suffix(".pub"), key.parent):
            os.chown(path, account.pw_uid, account.pw_gid)
        known = "".join(host.known_hosts_lines(name) for name, host in self.nodes.items())
        for host in (self.login, *self.nodes.values()):
            (host.etc / "ssh_known_hosts").write_text(known)
            host.authorize(self.user, key.with_suffix(".pub").read_text())

    def _start_slurm(self) -> None:
        def host(machine: Machine, address: str) -> Host:
            return Host(machine.name, address, tuple(machine.command()))

        nodes = {name: host(node, node.address) for name, node in self.nodes.items()}
        hosts = Hosts(host(self.controller, self._controller_address), nodes)
        described = self.site.cluster
        if self.site.software.gpu_variable != "CUDA_VISIBLE_DEVICES":
            described = replace(described, extra=(*described.extra, f"TaskProlog={self._prolog}"))
        self.cluster = EmbeddedCluster(described, directory=self._inside / "c", hosts=hosts)
        self._open.callback(self.cluster.stop)
        self.cluster.start(90, until=os.getpid())

    def _start_registry(self, tars: Callable[[str], Path]) -> None:
        if not self._registries:
            return
        registry = SiteRegistry(self._registry, self.directory / "registry")
        for image, kind in self.site.software.registry.items():
            registry.push(image, tars(kind))

    def _start_containers(self, tars: Callable[[str], Path]) -> None:
        software = self.site.software
        self.dockers: dict[str, NodeDocker] = {}
        if software.runtime != "docker":
            for path, kind in software.images.items():
                unpack(tars(kind), self.on_disk(path), self.user)
            return
        self.dockers = {name: self.start_docker(name) for name in software.nodes or self.nodes}
        for docker in self.dockers.values():
            docker.wait()
            for image, kind in software.images.items():
                docker.load(tars(kind), image)
