"""Shell in the container of a running job: ``python -u container_shell.py JOBDIR``, in a step on the job's node.

With Docker and Podman, the shell enters the container that the job has started. Containers of Apptainer, Singularity
and Charliecloud share processes and network with their node, so that the shell starts from the same image, with the
same folders and variables.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import subprocess
import sys
from typing import Any, NamedTuple

# The runner is not a package: its files are loaded by path.
load = runpy.run_path(__file__[: -len("terminal/container_shell.py")] + "loader.py")["load"]
contain: Any = load("container.run")

_NAME = b"--name=jupyter_slurm-"
# Of the client, a shell in the container notices no end: a pipe in the job directory closes with this process.
_ENTERED = """[ -p "$1" ] && ( { exec 3<"$1" && { read -r _ <&3; kill -s HUP "$$"; }; } >/dev/null 2>&1 </dev/null & )
"""
_SHELL = "command -v bash >/dev/null 2>&1 && exec bash\nexec sh"
_HINT = "Open a terminal on the node itself: `jupyter slurm shell --host`."


class Client(NamedTuple):
    """A running client of Docker or Podman: its command, the name of its container, and its environment."""

    program: str
    name: str
    env: dict[str, str]


def find_client(folder: str) -> Client | None:
    """Return the client that runs the container of a job directory on this node; None: there is none."""
    for process in filter(str.isdigit, os.listdir("/proc")):
        words = _words(process, "cmdline")
        name = next((word[len("--name=") :] for word in words if word.startswith(_NAME)), b"")
        owned = _parent(process) if words[:1] == [b"sudo"] else process  # sudo itself runs as root
        if not name or b"run" not in words[1:] or not _is_own(owned):
            continue
        if os.fsencode(folder) not in _words(_parent(process), "cmdline"):
            continue  # of another step of the job, or of another job
        pairs = (word.partition(b"=") for word in _words(process, "environ"))
        env = {os.fsdecode(key): os.fsdecode(value) for key, _, value in pairs if key}
        return Client(os.path.basename(os.fsdecode(words[words.index(b"run") - 1])), os.fsdecode(name), env)
    return None


def _words(process: str, file: str) -> list[bytes]:
    """Return the command line or the environment of a process; of one that has ended, nothing."""
    with contextlib.suppress(OSError), open(f"/proc/{process}/{file}", "rb") as content:
        return content.read().split(b"\0")
    return []


def _is_own(process: str) -> bool:
    with contextlib.suppress(OSError):
        return os.stat(f"/proc/{process}").st_uid == os.getuid()
    return False


def _parent(process: str) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{process}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[1].decode("ascii")
    return "0"


def enter(client: Client, folder: str) -> int:
    """Run a shell in a running container; return its exit code."""
    pipe = os.path.join(folder, f"held.shell-{os.getpid()}")
    argv = [client.program, "exec", "--interactive", "--tty", "--env=TERM", client.name]
    argv += ["/bin/sh", "-c", _ENTERED + _SHELL, "sh", pipe]
    env = {**(client.env or os.environ), "TERM": os.environ.get("TERM", "xterm")}
    with contain.client.held(pipe):
        return subprocess.call(contain.sudo.called(argv), env=env)


def start(described: Any, folder: str) -> int:
    """Run a shell in a new container of the same image; return its exit code, or do not return at all."""

    def report(text: str) -> None:
        sys.stderr.write(f"container: {described['image']}: {text}\r\n")

    os.environ.update(described.get("variables") or {})
    return int(contain.start(described, ["/bin/sh", "-c", _SHELL], [os.path.dirname(folder)], report))


def main() -> int:
    """Run the shell. Without a container, report the reason."""
    folder = sys.argv[1]
    job = load("cell.run").JobDirectory(folder).job
    described = job["environment"]
    with contextlib.suppress(OSError, KeyError, TypeError):
        os.chdir(job["work_dir"])
    contain.sudo.use_for(described)
    try:
        if (client := find_client(folder)) is not None:
            return enter(client, folder)
        runtime = contain.choose(described["image"], described.get("runtime"))
        if runtime in ("docker", "podman"):
            sys.stderr.write(f"No container of this job runs on {os.uname().nodename} now. {_HINT}\n")
            return int(contain.FAILED)
        return start(described, folder)
    except contain.RuntimeRefused as error:
        sys.stderr.write(f"{error} {_HINT}\n")
        return int(contain.FAILED)


if __name__ == "__main__":
    sys.exit(main())
