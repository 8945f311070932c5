"""Loader of the other files of the runner: ``load("kernel.listener")``.

In the package they lie in folders (``kernel/listener.py``). On the cluster they all lie in one folder, and a hyphen
replaces each slash (``runner-HASH-kernel-listener.py``). Both forms have the same length. So each file finds the loader
by the part of its own path before its own name.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import importlib.util
import sys
import types

_PREFIX = __file__[: -len("loader.py")]


def path_of(name: str) -> str:
    """Return the path of a file of the runner."""
    return f"{_PREFIX}{name.replace('.', '-' if _PREFIX.endswith('-') else '/')}.py"


def load(name: str) -> types.ModuleType:
    """Load another file of the runner without writing bytecode. The file finds this function in its globals."""
    spec = importlib.util.spec_from_file_location(f"jupyter_slurm_{name.replace('.', '_')}", path_of(name))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    module.__dict__.update(load=load, path_of=path_of)
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = writes
    return module
