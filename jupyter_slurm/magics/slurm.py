"""Magic ``%slurm``: the cluster of this notebook, and its sessions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from jupyter_slurm.client.clusters import cluster as clusters
from jupyter_slurm.client.clusters.clients import lines
from jupyter_slurm.client.clusters.tunnel import tunnels
from jupyter_slurm.client.render.table import CommandText
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.client.transfers.request import USAGES as TRANSFER_USAGES
from jupyter_slurm.domain.magic_line.tokenizer import tokenize
from jupyter_slurm.errors import UsageError
from jupyter_slurm.magics.login_commands import MANUAL_USAGE, SH_USAGE, run_line, run_manual
from jupyter_slurm.magics.login_commands import run_cell as run_commands

if TYPE_CHECKING:
    from jupyter_slurm.client.clusters.file_listing import FileListing
    from jupyter_slurm.client.clusters.room import Room
    from jupyter_slurm.client.clusters.running_use import RunningUse
    from jupyter_slurm.client.clusters.usage import Usage
    from jupyter_slurm.client.jobs.job import Job
    from jupyter_slurm.client.render.table import Table
    from jupyter_slurm.client.sessions.session import Session
    from jupyter_slurm.client.submission.submit import Preview

__all__ = ["USAGES", "run", "run_cell"]

USAGES = {
    "use": "%slurm use CLUSTER, the name of a site profile or local",
    "disconnect": "%slurm disconnect CLUSTER",
    "list": "%slurm list",
    "usage": "%slurm usage [account=NAME] [start=2026-11-01] [end=2026-11-30] [by=user,partition,gpu]",
    "who": "%slurm who [by=user,account,partition] [account=NAME] [partition=NAME]",
    "room": "%slurm room [newer]",
    "sh": SH_USAGE,
    "put": f"%slurm {TRANSFER_USAGES['put']}",
    "get": f"%slurm {TRANSFER_USAGES['get']}",
    "copy": f"%slurm {TRANSFER_USAGES['copy']}",
    "stage": f"%slurm {TRANSFER_USAGES['stage']}",
    "transfers": "%slurm transfers [stop ID]",
    "man": MANUAL_USAGE,
    "ls": "%slurm ls [all] [[CLUSTER:]PATH]",
    "launch": "%slurm launch [CLUSTER] [options of sbatch] [keywords] [-- COMMAND {port}]",
    "image": "%slurm image build NAME FILE|environment …, image pull NAME …, image list, image remove NAME",
    "env": "%slurm env create NAME [from=FILE|this] …, env list, env remove NAME",
    "kernel": "%slurm kernel switch KERNEL [in=x,y] [release]",
}
"""The subcommands of ``%slurm``, and the usage of each."""

_HELP = re.compile(r"\s*(?P<word>[a-z]+)\s+--help\s*")
_SH = re.compile(r"\s*sh(?=\s|$)")


def run_cell(shell: Any, line: str, cell: str) -> None:
    """Run ``%%slurm sh``, the only subcommand with a cell."""
    if (found := _SH.match(line)) is None:
        raise UsageError("Only %%slurm sh takes a cell.", hint=f"Use `{SH_USAGE}`.")
    run_commands(shell, line[found.end() :], cell)


def run(
    shell: Any, line: str, local_ns: Mapping[str, object]
) -> CommandText | Session | Usage | RunningUse | Room | FileListing | Table | Job | Preview | None:
    """Run ``%slurm use NAME``, ``disconnect NAME``, ``list``, and the subcommands with arguments."""
    if (found := _HELP.fullmatch(line)) is not None and found["word"] in USAGES:
        from jupyter_slurm.magics.help import subcommand_help  # rarely used

        return CommandText(subcommand_help(found["word"], USAGES[found["word"]]))
    if (found := re.match(r"\s*launch(?=\s|$)", line)) is not None:
        from jupyter_slurm.magics.sessions import run as launch  # rarely used

        return launch(shell, line[found.end() :], local_ns)
    if (found := re.match(r"\s*image(?=\s|$)", line)) is not None:
        from jupyter_slurm.magics.environments.images import run as image

        return image(shell, line[found.end() :].lstrip(), local_ns)
    if (found := re.match(r"\s*env(?=\s|$)", line)) is not None:
        from jupyter_slurm.magics.environments.environments import run as environment

        return environment(shell, line[found.end() :].lstrip(), local_ns)
    if (found := _SH.match(line)) is not None:
        run_line(shell, line[found.end() :])
        return None
    words = [token.text for token in tokenize(line)]
    action = words[0] if words else "list"
    if action in TRANSFER_USAGES:
        from jupyter_slurm.client.transfers.transfer import run_transfer  # rarely used

        return CommandText(run_transfer(action, words[1:]) + "\n")
    if action == "man":
        run_manual(shell, words[1:])
        return None
    if action in _ACTIONS:  # in a terminal, their keywords have dashes
        return _ACTIONS[action]([word.removeprefix("--") for word in words[1:]])
    if action not in USAGES:
        near = get_close_matches(action, USAGES, n=1)
        raise UsageError(
            f"%slurm has no subcommand {action!r}." + (f" Did you mean {near[0]!r}?" if near else ""),
            hint=f"Use {'; '.join(USAGES.values())}.",
        )
    return _cluster_action(action, words[1:])


def _cluster_action(action: str, names: list[str]) -> CommandText:
    """Choose a cluster, end a login, or list the clusters, their logins and tunnels."""
    if len(names) != (action != "list"):
        raise UsageError(
            f"%slurm {action} takes {'no' if action == 'list' else 'one'} name.", hint=f"Use `{USAGES[action]}`."
        )
    if action == "use":
        cluster = clusters.use(names[0])
        return CommandText(f"This notebook now uses {cluster.name if cluster.is_remote else names[0]}.\n")
    if action == "disconnect":
        done = clusters.disconnect(names[0])
        return CommandText(
            f"Disconnected from {names[0]}. Jobs continue.\n" if done else f"Kept the login to {names[0]}.\n"
        )
    opened = [printable(repr(one)) for each in clusters.every() for one in tunnels(each)]
    told = [f"{name}  {state}\n{lines(users)}" for name, state, users in clusters.overview()]
    return CommandText("".join([*told, *(f"{one}\n" for one in opened)]))


def _kernel(arguments: list[str]) -> CommandText:
    """Move this notebook to another kernel."""
    from jupyter_slurm.magics.kernels import run  # rarely used

    return run(arguments)


def _running_use(arguments: list[str]) -> RunningUse:
    """Return what runs now, by user or the columns of ``by=``."""
    from jupyter_slurm.client.clusters.running_use import request_running_use  # rarely used

    given = _keywords("who", arguments, ("by", "account", "partition"))
    keys = given.get("by", "user").split(",")
    return request_running_use(clusters.current(), keys, given.get("account"), given.get("partition"))


def _transfers(arguments: list[str]) -> Table | CommandText:
    """List the transfers, or stop one."""
    from jupyter_slurm.client.transfers.transfer import list_transfers, stop_transfer  # rarely used

    if not arguments:
        return list_transfers()
    if len(arguments) != 2 or arguments[0] != "stop":
        raise UsageError("%slurm transfers takes only `stop ID`.", hint=f"Use `{USAGES['transfers']}`.")
    return CommandText(stop_transfer(arguments[1]) + "\n")


def _room(arguments: list[str]) -> Room:
    """Return the free space and the quotas."""
    from jupyter_slurm.client.clusters.room import request_room  # rarely used

    if arguments not in ([], ["newer"]):
        raise UsageError("%slurm room takes only the keyword newer.", hint=f"Use `{USAGES['room']}`.")
    return request_room(clusters.current(), newer=bool(arguments))


def _list_files(arguments: list[str]) -> FileListing:
    """Return the entries of a directory; ``all``: also hidden ones."""
    from jupyter_slurm.client.clusters.cluster_names import split_address  # rarely used
    from jupyter_slurm.client.clusters.file_listing import request_listing  # rarely used

    has_hidden = arguments[:1] == ["all"]
    paths = arguments[has_hidden:]
    if len(paths) > 1:
        raise UsageError("%slurm ls takes one path.", hint=f"Use `{USAGES['ls']}`, with quotes around blanks.")
    name, path = split_address(paths[0]) if paths else (None, "")
    cluster = clusters.current() if name is None else clusters.with_id(name)
    return request_listing(cluster, path or ".", has_hidden=has_hidden)


def _usage(arguments: list[str]) -> Usage | Table:
    """Return the usage, or with ``by=`` a table of it."""
    from jupyter_slurm.client.clusters.usage import request_usage  # rarely used

    given = _keywords("usage", arguments, ("account", "start", "end", "by"))
    used = request_usage(clusters.current(), given.get("account"), given.get("start"), given.get("end"))
    return used.by(*given["by"].split(",")) if "by" in given else used


def _keywords(action: str, arguments: list[str], names: tuple[str, ...]) -> dict[str, str]:
    """Return the values of ``name=value`` words.

    Raises
    ------
    UsageError
        A word has another form, an unknown name, or a name that was given before.
    """
    given: dict[str, str] = {}
    for word in arguments:
        name, _, value = word.partition("=")
        if name not in names or not value:
            raise UsageError(f"%slurm {action} has no keyword {word!r}.", hint=f"Use `{USAGES[action]}`.")
        if name in given:
            raise UsageError(f"{name}= is given twice.", hint=f"Use `{USAGES[action]}`.")
        given[name] = value
    return given


_ACTIONS: Mapping[str, Callable[[list[str]], CommandText | Usage | RunningUse | Room | FileListing | Table]] = {
    "kernel": _kernel,
    "ls": _list_files,
    "room": _room,
    "transfers": _transfers,
    "usage": _usage,
    "who": _running_use,
}
