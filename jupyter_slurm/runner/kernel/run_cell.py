"""Run of another notebook's cell in an ipykernel, between cells of its own notebook: ``await run(FOLDER)``.

The keeper sends the kernel a request for it (``cells.py``); FOLDER is the cell's job directory. The cell runs in the
namespace of the kernel's notebook, whose history, numbers and last results do not change. The start of the cell and its
exit code are published in the MIME type NEWS, which the keeper does not forward.

Python 3.8+ with IPython 7.17 or newer.
"""

from __future__ import annotations

import contextlib
import os
import re
import runpy
import signal
import sys
from typing import TYPE_CHECKING, Any, Iterator

if TYPE_CHECKING:
    from jupyter_slurm.runner.job_document import CellPart

# The runner is not a package: its files are loaded by path.
load = runpy.run_path(__file__[: -len("kernel/run_cell.py")] + "loader.py")["load"]

TAKEN = "taken"  # file of the cell: it has started or is withdrawn; the creator of the file decides
NEWS = "application/vnd.jupyter-slurm.cell+json"

_named: dict[str, object] = {}  # functions and classes that arrived as source


def take(folder: str) -> bool:
    """Decide about a waiting cell; False: already decided."""
    try:
        os.close(os.open(os.path.join(folder, TAKEN), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True


async def run(folder: str) -> None:
    """Run a cell, unless it was withdrawn while waiting."""
    from asyncio import CancelledError  # a kernel has loaded it, and a keeper does not need it

    from IPython import get_ipython

    if not take(folder):
        return
    shell: Any = get_ipython()
    cell: Any = sys.modules.get("jupyter_slurm_cell_run") or load("cell.run")
    code = 1
    try:
        _publish_news(shell, begun=True)
        place = cell.JobDirectory(folder)
        with cell.values_of(place, shell.user_ns, _named):
            error = await _run(shell, place.job["cell"])
        code = 130 if isinstance(error, CancelledError) else cell.exit_code(error)
    except SystemExit as stop:
        code = cell.exit_code(stop)
    except (KeyboardInterrupt, CancelledError):  # before the first line of the cell, or after its last line
        code = 130
    except Exception as error:  # noqa: BLE001 - whatever is wrong with this cell, the kernel goes on
        cell.print_error(error, "")
    finally:
        _publish_news(shell, exit_code=code & 0xFF)


def _publish_news(shell: Any, **told: Any) -> None:
    shell.display_pub.publish({NEWS: told}, {})


async def _run(shell: Any, asked: CellPart) -> BaseException | None:
    """Run a cell as the kernel runs its own. Return the exception that ended it early; errors are already shown."""
    source, broken = asked["source"], None
    with _apart(shell, source, asked["filename"]):
        try:
            ready = shell.transform_cell(source)
        except Exception:  # noqa: BLE001 - the caller reports it
            ready, broken = source, sys.exc_info()
        known = {"transformed_cell": ready, "preprocessing_exc_tuple": broken}
        if shell.should_run_async(source, **known):
            loop = sys.modules["asyncio"].get_running_loop()
            task = loop.create_task(shell.run_cell_async(source, store_history=False, **known))
            with _interrupted_by(lambda *_: loop.call_soon_threadsafe(task.cancel)):
                result = await task
            shell.events.trigger("post_execute")
            shell.events.trigger("post_run_cell", result)
        else:
            with _interrupted_by(signal.default_int_handler):
                result = shell.run_cell(source, store_history=False)
    error: BaseException | None = result.error_before_exec or result.error_in_exec
    return error


@contextlib.contextmanager
def _interrupted_by(handler: Any) -> Iterator[None]:
    """Deliver an interrupt to a cell at once: the kernel's own handling reaches awaiting cells late."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _apart(shell: Any, source: str, filename: str) -> Iterator[None]:
    """Keep a cell out of the history. Errors show the number that it has in its own notebook."""
    hook, number = shell.displayhook, re.search(r"\d+", filename)
    before = shell.execution_count, hook.cache_size
    shell.execution_count = int(number[0]) if number else 1
    hook.cache_size = 0  # neither _ nor Out
    hook.quiet = lambda: source.rstrip().endswith(";")  # the original would examine the last cell of the history
    try:
        yield
    finally:
        del hook.quiet
        shell.execution_count, hook.cache_size = before
