"""Marks of a session's pages in a browser: its facts for the page, and a coloured icon of the tab.

Both are settings of Jupyter, so that they need no other package: Jupyter writes the facts into its pages, where the
JupyterLab extension reads them, and prefers the icons of a folder of the session to its own. Python 3.8+, standard
library only.
"""

from __future__ import annotations

import os
import struct
import zlib

TYPE_CHECKING = False
if "load" not in globals():  # load() sets it in the modules that it loads
    import runpy

    load = runpy.run_path(__file__[: -len("session/page_marks.py")] + "loader.py")["load"]
if TYPE_CHECKING:
    from jupyter_slurm.runner import proc
    from jupyter_slurm.runner.job_directory import JobDirectory
else:
    proc = load("proc")

FACTS = "jupyterSlurmSession"
"""Option of the page with the facts; `own_session.ts` reads it."""
_COLOURS = ("c2185b", "00796b", "5e35b1", "1565c0", "2e7d32", "b71c1c", "00695c", "4e342e")
_SIZE = 32  # pixels of a side
# Jupyter's icons: of JupyterLab and its busy kernel, and of the pages of Notebook.
_IDLE_ICONS, _BUSY_ICONS = ("", "-notebook", "-file", "-terminal"), ("-busy-1", "-busy-2", "-busy-3")
_SETTINGS = """c.ServerApp.extra_static_paths.insert(0, {folder!r})
c.ServerApp.tornado_settings.update({{"page_config_data": {{{option!r}: {facts!r}}}}})
"""


def settings(place: JobDirectory, base_url: str, folder: str) -> str:
    """Write the icons into a new folder; return the lines of Jupyter's configuration, which keep the user's values."""
    facts = page_facts(place, base_url)
    icons = os.path.join(folder, "favicons")
    os.makedirs(icons, 0o700)
    for names, is_busy in ((_IDLE_ICONS, False), (_BUSY_ICONS, True)):
        icon = favicon(str(facts["colour"]), is_busy=is_busy)
        for name in names:
            with open(os.path.join(icons, f"favicon{name}.ico"), "wb") as file:
                file.write(icon)
    return _SETTINGS.format(folder=folder, option=FACTS, facts=facts)


def page_facts(place: JobDirectory, base_url: str) -> dict[str, object]:
    """Return name, key, job, node and end of a session, for its own pages. They have no secrets."""
    key = base_url.rstrip("/").rpartition("/")[2]
    name, env = str(place.job.get("label") or key), os.environ
    start, end = (int(env.get(f"SLURM_JOB_{time}_TIME") or 0) for time in ("START", "END"))
    return {
        "name": name,
        "key": key,
        "job": env.get("SLURM_JOB_ID", ""),
        "node": proc.node_name(),
        "start": start or None,  # seconds since the epoch; not told by old versions of Slurm
        "end": end or None,  # at the start of the job: its limit may change
        "resume": bool(place.job.get("resume")),
        "colour": "#" + _COLOURS[sum(name.encode("utf-8")) % len(_COLOURS)],  # of names in sequence, another one each
    }


def favicon(colour: str, *, is_busy: bool) -> bytes:
    """Return an icon of Windows with a processor on a disc of a colour; of a busy one the core is filled."""
    paper = bytes.fromhex(colour.lstrip("#")) + b"\xff"
    rows = [b"".join(_pixel(x, y, paper, is_busy=is_busy) for x in range(_SIZE)) for y in range(_SIZE)]
    picture = _png(b"".join(b"\0" + row for row in rows))
    header = struct.pack("<HHH", 0, 1, 1)
    return header + struct.pack("<BBBBHHII", _SIZE, _SIZE, 0, 0, 1, 32, len(picture), 22) + picture


def _pixel(x: int, y: int, paper: bytes, *, is_busy: bool) -> bytes:
    """Return red, green, blue and opacity of a point."""
    far, near = max(abs(2 * x - 31), abs(2 * y - 31)), min(abs(2 * x - 31), abs(2 * y - 31))
    if far * far + near * near > 31 * 31:
        return b"\0\0\0\0"
    is_pin = 15 < far <= 21 and near in (5, 7)
    is_drawn = 9 < far <= 15 or is_pin or (is_busy and far <= 9) or (not is_busy and far <= 3)
    return b"\xff\xff\xff\xff" if is_drawn else paper


def _png(rows: bytes) -> bytes:
    head = struct.pack(">IIBBBBB", _SIZE, _SIZE, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(rows)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
