"""Run of a page: its cells in one kernel, its commands in one shell, in the page's order."""

from __future__ import annotations

import base64
import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import nbformat
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import run_sync
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionComplete
from page_outputs import Output
from traitlets import List, Unicode

from pages.neutral import plain
from pages.surroundings import Surroundings
from pages.terminal import Terminal

if TYPE_CHECKING:
    from page_blocks import Block, Page

__all__ = ["BlockRun", "run_page"]

_PAUSE = '__import__("time").sleep(0.3)'
_OUTPUT_TIMEOUT_S = 30.0
_UNSETTLED = r"^(?:Job|Session|Allocation) \d+ .*(?:PENDING|RUNNING|starting|being released|ending)"
_CARD_TIMEOUT_S = 3.0


@dataclass
class BlockRun:
    """Result of a block: its outputs for readers, what was wrong (empty: nothing), and its end since the page's start."""

    block: Block
    outputs: list[Output] = field(default_factory=list)
    fault: str = ""
    ended: float = 0.0

    def keep(self, cell: Any, place: Surroundings) -> None:
        """Keep the present outputs of its cell: the card of a job changes as long as the notebook is open."""
        if self.block.kind == "cell":
            self.outputs = list(_outputs(cell, place))


class _PrefixedKernel(AsyncKernelManager):
    prefix = List(Unicode())

    def format_kernel_cmd(self, extra_arguments: list[str] | None = None) -> list[str]:
        return [*self.prefix, *super().format_kernel_cmd(extra_arguments)]


class _Notebook(NotebookClient):
    """Client that shows updates of earlier cells, as front ends do."""

    async def _async_poll_output_msg(self, parent_msg_id: str, cell: Any, cell_index: int) -> None:
        while True:
            message = await self.kc.iopub_channel.get_msg(timeout=None)
            if message["parent_header"].get("msg_id") == parent_msg_id:
                try:
                    self.process_message(message, cell, cell_index)
                except CellExecutionComplete:
                    return
            elif message["msg_type"] == "update_display_data":
                self._update_display_id(message["content"]["transient"]["display_id"], message)


def run_page(page: Page, place: Surroundings) -> list[BlockRun]:
    """Run the blocks of a page until one has a fault; return those that were run.

    The outputs of a cell are those after the next block, when a card shows what became of its job meanwhile.
    """
    cells = [nbformat.v4.new_code_cell(place.typed(block.source)) for block in page.blocks]
    pause = nbformat.v4.new_code_cell(_PAUSE)
    notebook = nbformat.v4.new_notebook(cells=[*cells, pause])
    client = _Notebook(notebook, timeout=300, kernel_name="python3", allow_errors=True)
    client.km = _PrefixedKernel(
        kernel_name="python3", transport="ipc", connection_file=str(place.home / "run" / "k.json"), prefix=place.prefix
    )
    client.owns_km = True
    terminal = Terminal(place.env, place.home, place.prefix, place.answers)
    runs: list[BlockRun] = []
    began = time.monotonic()
    client.reset_execution_trackers()
    with _kernel(client, place):
        for number, block in enumerate(page.blocks):
            if block.kind == "terminal":
                runs.append(_run_terminal(block, terminal, place))
            else:
                runs.append(_run_cell(client, number, block, place))
            runs[-1].ended = time.monotonic() - began
            if runs[-1].fault:
                break
            if number:
                _settle(client, number - 1, place)
                runs[-2].keep(cells[number - 1], place)
        _settle(client, len(runs) - 1, place)
        runs[-1].keep(cells[len(runs) - 1], place)
    return runs


@contextlib.contextmanager
def _kernel(client: NotebookClient, place: Surroundings) -> Iterator[None]:
    context = client.async_setup_kernel(env=dict(place.env), cwd=str(place.home))
    run_sync(context.__aenter__)()
    try:
        yield
    finally:
        run_sync(context.__aexit__)(None, None, None)


def _settle(client: NotebookClient, number: int, place: Surroundings) -> None:
    """Let the card of a job that goes on arrive at the present."""
    cell, pause = client.nb.cells[number], client.nb.cells[-1]
    deadline = time.monotonic() + _CARD_TIMEOUT_S
    while re.search(_UNSETTLED, _text(cell, place), re.MULTILINE) and time.monotonic() < deadline:
        client.execute_cell(pause, len(client.nb.cells) - 1)


def _run_cell(client: NotebookClient, number: int, block: Block, place: Surroundings) -> BlockRun:
    cell, pause = client.nb.cells[number], client.nb.cells[-1]
    client.execute_cell(cell, number)
    failed = any(output.output_type == "error" for output in cell.outputs)
    deadline = time.monotonic() + _OUTPUT_TIMEOUT_S
    while failed == block.fails and not re.search(block.expected, _text(cell, place), re.MULTILINE):
        if time.monotonic() > deadline:
            return BlockRun(block, fault=f"no {block.expected!r} in the output:\n{_text(cell, place)}")
        client.execute_cell(pause, len(client.nb.cells) - 1)
    return BlockRun(block, fault=_fault(block, failed, _text(cell, place)))


def _run_terminal(block: Block, terminal: Terminal, place: Surroundings) -> BlockRun:
    """Run the commands; where the block must fail, its last command is the one that does."""
    run = BlockRun(block)
    for command in block.commands:
        said = terminal.run(place.typed(command))
        run.outputs.append(Output(place.neutral(said.text)))
        if said.code != 0:
            break
    text = "\n".join(output.text for output in run.outputs)
    if said.code != 0 and len(run.outputs) < len(block.commands):
        run.fault = f"`{command}` failed:\n{text}"
    else:
        run.fault = _fault(block, said.code != 0, text)
    if not run.fault and not re.search(block.expected, text, re.MULTILINE):
        run.fault = f"no {block.expected!r} in the output:\n{text}"
    return run


def _fault(block: Block, failed: bool, text: str) -> str:
    if failed == block.fails:
        return ""
    return f"it failed:\n{text}" if failed else f"it did not fail:\n{text}"


def _text(cell: Any, place: Surroundings) -> str:
    return "\n".join(output.text for output in _outputs(cell, place))


def _outputs(cell: Any, place: Surroundings) -> Iterator[Output]:
    """Yield the outputs of a cell; texts that follow each other are one."""
    texts: list[str] = []
    for output in cell.get("outputs", []):
        picture = output.get("data", {}).get("image/png")
        if picture is None:
            texts.append(_text_of(output))
            continue
        if text := place.neutral("\n".join(filter(None, texts))):
            yield Output(text)
        texts = []
        yield Output(picture=base64.b64decode(picture))
    if text := place.neutral("\n".join(filter(None, texts))):
        yield Output(text)


def _text_of(output: Any) -> str:
    if output.output_type == "stream":
        return plain(output.text)
    if output.output_type == "error":
        shown = plain("\n".join(output.traceback))
        return f"{output.ename}: {output.evalue}" if "Traceback (most recent call last)" in shown else shown
    return plain(str(output.data.get("text/plain", "")))
