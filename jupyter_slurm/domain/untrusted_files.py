"""Files that a job could use against the user's computer: files that run by themselves, and files never copied.

A job writes any file into its copy of a staged folder. Most results are data, or programs that a user runs by their
name. Other files are run or obeyed as soon as a program on this computer starts in the folder: a shell, an editor, git,
Python, a test runner. Such files are copied back only if the user names them.

Hidden files belong to this class as a whole, because the configuration of most programs is a hidden file, and results
hardly ever are. See gitignore(5), site(3), and the pages of direnv, VS Code, pytest and make.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable
from typing import Final

__all__ = [
    "ENVIRONMENT_PARTS",
    "FILTER_NAME",
    "NEVER_COPIED",
    "environment_folders",
    "environment_of",
    "is_never_copied",
    "is_never_copied_back",
    "runs_by_itself",
]

FILTER_NAME: Final = ".rsync-filter"
"""File of the user with rules of rsync: it is sent, and never copied back."""

NEVER_COPIED: Final = (
    ".jupyter-slurm-stage",
    ".rsync-partial",
    *(".git", ".hg", ".svn", ".bzr", ".jj"),  # their configuration has tokens and hooks
    *(".ssh", ".gnupg", ".netrc", ".git-credentials"),
    *("__pycache__", ".ipynb_checkpoints", ".venv"),
)
"""Names of files and folders that are never copied, whatever a filter of the folder says."""

ENVIRONMENT_PARTS: Final = frozenset(
    {"bin", "conda-meta", "include", "lib", "lib64", "pyvenv.cfg", "scripts", "share"}  # lower case
)
"""Names in the folder of a virtual environment. They are left out if the staged folder itself is an environment."""

_ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")
# Folders and files in which programs leave results, or which nothing runs.
_HARMLESS_HIDDEN = {".hydra", ".snakemake", ".nextflow", ".gitignore", ".gitkeep", ".keep", ".nojekyll"}
_HARMLESS_PREFIXES = (".nfs",)  # of a file that was deleted while it was open
_RUN_UNNAMED = {
    *("conftest.py", "noxfile.py", "pytest.ini", "tox.ini"),
    *("setup.py", "setup.cfg", "pyproject.toml", "package.json", "hatch_build.py"),
    *("makefile", "gnumakefile", "bsdmakefile", "justfile", "rakefile", "gemfile", "sconstruct", "cmakelists.txt"),
    *("tasks.py", "dodo.py", "fabfile.py", "snakefile", "vagrantfile", "jenkinsfile"),
    *("dockerfile", "compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"),
    *("pyvenv.cfg", "matplotlibrc", "voila.json", "startup.m", "finish.m"),
    "head",  # a folder with HEAD, objects and refs is a repository, whose configuration git obeys
}
_RUN_ENDINGS = (".pth", "._pth", ".egg-link", ".code-workspace", ".desktop")
_JUPYTER_CONFIG = re.compile(r"(jupyter|ipython)(_\w+)?_config\.(py|json|d)")
_STARTED_BY_PYTHON = frozenset({"sitecustomize", "usercustomize"})
_MODULE_ENDINGS = (".py", ".pyc", ".pyw", ".so", ".pyd")


def _plain(name: str) -> str:
    """Return a name as file systems see it that ignore case and invisible characters."""
    seen = "".join(char for char in name if unicodedata.category(char) != "Cf")
    return unicodedata.normalize("NFKC", seen).casefold()


def _parts(path: str) -> list[str]:
    return [_plain(part) for part in path.split("/")]


_NEVER = frozenset(_plain(name) for name in NEVER_COPIED)


def is_never_copied(path: str) -> bool:
    """Return whether a path is never copied, in either direction."""
    return not _NEVER.isdisjoint(_parts(path))


def is_never_copied_back(path: str) -> bool:
    """Return whether a path is never copied from a cluster. A changed filter would send other files with a job."""
    return is_never_copied(path) or FILTER_NAME in _parts(path)


def runs_by_itself(path: str, *, is_new: bool) -> bool:
    """Return whether a file runs, or changes what runs, without anybody naming it; or its name hides what it is.

    Parameters
    ----------
    path : str
        Path below the staged folder.
    is_new : bool
        Whether this computer has no such file. A new module of a name of Python's own is imported in place of Python's.
    """
    if is_new and any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in path):
        return True
    *parents, name = _parts(path)
    if any(_is_hidden_configuration(part) for part in (*parents, name)):
        return True
    modules = {part.split(".")[0] for part in (*parents, name)}
    return (
        name in _RUN_UNNAMED
        or name.endswith(_RUN_ENDINGS)
        or name.startswith(("dockerfile.", "makefile."))
        or any(_JUPYTER_CONFIG.fullmatch(part) for part in (*parents, name))
        or not _STARTED_BY_PYTHON.isdisjoint(modules)
        or (is_new and _hides_module(parents, name))
    )


def _is_hidden_configuration(part: str) -> bool:
    return part.startswith(".") and part not in _HARMLESS_HIDDEN and not part.startswith(_HARMLESS_PREFIXES)


def _hides_module(parents: list[str], name: str) -> bool:
    """Return whether Python imports this file in place of a module of the standard library."""
    if not name.endswith(_MODULE_ENDINGS):
        return False
    stem = name.split(".")[0]
    module = parents[-1] if stem == "__init__" and parents else stem
    return module in sys.stdlib_module_names


def environment_folders(paths: Iterable[str]) -> set[str]:
    """Return the folders among these paths that are virtual or conda environments, by the file that marks one."""
    found = set()
    for path in paths:
        parts = path.split("/")
        found |= {"/".join(parts[:at]) for at in range(1, len(parts)) if _plain(parts[at]) in _ENVIRONMENT_MARKS}
    return found


def environment_of(path: str, environments: Iterable[str]) -> str | None:
    """Return the environment in which a path lies, or of which it is the folder; None: in none."""
    parts = path.split("/")
    above = {"/".join(parts[:at]) for at in range(1, len(parts) + 1)}
    return min(above.intersection(environments), key=len, default=None)
