"""Node of a Ray cluster: ``python -u ray_node.py JOBDIR [args]``, in a container or not, for ``ray_cluster.py``.

The first node has Ray's head, and runs the cell beside it once all nodes are connected. Each other node has a worker,
which ends with the head. All processes of Ray end with this process, also by SIGKILL: ``ray start --block`` arranges
that with the system. Ray gets the resources of the job on this node; of its GPUs, Ray gives each task those that it
requests.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import importlib.util
import os
import re
import runpy
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_slurm.runner.job_directory import JobDirectory

# The runner is not a package: its files are loaded by path.
loader = runpy.run_path(__file__[: -len("ranks/ray_node.py")] + "loader.py")
load = loader["load"]

_START = ("ray.scripts.scripts", "start", "--block", "--disable-usage-stats", "--dashboard-agent-listen-port=0")
_DEFAULT_PASSWORD = "5241590000000000"  # noqa: S105 - of Ray's own Redis, public, until Ray 1.11; later ones ignore it
_NO_RANGE = ("--min-worker-port=0", "--max-worker-port=0")  # any free ports: several users may run Ray on one node
_STORE_SHARE, _MIN_STORE_BYTES = (
    0.3,
    80 << 20,
)  # memory for objects: Ray's default share, and its minimum
_START_TIMEOUT_S = 600.0  # seconds for all nodes to connect, including the time to fetch images
_SILENCE_S = 15.0  # seconds after which a waiting process reports it
_POLL_INTERVAL_S = 0.2
_END_TIMEOUT_S = 10.0  # seconds to end after SIGTERM
_MAX_SHOWN_LINES = 6  # last lines of Ray's output
_PART = re.compile(r"(\w+)(?:\.(?:out|err) tail)? [\[(]exit code(?:\(s\))?=(-?\d+)")  # an ended process in Ray's output
_PASSED_ON = (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)

# A separate driver, until all nodes are connected: it prints a line with the connected ones at each change.
_NODES_PROGRAM = """
import os, sys, time, ray
ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False, logging_level="ERROR")
told = None
while True:
    there = sorted({node["NodeName"] for node in ray.nodes() if node["Alive"]})
    if there != told:
        print(*there, flush=True)
        told = there
    if len([node for node in ray.nodes() if node["Alive"]]) >= int(sys.argv[1]):
        print("all", flush=True)
        break
    time.sleep(0.2)
ray.shutdown()
"""


class RayEnded(Exception):
    """Another process ends this one."""


class RayFailed(Exception):
    """Ray cannot run; the message says why."""


def report(text: str) -> None:
    """Print a message for the user."""
    sys.stderr.write(f"launcher: {text}\n")
    sys.stderr.flush()


def path_of(place: JobDirectory, what: str) -> str:
    """Return a file of the job directory for this cluster alone."""
    return os.path.join(place.folder, f"ray{place.suffix}.{what}")


def node_name() -> str:
    """Return Slurm's name of this node."""
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def is_open(version: str) -> bool:
    """Return whether a version of Ray accepts clients without a token."""
    return tuple(map(int, re.findall(r"\d+", version)[:2])) < (2, 52)


