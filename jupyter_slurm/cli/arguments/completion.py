"""Completion of the command line by argcomplete, from files and a running agent, without a start or a login."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from jupyter_slurm.errors import SlurmError

if TYPE_CHECKING:
    from jupyter_slurm.agent.client.agent_client import AgentClient

__all__ = ["complete"]

_ANSWER_TIMEOUT_S = 2.0  # a user waits for the shell

Completions = Mapping[str, str]
"""Possible words, each with a description for shells that show it."""
Completer = Callable[[str, argparse.Namespace], Completions]


def complete(parser_for: Callable[[str | None], argparse.ArgumentParser]) -> None:
    """Print the completions that the shell asks for, and end the process.

    Parameters
    ----------
    parser_for : callable
        Returns the parser of a command, or of all commands for None.
    """
    import argcomplete
    from argcomplete.completers import SuppressCompleter
    from argcomplete.lexers import split_line

    words = split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))[3]
    words = words[int(os.environ["_ARGCOMPLETE"]) :]
    command = next((word for word in words if not word.startswith("-")), None)
    parser = parser_for(command)
    if command is not None:
        _attach(parser, command)
    argcomplete.autocomplete(parser, always_complete_options=False, default_completer=SuppressCompleter())


def _attach(parser: argparse.ArgumentParser, command: str) -> None:
    """Set the completers of the arguments of a command, and of its actions."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                _attach(inner, command)
            continue
        completer = _COMPLETERS.get((command, action.dest)) or _COMPLETERS.get(("", action.dest))
        if completer is not None:
            cast("Any", action).completer = _wrapped(completer)


