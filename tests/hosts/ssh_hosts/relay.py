"""Process between the two ends of a :class:`ssh_hosts.network.LongWire`; run as a program, standard library only.

``relay.py DEVICE PID DELAY`` creates the TUN device DEVICE locally and ``eth0`` in the network of process PID, and
carries packets between them, each DELAY seconds late. It prints "ready" or "taken" (the device exists), and ends with
its standard input; then both devices are gone.
"""

from __future__ import annotations

import collections
import ctypes
import fcntl
import os
import select
import struct
import sys
import time

_CLONE_NEWNET = 0x40000000
# linux/if_tun.h
_TUNSETIFF, _TUNSETOFFLOAD = 0x400454CA, 0x400454D0
_IFF_TUN, _IFF_NO_PI, _IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
_TUN_F_CSUM, _TUN_F_TSO4, _TUN_F_TSO6 = 1, 2, 4
# A virtio header and a packet of up to 64 KiB: no end segments packets, as on a veth pair.
_LARGEST = 10 + 65536
# Content of a 1 Gbit/s line in half a second; further packets are lost, as in a router.
_QUEUE = 64 << 20
_BURST = 64


class Direction:
    """Packets in transit from one device to the other."""

    def __init__(self, source: int, target: int, delay: float) -> None:
        self.source, self._target, self._delay = source, target, delay
        self._packets: collections.deque[tuple[float, bytes]] = collections.deque()
        self._held = 0

    def take(self) -> None:
        """Read the sent packets."""
        due = time.monotonic() + self._delay
        for _ in range(_BURST):
            try:
                packet = os.read(self.source, _LARGEST)
            except BlockingIOError:
                return
            if self._held + len(packet) <= _QUEUE:
                self._held += len(packet)
                self._packets.append((due, packet))

    def deliver(self) -> float | None:
        """Deliver the due packets; return the time to the next (seconds), None if there is none."""
        while self._packets:
            wait = self._packets[0][0] - time.monotonic()
            if wait > 0:
                return wait
            packet = self._packets.popleft()[1]
            self._held -= len(packet)
            try:
                os.write(self._target, packet)
            except OSError:  # the device is down: the packet is lost
                continue
        return None


def tun(name: str) -> int:
    """Create a TUN device in this thread's network and return its descriptor; OSError if the name is taken."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    flags = _IFF_TUN | _IFF_NO_PI | _IFF_VNET_HDR
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    fcntl.ioctl(descriptor, _TUNSETOFFLOAD, _TUN_F_CSUM | _TUN_F_TSO4 | _TUN_F_TSO6)
    return descriptor


def enter_network(path: str) -> None:
    """Move this thread into a network namespace (setns(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(path, os.O_RDONLY)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")
    os.close(descriptor)


def main(device: str, pid: str, delay: str) -> None:
    """Carry packets until standard input ends."""
    try:
        near = tun(device)
    except OSError as error:
        print("taken" if os.path.exists(f"/sys/class/net/{device}") else error, flush=True)
        return
    enter_network(f"/proc/{pid}/ns/net")
    far = tun("eth0")
    print("ready", flush=True)
    directions = [Direction(near, far, float(delay)), Direction(far, near, float(delay))]
    while True:
        waits = [wait for direction in directions if (wait := direction.deliver()) is not None]
        ready, _, _ = select.select([near, far, sys.stdin], [], [], min(waits, default=None))
        if sys.stdin in ready:
            return
        for direction in directions:
            if direction.source in ready:
                direction.take()


if __name__ == "__main__":
    main(*sys.argv[1:])
