"""Run of a Python cell inside its job: ``python -u run.py JOBDIR [args]``. Python 3.8+, standard library only.

The cell runs under IPython if this Python has it (``ipython.py``), else in plain Python (``plain.py``). The job
directory is claimed first, so that a job that exists twice in Slurm runs once. Files in the cluster's events folder
report start and end. The exit code is recorded in ``end.json`` (``end.TASK.json`` for an array task), rich output in
``display.jsonl``.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import importlib.util
import io
import os
import runpy
import sys
import traceback
import types
from typing import TYPE_CHECKING, Any, Iterator

# The runner is not a package: its files are loaded by path.
load = runpy.run_path(__file__[: -len("cell/run.py")] + "loader.py")["load"]

if TYPE_CHECKING:
    from jupyter_slurm.runner.job_directory import JobDirectory
else:
    JobDirectory = load("job_directory").JobDirectory


# Modules of the standard library that IPython, matplotlib and tracebacks import while a cell runs.
_IMPORTED_LATER = (
    *(
        "argparse",
        "ast",
        "bdb",
        "calendar",
        "cmd",
        "code",
        "codeop",
        "colorsys",
        "copy",
        "csv",
        "dataclasses",
        "datetime",
    ),
    *(
        "decimal",
        "dis",
        "email",
        "fractions",
        "getpass",
        "glob",
        "gzip",
        "html",
        "inspect",
        "json",
        "linecache",
        "locale",
    ),
    *("logging", "logging.handlers", "numbers", "optparse", "pdb", "pickle", "platform", "pprint", "queue", "random"),
    *("secrets", "shlex", "shutil", "socket", "statistics", "string", "struct", "tempfile", "textwrap", "threading"),
    *("token", "tokenize", "traceback", "types", "typing", "unittest", "urllib.parse", "uuid", "warnings", "zipfile"),
)


def print_error(error: BaseException, filename: str) -> None:
    """Print the traceback from the cell's own lines on, without the frames of the runner above them."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != filename:
        trace = trace.tb_next
    if trace is None and not isinstance(error, SyntaxError):  # a SyntaxError shows its line itself
        trace = error.__traceback__
    traceback.print_exception(type(error), error, trace)


