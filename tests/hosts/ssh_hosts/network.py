"""Cables and switches: connections between hosts, and loss of packets on them."""

from __future__ import annotations

import ipaddress
import json
import random
import subprocess
import sys
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from ssh_hosts import relay
from ssh_hosts.machine import Machine, run

__all__ = ["Lan", "Link", "LongWire", "Meter", "Wire", "drop_port", "restore_port"]

# Reserved for measuring network devices (RFC 2544): no real network uses it, and hardly a route of this machine.
_POOL = IPv4Network("198.18.0.0/15")

_DROP = """
table netdev jsl_{device} {{
  chain ingress {{
    type filter hook ingress device "{device}" priority 0
    meta protocol {{ ip, ip6 }} drop
  }}
}}
"""

_DROP_PORT = """
table inet jsl_{port} {{
  chain input {{
    type filter hook input priority 0
    tcp dport {port} drop
    tcp sport {port} drop
  }}
}}
"""

_COUNT_PORT = """
table inet jslc_{port} {{
  chain input {{
    type filter hook input priority 1
    tcp dport {port} counter
    tcp sport {port} counter
  }}
}}
"""


class Link:
    """A cable between two network devices, each on a machine or (None) on the local host.

    Attributes
    ----------
    address : str
        Address of the second end.
    """

    def __init__(self, address: str, near: tuple[Machine | None, str], far: tuple[Machine, str]) -> None:
        self.address = address
        self._ends = (near, far)

    def drop(self) -> None:
        """Lose every packet from now on, silently, in both directions, like a sleeping laptop or a dead VPN.

        Packets are dropped on arrival, so that neither end gets an error (a filter on output would give EPERM). ARP
        passes: without it, a new connection would soon fail with "no route".
        """
        for machine, device in self._ends:
            _on(machine, "nft", "-f", "-", input=_DROP.format(device=device))

    def restore(self) -> None:
        """Let packets through again. No effect if they are not dropped."""
        for machine, device in self._ends:
            _restore(machine, device)

    def close(self) -> None:
        """Free the resources that do not end with the machine."""


class Wire(Link):
    """A cable (veth pair) from the local host to a machine, with unique addresses.

    The cable has its own /26: the first addresses are those of its two ends, the upper half (``behind``) is for a
    network behind the machine. Both ends vanish with the machine.

    Attributes
    ----------
    here : str
        Address of the local end.
    device : str
        Name of the network device at the local end; on the machine it is ``eth0``.
    """

    def __init__(self, machine: Machine) -> None:
        self.device, network = self._claim(machine)
        self.here, self.behind = str(network[1]), list(network.subnets())[1]
        super().__init__(str(network[2]), (None, self.device), (machine, "eth0"))
        self.restore()  # a run killed while it lost packets has left a rule for a device of this name
        _up(None, self.device, f"{self.here}/30")
        _up(machine, "eth0", f"{self.address}/30")

    def _claim(self, machine: Machine) -> tuple[str, IPv4Network]:
        """Create the cable. Its unique device name stands for its addresses, so test runs never collide."""
        taken = _routed()
        candidates = list(enumerate(_POOL.subnets(new_prefix=26)))
        random.shuffle(candidates)
        for number, network in candidates:
            if not any(network.overlaps(other) for other in taken) and self._connect(f"jsl{number}", machine):
                return f"jsl{number}", network
        raise OSError(f"no free network in {_POOL}")

    def close(self) -> None:
        """Remove the rule that drops packets: it outlives the device, and would apply to the next one."""
        _restore(None, self.device)

    def _connect(self, device: str, machine: Machine) -> bool:
        """Create the two devices; False if the name is taken."""
        peer = ["peer", "name", "eth0", "netns", str(machine.pid)]
        made = run("ip", "link", "add", device, "type", "veth", *peer, check=False)
        if made.returncode != 0 and "File exists" not in made.stderr:
            raise OSError(f"cannot make a network for a host here: {made.stderr.strip()}")
        return made.returncode == 0


