"""Own network for each worker of the browser stage.

Chromium gives its requests up (ERR_NETWORK_CHANGED) when a network interface of the computer appears or vanishes. Tests
with hosts of their own (:mod:`ssh_hosts`) make such interfaces all the time.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

__all__ = ["pytest_configure"]

_CLONE_NEWNET = 0x40000000


def pytest_configure(config: pytest.Config) -> None:
    """Enter a new network if root runs ``pytest -m "browser…"``. Child processes and hosts are in it, too."""
    if os.geteuid() == 0 and shutil.which("ip") and str(config.getoption("markexpr")).startswith("browser"):
        _enter_new_network()


def _enter_new_network() -> None:
    """Move this thread into a network with a loopback interface alone; not if only a name server knows this computer."""
    addresses = _own_addresses()
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/thread-self/ns/net").open("rb") as former:
        if libc.unshare(_CLONE_NEWNET) != 0:
            return
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        # Slurm needs an address beside 127.0.0.1, and srun that of the computer's name.
        for address in ("127.0.0.2/8", *(f"{one}/32" for one in addresses if not one.startswith("127."))):
            subprocess.run(["ip", "address", "add", address, "dev", "lo"], check=True)
        if addresses and _own_addresses() != addresses:
            libc.setns(former.fileno(), _CLONE_NEWNET)


def _own_addresses() -> set[str]:
    with contextlib.suppress(OSError):
        return set(socket.gethostbyname_ex(socket.gethostname())[2])
    return set()
