"""The kernel itself, for ``keeper.py``: its connection file, its process, and what that prints.

Any kernel that takes a connection file will do. That lies in a folder of this user alone, on a disk of the node, as do
its sockets (``sockets.py``).
Python 3.8+, standard library only.
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

# The files of the runner are no package: each is read by its path.
load = runpy.run_path(__file__[: -len("kernel/process.py")] + "loader.py")["load"]
if TYPE_CHECKING:
    from jupyter_slurm.runner import proc
    from jupyter_slurm.runner.kernel import folder, sockets, start
    from jupyter_slurm.runner.kernel.sockets import KernelStartError
else:
    folder = load("kernel.folder")
    sockets = load("kernel.sockets")
    proc = sockets.proc
    start = load("kernel.start")
    KernelStartError = sockets.KernelStartError
_MAX_TAIL_BYTES = 8000  # bytes of what it printed that are kept
_READ_SIZE = 65_536
_MAX_READS = 16  # pieces that are passed on before anything else gets its turn
_NO_CONTAINER = 125  # exit code of contained.py
_PORTS_HINT = "Where it knows no Unix sockets, the word transport=tcp gives it ports (README.md: Kernels on nodes)."
_OOM_SCORE = "500"  # of /proc/PID/oom_score_adj: where memory runs out, the kernel goes and we can say so


def make_folder() -> str:
    """Make a folder for sockets: of this user alone, on a disk of the node, with a short path."""
    path = folder.make()
    if path is not None:
        return path
    hint = "Neither /tmp nor /dev/shm can be written, or they are full."
    raise KernelStartError(f"{proc.node_name()} has no folder for sockets.", hint)


class Kernel:
    """One kernel, from its start to its end.

    Parameters
    ----------
    place : str
        The job directory.
    asked : dict
        Its ``kernel.json``.
    """

    def __init__(self, place: str, asked: dict[str, Any]) -> None:
        self.key = secrets.token_hex(32).encode("ascii")
        self.folder = make_folder()
        self._place, self._settings, self._tail = place, asked, b""
        self.process: Any = None
        self.sockets: Any = None
        self.output = -1  # a file descriptor: what it prints past its channels

    def start(self) -> None:
        """Start it; KernelStartError."""
        self._began = time.monotonic()
        path = os.path.join(self.folder, "connection.json")
        self.sockets = self._make_sockets()
        told: dict[str, Any] = {**self.sockets.connection_info(), "key": self.key.decode("ascii")}
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
                start_new_session=True,  # a group of its own, to be interrupted with all that it started
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
        """Return what starts it, in a container where there is to be one."""
        image, beside_us = self._settings.get("image"), __file__[: -len("process.py")]
        python = (image or {}).get("python") or ("python3" if image else sys.executable)
        argv = [python, "-u", f"{beside_us}start.py", str(self._settings.get("name") or "python3"), path]
        if self._settings.get("argv"):
            argv = [str(word).replace("{connection_file}", path) for word in self._settings["argv"]]
        inside = [sys.executable, "-u", f"{beside_us}contained.py", self._place, self.folder]
        return [*inside, *argv] if image else argv

    @property
    def is_interrupted_by_message(self) -> bool:
        """Whether it is interrupted by a message; else by a signal."""
        with contextlib.suppress(OSError), open(os.path.join(self.folder, start.HOW), encoding="ascii") as file:
            return file.read() == "message"
        return bool(self._settings.get("interrupt_mode") == "message")

    def _cwd(self) -> str | None:
        cwd = self._settings.get("cwd")
        cwd = os.path.expanduser(cwd) if cwd else None
        if cwd and not os.path.isdir(cwd):
            if not self._settings.get("image"):  # else it may be one of the image
                raise KernelStartError(f"{proc.node_name()} has no folder {cwd}.", "dir=FOLDER says where it begins.")
            return None
        return cwd

    def _environment(self) -> dict[str, str]:
        env = {**os.environ, **(self._settings.get("env") or {})}
        env["JPY_PARENT_PID"] = str(os.getpid())  # else it explains how to be used from a terminal
        if self._settings.get("image"):  # there it may be the child of process 1, and would think that we are gone
            del env["JPY_PARENT_PID"]
        return env

    def receive_output(self) -> bool:
        """Pass on some of what it printed past its channels; False: it will print nothing more."""
        for _ in range(_MAX_READS):  # who prints without end keeps nobody from ending it
            try:
                data = os.read(self.output, _READ_SIZE)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not data:
                return False
            self._tail = (self._tail + data)[-_MAX_TAIL_BYTES:]
            with contextlib.suppress(OSError):  # a full disk is no reason to end
                os.write(2, data)
        return True

    def why_not(self) -> dict[str, str]:
        """Return why it has not even begun, where it was not the kernel that ended, or a hint; nothing otherwise."""
        if self.process.returncode in (start.LACKING, _NO_CONTAINER):
            return {"why": self.tail.strip().split("\n")[-1]}
        return {"hint": self.hint}

    @property
    def hint(self) -> str:
        """What may help where it does not open its sockets; of ipykernel it is known that it can."""
        is_ipykernel = not self._settings.get("argv") and (self._settings.get("name") or "python3") == "python3"
        return "" if is_ipykernel or self.sockets.transport != "ipc" else _PORTS_HINT

    @property
    def opens_for(self) -> float:
        """Seconds since it was to open its sockets; in a container it begins later."""
        if not self._settings.get("image"):
            return time.monotonic() - self._began
        with contextlib.suppress(OSError):
            return time.time() - os.stat(os.path.join(self.folder, start.HOW)).st_mtime
        return 0.0

    @property
    def tail(self) -> str:
        """The last of what it printed past its channels."""
        return self._tail.decode("utf-8", "replace")

    def interrupt(self) -> None:
        """Interrupt it as a terminal does, with what it has started."""
        with contextlib.suppress(OSError):
            if self._settings.get("image"):
                self.process.send_signal(signal.SIGINT)  # who runs the container passes it on
            else:
                os.killpg(self.process.pid, signal.SIGINT)

    def kill(self, number: int) -> None:
        """Send a signal to it and to what it has started."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, number)

    def hide(self) -> None:
        """Remove its folder: whoever is to be connected is, by now."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def clear(self) -> None:
        """End what is left of it, and remove its folder."""
        if self.process is not None and self.process.poll() is None:  # else its number may be another one's by now
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