def set_variables(env: Any, token: str) -> None:
    """Set the variables by which programs find the cluster, and Ray's settings that have no options."""
    env["RAY_ADDRESS"] = env["JUPYTER_SLURM_RAY_ADDRESS"]
    # Main scripts that were written for Ray's own example of a submission script read these names.
    env["ip_head"], env["redis_password"] = env["RAY_ADDRESS"], _DEFAULT_PASSWORD
    env["RAY_USAGE_STATS_ENABLED"] = "0"
    env["RAY_AUTH_MODE"], env["RAY_AUTH_TOKEN_PATH"] = "token", token
    env.pop("RAY_AUTH_TOKEN", None)  # Ray would prefer this one
    if env["JUPYTER_SLURM_RAY_NODES"] == "1":
        env["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # otherwise Ray listens on all addresses, without need
    # Slurm limits the memory of the job. Ray would watch that of the node, which others use, too.
    env.setdefault("RAY_memory_monitor_refresh_ms", "0")
    # Five minutes instead of 40 s for the head to register, on busy nodes; the launcher ends it all if the head ends.
    env.setdefault("RAY_NUM_REDIS_GET_RETRIES", "150")


def shares(env: Any) -> list[str]:
    """Return Ray's options for the CPUs, GPUs and memory of the job on this node."""
    cpus = env.get("SLURM_CPUS_ON_NODE", "")
    said = [f"--num-cpus={cpus if cpus.isdigit() else len(os.sched_getaffinity(0))}"]
    said.append(f"--num-gpus={len(load('lifecycle.usage').visible(env))}")
    memory = load("container.job_memory").memory_of(dict(env))
    if memory:
        store = max(_MIN_STORE_BYTES, min(int(memory * _STORE_SHARE), _shared_memory()))
        said += [f"--object-store-memory={store}", f"--memory={max(memory - store, _MIN_STORE_BYTES)}"]
    return said


def _shared_memory() -> int:
    place = os.statvfs("/dev/shm")  # noqa: S108 - how much is free
    return int(place.f_bavail * place.f_frsize * 0.9)


def ray_folder() -> str:
    """Return the folder of Ray's sockets and logs. Ray makes it accessible to all, so a private folder contains it."""
    return os.path.join(os.environ["JUPYTER_SLURM_RAY_FOLDER"], "r")


def make_folder(path: str) -> None:
    """Create a private folder on this node. Another node of this job may share the machine."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise RayFailed(f"{path} on {node_name()} belongs to another user. Run the cell again.")


def sweep() -> None:
    """Remove the folders of jobs that were killed on this node: nobody else knows them."""
    lease = load("container.lock")
    for name in filter(re.compile(r"ray-\d+-[0-9a-f]{8}").fullmatch, os.listdir("/tmp")):  # noqa: S108
        path = os.path.join("/tmp", name)  # noqa: S108 - where ray_cluster.py has put it
        with contextlib.suppress(OSError):
            found = os.lstat(path)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                continue
            labels = []
            for holder in os.listdir(path):
                if holder.startswith("holder."):
                    with open(os.path.join(path, holder), encoding="ascii", errors="replace") as file:
                        labels.append(file.read())
            if labels and all(map(lease.has_ended, labels)):
                shutil.rmtree(path, ignore_errors=True)


class Ray:
    """Processes that ``ray start`` has started on this node."""

    def __init__(self, options: list[str]) -> None:
        self.folder, self._owner = os.environ["JUPYTER_SLURM_RAY_FOLDER"], os.getpid()
        sweep()
        make_folder(self.folder)
        with open(os.path.join(self.folder, f"holder.{node_name()}"), "w", encoding="ascii") as file:
            file.write(load("container.lock").holder())
        self._log = os.path.join(self.folder, f"start.{node_name()}.{os.getpid()}.log")
        argv = [
            sys.executable,
            loader["path_of"]("module_start"),
            *_START,
            *_NO_RANGE,
            f"--node-name={node_name()}",
            *shares(os.environ),
            *options,
        ]
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=load("proc").dying_with_us(signal.SIGTERM),
            )

    def last_lines(self) -> str:
        """Return the last lines of Ray's output."""
        with open(self._log, encoding="utf-8", errors="replace") as log:
            lines = [line.strip()[:300] for line in log if line.strip(" -\n")]
        words = load("proc").describe_exit
        parts = dict.fromkeys(f"{part[1]}: {words(int(part[2]))}" for part in map(_PART.search, lines) if part)
        return "\n".join("    " + line for line in [*parts] or lines[-_MAX_SHOWN_LINES:])

    def end(self) -> None:
        """End Ray, and remove its files; not in a cell, forked from the owner, at the end of the cell."""
        if os.getpid() != self._owner:
            return
        for number in _PASSED_ON:
            signal.signal(number, signal.SIG_IGN)
        load("proc").end_process(self.process)
        shutil.rmtree(self.folder, ignore_errors=True)


def dies_with_parent() -> None:
    """Let the system end this process with its parent. A container has another mechanism."""
    ctypes.CDLL(None).prctl(1, int(signal.SIGTERM), 0, 0, 0)


def can_reach(address: str) -> str:
    """Return the reason why the head cannot be reached; empty if it can."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_SILENCE_S).close()
    except OSError as error:
        return str(error.strerror or error)
    return ""


def check_whose(address: str) -> None:
    """Refuse a head of another user: a user who took the port first would receive the token."""
    relay, (host, _, port) = load("login_node.relay"), address.rpartition(":")
    try:
        found = [(place, user) for place, user, _ in relay.query_kernel(int(port))]
    except OSError:
        found = relay.listeners(*relay.tables(), int(port))
    if any(user != os.getuid() for place, user in found if place in (host, "0.0.0.0", "::")):  # noqa: S104
        raise RayFailed(f"Another user has port {port} of {node_name()}, which Ray's head needs. Run the cell again.")


def work() -> int:
    """Run the worker of another node, as long as the head exists."""
    address, begun, is_told = os.environ["RAY_ADDRESS"], time.monotonic(), False

    def stop_if_head_is_gone(*_: Any) -> None:
        if can_reach(address):  # otherwise it is a signal for the cell
            raise RayEnded

    signal.signal(signal.SIGUSR2, stop_if_head_is_gone)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    while True:
        why = can_reach(address)
        waited = time.monotonic() - begun
        if not why:
            break
        if waited > _START_TIMEOUT_S:
            raise RayFailed(f"{node_name()} does not reach Ray's head at {address}: {why}")
        if waited > _SILENCE_S and not is_told:
            is_told = True
            report(f"{node_name()} does not reach Ray's head at {address} yet: {why}")
        time.sleep(_POLL_INTERVAL_S)
    ray = Ray([f"--address={address}"])
    try:
        code = ray.process.wait()
        if can_reach(address):
            return 0  # the head has ended, and this worker with it
        raise RayFailed(
            f"Ray ended on {node_name()} ({load('proc').describe_exit(code)}). Last lines of its log:\n"
            f"{ray.last_lines()}"
        )
    finally:
        ray.end()


class RayHead:
    """First node: Ray's head, and the cell."""

    def __init__(self, place: JobDirectory, args: list[str]) -> None:
        self._place, self._args, self._cell = place, args, 0
        self._nodes = int(os.environ["JUPYTER_SLURM_RAY_NODES"])

    def run(self) -> int:
        """Return the exit code of the cell."""
        if is_open(version := importlib.metadata.version("ray")):
            report(
                f"Ray {version} does not support tokens: other users who reach {node_name()} can run programs "
                "as you while this job runs. Use Ray 2.52 or newer."
            )
        host, _, port = os.environ["RAY_ADDRESS"].rpartition(":")
        others = os.environ["JUPYTER_SLURM_RAY_PORTS"].split(",")
        options = ["--head", f"--node-ip-address={host}", f"--port={port}", f"--temp-dir={ray_folder()}"]
        options += ["--include-dashboard=false", "--dashboard-host=127.0.0.1", f"--dashboard-port={others[0]}"]
        options.append("--no-monitor")  # the monitor would request more nodes
        if importlib.util.find_spec("grpc"):  # needed for ray://; without it, Ray refuses the option
            options.append(f"--ray-client-server-port={others[1]}")
        ray = Ray(options)
        try:
            self._wait_for_all(ray)
            self._place.write(path_of(self._place, "all"), "")
            return self._run_cell(ray)
        finally:
            ray.end()

    def _wait_for_all(self, ray: Ray) -> None:
        """Wait until every node is connected."""
        argv = [sys.executable, "-c", _NODES_PROGRAM, str(self._nodes)]
        begun, there, is_told = time.monotonic(), "", self._nodes == 1
        while can_reach(os.environ["RAY_ADDRESS"]):
            self._check(ray, begun, there)
            time.sleep(_POLL_INTERVAL_S)
        check_whose(os.environ["RAY_ADDRESS"])
        with open(os.path.join(ray.folder, "look.log"), "wb") as log:
            look = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        out: Any = look.stdout
        try:
            while True:
                self._check(ray, begun, there)
                if select.select([out], [], [], _POLL_INTERVAL_S)[0]:
                    line = out.readline().decode().strip()
                    if line == "all":
                        return
                    if not line:
                        with open(log.name, encoding="utf-8", errors="replace") as text:
                            raise RayFailed(f"Ray on {node_name()} does not answer:\n{text.read()[-2000:].rstrip()}")
                    there = line
                elif not is_told and time.monotonic() - begun > _SILENCE_S:
                    is_told = True
                    report(f"Waiting for Ray on {self._nodes} nodes. It runs on: {there or 'none'}.")
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                look.wait(_END_TIMEOUT_S)
            look.kill()
            look.wait()

    def _check(self, ray: Ray, begun: float, there: str) -> None:
        if ray.process.poll() is not None:
            raise RayFailed(f"Ray's head did not start on {node_name()}. Last lines of its log:\n{ray.last_lines()}")
        if time.monotonic() - begun > _START_TIMEOUT_S:
            raise RayFailed(
                f"Ray did not start on {self._nodes} nodes in {_START_TIMEOUT_S:.0f} s, only on: {there or 'none'}."
            )

    def _run_cell(self, ray: Ray) -> int:
        self._cell = os.fork()
        if not self._cell:
            for number in _PASSED_ON:
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            dies_with_parent()
            self._place.offer()
            for name in [name for name in os.environ if name.startswith("JUPYTER_SLURM_RAY_")]:
                del os.environ[name]
            sys.exit(load("cell.run").run(self._place, self._args))
        for number in _PASSED_ON:
            signal.signal(number, lambda number, _: os.kill(self._cell, number))
        while True:
            pid, status = os.wait()
            if pid == self._cell:
                return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            if pid == ray.process.pid:
                ray.process.returncode = status
                report(
                    f"Ray's head on {node_name()} has ended. The cell runs without it. Last lines of its log:\n"
                    f"{ray.last_lines()}"
                )


def run(place: JobDirectory, args: list[str]) -> int:
    """Run the head or a worker; return the exit code."""
    set_variables(os.environ, path_of(place, "token"))
    if importlib.util.find_spec("ray") is None:
        raise RayFailed(
            f"{sys.executable} on {node_name()} has no ray. Choose a Python with ray by env=NAME or python=PATH."
        )
    return RayHead(place, args).run() if os.environ["JUPYTER_SLURM_RAY_ROLE"] == "head" else work()


def main() -> int:
    """Run the node; report errors."""

    def end(*_: Any) -> None:
        raise RayEnded

    signal.signal(signal.SIGTERM, end)
    dies_with_parent()
    try:
        return run(load("cell.run").JobDirectory(sys.argv[1]), sys.argv[2:])
    except RayFailed as error:
        report(str(error))
        return 1
    except RayEnded:
        return 128 + signal.SIGTERM


if __name__ == "__main__":
    sys.exit(main())
