"""Loading of the remote starter program (:mod:`jupyter_slurm.runner.login_node.starter`)."""

from __future__ import annotations

from importlib import resources
from typing import Final

__all__ = ["BUILT_IN_FUNCTIONS", "loader", "program"]

BUILT_IN_FUNCTIONS: Final = frozenset({"js_once", "js_wait", "js_hold", "js_free"})
"""Functions that the program handles itself; it passes others to a shell."""

# Read from standard input: the program needs no file, and is in no argv.
_LOADER: Final = """import os, sys
sys.version_info >= (3, 6) or sys.exit(1)
os.write(1, b"{mark}\\n")
text = b""
while len(text) < {length}:
    piece = os.read(0, {length} - len(text))
    piece or sys.exit(1)
    text += piece
exec(compile(text, "starter.py", "exec"), {{"__name__": "__main__"}})
"""


def loader(mark: str, length: int) -> str:
    """Return the code with which a Python is started: it prints ``mark``, then waits for this many bytes of program."""
    return _LOADER.format(mark=mark, length=length)


def program() -> bytes:
    """Return the program."""
    return resources.files("jupyter_slurm.runner.login_node").joinpath("starter.py").read_bytes()
