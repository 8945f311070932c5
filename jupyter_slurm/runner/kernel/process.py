"""Kernel process for ``keeper.py``: its connection file, its process, and its printed output.

Any kernel that uses a connection file is supported. That file and the sockets (``sockets.py``) are in a private folder
of this user, on a disk of the node. Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import secrets
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

# The runner is not a package: its files are loaded by path.
load = runpy.run_path(__file__[: -len("kernel/process.py")] + "loader.py")["load"]
if TYPE_CHECKING:
    from jupyter_slurm.runner import proc
    from jupyter_slurm.runner.job_document import KernelSettings
    from jupyter_slurm.runner.kernel import folder, sockets, start
    from jupyter_slurm.runner.kernel.sockets import KernelStartError
else:
    folder = load("kernel.folder")
    sockets = load("kernel.sockets")
    proc = sockets.proc
    start = load("kernel.start")
    KernelStartError = sockets.KernelStartError
_MAX_TAIL_BYTES = 8000  # bytes of printed output that are kept
_READ_SIZE = 65_536
_MAX_READS = 16  # chunks that are forwarded before other work gets its turn
_NO_CONTAINER = 125  # exit code of contained.py
_PORTS_HINT = "If this kernel does not support Unix sockets, add transport=tcp."
_OOM_SCORE = "500"  # for /proc/PID/oom_score_adj: without memory, the kernel is killed and the keeper can report it


def make_folder() -> str:
    """Create a folder for sockets: private, on a disk of the node, with a short path."""
    path = folder.make()
    if path is not None:
        return path
    hint = "Check that /tmp or /dev/shm is writable and has free space."
    raise KernelStartError(f"{proc.node_name()} has no folder for sockets.", hint)


class Kernel:
    """Kernel from its start to its end.

    Parameters
    ----------
    place : str
        The job directory.
    asked : dict
        Content of its ``kernel.json``.
    """

    def __init__(self, place: str, asked: KernelSettings) -> None:
        self.key = secrets.token_hex(32).encode("ascii")
        self.folder = make_folder()
        self._place, self._settings, self._tail = place, asked, b""
        self.process: Any = None
        self.sockets: Any = None
        self.output = -1  # file descriptor of output printed outside the channels

    def start(self) -> None:
        """Start the kernel; may raise KernelStartError."""
        self._began = time.monotonic()
        self._contained_at: float | None = None
        path = os.path.join(self.folder, "connection.json")
        self.sockets = self._make_sockets()
        told: dict[str, str | int] = {**self.sockets.connection_info(), "key": self.key.decode("ascii")}
        told.update(signature_scheme="hmac-sha256", kernel_name=self._settings.get("name") or "python3")
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(told, file)
        argv = self._argv(path)
        self.output, write = os.pipe()
        os.set_blocking(self.output, False)
        try:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=write,
                cwd=self._cwd(),
                env=self._environment(),
                start_new_session=True,  # own process group, to interrupt it with all of its child processes
                preexec_fn=proc.dying_with_us(signal.SIGKILL),
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise KernelStartError(f"{argv[0]} cannot be run on {proc.node_name()}: {why}.") from None
        finally:
            os.close(write)
        with contextlib.suppress(OSError), open(f"/proc/{self.process.pid}/oom_score_adj", "w") as file:
            file.write(_OOM_SCORE)

    def _make_sockets(self) -> Any:
        if self._settings.get("transport") != sockets.Ports.transport:
            return sockets.Paths(self.folder)
        return sockets.Ports(None if self._settings.get("image") else lambda: proc.family(self.process.pid))

    def _argv(self, path: str) -> list[str]:
        """Return the command line of the kernel, in a container if there is an image."""
        image, beside_us = self._settings.get("image"), __file__[: -len("process.py")]
        python = (image or {}).get("python") or ("python3" if image else sys.executable)
        argv = [python, "-u", f"{beside_us}start.py", str(self._settings.get("name") or "python3"), path]
        if self._settings.get("argv"):
            argv = [str(word).replace("{connection_file}", path) for word in self._settings["argv"]]
        inside = [sys.executable, "-u", f"{beside_us}contained.py", self._place, self.folder]
        return [*inside, *argv] if image else argv

    @property
    def is_interrupted_by_message(self) -> bool:
        """Return whether the kernel is interrupted by a message; else by a signal."""
        with contextlib.suppress(OSError), open(os.path.join(self.folder, start.HOW), encoding="ascii") as file:
            return file.read() == "message"
        return bool(self._settings.get("interrupt_mode") == "message")

    def _cwd(self) -> str | None:
        cwd = self._settings.get("cwd")
        cwd = os.path.expanduser(cwd) if cwd else None
        if cwd and not os.path.isdir(cwd):
            if not self._settings.get("image"):  # otherwise the folder may be one of the image
                raise KernelStartError(
                    f"{proc.node_name()} has no folder {cwd}.", "Choose another folder with dir=FOLDER."
                )
            return None
        return cwd

    def _environment(self) -> dict[str, str]:
        env = {**os.environ, **(self._settings.get("env") or {})}
        env["JPY_PARENT_PID"] = str(os.getpid())  # otherwise it prints how to use it from a terminal
        if self._settings.get("image"):  # its parent may be process 1, which it would take for the end of the keeper
            del env["JPY_PARENT_PID"]
        return env

    def receive_output(self) -> bool:
        """Forward some output printed outside the channels; False: it has ended."""
        for _ in range(_MAX_READS):  # endless output must not prevent the end
            try:
                data = os.read(self.output, _READ_SIZE)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not data:
                return False
            self._tail = (self._tail + data)[-_MAX_TAIL_BYTES:]
            with contextlib.suppress(OSError):  # a full disk must not end the kernel
                os.write(2, data)
        return True

    def why_not(self) -> dict[str, str]:
        """Return the reason why the kernel has not started, if its start program failed; otherwise a hint."""
        if self.process.returncode in (start.LACKING, _NO_CONTAINER):
            return {"why": self.tail.strip().split("\n")[-1]}
        return {"hint": self.hint}

    @property
    def hint(self) -> str:
        """Hint if the kernel does not open its sockets. ipykernel needs none: it supports Unix sockets."""
        is_ipykernel = not self._settings.get("argv") and (self._settings.get("name") or "python3") == "python3"
        return "" if is_ipykernel or self.sockets.transport != "ipc" else _PORTS_HINT

    @property
    def opens_for(self) -> float:
        """Seconds since the kernel could open its sockets; a container delays this time.

        The time of the file is not used: a file server may have written it, by another clock.
        """
        if not self._settings.get("image"):
            return time.monotonic() - self._began
        if self._contained_at is None and os.path.exists(os.path.join(self.folder, start.HOW)):
            self._contained_at = time.monotonic()
        return 0.0 if self._contained_at is None else time.monotonic() - self._contained_at

    @property
    def tail(self) -> str:
        """Last output printed outside the channels."""
        return self._tail.decode("utf-8", "replace")

    def interrupt(self) -> None:
        """Interrupt the kernel and its child processes, as a terminal does."""
        with contextlib.suppress(OSError):
            if self._settings.get("image"):
                self.process.send_signal(signal.SIGINT)  # the process that runs the container forwards it
            else:
                os.killpg(self.process.pid, signal.SIGINT)

    def kill(self, number: int) -> None:
        """Send a signal to the kernel and its child processes."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, number)

    def hide(self) -> None:
        """Remove the folder: all connections exist by now."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def clear(self) -> None:
        """End the remaining processes, and remove the folder."""
        if self.process is not None and self.process.poll() is None:  # otherwise its process id may be reused
            left = proc.family(self.process.pid)
            self.kill(signal.SIGKILL)
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()
        if self.output >= 0:
            os.close(self.output)
            self.output = -1
        self.hide()
