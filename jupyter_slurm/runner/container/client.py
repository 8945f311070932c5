"""Client of Docker or Podman that runs a container: its signals, its end, and the pipes that end the container with it.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any, Iterator

# The runner is not a package: its files are loaded by path.
load = runpy.run_path(__file__[: -len("container/client.py")] + "loader.py")["load"]
if TYPE_CHECKING:
    from jupyter_slurm.runner.container import image_fetch as images
    from jupyter_slurm.runner.container import lock, sudo
    from jupyter_slurm.runner.container import runtime_commands as runtimes
    from jupyter_slurm.runner.container.runtime_commands import RuntimeRefused
else:
    images = load("container.image_fetch")
    lock, runtimes, sudo = images.lock, images.runtimes, images.sudo
    RuntimeRefused = runtimes.RuntimeRefused

FAILED = 125  # exit code without a container, as for other environments in domain/scripts/environments.py
_PARENT_CHECK_INTERVAL_S = 2.0  # seconds between two checks for slurmstepd
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@contextlib.contextmanager
def held(path: str) -> Iterator[None]:
    """Hold the end of a named pipe. On a file system without named pipes, the other pipe has to suffice."""
    end = -1
    with contextlib.suppress(OSError):
        if path:
            os.mkfifo(path, 0o600)
            end = os.open(path, os.O_RDWR | os.O_NOFOLLOW)  # opening for writing alone would wait for the reader
    try:
        yield
    finally:
        if end >= 0:
            os.close(end)
        with contextlib.suppress(OSError):
            if path:
                os.unlink(path)


@contextlib.contextmanager
def passed_on(path: str) -> Iterator[None]:
    """Copy standard input into a named pipe, which closes with it."""
    if not path:
        yield
        return
    try:
        os.mkfifo(path, 0o600)
        end = os.open(path, os.O_RDWR | os.O_NOFOLLOW)  # opening for writing alone would wait for the reader
    except OSError as error:
        raise RuntimeRefused(f"The container gets no cells: {path} cannot be created ({error.strerror}).") from None
    threading.Thread(target=_copy_input, args=(end,), daemon=True).start()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _copy_input(end: int) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(0, 4096):
            os.write(end, data)
    os.close(end)


def follow(argv: list[str], env: dict[str, str], name: str, image: str) -> int:
    """Run a container of a daemon; return its exit code."""
    read_end, write_end = os.pipe()
    started: list[Any] = []
    early: list[int] = []  # signals that arrived before the process started

    def forward(number: int, _: Any) -> None:
        if not started:
            early.append(number)
        for process in started:
            send(process, number, name, argv[0])

    for number in FORWARDED:  # with control groups Slurm sends them to the batch script alone: to this process
        signal.signal(number, forward)
    parent = os.getppid()
    process = subprocess.Popen(sudo.called(argv), stdin=read_end, env=env)
    os.close(read_end)
    started.append(process)
    for missed in early:
        send(process, missed, name, argv[0])
    threading.Thread(target=end_with, args=(parent, process, name, argv[0]), daemon=True).start()
    code = process.wait()
    os.close(write_end)
    if code < 0 or code in (FAILED, 126, 127):  # these may come from the client or from the command
        said = why(argv[0], image, has_gpus=code == FAILED and "--gpus" in argv)
        if not said:
            images.run_query(argv[0], "rm", "--force", name)
        end_inside(name)  # a daemon that has ended cannot end it
        if said and code > 0:
            raise RuntimeRefused(said)
    return 128 - code if code < 0 else code


def send(process: Any, number: int, name: str, program: str) -> None:
    """Send a signal to a client of Docker or Podman, or to the container of a client that runs as root."""
    if sudo.is_used(program):
        sudo.pass_on(process, number, name, images.run_query)
    else:
        process.send_signal(number)


def end_with(parent: int, process: Any, name: str, program: str) -> None:
    """End a client of Docker with the parent process: Slurm forgets a job whose slurmstepd was killed."""
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_INTERVAL_S)
    send(process, signal.SIGKILL, name, program)


def end_inside(name: str) -> None:
    """Kill the first process of a container, which ends the others: only its command line contains the name."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            if name.encode() in words:
                os.kill(int(pid), signal.SIGKILL)


def why(program: str, image: str, *, has_gpus: bool) -> str:
    """Return the reason why there was no container; empty if the runtime works and has the image."""
    if said := images.unwell(program):
        return str(said)
    if images.run_query(program, "image", "inspect", image)[0]:
        return f"The image {image} was removed from this node. Run the cell again to fetch it."
    if has_gpus and "nvidia" not in images.run_query(program, "info", "--format", "{{json .Runtimes}}")[1]:
        return (
            f"{program} on this node seems to give no GPUs to containers: nvidia-container-toolkit is missing. Use "
            "Apptainer, which does not need it, or ask the administrators to install it."
        )
    return ""


def sweep(program: str, uid: int) -> None:
    """Remove containers of jobs that have ended without a notification of the daemon, which was down itself.

    Also remove containers that never started: their client was ended between its two requests.
    """
    form = f'{{{{.ID}}}} {{{{.Label "{runtimes.LABEL}.holder"}}}}'
    which = ["--all", "--filter", f"label={runtimes.LABEL}.user={uid}"]
    for line in images.run_query(program, "ps", *which, "--format", form)[1].splitlines():
        name, _, label = line.partition(" ")
        if lock.has_ended(label):
            images.run_query(program, "rm", "--force", name)
