"""Typical site: laptop -> gateway with a second factor -> login nodes -> compute nodes, and a real Slurm."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ssh_hosts.machine import Machine, run
from ssh_hosts.network import Lan, Link, LongWire, Wire
from ssh_hosts.people import People
from ssh_hosts.second_factor import WAYS_IN, Codes
from ssh_hosts.slurm import SiteSlurm
from ssh_hosts.sshd import Options, SshHost, new_key

__all__ = ["Site"]

# OpenSSH starts this to ask the user: it records the question, and prints the answer that `Site.ssh` has prepared.
_ASKPASS = """#!/bin/sh
cd {directory} || exit 1
printf '%s\\0' "$1" >>asked
case $1 in
  *erification*) cat code ;;
  *) cat password ;;
esac
"""


class Site:
    """Hosts of one site; the fixture ``new_ssh_site`` describes their creation.

    The test process is in the laptop's place: it reaches only the gateway of the site. Neither the laptop nor the
    gateway has a slurm.conf.

    Attributes
    ----------
    user, password : str
        The user's account; the home is the same on all hosts.
    key : Path
        Private key of the laptop, authorized on all hosts.
    ssh_config, known_hosts : Path
        Files of the laptop: hosts ``gateway``, ``login`` (through the gateway; one name for two hosts), ``login1``,
        ``login2`` and ``node1`` … (through ``login``).
    gateway, logins, nodes : SshHost, dict, dict
        Dicts are by host name. ``logins["login1"].drop()`` cuts a host off inside the site.
    controller : Machine
        Host of slurmctld.
    slurm : SiteSlurm
    codes : Codes
        The user's one-time codes on the gateway.
    """

    def __init__(
        self,
        directory: Path,
        *,
        user: str,
        password: str,
        key: Path,
        way_in: str = "key+code",
        nodes: int = 2,
        round_trip: float = 0,
        gateway_options: Options | None = None,
        login_options: Options | None = None,
        node_options: Options | None = None,
        shared: Sequence[Path] = (),
    ) -> None:
        self.directory, self.user, self.password, self.key = directory, user, password, key
        self.known_hosts, self.ssh_config = directory / "known_hosts", directory / "config"
        self._hosts_file = directory / "hosts"
        self._hosts_file.touch()
        self.slurm = SiteSlurm(directory / "slurm")
        self._mounts = {"/etc/hosts": self._hosts_file, "/etc/slurm": self.slurm.etc}
        self._shared = (self.slurm.directory, *shared)
        self._open = ExitStack()
        try:
            self.gateway = self._start_gateway(way_in, round_trip, gateway_options)
            self.codes = Codes(self.gateway.etc, user)
            self.logins = {name: self._start_host(name, login_options) for name in ("login1", "login2")}
            self.nodes = {f"node{n}": self._start_host(f"node{n}", node_options) for n in range(1, nodes + 1)}
            self.controller = self._start_slurm()
            self.point_login_at("login1")
            self._trust_inside()
            self._write_laptop_files()
            self.slurm.wait_until_idle(nodes)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all hosts; only their files remain."""
        self._open.close()

    def point_login_at(self, name: str) -> None:
        """Let the name ``login`` lead to that host from now on, as round-robin DNS does."""
        self._login = name
        # In place: the hosts have this very file mounted as /etc/hosts.
        self._hosts_file.write_text("127.0.0.1 localhost\n" + "".join(f"{a} {n}\n" for n, a in self._names().items()))

    def ssh(self, host: str, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run ``words`` on a host with the laptop's OpenSSH, which gets password and code; no error if it fails."""
        (self.directory / "code").write_text(self.codes.next() + "\n")
        return run(*self.client(host, *words), **{"check": False, "env": self.askpass_environment(), **options})

    def client(self, host: str, *words: str) -> list[str]:
        """Return the command line of the laptop's OpenSSH."""
        return ["ssh", "-F", str(self.ssh_config), host, *words]

    def askpass_environment(self) -> dict[str, str]:
        """Return an environment in which OpenSSH asks the test's program instead of a terminal."""
        return {**os.environ, "SSH_ASKPASS": str(self.directory / "askpass"), "SSH_ASKPASS_REQUIRE": "force"}

    @property
    def machines(self) -> list[Machine]:
        """Return all hosts of the site."""
        return [self.gateway, *self.logins.values(), *self.nodes.values(), self.controller]

    @property
    def asked(self) -> list[str]:
        """Return the questions of OpenSSH so far."""
        path = self.directory / "asked"
        return path.read_text().split("\0")[:-1] if path.exists() else []

    # ------------------------------------------------------------------------------------------------------------

    def _start_gateway(self, way_in: str, round_trip: float, options: Options | None) -> SshHost:
        wires: list[Wire] = []

        def attach(machine: Machine) -> Link:
            wires.append(LongWire(machine, round_trip=round_trip) if round_trip else Wire(machine))
            return wires[0]

        pam = self.directory / "pam"
        pam.write_text(WAYS_IN[way_in].pam)
        gateway = SshHost(
            "gateway",
            self.directory / "gateway",
            users=[self.user],
            key=self.key,
            options={**WAYS_IN[way_in].options(), **(options or {})},
            attach=attach,
            mounts={"/etc/hosts": self._hosts_file, "/etc/pam.d/sshd": pam},
        )
        self._open.callback(gateway.close)
        behind = wires[0].behind
        # Otherwise packets to addresses behind the gateway would leave by this machine's default route. No host answers
        # them on this cable, and the gateway forwards nothing.
        run("ip", "route", "add", str(behind), "dev", wires[0].device)
        self._lan = Lan(behind, self.directory / "switch")
        self._open.callback(self._lan.close)
        self._lan.plug(gateway)
        return gateway

    def _start_host(self, name: str, options: Options | None) -> SshHost:
        host = SshHost(
            name,
            self.directory / name,
            users=[self.user],
            key=self.key,
            options=options,
            attach=self._lan.plug,
            mounts=self._mounts,
            shared=self._shared,
        )
        self._open.callback(host.close)
        return host

    def _start_slurm(self) -> Machine:
        controller = Machine("controller", self.directory / "controller", mounts=self._mounts, shared=self._shared)
        self._open.callback(controller.close)
        self._controller_address = self._lan.plug(controller).address
        nodes = {name: (host, host.address) for name, host in self.nodes.items()}
        self.slurm.start("site", (controller, self._controller_address), nodes)
        return controller

    def _names(self) -> dict[str, str]:
        hosts = {**self.logins, **self.nodes}
        names = {name: host.address for name, host in hosts.items()}
        return {**names, "controller": self._controller_address, "login": self.logins[self._login].address}

    def _trust_inside(self) -> None:
        """Allow the user to log in between the hosts of the site with a key in the home, as sites do."""
        key = new_key(self.directory / "inside")
        public = key.with_suffix(".pub").read_text()
        People.write(self.user, ".ssh/id_ed25519", key.read_text()).chmod(0o600)
        known = "".join(host.known_hosts_lines(name) for name, host in {**self.logins, **self.nodes}.items())
        for host in (*self.logins.values(), *self.nodes.values()):
            (host.etc / "ssh_known_hosts").write_text(known)
            host.authorize(self.user, public)

    def _write_laptop_files(self) -> None:
        known = self.gateway.known_hosts_lines()
        for name, host in self.logins.items():
            known += host.known_hosts_lines(name, "login")
        for name, host in self.nodes.items():
            known += host.known_hosts_lines(name)
        self.known_hosts.write_text(known)
        entries = [f"Host gateway\n    HostName {self.gateway.address}\n"]
        entries += [f"Host {name}\n    ProxyJump gateway\n" for name in ("login", *self.logins)]
        entries += [f"Host {name}\n    ProxyJump login\n" for name in self.nodes]
        common = {
            "User": self.user,
            "IdentityFile": self.key,
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.known_hosts,
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
        }
        entries.append("Host *\n" + "".join(f"    {word} {value}\n" for word, value in common.items()))
        self.ssh_config.write_text("\n".join(entries))
        (self.directory / "password").write_text(self.password + "\n")
        (self.directory / "askpass").write_text(_ASKPASS.format(directory=self.directory))
        (self.directory / "askpass").chmod(0o755)
