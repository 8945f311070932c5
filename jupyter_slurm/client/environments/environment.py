"""Python environments on a cluster: the list, and jobs that make one."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from jupyter_slurm.client.clusters.cluster import Cluster, current
from jupyter_slurm.client.clusters.option_tables import option_table
from jupyter_slurm.client.environments.package_files import NOTEBOOK, THIS, PackageFiles, read_packages
from jupyter_slurm.client.jobs.array import handle
from jupyter_slurm.client.jobs.job import Job
from jupyter_slurm.client.jobs.upload import submit_job
from jupyter_slurm.client.render.table import Table
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.client.sessions.launch import cluster_before
from jupyter_slurm.client.submission.submit import Preview, Submission
from jupyter_slurm.domain.magic_line.expand import Lookup
from jupyter_slurm.domain.magic_line.parser import MagicLine, parse_cell_line
from jupyter_slurm.domain.magic_line.tokenizer import tokenize
from jupyter_slurm.errors import CommandError, OptionError, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = [
    "KEYWORDS",
    "PLACES",
    "TOOLS",
    "USAGE",
    "EnvironmentRequest",
    "addressed",
    "create_environment",
    "environments",
    "parse_environment_line",
    "remove_environment",
]

ACTIONS = ("create", "list", "remove")
PLACES = ("job", "login")
TOOLS = ("uv", "pip", "micromamba", "mamba", "conda")

USAGE = "env create NAME [from=FILE|this|notebook] …, env list, env remove NAME"
"""Usage text for ``%slurm`` and ``jupyter slurm``."""

KEYWORDS: dict[str, bool | None] = {
    "as": True,
    "force": False,
    "from": True,
    "python": True,
    "replace": False,
    "show": False,
    "tool": True,
    "wait": False,
    "where": True,
}
"""The keywords of ``env create``, and whether each takes a value."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_REQUEST_KEYS = ("key", "options", "origin", "context")
_UNSUPPORTED_OPTIONS = ("array", "test-only", "wrap", "help", "usage", "version")
_VARIABLES: Mapping[str, str] = {}


class EnvironmentRequest(NamedTuple):
    """The parsed request of ``env create``.

    Attributes
    ----------
    name : str
        Name of the environment.
    parsed : MagicLine
        Options of sbatch and keywords.
    start : int
        Start of the parsed part in the line.
    """

    name: str
    parsed: MagicLine
    start: int


def addressed(line: str) -> tuple[Cluster, str]:
    """Return the cluster and the rest of a line. The first word names the cluster unless it is an action."""
    return cluster_before(ACTIONS, line)


def parse_environment_line(
    cluster: Cluster, line: str, lookup: Lookup | None = None, variables: Mapping[str, str] = _VARIABLES
) -> EnvironmentRequest:
    """Return the parsed request of a line ``create NAME …``.

    Raises
    ------
    UsageError
        The line has another form.
    """
    tokens = tokenize(line, lookup, variables)
    if len(tokens) < 2 or not _NAME.fullmatch(tokens[1].text):
        named = printable(tokens[1].text) if len(tokens) > 1 else ""
        raise UsageError(
            f"{named!r} is not a valid name of an environment." if named else "`env create` needs a name.",
            hint="Use letters, digits, dots, dashes and underscores: `env create torch from=requirements.txt`.",
        )
    start = tokens[1].end
    parsed = parse_cell_line(line[start:], option_table(cluster, "sbatch"), KEYWORDS, lookup, variables)
    return EnvironmentRequest(tokens[1].text, parsed, start)


def create_environment(cluster: Cluster, request: EnvironmentRequest) -> Job | Preview | str:
    """Submit a job that makes an environment, or make it on the login node; with ``show``, return a preview.

    An environment with the same packages that exists already gets the name at once: a sentence says so.

    Raises
    ------
    UsageError, SubmitRefused
        Nothing was submitted.
    """
    words = request.parsed.keywords
    _check(request)
    found = _packages(words.get("from") or THIS)
    for line in found.notes:
        sys.stderr.write(printable(line) + "\n")
    wish: dict[str, object] = {"name": request.name, "kind": found.kind, "source": found.source, "files": found.files}
    wish |= {"tool": words.get("tool"), "python": words.get("python") or found.python, "replace": "replace" in words}
    wish["force"] = "force" in words
    wish["where"] = words.get("where") or "job"
    with Submission("script", "", request.parsed.options).body(cluster) as body:
        wish |= {name: value for name, value in body.items() if name in _REQUEST_KEYS}
        if "show" in words:
            told = cluster.client.post(cluster.path("environments"), json={**wish, "dry_run": True})
            return told["command"] or Preview(told["preview"])
        data = submit_job(cluster, cluster.path("environments"), wish)
    if made := data["environment"]:
        failed = (
            f" Not imported when it was made: {'; '.join(made['failed_imports'])}." if made["failed_imports"] else ""
        )
        text = f"{made['name']} is ready: an environment with the same packages exists in {made['path']}.{failed}"
        return printable(text)
    if command := data["command"]:
        return _make_on_login_node(cluster, request.name, command)
    return handle(cluster, data["job"], from_start=True)


