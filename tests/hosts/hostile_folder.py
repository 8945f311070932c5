"""A folder whose files have names of Python's own modules, and one module of the user."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["NAMES", "fill"]

NAMES = (
    "argparse calendar code inspect io json logging pickle queue random secrets signal struct tokenize types"
).split()


def fill(folder: Path) -> list[Path]:
    """Write the files, each of which is useless as the module of its name; return their paths."""
    files = [folder / f"{name}.py" for name in NAMES]
    for file in files:
        file.write_text("x = 1\n")
    own = folder / "own_module_of_the_user.py"
    own.write_text("answer = 42\n")
    return [*files, own]
