"""Tests of variables of a real kernel, which the Jupyter server does not trust."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import AsyncKernelManager

from jupyter_slurm.server.notebook_moves import variables

LIMIT = 1000  # bytes
LIES = """
import base64, json, sys, types
class Answer:
    def __init__(self, **told): self.told = told
    def __repr__(self): return ""
    def _repr_mimebundle_(self, **_): return {TYPE: json.dumps(self.told)}
lies = sys.modules[NAME] = types.ModuleType(NAME)
lies.take = lambda names, namespace, limit, safe: Answer(size=SIZE)
lies.piece = lambda start, end: Answer(data=base64.b64encode(bytes(20_000)).decode())
lies.drop = Answer
"""


@pytest.fixture
async def visitor(tmp_path: Path) -> AsyncIterator[variables.VariableTransfer]:
    manager = AsyncKernelManager(kernel_name="python3", transport="ipc", connection_file=str(tmp_path / "k.json"))
    await manager.start_kernel()
    one = variables.VariableTransfer(manager)
    assert await one.wait_started(lambda _: None) == ""
    yield one
    one.leave()
    await manager.shutdown_kernel(now=True)


@pytest.mark.parametrize(
    ("size", "error"), [(10**15, variables.CannotTravel), (-1, variables.CannotTravel), (LIMIT, variables.KernelGone)]
)
async def test_a_kernel_that_tells_of_more_than_it_was_asked_for_fills_no_disk(
    visitor: variables.VariableTransfer, size: int, error: type[Exception]
) -> None:
    said = f"NAME, TYPE, SIZE = '{variables._luggage()[0]}.transit', {variables.TYPE!r}, {size}\n"
    await visitor._reply(lambda: str(visitor._client.execute(said + LIES)))
    with pytest.raises(error):
        await visitor.copy_snapshot(["x"], LIMIT)


async def test_a_snapshot_that_nobody_waits_for_is_let_go(
    visitor: variables.VariableTransfer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a cancelled move; the kernel may have little memory left."""
    ready = f"len(__import__('sys').modules['{variables._luggage()[0]}.transit']._ready)"
    await visitor._reply(lambda: str(visitor._client.execute("x = bytes(40_000)")))
    asked = asyncio.Event()
    call = visitor._call

    async def called(text: str, *rest: Any) -> Any:
        if text.startswith("piece"):
            found = await visitor._evaluated({"size": ready}, lambda: None)
            assert int(found["size"]["data"]["text/plain"]) > 40_000
            asked.set()
            await asyncio.Event().wait()
        return await call(text, *rest)

    monkeypatch.setattr(visitor, "_call", called)
    taking = asyncio.create_task(visitor.copy_snapshot(["x"], 50_000))
    async with asyncio.timeout(60):
        await asked.wait()
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    found = await visitor._evaluated({"size": ready}, lambda: None)
    assert found["size"]["data"]["text/plain"] == "0"


async def test_what_cells_print_does_not_wait_in_the_server(visitor: variables.VariableTransfer) -> None:
    """Published messages are read until the kernel has started, and not at all by a client without that interest."""
    other = variables.VariableTransfer(visitor._manager)
    await other.idle(lambda: None)
    assert other._client._iopub_channel is None
    other.leave()


async def test_variables_are_listed_with_their_sizes_and_the_reasons_against_them(
    visitor: variables.VariableTransfer,
) -> None:
    code = """
import threading, sys
x, big, lock = [1, 2], bytes(40_000), threading.Lock()
def twice(a):
    return 2 * a
class Odd:
    def __reduce__(self):
        raise KeyboardInterrupt if False else ValueError("no")
odd, _hidden = Odd(), 1
"""
    await visitor._reply(lambda: str(visitor._client.execute(code)))
    found = await visitor.survey(LIMIT, untrusted=False)
    known = {one["name"]: one for one in found.variables}
    assert (found.left, found.trouble, found.allocations) == (0, "", [])
    assert list(known) == ["big", "lock", "Odd", "odd", "twice", "x"], "no modules, and nothing of IPython"
    assert [known[name]["type"] for name in ("x", "big", "twice")] == ["list", "bytes", "function"]
    assert {name for name, one in known.items() if not one["why"]} == {"x", "twice", "Odd"}
    assert all(0 < (known[name]["size"] or 0) < LIMIT for name in ("x", "twice"))
    assert "larger than" in known["big"]["why"]
    assert "cannot pickle" in known["lock"]["why"]
    safe = {one["name"]: one["why"] for one in (await visitor.survey(LIMIT, untrusted=True)).variables}
    assert not safe["x"]
    assert "not trusted" in safe["twice"]
