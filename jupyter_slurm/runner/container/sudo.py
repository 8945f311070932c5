"""Docker by way of sudo, if the profile of the site says so.

The client of Docker then runs as root. It gets no signals of the user's processes and none of their variables: signals
go to the container by ``docker kill``, and variables through a file that only this process has open.

Sources: sudo(8), docker-run(1), docker-kill(1). Python 3.8+, standard library only.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Mapping

if TYPE_CHECKING:
    from jupyter_slurm.runner.job_document import EnvironmentPart, ImagePart

_PREFIX = ["sudo", "-n"]  # without a terminal, sudo cannot ask for a password
_RETRY_INTERVAL_S = 0.5  # seconds between two attempts to signal a container that is being created
_MAX_LINE_BYTES = 65_535  # of a line in a file of variables, which docker reads in pieces of 64 KiB
_REFUSED = re.compile(
    r"^(sudo: (?!unable to resolve host).*|Sorry, user .*|.* is not (?:in the sudoers|allowed to).*)$", re.MULTILINE
)

_programs: set[str] = set()  # that are called by way of sudo


def use_for(described: EnvironmentPart | ImagePart) -> None:
    """Call Docker by way of sudo from now on, if the description of an environment or of an image says so."""
    _programs.clear()
    if described.get("sudo"):
        _programs.add("docker")


def is_used(program: str) -> bool:
    """Return whether a program is called by way of sudo."""
    return program in _programs


def called(argv: list[str]) -> list[str]:
    """Return the command line, with sudo if its program is called so."""
    return [*_PREFIX, *argv] if is_used(argv[0]) else argv


def needed(program: str) -> list[str]:
    """Return the programs that the node needs for a program."""
    return [_PREFIX[0], program] if is_used(program) else [program]


def refusal(program: str, said: str) -> str:
    """Return the reason why sudo did not run a program, from its output; empty if it did."""
    found = _REFUSED.search(said) if is_used(program) else None
    if not found:
        return ""
    return (
        f"sudo on this node does not run {program} without a password ({found[1].strip()}). Ask the administrators to "
        f"allow `{program}` for you with NOPASSWD, or remove `sudo` from [container] of the cluster's profile."
    )


class Variables:
    """Variables of a container, in a file without a name. Root can open it by the number in this process."""

    def __init__(self) -> None:
        self._file: Any = tempfile.TemporaryFile(dir="/dev/shm")  # noqa: SIM115 - not a disk, and it stays open
        self.path = f"/proc/{os.getpid()}/fd/{self._file.fileno()}"

    def write(self, env: Mapping[str, str]) -> str:
        """Write the variables, one a line. Return the reason why one of them cannot be written, else an empty text."""
        lines = {name: f"{name}={value}".encode() for name, value in env.items()}
        for name, line in lines.items():
            why = "has a line break" if re.search(rb"[\r\n]", line) else "is longer than 64 KiB"
            if len(line) > _MAX_LINE_BYTES or "break" in why:
                return f"{name} cannot be passed to a container: its value {why}."
        self._file.write(b"".join(line + b"\n" for line in lines.values()))
        self._file.flush()
        return ""


def pass_on(process: Any, number: int, name: str, run_query: Callable[..., Any]) -> None:
    """Send a signal to a container of Docker, which may still be on its way; return at once."""

    def send() -> None:
        while process.poll() is None and run_query("docker", "kill", f"--signal={number}", name)[0]:
            time.sleep(_RETRY_INTERVAL_S)

    threading.Thread(target=send, daemon=True).start()
