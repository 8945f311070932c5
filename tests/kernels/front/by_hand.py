"""A proxy with a local kernel, started by hand: ``python by_hand.py CONNECTION_FILE FOLDER``.

The kernel starts when ``begin`` appears in the folder; ``says`` contains the cause of the wait. A running keeper is
found again. The file ``argv`` contains the command of a kernel other than that of this Python, ``lease`` its lease in
seconds. There is no connection while ``down`` exists.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from jupyter_slurm.kernels import kernel_info_cache
from jupyter_slurm.kernels.channels import zmq_channels
from jupyter_slurm.kernels.channels.placeholder import KernelPlaceholder
from jupyter_slurm.kernels.proxy import KernelProxy, KernelStartError
from jupyter_slurm.runner.link import resumable_link

_SECRET = b"s" * 32
_KEEPER = str(Path(resumable_link.__file__).parents[1] / "kernel" / "keeper.py")


class ByHand:
    """A local keeper."""

    secret = _SECRET
    is_resumed = False

    def __init__(self, folder: Path) -> None:
        self.folder, self._received = folder, folder / "received"
        self.received = int(self._received.read_text()) if self._received.exists() else 0

    async def climb(self, standin: KernelPlaceholder) -> None:
        while not (self.folder / "begin").exists():
            if (self.folder / "cannot").exists():
                raise KernelStartError((self.folder / "cannot").read_text())
            said = (self.folder / "says").read_text() if (self.folder / "says").exists() else ""
            if said:  # and is not being written
                standin.print_status(said)
            await asyncio.sleep(0.05)
        self.is_resumed = (self.folder / "keeper.json").exists()
        if not self.is_resumed:
            self._start()
        while not (self.folder / "keeper.json").exists():
            await asyncio.sleep(0.05)

    def _start(self) -> None:
        asked: dict[str, Any] = {"secret": _SECRET.hex(), "idle": 0, "lease": 600}
        if (self.folder / "lease").exists():
            asked["lease"] = float((self.folder / "lease").read_text())
        if (self.folder / "argv").exists():
            asked["argv"] = json.loads((self.folder / "argv").read_text())
        (self.folder / "kernel.json").write_text(json.dumps(asked))
        (self.folder / "job.json").write_text("{}")
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", _KEEPER, str(self.folder)], stdout=log, stderr=log, start_new_session=True
            )
        (self.folder / "keeper.pid").write_text(str(process.pid))

    async def connect(self) -> socket.socket:
        if (self.folder / "down").exists():
            raise OSError("There is no connection.")
        port = json.loads((self.folder / "keeper.json").read_text())["port"]
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setblocking(False)
        self._cutting = asyncio.create_task(self._cut(connection))
        return connection

    async def _cut(self, connection: socket.socket) -> None:
        """Cut the connection when ``cut`` appears."""
        while not (self.folder / "cut").exists():
            await asyncio.sleep(0.02)
        (self.folder / "cut").unlink()
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    def mark(self, state: str) -> None:
        (self.folder / "state").write_text(state)

    def record_progress(self, received: int) -> None:
        draft = self.folder / "received.new"  # a kill during the write leaves the file unchanged
        draft.write_text(str(received))
        draft.replace(self._received)

    async def release(self, *, restart: bool) -> None:
        (self.folder / "given-back").write_text("to be restarted" if restart else "all")

    def leave(self) -> None:
        (self.folder / "left").touch()

    async def unused_event(self) -> str:
        return str(json.loads((self.folder / "keeper.json").read_text()).get("over", {}).get("event") or "")

    async def ended(self, *, wait: bool = False) -> str | None:
        if (self.folder / "down").exists():
            return None
        if await self.unused_event():
            return "The keeper is over."
        try:
            os.kill(int((self.folder / "keeper.pid").read_text()), 0)
        except ProcessLookupError:
            return "The keeper is over."
        return "The kernel is over." if wait else None

    async def stage(self) -> str:
        return (self.folder / "stage").read_text() if (self.folder / "stage").exists() else ""

    async def end_warning(self) -> str:
        return (self.folder / "near").read_text() if (self.folder / "near").exists() else ""

    async def trouble(self) -> str:
        return (self.folder / "trouble").read_text() if (self.folder / "trouble").exists() else ""

    async def retention_text(self) -> str:
        return ""

    async def is_over(self) -> bool:
        return (self.folder / "gone").exists()


async def main() -> int:
    connection = json.loads(Path(sys.argv[1]).read_text())
    place = ByHand(Path(sys.argv[2]))
    if (place.folder / "unread").exists():
        zmq_channels._MAX_UNREAD_BYTES = int((place.folder / "unread").read_text())
    return await KernelProxy(connection, place, kernel_info_cache.cached_kernel_info([]), lambda told: None).run()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
