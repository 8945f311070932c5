"""Parts of the holder of an allocation that a real job would take long to show."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import jupyter_slurm.runner

HOLD = runpy.run_path(str(Path(jupyter_slurm.runner.__path__[0], "allocation", "hold.py")))


def test_the_end_of_a_cell_is_recorded_once_a_full_disk_has_room(tmp_path: Path) -> None:
    """A file in place of the folder stands for the full disk: both refuse the end marker."""
    holder = object.__new__(HOLD["AllocationHolder"])
    holder._unrecorded, holder.running, holder.is_ending = [], {}, False
    events: list[str] = []
    cells = [SimpleNamespace(folder=str(tmp_path / name), publish_event=events.append) for name in "ab"]
    gone = SimpleNamespace(folder=str(tmp_path / "gone" / "cell"), publish_event=events.append)
    for cell in cells:
        Path(cell.folder).touch()
    for cell in (gone, *cells):
        holder._lose(cell, 137, "SIGKILL")
    holder._reap()
    assert (events, len(holder._unrecorded)) == ([], 2), "nobody waits for a cell whose folder was removed"
    for cell in cells:
        Path(cell.folder).unlink()
        Path(cell.folder).mkdir()
    holder.is_ending = True  # it does not change how a process ended before
    holder._reap()
    for cell in cells:
        end = json.loads(Path(cell.folder, "end.json").read_text())
        assert (end["exit_code"], end["lost"], end["with_allocation"]) == (137, "SIGKILL", False)
    assert (events, holder._unrecorded) == (["ended", "ended"], [])
