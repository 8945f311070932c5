"""Job that makes a Python environment: ``python -u build.py JOBDIR``; on the login node: ``build.py --login REQUEST``.

``environment_build`` of job.json is the request; on the login node, a file that is removed when it has been read. The
environment appears under its name when it is complete and checked. A failed build changes nothing (``store.py``). One
process at a time makes an environment of one request.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import runpy
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING

load = runpy.run_path(__file__[: -len("environment/build.py")] + "loader.py")["load"]
if TYPE_CHECKING:
    from jupyter_slurm.runner.container import image_fetch as images
    from jupyter_slurm.runner.container import lock
    from jupyter_slurm.runner.container.runtime_commands import RuntimeRefused
    from jupyter_slurm.runner.environment import cuda, import_check, store, tools
    from jupyter_slurm.runner.job_document import EnvironmentBuildPart
else:
    store, tools = load("environment.store"), load("environment.tools")
    cuda, import_check = load("environment.cuda"), load("environment.import_check")
    images = tools.images
    lock, RuntimeRefused = images.lock, images.RuntimeRefused

_FAILED = 1
_MAX_NAMED = 8
_MIRROR = (
    "If the site has a mirror or a proxy, set PIP_INDEX_URL (UV_INDEX_URL) or https_proxy on the cluster. Or name a "
    "folder of wheels on the cluster in requirements.txt: --no-index --find-links /FOLDER."
)
_PROBE_BYTES = 1 << 20
_FULL = (
    "The disk is full, or your quota is used up: look at `%slurm room`, and free some space. The incomplete "
    "environment was removed."
)
# Prints the version of Python and the number of packages.
_CHECK = (
    "import sys, importlib.metadata as m; print('%d.%d.%d' % sys.version_info[:3], len({d.metadata['Name'] for d in "
    "m.distributions(path=[p for p in sys.path if p.startswith(sys.prefix)])}))"
)


class Build:
    """Requested environment.

    Parameters
    ----------
    wish : dict
        ``environment_build`` of job.json.
    folder : str
        Job directory; on the login node the folder of environments without names.
    is_login : bool
        Whether this host is the login node.
    """

    def __init__(self, wish: EnvironmentBuildPart, folder: str, is_login: bool = False) -> None:
        self._wish, self._folder, self._is_login = wish, folder, is_login
        self.place = f"{'login node' if is_login else 'node'} {_host()}"
        self.result = ""
        self.process = "command" if is_login else "job"
        self._store = os.path.expanduser(wish["folder"])
        self._begun = time.time()

    def have(self) -> str:
        """Make the environment if necessary, and give it its name; return its path.

        Raises
        ------
        RuntimeRefused
            The environment cannot be made; the message says why.
        """
        try:
            made = store.open_store(self._store)
            with images.ending_on_sigterm():
                key = os.path.join(made, f"{self._wish['hash']}.lock")
                with lock.held(key, self._is_present, self._wait) as is_ours:
                    if is_ours:
                        store.remove_incomplete(self._store, self._wish["hash"])
                    path = self._present() or self._make(made)
                    store.link(self._store, self._wish["name"], path)
        except OSError as error:
            raise RuntimeRefused(
                f"The environment cannot be stored in {self._store}: {error.strerror or error}."
            ) from None
        return str(path)

    def _present(self) -> str:
        """Return the environment of an equal request; with ``replace``, only one that is newer than this job."""
        path = str(store.find_created(self._store, self._wish["hash"]))
        is_old = self._wish.get("replace") and path and store.read_note(path).get("made", 0.0) < self._begun
        return "" if is_old else path

    def _is_present(self) -> bool:
        return bool(self._present())

    @staticmethod
    def _wait(who: str) -> None:
        tools.report(f"Waiting for {who}, which makes the same environment.")

    def _make(self, made: str) -> str:
        tool = tools.choose_tool(self._wish)
        path = os.path.join(made, f"{self._wish['hash']}.{os.urandom(4).hex()}")
        files = os.path.join(self._folder, f".files.{os.urandom(8).hex()}" if self._is_login else "environment")
        shutil.rmtree(files, ignore_errors=True)  # of a run before a requeue
        os.mkdir(files, 0o700)
        try:
            for name, text in self._wish["files"].items():
                with open(os.path.join(files, os.path.basename(name)), "w", encoding="utf-8") as file:
                    file.write(text)
            tools.report(f"Making the environment {self._wish['name']} with {tool} in {path}")
            tools.make(tool, self._wish, path, files)
            self._complete(path, tool)
        except RuntimeRefused as error:
            is_full = _is_full(made)
            shutil.rmtree(path, ignore_errors=True)
            if is_full:
                raise RuntimeRefused(f"{error} {_FULL}") from None
            if isinstance(error, tools.IndexUnreached):
                raise RuntimeRefused(f"{error} {self._without_index(made, error.index)}") from None
            raise
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        finally:
            shutil.rmtree(files, ignore_errors=True)
        return path

    def _without_index(self, made: str, index: str) -> str:
        """Return what to do where a host does not reach an index, and remember the host for the next attempt."""
        tried = store.add_attempt(made, self._wish["hash"], self.place, index)
        text = f"It did not reach {index}."
        if {place.split()[0] for place, _ in tried} == {"node", "login"}:
            hosts = ", ".join(f"{place} ({address})" for place, address in tried)
            return f"{text} Neither the nodes nor the login node reach an index. Tried: {hosts}. {_MIRROR}"
        if self._is_login:
            return f"{text} Make the environment in a job, without where=login. {_MIRROR}"
        return (
            f"{text} Make the environment on the login node with where=login, or choose a partition whose nodes reach "
            f"the index. {_MIRROR}"
        )

    def _complete(self, path: str, tool: str) -> None:
        """Check that the Python of the environment runs, and write the note that completes it."""
        python = os.path.join(path, "bin", "python")
        done = subprocess.run([python, "-I", "-c", _CHECK], capture_output=True, text=True, check=False)
        version, _, packages = done.stdout.strip().partition(" ")
        if done.returncode or not packages.isdecimal():
            last = (done.stderr.strip() or "no message").rpartition("\n")[2]
            raise RuntimeRefused(f"The Python of the environment does not run: {last[:300]}.")
        note: store.EnvironmentNote = {
            "tool": tool,
            "python": version,
            "packages": int(packages),
            "hash": self._wish["hash"],
        }
        note["source"], note["job"] = self._wish["source"], os.environ.get("SLURM_JOB_ID", "")
        self._check_cuda(path, note)
        self._check_imports(path, note)
        store.write_note(path, note)

    def _check_cuda(self, path: str, note: store.EnvironmentNote) -> None:
        """Note the CUDA of the packages and the driver of the node; report if the driver does not run it."""
        needs, driver = cuda.newest(cuda.installed(path)), cuda.node_driver()
        if driver:
            note["driver"] = driver
        if needs:
            note["cuda"], note["min_driver"] = needs.major, cuda.DRIVERS.get(needs.major, 0)
        if needs and driver and needs.major > cuda.limit_of(driver):
            tools.report(
                f"Warning: {needs.package} is built for CUDA {needs.major}, but the driver {driver} of this node runs "
                f"CUDA {cuda.limit_of(driver)} at most."
            )

    def _check_imports(self, path: str, note: store.EnvironmentNote) -> None:
        """Import the requested packages. A failure is no reason to refuse: a GPU node may have the missing library."""
        names = [one.name for one in cuda.requested(self._wish["files"])]
        failures, unchecked = import_check.failed_imports(path, names)
        for failure in failures:
            tools.report(f"Warning: the import of {failure}")
        if unchecked:
            tools.report(f"The time did not suffice to import {', '.join(unchecked[:_MAX_NAMED])}.")
        if failures:
            note["failed_imports"] = "\n".join(failures)
            self.result = f" Not all packages can be imported on this {self.place}."


def _is_full(folder: str) -> bool:
    """Return whether a folder has no room: programs such as venv hide the reason of a failure."""
    path = os.path.join(folder, f".room.{os.urandom(8).hex()}")
    try:
        with open(path, "wb") as file:
            file.write(bytes(_PROBE_BYTES))
            os.fsync(file.fileno())  # a quota of NFS is noticed late
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
    return False


def _host() -> str:
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def make_on_login_node(request: str) -> int:
    """Make the environment that a file requests; return the exit code."""
    folder, begun = os.path.dirname(request), time.monotonic()
    try:
        store.open_store(os.path.dirname(folder))
        with open(request, encoding="utf-8") as file:
            wish = json.load(file)
        os.unlink(request)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"env: The request {request} cannot be read: {error}.\n")
        return _FAILED
    return _make(Build(wish, folder, is_login=True), wish, begun)


def _make(build: Build, wish: EnvironmentBuildPart, begun: float) -> int:
    """Make an environment, and report the result; return the exit code."""
    try:
        path = build.have()
    except RuntimeRefused as error:
        sys.stderr.write(f"env: {error} ({build.place})\n")
        return _FAILED
    except SystemExit:  # ended by a signal: incomplete files are removed
        sys.stderr.write(f"env: The {build.process} ended before {wish['name']} was complete.\n")
        raise
    took = time.monotonic() - begun
    tools.report(f"{wish['name']} is ready in {path}, after {took:.0f} s. env={wish['name']} uses it.{build.result}")
    return 0


def main() -> int:
    """Make the environment that the job directory requests; record the end."""
    if sys.argv[1] == "--login":
        return make_on_login_node(sys.argv[2])
    folder, begun = sys.argv[1], time.monotonic()
    place = load("cell.run").JobDirectory(folder)
    if not place.is_ours("makes this environment"):
        return 0
    load("container.host_folders").drop_missing(os.environ)
    wish = place.job["environment_build"]
    place.publish_event("started")
    code = _make(Build(wish, folder), wish, begun)
    place.end(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
