"""New cell in the notebook after a click, made by the JupyterLab extension, if installed."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable

import comm

from jupyter_slurm.client import event_loop
from jupyter_slurm.widgets.click_check import answered_where_sent

__all__ = ["insert_cell"]

_TARGET = "jupyter-slurm:cell"  # labextension/src/plugins/insert_cell.ts
_ANSWERS = 3.0  # seconds for a front end with the extension


def insert_cell(source: str, told: Callable[[bool], None]) -> None:
    """Insert a cell below the selected one; ``told`` is called with the success."""
    event_loop.spawn(_insert(source, told), contextvars.copy_context())


async def _insert(source: str, told: Callable[[bool], None]) -> None:
    loop, answer = asyncio.get_running_loop(), asyncio.Event()

    def heard(message: object) -> None:
        loop.call_soon_threadsafe(answer.set)

    opened = comm.create_comm(target_name=_TARGET, data={"source": source})
    answered_where_sent(opened)
    opened.on_msg(heard)
    try:
        await asyncio.wait_for(answer.wait(), _ANSWERS)
    except TimeoutError:
        told(False)
    else:
        told(True)
    finally:
        opened.close()
