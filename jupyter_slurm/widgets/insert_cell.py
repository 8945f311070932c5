"""A new cell in the notebook, from a click: our part of JupyterLab makes it, if it is there."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable

import comm

from jupyter_slurm.client import event_loop
from jupyter_slurm.widgets.click_check import answered_where_sent

__all__ = ["insert_cell"]

_TARGET = "jupyter-slurm:cell"  # labextension/src/plugins/insert_cell.ts
_ANSWERS = 3.0  # seconds in which a front end that makes cells has made one


def insert_cell(source: str, told: Callable[[bool], None]) -> None:
    """Have a cell made below the one that is selected; ``told`` is called with whether it is there."""
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
