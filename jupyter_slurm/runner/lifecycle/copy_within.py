"""Job that copies files within the cluster: ``python -u copy_within.py JOBDIR``.

``copies.json`` in the job directory has the directories, and the names in them. rsync copies if the node has it, else
cp. When the job has ended, its submitter moves the received files to their place. The file ``copied`` counts the bytes.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Iterator, Sequence, TypedDict

load = runpy.run_path(__file__[: -len("lifecycle/copy_within.py")] + "loader.py")["load"]
if TYPE_CHECKING:
    from jupyter_slurm.runner.job_directory import JobDirectory
else:
    JobDirectory = load("job_directory").JobDirectory

_TEMPORARY = ".rsync-partial/temporary"  # in the directory that receives: one that is killed may leave some files
_RSYNC = [
    *("rsync", "--links", "--times", "--omit-dir-times", "--executability", "--no-devices"),
    *("--no-specials", "--partial-dir=.rsync-partial", "--temp-dir=" + _TEMPORARY),
    *("--from0", "--info=progress2", "--no-human-readable"),
]
# With -f, a read-only file of an earlier run is replaced. The submitter has removed links in the place of files.
_CP = ["cp", "-dRf", "--preserve=timestamps", "--parents", "--"]
_VANISHED_EXIT_CODE = 24
_COUNT = re.compile(rb"(\d+)\s+\d+%")
_INTERVAL_S = 1.0
_MAX_BATCH_BYTES = 1 << 16  # bytes of the names of one cp


class CopiedFolder(TypedDict):
    """Directory of a copy: names in it, by how they are copied, and the directory that receives them."""

    folder: str
    received: str
    whole: list[str]
    directories: list[str]
    files: list[str]


class Counter:
    """Counter of copied bytes, in a file that the submitter reads.

    Parameters
    ----------
    path : str
        The file.
    """

    def __init__(self, path: str) -> None:
        self._path, self._finished, self._written = path, 0, 0.0

    def show(self, count: int) -> None:
        """Take the bytes of the running program. Errors are ignored."""
        if time.monotonic() - self._written < _INTERVAL_S:
            return
        self._written = time.monotonic()
        with contextlib.suppress(OSError):
            JobDirectory.put(self._path, str(self._finished + count))

    def finish(self, count: int) -> None:
        """Take the bytes of a program that has ended."""
        self._finished += count


def copy(one: CopiedFolder, folder: str, counter: Counter) -> int:
    """Copy the names of one directory; return the exit code of the program."""
    os.makedirs(os.path.join(one["received"], _TEMPORARY), 0o700, exist_ok=True)
    return (_by_rsync if shutil.which("rsync") else _by_cp)(one, folder, counter)


def _by_rsync(one: CopiedFolder, folder: str, counter: Counter) -> int:
    parts = [*one["directories"], *one["files"]]
    for names, options in ((one["whole"], ["--recursive", "--no-inc-recursive"]), (parts, ["--no-recursive"])):
        if not names:
            continue
        path = os.path.join(folder, "names")
        with open(path, "wb") as file:
            file.write(b"".join(b"./" + os.fsencode(name) + b"\0" for name in names))
        argv = [*_RSYNC, *options, f"--files-from={path}", "./", one["received"] + "/"]
        code = _run(argv, one["folder"], counter)
        if code not in (0, _VANISHED_EXIT_CODE):
            return code
    return 0


def _run(argv: Sequence[str], cwd: str, counter: Counter) -> int:
    count = 0
    with subprocess.Popen(argv, cwd=cwd, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        for text in iter(lambda: process.stdout.read(1 << 12), b""):  # type: ignore[union-attr]
            found = _COUNT.findall(text)
            count = int(found[-1]) if found else count
            counter.show(count)
    counter.finish(count)
    return _exit_code(process.returncode)


def _by_cp(one: CopiedFolder, folder: str, counter: Counter) -> int:
    for name in one["directories"]:
        path = os.path.join(one["received"], name)
        os.makedirs(path, exist_ok=True)
        os.chmod(path, os.stat(os.path.join(one["folder"], name)).st_mode & 0o777 | 0o700)
    for batch in _batches([*one["whole"], *one["files"]]):
        process = subprocess.Popen([*_CP, *batch, one["received"]], cwd=one["folder"])
        count = 0
        while process.poll() is None:
            count = _written_bytes(process.pid) or count
            counter.show(count)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_INTERVAL_S)
        counter.finish(count)
        if process.returncode:
            return _exit_code(process.returncode)
    return 0


def _exit_code(code: int) -> int:
    """Return the code of an end as a shell has it: 137 after SIGKILL."""
    return 128 - code if code < 0 else code


def _batches(names: Sequence[str]) -> Iterator[list[str]]:
    batch, size = [], 0
    for name in names:
        batch.append("./" + name)
        size += len(os.fsencode(name)) + 3
        if size >= _MAX_BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _written_bytes(process: int) -> int:
    """Return the bytes that a process has written (proc(5)); 0: unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{process}/io", encoding="ascii") as file:
        return int(file.read().partition("wchar:")[2].split()[0])
    return 0


def main() -> int:
    """Copy what the job directory requests; record the end."""
    folder = sys.argv[1]
    place = JobDirectory(folder)
    if not place.is_ours("copies these files"):
        return 0
    place.publish_event("started")
    code, counter = 0, Counter(os.path.join(folder, "copied"))
    with open(os.path.join(folder, "copies.json"), encoding="utf-8") as file:
        copies: list[CopiedFolder] = json.load(file)
    try:
        for one in copies:
            code = code or copy(one, folder, counter)
    except OSError as error:
        node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
        sys.stderr.write(f"Node {node}: {error.filename or 'copy'}: {error.strerror or error}\n")
        code = 1
    place.end(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
