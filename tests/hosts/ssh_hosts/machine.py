"""Isolated machine: its own network, host name, processes and mounts, without containers or images."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Machine", "run"]

_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
# The first process of the machine. It reaps orphans (as bash does), and ends with its standard input, thus with the
# process that started it. The kernel then ends all other processes, and removes the network.
_INIT = """
set -e
hostname "$1"
[ "$2" = here ] || ip link set lo up
root=$3 own=$4
shift 4
while [ "$1" != -- ]; do mount --rbind "$1" "$2"; shift 2; done
shift
if [ -n "$root" ]; then
  mount -t tmpfs -o mode=755 none "$root"
  for entry in /*; do
    if [ -L "$entry" ]; then cp -P "$entry" "$root"
    elif [ -d "$entry" ]; then
      mkdir "$root$entry"
      case " $own /tmp /run " in *" $entry "*) ;; *) mount --rbind "$entry" "$root$entry" ;; esac
    fi
  done
fi
mount -t tmpfs -o mode=755 none "$root/run"
mkdir -p "$root/run/sshd" "$root/run/lock"
while [ $# -gt 0 ]; do
  [ -z "$root" ] || [ -e "$root$2" ] || mkdir -p "$root$2"
  mount --rbind "$1" "$root$2"
  shift 2
done
if [ -n "$root" ]; then
  cd "$root"
  pivot_root . .
  umount -l .
fi
echo ready
read -r _
"""


def run(*argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command; an error contains its output (``check=False``: no error)."""
    check = options.pop("check", True)
    options = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 60, **options}
    if "input" not in options:
        options.setdefault("stdin", subprocess.DEVNULL)
    done = subprocess.run(argv, check=False, **options)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


class Machine:
    """A host: namespaces that live as long as this object, at most as long as this process.

    Parameters
    ----------
    name : str
        Its host name.
    directory : Path
        Directory of its files: ``tmp`` is its /tmp, ``log`` its /var/log.
    mounts : mapping, optional
        Private mounts: path on the machine to local path (file or directory; both exist). A directory of ``own``, or
        below one, need not exist.
    shared : sequence of Path, optional
        Directories below this machine's /tmp that the host shares at the same path.
    own : sequence of str
        Private directories below /, whether this machine has them or not: empty except for mounts.
    own_network : bool
        False: it uses this machine's network.

    Attributes
    ----------
    pid : int
        Process ID, on this machine, of its first process; ``/proc/<pid>/ns`` are its namespaces.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        *,
        mounts: Mapping[str, Path] | None = None,
        shared: Sequence[Path] = (),
        own: Sequence[str] = (),
        own_network: bool = True,
    ) -> None:
        self.name, self.directory = name, directory
        self._spaces = ["--uts", "--ipc", "--mount", "--pid", *(["--net"] if own_network else [])]
        directory.mkdir(mode=0o755, parents=True)
        before: list[tuple[Path, Path]] = []
        for part, mode in (("tmp", 0o1777), ("log", 0o755)):
            (directory / part).mkdir()
            (directory / part).chmod(mode)
        for path in shared:
            inside = directory / "tmp" / path.relative_to("/tmp")
            inside.mkdir(parents=True)
            before.append((path, inside))
        binds = [*((source, target) for target, source in (mounts or {}).items()), (directory / "log", "/var/log")]
        # Mounted last: it hides this machine's /tmp, the source of the others.
        binds.append((directory / "tmp", "/tmp"))
        unshare = ["unshare", *self._spaces, "--fork", "--kill-child", "--mount-proc"]
        root = ""
        if own:
            (directory / "root").mkdir()
            root = str(directory / "root")
        init = ["bash", "-c", _INIT, "init", name, "own" if own_network else "here", root, " ".join(own)]
        pairs = [
            *(str(path) for pair in before for path in pair),
            "--",
            *(str(path) for pair in binds for path in pair),
        ]
        self._process = subprocess.Popen(
            [*unshare, *init, *pairs],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=_ENVIRONMENT,
        )
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if said != b"ready\n":
            said += self._process.stdout.read()
            self.close()
            raise OSError(f"cannot make namespaces for a host here: {said.decode(errors='replace').strip()}")
        outer = self._process.pid
        self.pid = int(Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0])

    def close(self) -> None:
        """End every process of the machine; its network ends with them."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait(120)

    @property
    def tmp(self) -> Path:
        """Return the path of its /tmp on this machine."""
        return self.directory / "tmp"

    def command(self, *argv: str, user: str | None = None) -> list[str]:
        """Return a command line that runs ``argv`` on the host, as root or as ``user``."""
        enter = ["nsenter", "--target", str(self.pid), *self._spaces]
        if user is not None:
            enter += ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        return [*enter, *argv]

    def run(self, *argv: str, user: str | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command on the host, not through SSH; an error if it fails, unless ``check=False``.

        The command inherits no variable of this process.
        """
        return run(*self.command(*argv, user=user), **{"env": _ENVIRONMENT, **options})

    def processes(self) -> dict[int, str]:
        """Return its processes except the first: process ID on this machine, to the name of the program."""
        ours = os.stat(f"/proc/{self.pid}/ns/pid").st_ino
        found = {}
        for entry in os.listdir("/proc"):
            if entry.isdecimal() and int(entry) != self.pid:
                try:
                    if os.stat(f"/proc/{entry}/ns/pid").st_ino == ours:
                        found[int(entry)] = Path(f"/proc/{entry}/comm").read_text().strip()
                except OSError:  # ended meanwhile
                    continue
        return found

    def cpu_seconds(self) -> float:
        """Return the CPU time of its processes, including ended ones, which count for their parents."""
        ticks = 0
        for pid in [self.pid, *self.processes()]:
            with contextlib.suppress(OSError):  # ended meanwhile
                ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def command_lines(self) -> list[str]:
        """Return the command lines that every user of the host can see (``ps``)."""
        lines = []
        for pid in self.processes():
            with contextlib.suppress(OSError):
                lines.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        return lines

    def pid_here(self, inner: int) -> int | None:
        """Return the process ID on this machine of the machine's process ``inner``; None if it has ended."""
        for pid in self.processes():
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            ids = next(line.split() for line in status.splitlines() if line.startswith("NSpid:"))
            if int(ids[-1]) == inner:
                return pid
        return None
