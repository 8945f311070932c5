"""Ray cluster on the nodes of a job, for ``launch.py``: cell and head on the first node, a worker on each other.

The head is started in the batch script, the workers by one step of srun (``ray_node.py`` each, in containers if
``env=`` names an image). From Ray 2.52 on, clients need the token in the job directory; older versions have no tokens.
The ports of a job with a single node are reachable only from that node.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import os
import re
import runpy
import secrets
import signal
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

# The runner is not a package: its files are loaded by path.
loader = runpy.run_path(__file__[: -len("ranks/ray_cluster.py")] + "loader.py")
load, path_of = loader["load"], loader["path_of"]
if TYPE_CHECKING:
    from jupyter_slurm.runner import proc
    from jupyter_slurm.runner.job_directory import JobDirectory
    from jupyter_slurm.runner.job_document import JobDocument
    from jupyter_slurm.runner.ranks import launch
else:
    proc = load("proc")
    launch = load("ranks.launch")

_LOST_NODE = re.compile(r"^srun: error: (\S+): tasks? [\d,-]+: (.*)")
_ANSWER_TIMEOUT_S = 60.0  # seconds for scontrol
_END_TIMEOUT_S = 20.0  # seconds for the workers to end by themselves
_PASSED_ON = (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def own_address(env: Any) -> str:
    """Return the address of this node for the other nodes of the job; its loopback without other nodes."""
    if int(env.get("SLURM_JOB_NUM_NODES") or 1) == 1:
        return "127.0.0.1"
    argv = ["scontrol", "show", "hostnames", env.get("SLURM_JOB_NODELIST", "")]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        listed = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ANSWER_TIMEOUT_S, check=True
        )
        for name in listed.stdout.decode("utf-8", "replace").split()[1:]:
            with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect((name, 1))  # nothing is sent: the system chooses the route
                return str(probe.getsockname()[0])
    own = launch.first_node(env)
    return socket.gethostbyname(own) if own else "127.0.0.1"


def variables(place: JobDirectory, env: Any) -> dict[str, str]:
    """Return the variables for all nodes."""
    job = env.get("SLURM_JOB_ID", "0")
    return {
        "JUPYTER_SLURM_RAY_ADDRESS": f"{own_address(env)}:{proc.free_port()}",
        "JUPYTER_SLURM_RAY_PORTS": f"{proc.free_port()},{proc.free_port()}",
        "JUPYTER_SLURM_RAY_NODES": env.get("SLURM_JOB_NUM_NODES") or "1",
        # The folder contains sockets, whose paths have at most 107 characters, and Ray needs the same folder on all
        # nodes.
        "JUPYTER_SLURM_RAY_FOLDER": f"/tmp/ray-{job}-{secrets.token_hex(4)}",  # noqa: S108 - nobody can guess it
    }


def commands(job: JobDocument, folder: str, args: list[str]) -> tuple[list[str], list[str] | None]:
    """Return the command lines of the first node, and of the others, if any."""
    env = os.environ
    node = [sys.executable, "-u", path_of("container.run" if launch.is_contained(job) else "ranks.ray_node"), folder]
    others = int(env.get("SLURM_JOB_NUM_NODES") or 1) - 1
    if not others:
        return [*node, *args], None
    srun = ["srun", "--export=ALL", "--kill-on-bad-exit=0", "--wait=0", "--input=none", "--job-name=ray", "--mpi=none"]
    each = ["--relative=1", f"--nodes={others}", f"--ntasks={others}", "--ntasks-per-node=1", "--cpu-bind=none"]
    return [*node, *args], [*srun, *each, *launch.all_gpus(env), *node]


class Workers:
    """Step of the other nodes, with its messages."""

    def __init__(self, argv: list[str], env: dict[str, str], told: Any) -> None:
        pipe, tied = subprocess.PIPE, proc.dying_with_us(signal.SIGTERM)
        self._process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=pipe, env=env, preexec_fn=tied
        )
        self._on_loss, self._is_over = told, False
        self._listener = threading.Thread(target=self._receive_messages, daemon=True)
        self._listener.start()

    def _receive_messages(self) -> None:
        """Forward messages; call the callback when a node is lost."""
        said: Any = self._process.stderr
        for raw in said:
            line = raw.decode("utf-8", "replace").rstrip("\n")
            lost = _LOST_NODE.match(line)
            if self._is_over:
                continue
            if lost and not lost[2].startswith("Exited"):  # otherwise it has reported the reason itself
                launch.report(f"Ray on {lost[1]} has ended ({lost[2]}).")
            elif not lost:
                sys.stderr.write(line + "\n")
                sys.stderr.flush()
            if lost:
                self._on_loss()
        if not self._is_over:
            self._on_loss()

    def end(self, *, at_once: bool) -> None:
        """End the workers: first each by itself, because the head is gone, then by force, or at once."""
        self._is_over = True
        self._process.send_signal(signal.SIGTERM if at_once else signal.SIGUSR2)
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            self._process.wait()
        self._listener.join()


def _remove(*paths: str) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)


def start_head(argv: list[str], told: dict[str, str]) -> tuple[subprocess.Popen[bytes], list[int]]:
    """Start the head; return its process, and a list of the signals that arrive from now on."""
    early: list[int] = []
    for number in (*_PASSED_ON, signal.SIGTERM):
        signal.signal(number, lambda got, _: early.append(got))
    env = {**os.environ, **told, "JUPYTER_SLURM_RAY_ROLE": "head"}
    return subprocess.Popen(argv, env=env, preexec_fn=proc.dying_with_us(signal.SIGTERM)), early


def run(place: JobDirectory, args: list[str]) -> int:
    """Run the cell beside the head; return its exit code."""
    first, others = commands(place.job, place.folder, args)
    file_of = load("ranks.ray_node").path_of
    token, is_complete = file_of(place, "token"), file_of(place, "all")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(is_complete)  # of a run before a requeue
    place.write(token, secrets.token_hex(32))
    told = variables(place, os.environ)
    head, early = start_head(first, told)
    is_ended = False

    def end(*_: Any) -> None:
        nonlocal is_ended
        is_ended = True
        head.terminate()

    def lose() -> None:
        if not os.path.exists(is_complete):
            head.terminate()  # the cell has not started, and lacks nodes that it requested

    for number in _PASSED_ON:
        signal.signal(number, lambda number, _: head.send_signal(number))
    signal.signal(signal.SIGTERM, end)
    for missed in early:
        signal.raise_signal(missed)
    workers = None
    try:
        if others:
            env = {**launch.environment("torchrun"), **told, "JUPYTER_SLURM_RAY_ROLE": "worker"}
            workers = Workers(others, env, lose)
        code = head.wait()
    except OSError as error:
        launch.report(f"srun cannot be run on {os.uname().nodename}: {error.strerror}.")
        head.terminate()
        code = head.wait()
    finally:
        if workers:
            # otherwise another program may listen on the head's port
            workers.end(at_once=not os.path.exists(is_complete))
        _remove(token, is_complete)
    code = 128 - code if code < 0 else code
    if is_ended:
        return code  # Slurm has ended it, and reports the reason
    return int(launch.finish(place, code, None, {}))
