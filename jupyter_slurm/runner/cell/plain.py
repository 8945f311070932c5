"""Cell in plain Python, if the job's Python has no IPython. Python 3.8+, standard library only."""

from __future__ import annotations

import ast
import asyncio
import inspect
import linecache
import sys
import types
from typing import Any


def run(plain: Any, source: str, filename: str, main: types.ModuleType, loop: Any = None) -> None:
    """Run a cell in plain Python."""
    plain.install()
    try:
        run_source(source, filename, main.__dict__, loop)
    except SyntaxError as error:
        if error.filename == filename and error.text and error.text.lstrip().startswith(("%", "!", "?")):
            sys.stderr.write(f"Magics and !commands need IPython, which {sys.executable} does not have.\n")
        raise
    finally:
        plain.figures()


def run_source(source: str, filename: str, namespace: dict[str, object], loop: Any = None) -> None:
    """Run source as a notebook cell: with ``await`` at top level, and the value of the last line shown.

    All parts run in the ``loop``. Without one, a loop is created at the first ``await``, so that code before it can
    call ``asyncio.run()``.
    """
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    tree = ast.parse(source, filename)
    last = tree.body[-1] if tree.body and not source.rstrip().endswith(";") else None
    if isinstance(last, ast.Expr):
        tree.body.pop()
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    parts = [(compile(tree, filename, "exec", flags, dont_inherit=True), False)]
    if isinstance(last, ast.Expr):
        parts.append((compile(ast.Expression(last.value), filename, "eval", flags, dont_inherit=True), True))
    error, own, work = None, None, _run_parts(parts, namespace)
    if loop is None and any(code.co_flags & inspect.CO_COROUTINE for code, _ in parts):
        loop = own = asyncio.new_event_loop()
    try:
        if loop is not None:
            error = loop.run_until_complete(work)
        else:
            work.send(None)  # nothing is awaited, so it runs to its end
    except StopIteration as end:
        error = end.value
    finally:
        if own is not None:
            warn_of_dropped_tasks(own)
            own.close()
    if error is not None:
        raise error


def warn_of_dropped_tasks(loop: Any) -> None:
    """Warn of tasks of a loop that end with the cell: the loop of a kernel would continue them."""
    names = [getattr(task.get_coro(), "__qualname__", str(task)) for task in asyncio.all_tasks(loop)]
    if names:
        sys.stderr.write(
            f"Not finished when the cell ended, dropped: {', '.join(sorted(names)[:5])}{', …' * (len(names) > 5)}. "
            "In a job, `await` the result of asyncio.create_task() before the cell ends.\n"
        )


async def _run_parts(parts: list[tuple[types.CodeType, bool]], namespace: dict[str, object]) -> BaseException | None:
    """Run code in parts, each with a flag to show its value. Return what ended it early (also StopIteration)."""
    try:
        for code, shown in parts:
            value = eval(code, namespace)  # noqa: S307 - the cell of the user, in the job of the user
            if code.co_flags & inspect.CO_COROUTINE:
                value = await value
            if shown:
                sys.displayhook(value)
    except BaseException as error:  # noqa: BLE001 - the caller shows it
        return error
    return None