def _packages(source: str) -> PackageFiles:
    if source != NOTEBOOK:
        return read_packages(source)
    from jupyter_slurm.client.environments.notebook_packages import notebook_packages

    return notebook_packages()


def _make_on_login_node(cluster: Cluster, name: str, command: str) -> str:
    """Run the command that makes an environment, and show its output; return a sentence about the result."""
    from jupyter_slurm.client.clusters.login_command import LimitedText, follow_login_command

    out, err = LimitedText("stdout", None), LimitedText("stderr", None)
    end = follow_login_command(cluster, command, out=out.show, err=err.show)
    if code := end["exit_code"]:
        raise CommandError(
            f"The environment {name} was not made on the login node of {cluster.name} (exit code {code})."
            + (f" {end['reason']}" if end["reason"] else ""),
            hint="Make it in a job, without where=login." if end["reason"] else "Read the lines above.",
            exit_code=code,
        )
    return f"{name} is ready on {cluster.name}."


def _check_where(words: Mapping[str, str | None], parsed: MagicLine) -> None:
    where = words.get("where") or "job"
    if where not in PLACES:
        raise UsageError(printable(f"where={where} is not supported."), hint="Use where=job or where=login.")
    if where == "login" and parsed.parsed.options:
        option = parsed.parsed.options[0].name
        raise OptionError(
            f"--{option} has no effect with where=login: the login node makes the environment without a job.",
            hint="Omit the options of sbatch.",
            option=option,
        )


def _check(request: EnvironmentRequest) -> None:
    """Refuse contradictory keywords."""
    words = request.parsed.keywords
    for option in request.parsed.parsed.options:
        if option.name in _UNSUPPORTED_OPTIONS:
            message = f"--{option.name} is not supported: one job makes an environment."
            raise OptionError(message, hint="Omit it. The keyword `show` prints the submission.", option=option.name)
    _check_where(words, request.parsed)
    if request.parsed.args:
        raise UsageError("`env create` takes no arguments after --.", hint="Remove -- and the words after it.")
    if (tool := words.get("tool")) and tool not in TOOLS:
        raise UsageError(printable(f"tool={tool} is not supported."), hint=f"Use one of {', '.join(TOOLS)}.")
    if (version := words.get("python")) and not re.fullmatch(r"3\.\d{1,3}", version):
        raise UsageError(printable(f"python={version} is not a version of Python."), hint="For example python=3.12.")


def environments(cluster: Cluster | None = None) -> Table:
    """Return the environments that jobs have made on a cluster, by name."""
    meant = cluster or current()
    told = meant.client.get(meant.path("environments"))
    columns = ["NAME", "PYTHON", "PACKAGES", "CUDA", "TOOL", "FROM", "MADE", "NOT IMPORTED"]
    return Table(columns, [_row(one) for one in told["environments"]])


def _row(one: api.MadeEnvironment) -> list[str]:
    made = time.strftime("%Y-%m-%d %H:%M", time.localtime(one["made"])) if one["made"] else ""
    failed = ", ".join(line.partition(":")[0] for line in one["failed_imports"])
    cells = (one["name"], one["python"], one["packages"], one["cuda"], one["tool"], one["source"], made, failed)
    return [printable("" if cell is None else str(cell)) for cell in cells]


def remove_environment(name: str, cluster: Cluster | None = None) -> str:
    """Remove an environment that a job has made; return a sentence about the result."""
    meant = cluster or current()
    told = meant.client.post(meant.path("environments", "remove"), json={"name": name})
    return printable("\n".join(f"Removed: {path}" for path in told["removed"]))
