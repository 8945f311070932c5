"""Cables: how the test process reaches a host, and how packets are lost on the way."""

from __future__ import annotations

import ipaddress
import json
import random
from ipaddress import IPv4Network

from ssh_hosts.machine import Machine, run

__all__ = ["Wire"]

# Set apart for measuring network devices (RFC 2544): no real network uses it, and a route of this machine hardly does.
_POOL = IPv4Network("198.18.0.0/15")

_DROP = """
table netdev {table} {{
  chain ingress {{
    type filter hook ingress device "{device}" priority 0
    meta protocol {{ ip, ip6 }} drop
  }}
}}
"""


class Wire:
    """A cable (veth pair) from here to a machine.

    Its /26 belongs to this cable alone: the first addresses to its two ends, the upper half (``inner``) to what lies
    behind the machine. Both ends vanish with the machine.

    Attributes
    ----------
    here, there : IPv4Address
        This end and the machine's.
    device : str
        Name of the network device at this end; at the other it is ``eth0``.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.device, network = _claim(machine)
        self.here, self.there = network[1], network[2]
        self.inner = list(network.subnets())[1]
        run("ip", "addr", "add", f"{self.here}/30", "dev", self.device)
        run("ip", "link", "set", self.device, "up")
        machine.run("ip", "addr", "add", f"{self.there}/30", "dev", "eth0")
        machine.run("ip", "link", "set", "eth0", "up")

    def drop(self) -> None:
        """Lose every packet from now on, silently, in both directions: what a sleeping laptop or a dead VPN looks like.

        Dropped where they arrive, so that neither end is told anything (a filter on output would be: EPERM).
        """
        for enter, device in self._ends():
            run(*enter, "nft", "-f", "-", input=_DROP.format(table=self.device, device=device))

    def restore(self) -> None:
        """Let packets through again. Nothing happens where they are not dropped."""
        for enter, _ in self._ends():
            run(*enter, "nft", "delete", "table", "netdev", self.device, check=False)

    def _ends(self) -> list[tuple[list[str], str]]:
        return [([], self.device), (self._machine.command(), "eth0")]


def _claim(machine: Machine) -> tuple[str, IPv4Network]:
    """Make the cable. Its name stands for its addresses: that no two devices can share one keeps test runs apart."""
    taken = _routed()
    candidates = list(enumerate(_POOL.subnets(new_prefix=26)))
    random.shuffle(candidates)
    for number, network in candidates:
        if any(network.overlaps(other) for other in taken):
            continue
        peer = ["peer", "name", "eth0", "netns", str(machine.pid)]
        made = run("ip", "link", "add", f"jsl{number}", "type", "veth", *peer, check=False)
        if made.returncode == 0:
            return f"jsl{number}", network
        if "File exists" not in made.stderr:
            raise OSError(f"cannot make a network for a host here: {made.stderr.strip()}")
    raise OSError(f"no free network in {_POOL}")


def _routed() -> list[IPv4Network]:
    destinations = [
        route["dst"] for route in json.loads(run("ip", "-json", "-4", "route", "show", "table", "all").stdout)
    ]
    networks = []
    for destination in destinations:
        if destination != "default":
            networks.append(ipaddress.IPv4Network(destination, strict=False))
    return networks
