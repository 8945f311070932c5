"""Packages that the cells of this notebook import, with the versions of this Python."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, Final

from jupyter_slurm.client.clusters.clients import notebook
from jupyter_slurm.client.environments.package_files import NOTEBOOK, PackageFiles
from jupyter_slurm.client.images.python_packages import installed_packages
from jupyter_slurm.errors import UsageError

__all__ = ["imported_modules", "notebook_packages"]

_MAX_NAMED: Final = 8
_PYTHON_MAGICS: Final = frozenset({"sbatch", "srun", "remote", "time", "timeit", "capture", "prun"})
_CELL_MAGIC: Final = re.compile(
    r"(?:[ \t]*(?:#(?!!).*)?\n)*[ \t]*%%(?P<name>\S*).*\n?"
)  # below blank lines and comments
_OWN: Final = "jupyter_slurm"  # a cell on a node does not need it


def notebook_packages(extra: Iterable[str] = ()) -> PackageFiles:
    """Return the packages that the executed cells and the saved notebook import.

    Parameters
    ----------
    extra : iterable of str
        Further packages, with the version of this Python if it has them.

    Raises
    ------
    UsageError
        This process is not a notebook, or its cells import no installed package.
    """
    path = notebook()
    if path is None:
        raise UsageError(
            "The packages of a notebook are known in its cells only.",
            hint="Use from=this or a file in a terminal, and from=notebook or env=auto in a cell.",
        )
    modules = imported_modules([*_executed_cells(), *_saved_cells(path)]) - {_OWN}
    known = importlib.metadata.packages_distributions()
    names = {_normal(name) for module in modules for name in known.get(module, ())}
    own, notes = installed_packages("environment", names | {_normal(name) for name in extra})
    if unknown := sorted(module for module in modules if module not in known):
        more = f" and {len(unknown) - _MAX_NAMED} more" if len(unknown) > _MAX_NAMED else ""
        text = ", ".join(unknown[:_MAX_NAMED])
        notes.append(f"Not in the environment, because no installed package has these modules: {text}{more}.")
    present = {_normal(re.split(r"[ =@\[]", line)[0]) for line in own["pip"]}
    lines = [*own["pip"], *sorted(_normal(name) for name in extra if _normal(name) not in present)]
    if not lines:
        raise UsageError(
            "The cells of this notebook import no package that can be installed on the cluster.",
            hint="Omit env=auto, or name the packages in a requirements.txt.",
        )
    text = "".join(f"{line}\n" for line in lines)
    version = "{}.{}".format(*sys.version_info[:2])
    return PackageFiles("requirements", NOTEBOOK, {"requirements.txt": text}, version, notes)


def imported_modules(cells: Iterable[str]) -> set[str]:
    """Return the top-level modules that cells import, without those of the standard library."""
    from IPython.core.inputtransformer2 import TransformerManager

    transformer: Any = TransformerManager
    found = set[str]()
    for cell in dict.fromkeys(cells):
        text = _python_text(cell)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(transformer().transform_cell(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue  # a script, or a cell in another language
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names


def _python_text(cell: str) -> str:
    """Return the Python text of a cell; empty: it holds another language."""
    while found := _CELL_MAGIC.match(cell):  # a magic may run a cell that begins with another magic
        cell = cell[found.end() :]
        if found["name"] not in _PYTHON_MAGICS or cell.startswith("#!"):
            return ""
    return cell


def _executed_cells() -> list[str]:
    from IPython.core.getipython import get_ipython

    history = getattr(get_ipython(), "history_manager", None)
    return [str(cell) for cell in getattr(history, "input_hist_raw", ())]


def _saved_cells(path: str) -> Iterator[str]:
    """Yield the code cells of a notebook file; none if it cannot be read."""
    if not os.path.isabs(path):
        return
    try:
        with open(path, encoding="utf-8") as file:
            cells = json.load(file)["cells"]
        for cell in cells:
            if cell["cell_type"] == "code":
                source = cell["source"]
                yield source if isinstance(source, str) else "".join(source)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
