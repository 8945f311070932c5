"""Words of a request for a transfer: keywords, paths, and clusters before a colon."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from jupyter_slurm.client.clusters.cluster_names import split_address
from jupyter_slurm.domain.options.option_parser import Option, OptionTable
from jupyter_slurm.errors import OptionError, UsageError

__all__ = ["COPY_KEYWORDS", "USAGES", "Request", "parse_words", "split_options"]

USAGES: Final = {
    "put": "put SOURCE… [CLUSTER:]DEST [overwrite] [background]",
    "get": "get [CLUSTER:]SOURCE… DEST [overwrite] [background]",
    "copy": "copy [CLUSTER:]SOURCE… [CLUSTER:]DEST [where=job] [options of sbatch] [overwrite] [background]",
    "stage": "stage [CLUSTER:]FOLDER [[CLUSTER:]DEST] [sync=delete] [where=job] [background]",
}
"""Usage of each command, without its first word."""

COPY_KEYWORDS: Final[dict[str, bool | None]] = {"background": False, "overwrite": False, "where": True}
"""The keywords of ``copy``, and whether each takes a value."""

_KEYWORDS: Final = ("overwrite", "background")
_UNSUPPORTED_OPTIONS: Final = ("array", "test-only", "wrap", "help", "usage", "version")
_PLACES: Final = {"where=job": "job", "where=login": "login"}
_MORE_KEYWORDS: Final = {"copy": tuple(_PLACES), "stage": (*_PLACES, "sync=delete")}


@dataclass(frozen=True)
class Request:
    """A transfer to request. ``cluster`` is None for the cluster of the front end.

    Attributes
    ----------
    kind : str
        put, get, copy or stage.
    to_cluster : str or None
        Cluster of the destination of a copy; None: that of the sources. Of a stage: None if the folder is on this
        computer.
    keywords : frozenset of str
        overwrite, background, sync=delete.
    where : str or None
        ``job`` or ``login``: who copies within a cluster; None: as the options say.
    """

    kind: str
    cluster: str | None
    sources: list[str]
    dest: str
    to_cluster: str | None = None
    keywords: frozenset[str] = field(default_factory=frozenset)
    where: str | None = None


def parse_words(kind: str, words: Sequence[str]) -> Request:
    """Parse the words after ``put``, ``get``, ``copy`` or ``stage``.

    Raises
    ------
    UsageError
        A path is missing, or is on the wrong side.
    """
    usage = f"Use `{USAGES[kind]}`."
    allowed = (*_KEYWORDS, *_MORE_KEYWORDS.get(kind, ()))
    end = len(words)
    while end and words[end - 1] in allowed:  # elsewhere it is a file, perhaps one that a pattern has found
        end -= 1
    keywords, paths = frozenset(words[end:]), list(words[:end])
    if options := [path for path in paths if path.startswith("-")]:
        raise UsageError(
            f"There is no option {options[0]!r} of {kind}.", hint=f"{usage} Write ./ before such a file name."
        )
    starts = tuple({f"{word.partition('=')[0]}=" for word in _MORE_KEYWORDS.get(kind, ())})
    if starts and (wrong := next((path for path in paths if path.startswith(starts)), None)):
        right = " or ".join(word for word in _MORE_KEYWORDS[kind] if word.split("=")[0] == wrong.split("=")[0])
        raise UsageError(f"{wrong} is not supported.", hint=f"Use {right}, after the paths. Write ./ before a file.")
    where = next((_PLACES[word] for word in words[end:] if word in _PLACES), None)
    if kind == "stage":
        return _parse_stage(paths, keywords, where, usage)
    if len(paths) < 2:
        raise UsageError(f"A source and a destination are needed for {kind}.", hint=usage)
    *sources, dest = paths
    if kind == "put":
        _check_local(sources, "Only files of this computer can be sent", "get")
        name, path = split_address(dest)
        return Request(kind, name, _expand(sources), path or ".", keywords=keywords)
    from_cluster, names = _split_all(sources)
    if kind == "get":
        _check_local([dest], "The destination must be on this computer", "put")
        return Request(kind, from_cluster, names, _absolute(dest), keywords=keywords)
    to_cluster, path = split_address(dest)
    return Request(kind, from_cluster or to_cluster, names, path or ".", to_cluster or from_cluster, keywords, where)


def split_options(words: Sequence[str], table: OptionTable) -> tuple[list[str], list[Option]]:
    """Return the paths and keywords of ``copy``, and its options of sbatch."""
    rest, options, at = list[str](), list[Option](), 0
    while at < len(words):
        found = table.read_option(words, at) if table.is_option(words[at]) else []
        rest += [] if found else [words[at]]
        options += found
        at += sum(len(option.tokens) for option in found) or 1
    for option in options:
        if option.name in _UNSUPPORTED_OPTIONS:
            raise OptionError(
                f"--{option.name} is not supported: one job copies the files.", hint="Omit it.", option=option.name
            )
    return rest, options


def _parse_stage(paths: list[str], keywords: frozenset[str], where: str | None, usage: str) -> Request:
    if len(paths) not in (1, 2) or "overwrite" in keywords:
        raise UsageError("Name one folder to stage, and at most one destination.", hint=usage)
    cluster, folder = (None, paths[0]) if os.path.lexists(paths[0]) else split_address(paths[0])
    name, path = split_address(paths[1]) if len(paths) > 1 else (None, "")
    if cluster is None:
        if where is not None:
            raise UsageError(
                f"where={where} is for a folder of a cluster, but {folder} is on this computer.", hint="Omit it."
            )
        return Request("stage", name, [_absolute(folder)], path, keywords=keywords)
    if name not in (None, cluster):
        raise UsageError(
            f"{paths[0]} is on {cluster}, but its destination {paths[1]} is on {name}.", hint=f"Use `{USAGES['copy']}`."
        )
    return Request("stage", cluster, [folder or "."], path, cluster, keywords, where)


def _split_all(sources: list[str]) -> tuple[str | None, list[str]]:
    """Return the cluster of all sources: a later one may leave it out."""
    split = [split_address(source) for source in sources]
    clusters = {name for name, _ in split if name is not None}
    if len(clusters) > 1:
        raise UsageError(f"The sources are on {' and '.join(sorted(clusters))}.", hint="Copy them in two steps.")
    return next(iter(clusters), None), [path or "." for _, path in split]


def _check_local(paths: Sequence[str], what: str, other: str) -> None:
    for path in paths:
        if split_address(path)[0] is not None and not os.path.lexists(path):
            raise UsageError(
                f"{what}, but {path} is on a cluster.",
                hint=f"Use `{USAGES[other]}`. Write ./ before a file of this computer with a colon in its name.",
            )


def _expand(sources: Sequence[str]) -> list[str]:
    """Return absolute paths; a pattern that is not a file name itself stands for the files that it matches."""
    found = list[str]()
    for source in sources:
        path = os.path.expanduser(source)
        matches = [path] if os.path.lexists(path) else sorted(glob.glob(path))
        if not matches:
            raise UsageError(f"{source} does not exist on this computer.", hint="Check the name.")
        found += [_absolute(match) for match in matches]
    return found


def _absolute(path: str) -> str:
    whole = os.path.abspath(os.path.expanduser(path))
    return whole + "/" if path.endswith("/") and not whole.endswith("/") else whole
