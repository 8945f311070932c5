"""Files that an NFS client does not see yet: what must come is awaited."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.errors import JobOutputMissing

pytestmark = [pytest.mark.slurm, pytest.mark.here_only("what is read goes by the transport")]

OUT = {"in": [], "out": ["got"], "limit": 1000}


class Attributes:
    """Cached attributes of a client: a file with a hidden name is not there, or has an old size, until it appears."""

    def __init__(self, transport: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self._hidden, self._size, self.looks, self._asks_at_open = "", 0, 0, False
        for name in ("read", "read_owned", "stat"):
            monkeypatch.setattr(transport, name, self._looked(getattr(transport, name)))
        monkeypatch.setattr(transport, "stat_all", self._looked_at_all(transport.stat_all))

    def _looked(self, method: Callable[..., Any]) -> Callable[..., Any]:
        async def look(path: str, *rest: Any) -> Any:
            if not self._is_hidden(path):
                return await method(path, *rest)
            self.looks += 1
            if not self._size:
                raise FileNotFoundError(path)
            found = await method(path, *rest)
            if isinstance(found, bytes):  # nothing is read beyond the known size
                if self._asks_at_open:
                    return found
                return found[: max(0, self._size - (rest[0] if rest else 0))]
            return dataclasses.replace(found, size=self._size)

        return look

    def _looked_at_all(self, method: Callable[..., Any]) -> Callable[..., Any]:
        async def look(paths: Sequence[str]) -> Any:
            found = await method(paths)
            for path in filter(self._is_hidden, paths):
                self.looks += 1
                if not self._size:
                    found.pop(path, None)
                elif path in found:
                    found[path] = dataclasses.replace(found[path], size=self._size)
            return found

        return look

    def _is_hidden(self, path: str) -> bool:
        return bool(self._hidden) and Path(path).name.startswith(self._hidden)

    def hide(self, name: str, size: int = 0, *, asks_at_open: bool = False) -> None:
        """Hide a file, or its bytes beyond a size; with ``asks_at_open`` only from those who do not open it."""
        self._hidden, self._size, self.looks, self._asks_at_open = name, size, 0, asks_at_open

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


PAINTS = "from IPython.display import HTML, display\nprint('early', flush=True)\ndisplay(HTML('<b>figure</b>'))\nprint('late')"


@pytest.mark.parametrize("size", [0, 6], ids=["missing", "old size"])
@pytest.mark.parametrize("name", ["display", "stdout"])
async def test_a_follower_gets_all_that_a_job_has_written_before_it_ended(
    desk: Any, attributes: Attributes, name: str, size: int
) -> None:
    attributes.hide(name, size)
    cell = await desk.submit(PAINTS, "-p", "arandu")
    appears = None
    heard = {"display": b"", "stdout": b""}
    offsets = {"display": 0, "stdout": 0}
    async for event, data in desk.core.cluster(desk.id).results.stream(cell["key"], offsets):
        if event == "output" and data["stream"] in heard:
            heard[data["stream"]] += base64.b64decode(data["data"])
        if event == "job" and data["finished"] and appears is None:
            attributes.hide(name, size)  # count from here on
            appears = asyncio.ensure_future(attributes.appear())
    assert appears is not None
    appears.cancel()
    assert heard["stdout"] == b"early\nlate\n"
    assert b"figure" in heard["display"]


async def test_output_with_an_old_size_is_read_again(desk: Any, attributes: Attributes) -> None:
    cell = await desk.submit("print('early', flush=True)\nprint('late')", "-p", "arandu")
    assert (await desk.finished(cell["key"]))["state"] == "COMPLETED"
    attributes.hide("stdout", 6)
    asked = asyncio.ensure_future(desk.core.cluster(desk.id).results.output(cell["key"], "stdout", 0, None))
    await asyncio.wait((asyncio.ensure_future(attributes.appear()), asked), return_when=asyncio.FIRST_COMPLETED)
    assert await asked == (b"early\nlate\n", 11)


async def followed(desk: Any, key: str) -> bytes:
    """Return the output of a job as a follower gets it."""
    text = b""
    async for event, data in desk.core.cluster(desk.id).results.stream(key, {"stdout": 0}):
        if event == "output" and data["stream"] == "stdout":
            text += base64.b64decode(data["data"])
    return text


async def while_hidden(attributes: Attributes, asked: Any) -> Any:
    """Return the result of a coroutine during which the hidden file appears."""
    asked = asyncio.ensure_future(asked)
    await asyncio.wait((asyncio.ensure_future(attributes.appear()), asked), return_when=asyncio.FIRST_COMPLETED)
    return await asked


@pytest.mark.parametrize("kind", ["script", "task", "elsewhere"])
async def test_late_output_of_scripts_of_array_tasks_and_of_other_folders_is_awaited(
    desk: Any, attributes: Attributes, kind: str
) -> None:
    options = {"task": ["--array=3"], "elsewhere": ["-o", f"{desk.folder}/elsewhere.log"]}.get(kind, [])
    script = "#!/bin/sh\necho told" if kind != "task" else "print('told')"
    job = await desk.submit(script, "-p", "arandu", *options)
    done = await desk.finished(job["key"])
    key = f"{done['id']}_3" if kind == "task" else job["key"]
    results = desk.core.cluster(desk.id).results
    name = {"task": "stdout.3", "elsewhere": "elsewhere"}.get(kind, "stdout")
    attributes.hide(name)
    assert await while_hidden(attributes, results.output(key, "stdout", 0, None)) == (b"told\n", 5)
    attributes.hide(name)
    assert await while_hidden(attributes, followed(desk, key)) == b"told\n"
    # Whoever opens the file gets all of it.
    attributes.hide(name, 2, asks_at_open=True)
    assert await while_hidden(attributes, results.output(key, "stdout", 0, None)) == (b"told\n", 5)
    attributes.hide(name, 2, asks_at_open=True)
    assert await while_hidden(attributes, followed(desk, key)) == b"told\n"


async def test_output_that_was_deleted_is_not_awaited(desk: Any, attributes: Attributes) -> None:
    cell = await desk.submit("got = 7\nprint('told')", "-p", "arandu", values=OUT)
    done = await desk.finished(cell["key"])
    results = desk.core.cluster(desk.id).results
    for stream, path in (("stdout", Path(done["stdout"])), ("values", Path(done["stdout"]).parent / "out.values")):
        path.unlink()
        attributes.hide(path.name)  # only to count
        with pytest.raises(JobOutputMissing):
            await results.output(cell["key"], stream, 0, None)
        assert attributes.looks == 1
    assert await followed(desk, cell["key"]) == b""
