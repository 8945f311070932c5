"""Files that name the packages of an environment: of this computer, or of this notebook's Python.

Sources: the requirements file format of pip, PEP 621 (pyproject.toml), the user guides of uv and conda.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from jupyter_slurm.client.images.python_packages import installed_packages
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.errors import UsageError

__all__ = ["NOTEBOOK", "THIS", "PackageFiles", "read_packages"]

THIS: Final = "this"
"""Word for the packages of this notebook's Python."""

NOTEBOOK: Final = "notebook"
"""Word for the packages that the cells of this notebook import."""

_MAX_BYTES: Final = 4 << 20
_HINT: Final = (
    "Use from=this, from=notebook, or a requirements.txt, pyproject.toml, uv.lock or environment.yml of this computer."
)
# Lines that only this computer can install: files and folders, other files of requirements, editable packages.
_LOCAL: Final = re.compile(
    r"(?:-e|-r|-c|--editable|--requirement|--constraint)\b|[./~]|[A-Za-z]:\\|file:|[^#]*@\s*file:|\S+\.(?:whl|zip|gz)\s*$"
)
# Fields of pyproject.toml that change which packages are installed, or where they come from.
_TOOL_FIELDS: Final = {
    "uv": ("sources", "index", "index-url", "extra-index-url", "find-links", "override-dependencies"),
    "poetry": ("dependencies", "source"),
    "pdm": ("source",),
    "pixi": ("dependencies", "pypi-dependencies"),
}
_EXPORT: Final = (
    "Use from=uv.lock, or export the packages (`uv export -o requirements.txt`, `poetry export -o requirements.txt`) "
    "and use from=requirements.txt."
)


class PackageFiles(NamedTuple):
    """Files for the tool that makes an environment.

    Attributes
    ----------
    kind : str
        ``requirements``, ``uv.lock`` or ``conda``.
    source : str
        Where the packages come from, for people.
    files : dict
        Texts of the files by name.
    python : str or None
        Version of this Python; None: no version is needed.
    notes : list of str
        Packages that cannot be installed on the cluster.
    """

    kind: Literal["requirements", "uv.lock", "conda"]
    source: str
    files: dict[str, str]
    python: str | None
    notes: list[str]


def read_packages(source: str) -> PackageFiles:
    """Return the packages that a value of ``from=`` names.

    Raises
    ------
    UsageError
        The file cannot be read, or names packages that only this computer has.
    """
    if source == THIS:
        return _of_this_python()
    path, name = os.path.expanduser(source), os.path.basename(source)
    if name == "uv.lock":
        project = os.path.join(os.path.dirname(path), "pyproject.toml")
        files = {"uv.lock": _read(path), "pyproject.toml": _read(project)}
        return PackageFiles("uv.lock", name, files, None, [])
    text = _read(path)
    if name.endswith((".yml", ".yaml")):
        return PackageFiles("conda", name, {"environment.yml": text}, None, [])
    if name.endswith(".toml"):
        lines, notes = _project_packages(text, name), [f"The project of {name} itself is not installed."]
        return PackageFiles("requirements", name, {"requirements.txt": lines}, None, notes)
    if not name.endswith((".txt", ".in")):
        raise UsageError(printable(f"from={source} is not a supported file."), hint=_HINT)
    _check_lines(text, name)
    return PackageFiles("requirements", name, {"requirements.txt": text}, None, [])


def _of_this_python() -> PackageFiles:
    own, notes = installed_packages("environment")
    version = "{}.{}".format(*sys.version_info[:2])
    if conda := own.get("conda"):
        packages = [*conda["packages"], *([{"pip": own["pip"]}] if own["pip"] else [])]
        text = json.dumps({"channels": conda["channels"], "dependencies": packages}, indent=1) + "\n"
        return PackageFiles("conda", THIS, {"environment.yml": text}, None, notes)
    text = "".join(f"{line}\n" for line in own["pip"])
    return PackageFiles("requirements", THIS, {"requirements.txt": text}, version, notes)


def _project_packages(text: str, name: str) -> str:
    """Return the dependencies of a pyproject.toml as lines of requirements."""
    try:
        told = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(printable(f"{name} is not valid TOML: {error}."), hint="Correct the file.") from None
    project = _table(told, "project")
    _check_tools(_table(told, "tool"), name)
    lines = project.get("dependencies", [])
    if not lines:
        dynamic = project.get("dynamic")
        is_dynamic = isinstance(dynamic, list) and "dependencies" in dynamic
        why = "is made when the project is built" if is_dynamic else "is empty"
        raise UsageError(printable(f"The list of dependencies under [project] in {name} {why}."), hint=_EXPORT)
    if not isinstance(lines, list) or not all(isinstance(line, str) and "\n" not in line for line in lines):
        raise UsageError(
            printable(f"The dependencies under [project] in {name} are not a list of packages."),
            hint="Correct the file.",
        )
    text = "".join(f"{line}\n" for line in lines)
    _check_lines(text, name)
    return text


def _table(table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = table.get(name)
    return found if isinstance(found, dict) else {}


def _check_tools(tools: Mapping[str, Any], name: str) -> None:
    """Refuse a file of which only another program can tell the packages, or where they come from."""
    for tool, fields in _TOOL_FIELDS.items():
        for field in fields:
            found = _table(tools, tool).get(field)
            if found and (not isinstance(found, dict) or found.keys() - {"python"}):
                raise UsageError(
                    printable(f"{name} sets {field} under [tool.{tool}], which only {tool} can read."), hint=_EXPORT
                )


def _check_lines(text: str, name: str) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        if _LOCAL.match(line.strip()):
            raise UsageError(
                printable(f"Line {number} of {name} names a file of this computer: {line.strip()[:200]}"),
                hint="The cluster installs packages of an index only. Remove the line, or write the packages of the "
                "other file into this one.",
            )


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(printable(f"{path} cannot be read: {error.strerror}."), hint=_HINT) from None
    if len(raw) > _MAX_BYTES:
        raise UsageError(printable(f"{path} is larger than {_MAX_BYTES >> 20} MB."), hint=_HINT)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(printable(f"{path} is not text in UTF-8."), hint=_HINT) from None
    if "\0" in text:
        raise UsageError(printable(f"{path} is not text."), hint=_HINT)
    return text
