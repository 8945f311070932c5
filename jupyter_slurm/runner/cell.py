"""Run a Python cell inside its job: ``python -u cell.py JOBDIR [args]``. Python 3.8+, standard library only.

It claims the job directory first, so that a job which Slurm holds twice runs once. It tells when it starts and ends by
files in the cluster's events folder, and leaves the exit code in ``end.json`` (``end.TASK.json`` for an array task).
"""

from __future__ import annotations

import ast
import asyncio
import atexit
import contextlib
import inspect
import io
import json
import linecache
import os
import sys
import time
import traceback
import types
from typing import Any

FORMAT = 1


class Place:
    """The job directory and this job's own names in it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        with open(os.path.join(folder, "job.json"), encoding="utf-8", errors="surrogateescape") as file:
            self.job: dict[str, Any] = json.load(file)
        self.job_id = os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ.get("SLURM_JOB_ID", "")
        self.task = os.environ.get("SLURM_ARRAY_TASK_ID")
        self.suffix = "" if self.task is None else "." + self.task

    def claim(self) -> str:
        """Return the id of the job that has the directory: ours (also after a requeue), or whose came first."""
        path = os.path.join(self.folder, "claim")
        draft = f"{path}.{self.job_id}{self.suffix}"
        self._write(draft, self.job_id)
        try:
            os.link(draft, path)  # in one step and with its content; exclusive on NFS too
        except OSError:
            pass  # somebody has it; who, stands in the file
        finally:
            os.unlink(draft)
        with open(path, encoding="utf-8") as file:
            return file.read()

    def tell(self, event: str) -> None:
        """Leave a sign in the events folder; never a reason to fail."""
        folder = self.job.get("events")
        try:
            if folder:
                self._write(os.path.join(folder, self.job["key"] + self.suffix + "." + event), self.job_id)
        except OSError:
            pass

    def end(self, exit_code: int) -> None:
        """Write the end marker, in one step."""
        path = os.path.join(self.folder, f"end{self.suffix}.json")
        restart = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
        end = {"format": FORMAT, "job": self.job_id, "task": self.task, "exit_code": exit_code, "time": time.time()}
        end["restarts"] = restart
        try:
            self._write(path + ".tmp", json.dumps(end))
            os.replace(path + ".tmp", path)
        except OSError as error:
            sys.stderr.write(f"the end of this job could not be recorded: {error}\n")
        self.tell("ended")

    @staticmethod
    def _write(path: str, text: str) -> None:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
            file.write(text)


def run_source(source: str, filename: str, namespace: dict[str, Any]) -> None:
    """Run source as a notebook cell runs: ``await`` at top level, the value of the last line shown."""
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    tree = ast.parse(source, filename)
    last = tree.body[-1] if tree.body and not source.rstrip().endswith(";") else None
    if isinstance(last, ast.Expr):
        tree.body.pop()
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    parts = [(compile(tree, filename, "exec", flags), False)]
    if isinstance(last, ast.Expr):
        parts.append((compile(ast.Expression(last.value), filename, "eval", flags), True))
    loop = None
    try:
        for code, shown in parts:
            value = eval(code, namespace)  # noqa: S307 - the person's own cell, in the person's own job
            if code.co_flags & inspect.CO_COROUTINE:
                loop = loop or asyncio.new_event_loop()
                value = loop.run_until_complete(value)
            if shown:
                sys.displayhook(value)
    finally:
        if loop is not None:
            loop.close()


def print_error(error: BaseException, filename: str) -> None:
    """Print the traceback from the cell's own lines on: what is above them is ours."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != filename:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace or error.__traceback__)


def run_cell(job: dict[str, Any], args: list[str]) -> int:
    """Run the cell of a job record; return the exit code that a shell would see."""
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    cell = job["cell"]
    sys.argv = [cell["filename"], *args]
    sys.path[0] = ""
    try:
        run_source(cell["source"], cell["filename"], main.__dict__)
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        sys.stderr.write(f"{stop.code}\n")
        return 1
    except KeyboardInterrupt as error:
        print_error(error, cell["filename"])
        return 130
    except BaseException as error:  # noqa: BLE001 - whatever a cell raises is shown as a notebook shows it
        print_error(error, cell["filename"])
        return 1
    return 0


def main() -> int:
    """Claim the directory, run the cell, tell the end."""
    place = Place(sys.argv[1])
    owner = place.claim()
    if owner != place.job_id:
        sys.stderr.write(f"job {owner} runs this cell already; this one ({place.job_id}) does nothing\n")
        return 0
    result = {"exit_code": 1}
    # Registered first, so it runs last: after the cell's threads and its own atexit functions.
    # Only here: a child that the cell forks has the same functions at its exit, and is not the job.
    job_process = os.getpid()
    atexit.register(lambda: place.end(result["exit_code"]) if os.getpid() == job_process else None)
    place.tell("started")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    result["exit_code"] = run_cell(place.job, sys.argv[2:]) & 0xFF
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return result["exit_code"]


if __name__ == "__main__":
    sys.exit(main())