def _wrapped(completer: Completer) -> Callable[..., dict[str, str]]:
    def safe(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> dict[str, str]:
        found: dict[str, str] = {}
        with contextlib.suppress(SlurmError, OSError):
            found = {word: text for word, text in completer(prefix, parsed_args).items() if word.startswith(prefix)}
        return found

    return safe


# Words from files -----------------------------------------------------------------------------------------------------


def _clusters(prefix: str, args: argparse.Namespace) -> Completions:
    from jupyter_slurm.config import load_settings
    from jupyter_slurm.sites.profile import list_profiles

    return {**dict.fromkeys(list_profiles(load_settings().sites), "site profile"), "local": "Slurm of this computer"}


def _remote_clusters(prefix: str, args: argparse.Namespace) -> Completions:
    return {name: text for name, text in _clusters(prefix, args).items() if name != "local"}


def _shipped(prefix: str, args: argparse.Namespace) -> Completions:
    from jupyter_slurm.sites.shipped import shipped_profiles

    return {name: one.title for one in shipped_profiles() for name in (one.name, *one.aliases)}


def _profiles(prefix: str, args: argparse.Namespace) -> Completions:
    return {**_files(prefix, "toml"), **_shipped(prefix, args), **_remote_clusters(prefix, args)}


def _profile_sources(prefix: str, args: argparse.Namespace) -> Completions:
    return {**_files(prefix, "toml"), **_shipped(prefix, args)}


def _hosts(prefix: str, args: argparse.Namespace) -> Completions:
    from jupyter_slurm.cli.arguments.ssh_hosts import host_names

    config = getattr(args, "ssh_config", None) or "~/.ssh/config"
    return dict.fromkeys(host_names(os.path.expanduser(config)), "")


def _jump_hosts(prefix: str, args: argparse.Namespace) -> Completions:
    given = prefix.rpartition(",")[0]
    before = f"{given}," if given else ""
    return {"none": "connect directly"} | {f"{before}{host}": "" for host in _hosts(prefix, args)}


def _settings(prefix: str, args: argparse.Namespace) -> Completions:
    from jupyter_slurm.config import Settings

    return {name: trait.help for name, trait in Settings.class_traits(config=True).items()}


def _kernels(prefix: str) -> Completions:
    from jupyter_slurm.client.kernels.kernelspecs import listed

    return {one.name: one.display_name for one in listed()}


def _usage_keys(prefix: str, args: argparse.Namespace) -> Completions:
    return dict.fromkeys(("user", "account", "partition", "qos", "gpu"), "")


def _paths(prefix: str, args: argparse.Namespace) -> Completions:
    return _files(prefix)


def _files(prefix: str, *endings: str) -> Completions:
    from argcomplete.completers import FilesCompleter

    return dict.fromkeys(FilesCompleter(endings)(prefix), "")


# Words from a running agent -------------------------------------------------------------------------------------------


def _active_jobs(prefix: str, args: argparse.Namespace) -> Completions:
    return dict(_jobs(args, {}))


def _all_jobs(prefix: str, args: argparse.Namespace) -> Completions:
    return dict(_jobs(args, {"state": "all", "finished": 200}))


def _jobs(args: argparse.Namespace, params: dict[str, str | int]) -> Iterator[tuple[str, str]]:
    for client, path in _running_clusters(args):
        with contextlib.suppress(SlurmError):
            for job in client.get(f"{path}/jobs", params=params, timeout=_ANSWER_TIMEOUT_S):
                yield (
                    str(job["id"] or job["key"]),
                    f"{job.get('label') or job.get('name') or ''} {job['state']}".strip(),
                )


def _places(args: argparse.Namespace, words: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the open allocations and the running jobs, in which a step may start."""
    if words and "=" not in words[0] and not words[0].startswith("-") and words[0] in _clusters("", args):
        args.cluster = words[0]
    for client, path in _running_clusters(args):
        for kind in ("allocation", "running"):
            with contextlib.suppress(SlurmError):
                for one in client.get(f"{path}/names/{kind}", timeout=_ANSWER_TIMEOUT_S)["names"]:
                    yield str(one["name"]), str(one["about"])


def _tunnel_ends(prefix: str, args: argparse.Namespace) -> Completions:
    return {**_active_jobs(prefix, args), "login": "the login node"}


def _sessions(prefix: str, args: argparse.Namespace) -> Completions:
    found = {}
    for client, path in _running_clusters(args):
        with contextlib.suppress(SlurmError):
            for one in client.get(f"{path}/sessions", params={"state": "active"}, timeout=_ANSWER_TIMEOUT_S):
                name = one.get("label") or one["id"] or one["key"]
                found[str(name)] = str((one.get("session") or {}).get("state", ""))
    return found


def _running_clusters(args: argparse.Namespace) -> Iterator[tuple[AgentClient, str]]:
    """Yield client and API path of the requested cluster if the agent runs and the cluster needs no login."""
    from urllib.parse import quote

    from jupyter_slurm.agent.client.agent_client import AgentClient
    from jupyter_slurm.config import load_settings

    settings = load_settings()
    named = getattr(args, "cluster", None) or settings.cluster or "local"
    with AgentClient.connect(settings, start=False) as client:
        for cluster in client.get("/v1/clusters", timeout=_ANSWER_TIMEOUT_S):
            connection = cluster.get("connection")
            is_here = connection is None and cluster["slurm_conf"] == (os.environ.get("SLURM_CONF") or None)
            is_meant = is_here if named == "local" else cluster["id"] == named
            if is_meant and (connection is None or connection["state"] == "connected"):
                yield client, f"/v1/clusters/{quote(str(cluster['id']), safe='')}"


# Commands with options of sbatch --------------------------------------------------------------------------------------


def _launch(prefix: str, args: argparse.Namespace) -> Completions:
    from jupyter_slurm.client.sessions.launch import WORDS

    return _free_form(prefix, args, list(args.words or ()), WORDS)


def _kernel(prefix: str, args: argparse.Namespace) -> Completions:
    words = list(args.words or ())
    if not words:
        return dict.fromkeys(("add", "list", "remove", "switch", "follow"), "")
    if words[0] == "add":
        from jupyter_slurm.client.kernels.kernel import KEYWORDS

        return _free_form(prefix, args, words[1:], KEYWORDS)
    if words[0] in ("switch", "follow") and len(words) == 1:
        return _files(prefix, "ipynb")
    if words == ["remove"] or (words[0] == "switch" and len(words) == 2):
        return _kernels(prefix)
    return dict.fromkeys({"list": ["--json"], "switch": ["in="], "follow": ["in="]}.get(words[0], []), "")


def _image(prefix: str, args: argparse.Namespace) -> Completions:
    from jupyter_slurm.client.images.image import KEYWORDS

    words = list(args.words or ())
    act = next((word for word in words if word in ("build", "pull", "list", "remove")), None)
    if act is None:
        return {**dict.fromkeys(("build", "pull", "list", "remove"), ""), "--cluster": ""}
    if act == "build" and len(words) == 2 and not prefix.startswith("-"):
        return {**_files(prefix), "environment": "the packages of this Python"}
    if act in ("list", "remove"):
        return _clusters(prefix, args) if words[-1] == "--cluster" else {"--cluster": ""}
    return _free_form(prefix, args, words, KEYWORDS)


def _environment(prefix: str, args: argparse.Namespace) -> Completions:
    from jupyter_slurm.client.environments.environment import KEYWORDS

    words = list(args.words or ())
    act = next((word for word in words if word in ("create", "list", "remove")), None)
    if act is None:
        return {**dict.fromkeys(("create", "list", "remove"), ""), "--cluster": ""}
    if act != "create":
        return _clusters(prefix, args) if words[-1] == "--cluster" else {"--cluster": ""}
    return _free_form(prefix, args, words, KEYWORDS)


def _free_form(
    prefix: str, args: argparse.Namespace, words: list[str], keywords: Mapping[str, bool | None]
) -> Completions:
    """Return options of sbatch after a dash, else keywords, and at the start the clusters."""
    if words[-1:] == ["--cluster"]:
        return _clusters(prefix, args)
    if prefix.startswith("-"):
        from jupyter_slurm.domain.options.option_parser import OptionTable

        table = OptionTable.for_command("sbatch")
        return {"--cluster": "name of a cluster"} | dict.fromkeys(_long_options(table.specs), "")
    if prefix.startswith("on=") and "on" in keywords:
        return {f"on={name}": about for name, about in _places(args, words)}
    found: dict[str, str] = {f"{name}{'=' if value else ''}": "keyword" for name, value in keywords.items()}
    return found if words else {**found, **_remote_clusters(prefix, args)}


def _long_options(specs: Iterable[Any]) -> list[str]:
    return [f"--{name}" for spec in specs for name in spec.names if len(name) > 1]


_COMPLETERS: Mapping[tuple[str, str], Completer] = {
    ("", "cluster"): _clusters,
    ("connect", "cluster"): _remote_clusters,
    ("disconnect", "cluster"): _remote_clusters,
    ("doctor", "cluster"): _remote_clusters,
    ("", "cluster_option"): _remote_clusters,
    ("init", "cluster"): _shipped,
    ("init", "profile"): _profile_sources,
    ("sites", "profile"): _profiles,
    ("sites", "profiles"): _profiles,
    ("", "host"): _hosts,
    ("", "jump"): _jump_hosts,
    ("config", "names"): _settings,
    ("", "job"): _all_jobs,
    ("", "jobs"): _active_jobs,
    ("cancel", "job"): _active_jobs,
    ("ssh-config", "job"): _active_jobs,
    ("tunnel", "job"): _tunnel_ends,
    ("open", "name"): _sessions,
    ("log", "name"): _sessions,
    ("rename", "name"): _sessions,
    ("stop", "names"): _sessions,
    ("usage", "by"): _usage_keys,
    ("", "ssh_config"): _paths,
    ("embedded", "config"): _paths,
    ("embedded", "slurm_root"): _paths,
    ("embedded", "dir"): _paths,
    ("launch", "words"): _launch,
    ("kernel", "words"): _kernel,
    ("env", "words"): _environment,
    ("image", "words"): _image,
}
"""Completers by command (or any) and argument."""
