"""A hostile login node: a real sshd, whose Slurm commands lie in the chosen way.

Later features are run against it, too: see ``tests/over_ssh/test_hostile_login.py``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ssh_hosts.sshd import SshHost
from ssh_hosts.ways import new_login_host

__all__ = ["ESCAPES", "LIES", "MARKUP", "HostileLogin", "hostile_login"]

COMMANDS = ("sacct", "sacctmgr", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "sreport", "sshare")

ESCAPES = ("\x1b", "\x07", "\x9b", "\u202e")
"""Characters that move a cursor, set a title or change the direction of text."""

MARKUP = ("<img src=x", "<script>pwned")
"""What a browser would run or fetch, if it came unescaped into a page."""

_TEXT = "\x1b]0;pwned\x07\x1b[2J\u202e<img src=x onerror=pwned()><script>pwned()</script>../../../pwned"
# In each field of text: names of nodes, partitions, features and jobs, reasons, states, paths.
_FIELDS = "c4aiscw|devwork|workstat|cell|root|None|PENDING|RUNNING|COMPLETED|/"

LIES = {
    "honest": 'exec "$real" "$@"',
    "empty": "exit 0",
    "fails": f"echo '{_TEXT}' >&2; exit 1",
    "garbage": "head -c 300000 /dev/urandom; head -c 3000 /dev/urandom >&2",
    "huge": 'yes "1|2|3|RUNNING|../../../pwned|4|5" | head -c 5000000',
    "one-line": "head -c 5000000 /dev/zero | tr '\\0' x",
    "slow": 'while :; do echo "1|2|3"; sleep 0.5; done',
    "twice": '"$real" "$@"; "$real" "$@"',
    "cut": '"$real" "$@" | head -c 200',
    "escapes": f'"$real" "$@" | sed -E "s#({_FIELDS})#\\1{_TEXT}#g"',
    "other-names": f'"$real" "$@" | sed -E "s#({_FIELDS})#../../../pwned#g"',
    "other-numbers": '"$real" "$@" | sed -E "s/[0-9]+/999999999999999999999999/g"',
    "long-numbers": '"$real" "$@" | sed -E "s/[0-9]+/$(head -c 5000 /dev/zero | tr "\\0" 9)/g"',
    "negative-numbers": '"$real" "$@" | sed -E "s/[0-9]+/-1/g"',
    "odd-numbers": '"$real" "$@" | sed -E "s/[0-9]+/1e999/g"',
}
"""What the commands of the login node do, by name: lines for /bin/sh; ``$real`` is the real command."""

_COMMAND = """#!/bin/sh
lie=$(cat {folder}/lie 2>/dev/null)
case "$*" in *--help*|*--version*) lie=honest ;; esac
real={folder}/real/${{0##*/}}
. {folder}/lies/${{lie:-honest}}
"""


class HostileLogin:
    """The host, and the lie that its commands tell from now on.

    Attributes
    ----------
    host : SshHost
        The login node.
    """

    def __init__(self, host: SshHost, folder: Path) -> None:
        self.host, self._folder = host, folder

    def tell(self, lie: str) -> None:
        """Choose one of ``LIES``; ``--help`` and ``--version`` stay as they are."""
        (self._folder / "lie").write_text(lie)


def _write_commands(folder: Path) -> dict[str, Path]:
    """Write the commands; return what is mounted on the host in place of the real ones."""
    mounts = {}
    for name in ("real", "lies", "bin"):
        (folder / name).mkdir(parents=True)
    for name, text in LIES.items():
        (folder / "lies" / name).write_text(text + "\n")
    for name in COMMANDS:
        if (path := shutil.which(name)) is not None:
            shutil.copy2(path, folder / "real" / name)
            command = folder / "bin" / name
            command.write_text(_COMMAND.format(folder=folder))
            command.chmod(0o755)
            mounts[path] = command
    return mounts


@pytest.fixture(scope="module")
def hostile_login(
    ssh_host: Callable[..., SshHost], short_tmp: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HostileLogin]:
    """Provide a login node of ``cluster`` that lies; at first it is honest."""
    folder = short_tmp / "hostile"
    mounts = _write_commands(folder)
    host = new_login_host(ssh_host, short_tmp, tmp_path_factory, sessions=4, mounts=mounts)
    yield HostileLogin(host, folder)
    host.close()
