"""Job that makes a Python environment: ``python -u build.py JOBDIR``.

``environment_build`` of job.json is the request. The environment appears under its name when it is complete and
checked. A failed build changes nothing (``store.py``). One job at a time makes an environment of one request.

Python 3.8+, standard library only.
"""

from __future__ import annotations

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
    from jupyter_slurm.runner.environment import store, tools
    from jupyter_slurm.runner.job_document import EnvironmentBuildPart
else:
    store, tools = load("environment.store"), load("environment.tools")
    images = tools.images
    lock, RuntimeRefused = images.lock, images.RuntimeRefused

_FAILED = 1
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
        Job directory.
    """

    def __init__(self, wish: EnvironmentBuildPart, folder: str) -> None:
        self._wish, self._folder = wish, folder
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
                with lock.held(key, self._is_present, self._wait):
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
        files = os.path.join(self._folder, "environment")
        shutil.rmtree(files, ignore_errors=True)  # of a run before a requeue
        os.mkdir(files, 0o700)
        try:
            for name, text in self._wish["files"].items():
                with open(os.path.join(files, os.path.basename(name)), "w", encoding="utf-8") as file:
                    file.write(text)
            tools.report(f"Making the environment {self._wish['name']} with {tool} in {path}")
            tools.make(tool, self._wish, path, files)
            self._complete(path, tool)
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        finally:
            shutil.rmtree(files, ignore_errors=True)
        return path

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
        store.write_note(path, note)


def main() -> int:
    """Make the environment that the job directory requests; record the end."""
    folder, begun = sys.argv[1], time.monotonic()
    place = load("cell.run").JobDirectory(folder)
    if not place.is_ours("makes this environment"):
        return 0
    load("container.host_folders").drop_missing(os.environ)
    code, wish = _FAILED, place.job["environment_build"]
    place.publish_event("started")
    try:
        path = Build(wish, folder).have()
        took = time.monotonic() - begun
        tools.report(f"{wish['name']} is ready in {path}, after {took:.0f} s. env={wish['name']} uses it.")
        code = 0
    except RuntimeRefused as error:
        node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
        sys.stderr.write(f"env: {error} (node {node})\n")
    except SystemExit as stop:  # ended by a signal: incomplete files are removed
        sys.stderr.write(f"env: The job ended before {wish['name']} was complete.\n")
        return stop.code if isinstance(stop.code, int) else _FAILED
    place.end(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
