"""Import of the packages that were asked for, once, after they have been installed.

Names of packages come on stdin, one a line. A line of JSON is printed before a module is imported, and one when the
import has failed: a module that crashes the process is the last one named. Runs with the Python of the environment.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from typing import Iterator

_TIMEOUT_S = 120.0  # seconds for all modules
_MAX_FAILURES = 10
_MAX_TEXT = 200  # characters of a message
# Top-level modules that packages install by mistake.
_UNWANTED = {"benchmarks", "docs", "examples", "setup", "test", "tests"}


def failed_imports(path: str, packages: list[str]) -> tuple[list[str], list[str]]:
    """Import the top-level modules of packages of an environment.

    Parameters
    ----------
    path : str
        Path of the environment.
    packages : list of str
        Names of packages.

    Returns
    -------
    failures : list of str
        ``MODULE: MESSAGE`` of each failed import.
    unchecked : list of str
        Packages for which the time did not suffice.
    """
    failures: list[str] = []
    waiting, deadline = list(packages), time.monotonic() + _TIMEOUT_S
    while waiting and len(failures) < _MAX_FAILURES:
        output, code = _run(path, waiting, deadline - time.monotonic())
        begun = ("", "")
        for line in output.splitlines():
            package, module, message = json.loads(line)
            if message:
                failures.append(f"{module}: {message}")
            begun = (package, module)
        if code is None:
            return failures, waiting[waiting.index(begun[0]) if begun[0] in waiting else 0 :]
        if code == 0 or begun[0] not in waiting:
            break
        failures.append(f"{begun[1]}: the import ended the process (exit code {code})")
        waiting = waiting[waiting.index(begun[0]) + 1 :]
    return failures[:_MAX_FAILURES], []


def _run(path: str, packages: list[str], seconds: float) -> tuple[str, int | None]:
    """Return the printed lines and the exit code; None: the time was over."""
    argv = [os.path.join(path, "bin", "python"), "-I", os.path.abspath(__file__)]
    text = "\n".join(packages)
    try:
        done = subprocess.run(
            argv, input=text, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=seconds, cwd="/", text=True
        )
    except subprocess.TimeoutExpired as error:
        printed = error.stdout or b""
        output = printed.decode("utf-8", "replace") if isinstance(printed, bytes) else printed
        return output.rpartition("\n")[0], None
    return done.stdout, done.returncode


def modules_of(package: str) -> Iterator[str]:
    """Yield the top-level modules of an installed package."""
    try:
        found = importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:  # of another platform, or not a package of Python
        return
    names = (found.read_text("top_level.txt") or "").split()
    for file in () if names else found.files or ():
        head, is_package = file.parts[0], len(file.parts) == 2 and file.name == "__init__.py"
        if is_package or (len(file.parts) == 1 and file.suffix in (".py", ".so")):
            names.append(head.partition(".")[0])
    for name in dict.fromkeys(names):
        if name.isidentifier() and not name.startswith("_") and name not in _UNWANTED:
            yield name


def main() -> int:
    """Import the modules of the packages on stdin."""
    packages = sys.stdin.read().split("\n")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a module prints is not an answer
    for package in packages:
        for module in modules_of(package):
            answers.write(json.dumps([package, module, ""]) + "\n")
            answers.flush()
            try:
                importlib.import_module(module)
            except BaseException as error:  # noqa: BLE001 - a module may raise anything, also SystemExit
                text = " ".join(f"{type(error).__name__}: {error}".split())[:_MAX_TEXT]
                answers.write(json.dumps([package, module, text]) + "\n")
                answers.flush()
    answers.flush()
    os._exit(0)  # threads of modules do not delay the end


if __name__ == "__main__":
    main()
