"""A front whose kernel is on this machine, started by hand: ``python by_hand.py CONNECTION_FILE FOLDER``.

It begins when ``begin`` appears in the folder; the lines of ``says`` are what it waits for until then.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from jupyter_slurm.kernels import heard
from jupyter_slurm.kernels.front import CannotBegin, Front
from jupyter_slurm.kernels.standin import StandIn


class ByHand:
    """A keeper of this machine."""

    is_known = False

    def __init__(self, folder: Path) -> None:
        self.folder, self.secret = folder, b"s" * 32

    async def climb(self, standin: StandIn) -> None:
        while not (self.folder / "begin").exists():
            if (self.folder / "cannot").exists():
                raise CannotBegin((self.folder / "cannot").read_text())
            if (self.folder / "says").exists():
                standin.say((self.folder / "says").read_text())
            await asyncio.sleep(0.05)

    def mark(self, state: str) -> None:
        (self.folder / "state").write_text(state)

    async def give_back(self, *, restart: bool) -> None:
        (self.folder / "given-back").write_text("to be restarted" if restart else "all")

    def leave(self) -> None:
        (self.folder / "left").touch()

    async def ended(self, *, wait: bool = False) -> str | None:
        return None

    async def is_gone(self) -> bool:
        return False


async def main() -> int:
    connection = json.loads(Path(sys.argv[1]).read_text())
    place = ByHand(Path(sys.argv[2]))
    return await Front(connection, place, heard.known([]), lambda told: None).run()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
