"""Files that an NFS client does not see yet: what must come is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.here_only("what is read goes by the transport")]

OUT = {"in": [], "out": ["got"], "limit": 1000}


class Attributes:
    """Cached attributes of a client: a file with a hidden name is not there, until it appears."""

    def __init__(self, transport: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self._hidden, self.looks = "", 0
        for name in ("read", "read_owned", "stat"):
            monkeypatch.setattr(transport, name, self._looked(getattr(transport, name)))

    def _looked(self, method: Callable[..., Any]) -> Callable[..., Any]:
        async def look(path: str, *rest: Any) -> Any:
            if self._hidden and Path(path).name.startswith(self._hidden):
                self.looks += 1
                raise FileNotFoundError(path)
            return await method(path, *rest)

        return look

    def hide(self, name: str) -> None:
        self._hidden, self.looks = name, 0

    async def appear(self) -> None:
        """Show the file after it was looked for several times."""
        async with asyncio.timeout(120):
            while self.looks < 4:
                await asyncio.sleep(0.05)
        self._hidden = ""


@pytest.fixture
def attributes(desk: Any, monkeypatch: pytest.MonkeyPatch) -> Attributes:
    return Attributes(desk.core.cluster(desk.id).client.transport, monkeypatch)


async def test_an_end_marker_that_appears_after_its_sign_is_read(desk: Any, attributes: Attributes) -> None:
    attributes.hide("end")
    cell = await desk.submit("import os, time\nwhile not os.path.exists('go'): time.sleep(0.05)", "-p", "arandu")
    await desk.until(cell["key"], lambda job: job["state"] == "RUNNING")
    await desk.core.cluster(desk.id).poller.stop()  # from here on, only the runner tells
    Path(desk.folder, "go").touch()
    await attributes.appear()
    assert (await desk.until(cell["key"], lambda job: job["finished"]))["exit_code"] == 0


async def test_values_and_output_of_a_job_that_has_just_ended_are_awaited(desk: Any, attributes: Attributes) -> None:
    cell = await desk.submit("got = 7\nprint('told')", "-p", "arandu", values=OUT)
    assert (await desk.finished(cell["key"]))["state"] == "COMPLETED"
    results = desk.core.cluster(desk.id).results
    for name, stream, content in (("out", "values", b"got"), ("stdout", "stdout", b"told")):
        name = Path((await desk.job(cell["key"]))["stdout"]).name if stream == "stdout" else name
        attributes.hide(name)
        asked = asyncio.ensure_future(results.output(cell["key"], stream, 0, None))
        await asyncio.wait((asyncio.ensure_future(attributes.appear()), asked), return_when=asyncio.FIRST_COMPLETED)
        found, size = await asked
        assert content in found
        assert size == len(found)
