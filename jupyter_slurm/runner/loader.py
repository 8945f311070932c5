"""Loader of the other files of the runner: ``load("kernel.listener")``.

In the package they lie in folders (``kernel/listener.py``). Where jobs run all of them lie in one folder, and there a
hyphen stands for each slash (``runner-HASH-kernel-listener.py``). Both are as long: so each file finds this one by what
its own path has in front of its own name.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import importlib.util
import sys
import types

_PREFIX = __file__[: -len("loader.py")]


def path_of(name: str) -> str:
    """Return where a file of the runner lies."""
    return f"{_PREFIX}{name.replace('.', '-' if _PREFIX.endswith('-') else '/')}.py"


def load(name: str) -> types.ModuleType:
    """Load another file of the runner, and leave no bytecode beside it; it finds this function in itself."""
    spec = importlib.util.spec_from_file_location(f"jupyter_slurm_{name.replace('.', '_')}", path_of(name))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    module.__dict__["load"] = load
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = writes
    return module