def has(name: str) -> bool:
    """Return whether this Python has a package."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def prepare(argv: list[str]) -> types.ModuleType:
    """Prepare this process for cells. Return the module in which they run."""
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    sys.argv = argv
    if not getattr(sys.flags, "safe_path", False):  # with PYTHONSAFEPATH, sys.path has no entry for the runner's folder
        del sys.path[0]
    choose_backend()
    return main


def add_working_directory(*, has_ipython: bool) -> None:
    """Let cells import modules of the working directory, as a notebook does.

    The runner and IPython are imported before: a file of the user named ``logging.py`` must not hide theirs.
    """
    for name in _IMPORTED_LATER if has_ipython else ():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    sys.path.insert(0, "")


def run_cell(place: JobDirectory, args: list[str]) -> int:
    """Run the cell of a job record. Return the exit code that a shell would see."""
    source, filename = place.job["cell"]["source"], place.job["cell"]["filename"]
    main = prepare([filename, *args])
    if place.task is not None:
        task = int(place.task) + place.offset
        main.__dict__.update(load("cell.sweep_parameters").variables(place.shared, place.job, task))
    shell, values = ipython(), load_values(place)
    plain, display = load("cell.plain"), load("cell.display")
    add_working_directory(has_ipython=shell is not None)
    with values_of(place, main.__dict__, values=values):
        place.note()
        if shell is not None:
            error = advise(shell.run(shell.start(main, place.display()), source, filename), place)
            if (loop := shell.loop()) is not None:
                plain.warn_of_dropped_tasks(loop)
            return exit_code(error)
        try:
            plain.run(display.PlainDisplay(place.display()), source, filename, main)
        except BaseException as error:  # noqa: BLE001 - whatever a cell raises is shown as a notebook shows it
            if not isinstance(error, SystemExit):
                print_error(error, filename)
            return exit_code(advise(error, place))
    return 0


def advise(error: BaseException | None, place: JobDirectory) -> BaseException | None:
    """Print advice for an error that would not occur in a notebook."""
    hint = place.job["cell"].get("environment_hint")
    if isinstance(error, ImportError) and hint:
        node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
        sys.stderr.write(f"No environment was chosen, so this cell ran with {sys.executable} on {node}.\n{hint}\n")
    if isinstance(error, RuntimeError) and str(error) == "no running event loop":
        sys.stderr.write(
            "A cell of a job has an event loop only if it awaits something at its top level. `await` the result of "
            "create_task() or gather(), or call asyncio.run().\n"
        )
    return error


def load_values(place: JobDirectory) -> Any:
    """Return the module that reads and writes values; None for a cell without any."""
    return load("variables.values_file") if place.job.get("values") else None


@contextlib.contextmanager
def values_of(
    place: JobDirectory, namespace: dict[str, object], named: dict[str, object] | None = None, values: Any = None
) -> Iterator[None]:
    """Load the values that the notebook sends, and save those that it requests.

    Functions and classes that arrive as source are added to ``named``.
    """
    asked, named = place.job.get("values"), {} if named is None else named
    if not asked:
        yield
        return
    values = values or load_values(place)
    if asked["in"]:
        try:
            named.update(values.bring(os.path.join(place.shared, "in.values"), namespace))
        except values.Unreadable as error:
            sys.stderr.write(f"{error}\n")
            raise SystemExit(1) from None
    yield
    if asked["out"]:
        path = os.path.join(place.folder, f"out{place.suffix}.values")
        values.leave(path, asked["out"], namespace, asked["limit"], named)


def ipython() -> Any:
    """Return the module that runs a cell under IPython; None without a usable IPython."""
    if not has("IPython"):
        return None
    try:
        return load("cell.ipython")
    except Exception as error:  # noqa: BLE001 - the cell may do without
        sys.stderr.write(f"IPython of {sys.executable} cannot be used: {type(error).__name__}: {error}.\n")
        return None


def choose_backend() -> None:
    """Make matplotlib draw figures for a notebook, or into files only: a node has no screen."""
    inline = "module://matplotlib_inline.backend_inline"
    is_possible = has("IPython") and has("matplotlib_inline")
    chosen = os.environ.get("MPLBACKEND", inline)
    if chosen in (inline, "inline"):  # a kernel's own setting is sent with the cell's environment
        os.environ["MPLBACKEND"] = inline if is_possible else "agg"


def exit_code(error: BaseException | None) -> int:
    """Return the exit code that a shell sees at the end of a cell."""
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        sys.stderr.write(f"{error.code}\n")
    return 0 if error is None else 130 if isinstance(error, KeyboardInterrupt) else 1


def take_any_text() -> None:
    """Let the streams escape characters that their encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def heedless() -> None:
    """Ignore errors of messages: a full disk must not end an allocation."""
    sys.stderr = load("job_directory").UncheckedModule(sys.stderr)


def run(place: JobDirectory, args: list[str]) -> int:
    """Run a cell. Return its exit code after all of its output is written."""
    take_any_text()
    try:
        code = run_cell(place, args)
    except SystemExit as stop:
        code = exit_code(stop)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return code & 0xFF


def main() -> int:
    """Claim the directory, run the cell, record the end."""
    place = JobDirectory(sys.argv[1])
    if not place.is_ours():
        return 0
    result = {"exit_code": 1}
    # In a job with resume, the parent process interprets the end of this process.
    # Registered first, so it runs last: after the cell's threads and its own atexit functions.
    # Only in this process: a child forked by the cell has the same exit functions, and is not the job.
    job_process = os.getpid()
    if not place.job.get("resume"):
        atexit.register(lambda: place.end(result["exit_code"]) if os.getpid() == job_process else None)
    place.publish_event("started")
    load("lifecycle.usage").watch(place)
    place.offer()
    result["exit_code"] = run(place, sys.argv[2:])
    return result["exit_code"]


if __name__ == "__main__":
    sys.exit(main())