class LongWire(Wire):
    """A cable with a given round trip, in seconds.

    ``tc netem`` does this, but not every kernel has it. So a process (:mod:`ssh_hosts.relay`) delays each packet
    between two TUN devices, and TCP at both ends sees a true round trip: acknowledgements, windows and retransmissions
    included, unlike with a relay of connections.
    """

    def __init__(self, machine: Machine, *, round_trip: float) -> None:
        self._round_trip = round_trip
        self._relay: subprocess.Popen[bytes] | None = None
        super().__init__(machine)
        # Linux's default of 4 MiB would limit SSH to 50 MB/s at 50 ms; data transfer hosts are tuned like this.
        for name in ("tcp_rmem", "tcp_wmem"):
            machine.run("sh", "-c", f"echo 4096 131072 67108864 >/proc/sys/net/ipv4/{name}")

    def close(self) -> None:
        """End also the process that carries the packets."""
        super().close()
        self._end_relay()

    def _end_relay(self) -> None:
        if self._relay is not None:
            self._relay.communicate(timeout=60)
            self._relay = None

    def _connect(self, device: str, machine: Machine) -> bool:
        argv = [sys.executable, relay.__file__, device, str(machine.pid), str(self._round_trip / 2)]
        self._relay = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._relay.stdout is not None
        said = self._relay.stdout.readline().decode().strip()
        if said == "ready":
            return True
        self._end_relay()
        if said != "taken":
            raise OSError(f"cannot make a network for a host here: {said}")
        return False


class Lan:
    """A network behind a host, with its own switch. Nothing routes into it or out of it.

    Parameters
    ----------
    network : IPv4Network
        Its addresses are assigned in turn.
    directory : Path
        Directory of the files of the switch, which is also a machine.
    """

    def __init__(self, network: IPv4Network, directory: Path) -> None:
        self.network, self.switch = network, Machine("switch", directory)
        self._free = network.hosts()
        self.switch.run("ip", "link", "add", "bridge", "type", "bridge", "forward_delay", "0")
        self.switch.run("ip", "link", "set", "bridge", "up")

    def plug(self, machine: Machine) -> Link:
        """Connect a machine; its device ``lan`` gets the next address."""
        address = next(self._free)
        port = f"port{int(address) - int(self.network.network_address)}"
        peer = ["peer", "name", "lan", "netns", str(machine.pid)]
        run("ip", "link", "add", port, "netns", str(self.switch.pid), "type", "veth", *peer)
        self.switch.run("ip", "link", "set", port, "master", "bridge", "up")
        _up(machine, "lan", f"{address}/{self.network.prefixlen}")
        return Link(str(address), (self.switch, port), (machine, "lan"))

    def close(self) -> None:
        """End the switch."""
        self.switch.close()


def drop_port(port: int) -> None:
    """Lose every packet to and from a port of this machine, silently, until :func:`restore_port`."""
    run("nft", "-f", "-", input=_DROP_PORT.format(port=port))


def restore_port(port: int) -> None:
    """Let packets through again. No effect if they are not dropped."""
    run("nft", "delete", "table", "inet", f"jsl_{port}", check=False)


class Meter:
    """Counter of the bytes to and from a port of this machine, including packet headers."""

    def __init__(self, port: int) -> None:
        self._table = ("table", "inet", f"jslc_{port}")
        run("nft", "delete", *self._table, check=False)  # of a killed run
        run("nft", "-f", "-", input=_COUNT_PORT.format(port=port))

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, *_: object) -> None:
        run("nft", "delete", *self._table)

    @property
    def total(self) -> int:
        """Return the bytes of both directions since its creation."""
        told = json.loads(run("nft", "-j", "list", *self._table).stdout)["nftables"]
        said = [word for item in told if "rule" in item for word in item["rule"]["expr"]]
        return sum(int(word["counter"]["bytes"]) for word in said if "counter" in word)


def _on(machine: Machine | None, *argv: str, **options: Any) -> None:
    (machine.run if machine else run)(*argv, **options)


def _restore(machine: Machine | None, device: str) -> None:
    _on(machine, "nft", "delete", "table", "netdev", f"jsl_{device}", check=False)


def _up(machine: Machine | None, device: str, address: str) -> None:
    _on(machine, "ip", "addr", "add", address, "dev", device)
    _on(machine, "ip", "link", "set", device, "up")


def _routed() -> list[IPv4Network]:
    routes = json.loads(run("ip", "-json", "-4", "route", "show", "table", "all").stdout)
    return [ipaddress.IPv4Network(route["dst"], strict=False) for route in routes if route["dst"] != "default"]
