"""Programs that make environments: uv, pip in a virtual environment, and conda, mamba or micromamba.

Sources: uv reference, venv of the Python library, pip-install(1), the user guides of conda and mamba.
Python 3.8+, standard library only.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

load = runpy.run_path(__file__[: -len("environment/tools.py")] + "loader.py")["load"]
if TYPE_CHECKING:
    from jupyter_slurm.runner.container import image_fetch as images
    from jupyter_slurm.runner.container.runtime_commands import RuntimeRefused
    from jupyter_slurm.runner.job_document import EnvironmentBuildPart
else:
    images = load("container.image_fetch")
    RuntimeRefused = images.RuntimeRefused

_CONDAS = ("micromamba", "mamba", "conda")
_PLACES = ("~/.local/bin", "~/.cargo/bin", "~/bin", "~/miniforge3/bin", "~/mambaforge/bin", "~/miniconda3/bin")
_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"
# Phrases of the programs, and of curl and the resolver below them. Single words are also in names of packages.
_NO_NETWORK = re.compile(
    r"connection (?:refused|reset|aborted|broken|closed|failed|error|timed out)|new ?connection"
    r"|(?:connect|read) ?timeout|(?:operation|read|request) timed out|timeout was reached|network timeout"
    r"|name resolution|resolve host|name or service not known|dns error|no route to host"
    r"|network (?:is unreachable|connectivity)|max retries|error sending request|tcp connect error|remotedisconnected"
    r"|(?:could not|couldn't|failed to|cannot) connect to|proxy ?error|proxy authentication",
    re.IGNORECASE,
)
_PROGRESS = ("Collecting ", "Downloading ", "Using cached ", "Requirement already ")
_INDEX_OPTION = re.compile(r"^\s*(?:--index-url|--default-index|-i)[ =]\s*(\S+)", re.MULTILINE)
_INDEX_VARIABLES = {"uv": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"), "pip": ("PIP_INDEX_URL",)}
_DEFAULT_INDEX = "https://pypi.org/simple"
_CREDENTIALS = re.compile(r"(?<=://)[^\s/@]+@")
_TARGETS = (
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_ROOT",
    "PIP_USER",
    "VIRTUAL_ENV",
    "PYTHONHOME",
    "PYTHONPATH",
    "CONDA_PREFIX",
)


class IndexUnreached(RuntimeRefused):
    """A program did not reach its index.

    Parameters
    ----------
    message : str
        Failure of the program.
    index : str
        Address of the index, without credentials.
    """

    def __init__(self, message: str, index: str) -> None:
        super().__init__(message)
        self.index = index


def choose_tool(wish: EnvironmentBuildPart) -> str:
    """Return the program to use: the requested one, else the best one of this node.

    Raises
    ------
    RuntimeRefused
        This node does not have it.
    """
    kind, named = wish["kind"], wish.get("tool")
    fit = {"conda": _CONDAS, "uv.lock": ("uv",)}.get(kind, ("uv", "pip"))
    tried = [named] if named else list(fit)
    for name in tried:
        if name == "pip" or find_program(name):
            return name
    more = {
        "conda": "Use requirements.txt, or install micromamba in ~/.local/bin on the cluster",
        "uv.lock": "Install uv on the cluster, or use `uv export -o requirements.txt` and that file",
    }.get(kind, "Omit tool=")
    raise RuntimeRefused(f"This node has no {' nor '.join(tried)}. {more}.")


def find_program(name: str) -> str:
    """Return the path of a program on the PATH or in usual folders of the user; empty: there is none."""
    if found := shutil.which(name):
        return found
    return next(
        (path for folder in _PLACES if os.access(path := os.path.join(os.path.expanduser(folder), name), os.X_OK)), ""
    )


def make(tool: str, wish: EnvironmentBuildPart, path: str, files: str) -> None:
    """Make the environment at a path that does not exist.

    Parameters
    ----------
    tool : str
        Answer of :func:`choose_tool`.
    wish : dict
        ``environment_build`` of job.json.
    path : str
        Path of the environment.
    files : str
        Folder with the files of the request.

    Raises
    ------
    RuntimeRefused
        The program failed.
    IndexUnreached
        It did not reach the index.
    """
    version = wish.get("python") or ""
    try:
        if tool in _CONDAS:
            _make_by_conda(tool, path, os.path.join(files, "environment.yml"))
        elif tool == "uv":
            _make_by_uv(wish, version, path, files)
        else:
            _make_by_pip(version, path, os.path.join(files, "requirements.txt"))
    except _Failed as error:
        if is_unreached(error.output) and (index := _index(tool, wish)):
            raise IndexUnreached(str(error), index) from None
        raise RuntimeRefused(f"{error} Read the lines above.") from None


def is_unreached(output: str) -> bool:
    """Return whether the output of a program that has failed says that it did not reach its index."""
    lines = (line for line in output.splitlines() if not line.startswith(_PROGRESS))
    return any(map(_NO_NETWORK.search, lines))


class _Failed(Exception):
    """A program failed; ``output`` are its last lines."""

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message)
        self.output = output


def _index(tool: str, wish: EnvironmentBuildPart) -> str:
    """Return the address of the index that a program uses, without credentials; empty if it uses none."""
    text = "\n".join(wish["files"].values())
    if re.search(r"^\s*(--no-index|no-index = true)", text, re.MULTILINE):
        return ""
    if tool in _CONDAS:
        return "the channels of conda"
    named = _INDEX_OPTION.search(text)
    address = named[1] if named else next(filter(None, map(os.environ.get, _INDEX_VARIABLES[tool])), "")
    if tool == "pip" and not address:
        done = images.run_query(sys.executable, "-m", "pip", "config", "get", "global.index-url")
        address = done[1].strip() if done[0] == 0 else ""
    parts = urlsplit(address or _DEFAULT_INDEX)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _make_by_uv(wish: EnvironmentBuildPart, version: str, path: str, files: str) -> None:
    uv = find_program("uv")
    env = {**_environment(), "UV_PROJECT_ENVIRONMENT": path, "UV_NO_PROGRESS": "1"}
    python = [f"--python={version or _own_python()}"]
    if wish["kind"] == "uv.lock":
        python = python if version else []  # the project says which
        _run([uv, "sync", "--frozen", "--no-install-project", *python], env, files)
        return
    _run([uv, "venv", "--no-project", *python, path], env)
    _run([uv, "pip", "install", f"--python={path}/bin/python", "-r", os.path.join(files, "requirements.txt")], env)


def _own_python() -> str:
    """Return the Python of this program outside a virtual environment."""
    return os.path.join(sys.base_prefix, "bin", "python{}.{}".format(*sys.version_info[:2]))


def _make_by_pip(version: str, path: str, requirements: str) -> None:
    env = {**_environment(), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    _run([find_python(version), "-m", "venv", path], env)
    _run([f"{path}/bin/python", "-m", "pip", "install", "--no-warn-script-location", "-r", requirements], env)


def _make_by_conda(tool: str, path: str, file: str) -> None:
    if tool == "micromamba":
        argv = [find_program(tool), "create", "--yes", "--prefix", path, "--file", file]
    else:
        argv = [find_program(tool), "env", "create", "--yes", "--prefix", path, "--file", file]
    _run(argv, _environment())


def find_python(version: str) -> str:
    """Return a Python of this node with a version, or of any version if it is empty.

    Raises
    ------
    RuntimeRefused
        There is none.
    """
    names, seen, others = [f"python{version}", "python3"] if version else ["python3"], "", ""
    for name in names:
        path = find_program(name)
        if path:
            done = subprocess.run(
                [path, "-c", _VERSION], capture_output=True, text=True, check=False, env=_environment()
            )
            found = done.stdout.strip()
            if not version or found == version:
                return path
            seen, others = f" ({path} is Python {found})", f"python={found}, or with "
    raise RuntimeRefused(
        f"This node has no Python {version or '3'} on PATH{seen}. "
        f"Use `%slurm env create` with {others}tool=uv, which can fetch one."
    )


def _environment() -> dict[str, str]:
    """Return the variables of this process without those that lead programs to another place."""
    return {name: value for name, value in os.environ.items() if name not in _TARGETS}


def _run(argv: list[str], env: dict[str, str], cwd: str | None = None) -> None:
    """Run a program, with its output in that of the job.

    Raises
    ------
    _Failed
        It failed.
    """
    code, lines = images.run(argv, _shown, report, env, cwd)
    if code == 0:
        return
    text = "\n".join(lines)
    first = max((at for at, line in enumerate(lines) if "error" in line.lower()), default=len(lines) - 1)
    last = " ".join(lines[max(first, 0) :]) or "no message"  # uv writes the cause below the error
    raise _Failed(f"{os.path.basename(argv[0])} failed: {_CREDENTIALS.sub('', last)[:300].rstrip('. ')}.", text)


def _shown(line: str) -> str:
    """Return a line of output without colours, and of a progress bar its last state."""
    shown = _CREDENTIALS.sub("", re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line).rpartition("\r")[2])
    return "" if shown.startswith("Activate with:") else shown  # advice of uv for a terminal on the node


def report(text: str) -> None:
    """Report the progress."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
