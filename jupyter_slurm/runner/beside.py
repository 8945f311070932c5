"""Loads the other files of the runner: they lie beside this one, under the same prefix, and are no package.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import importlib.util
import sys
import types


def beside(name: str) -> types.ModuleType:
    """Load another file of the runner, and leave no bytecode beside it; it finds this function in itself."""
    path = f"{__file__[: -len('beside.py')]}{name}.py"
    spec = importlib.util.spec_from_file_location(f"jupyter_slurm_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    module.__dict__["beside"] = beside
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = writes
    return module
