"""New cell in the notebook after a click, made by the JupyterLab extension, if installed."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable

import comm

from jupyter_slurm.client import event_loop
from jupyter_slurm.widgets.click_check import handle_replies_in_subshell

__all__ = ["insert_cell"]

_TARGET = "jupyter-slurm:cell"  # labextension/src/plugins/insert_cell.ts
_ANSWER_TIMEOUT_S = 3.0  # seconds for a front end with the extension


def insert_cell(source: str, on_result: Callable[[bool], None]) -> None:
    """Insert a cell below the selected one; ``told`` is called with the success."""
    event_loop.spawn(_insert(source, on_result), contextvars.copy_context())


async def _insert(source: str, on_result: Callable[[bool], None]) -> None:
    loop, answer = asyncio.get_running_loop(), asyncio.Event()

    def heard(message: object) -> None:
        loop.call_soon_threadsafe(answer.set)

    opened = comm.create_comm(target_name=_TARGET, data={"source": source})
    handle_replies_in_subshell(opened)
    opened.on_msg(heard)
    try:
        await asyncio.wait_for(answer.wait(), _ANSWER_TIMEOUT_S)
    except TimeoutError:
        on_result(False)
    else:
        on_result(True)
    finally:
        opened.close()
