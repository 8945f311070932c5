"""Transfers of files: start, progress in one line, end, and list."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from jupyter_slurm.client.clusters.cluster import Cluster, current, with_id
from jupyter_slurm.client.clusters.file_listing import path_on
from jupyter_slurm.client.clusters.option_tables import option_table
from jupyter_slurm.client.interrupts import WaitInterrupted
from jupyter_slurm.client.login.call import answering
from jupyter_slurm.client.render.present_size import format_size
from jupyter_slurm.client.render.table import Table
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.client.submission.submit import Submission
from jupyter_slurm.client.transfers.request import Request, parse_words, split_options
from jupyter_slurm.domain.options.option_parser import Option
from jupyter_slurm.errors import OptionError, UsageError, from_problem

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["list_transfers", "run_transfer", "stop_transfer"]

_POLL_S: Final = (0.02, 0.5)  # seconds between two looks: at first, and at most
_POLL_SHARE: Final = 0.05  # seconds between two looks for each second waited
_SHOWN_AFTER_S: Final = 1.0
_REDRAW_S: Final = 0.5
_WIDTH: Final = 78
_FLAGS: Final = {"overwrite": "overwrite", "sync=delete": "delete"}


def run_transfer(kind: str, words: Sequence[str], cluster: Cluster | None = None) -> str:
    """Copy files as the words after ``put``, ``get``, ``copy`` or ``stage`` say; return a sentence about the result.

    Raises
    ------
    UsageError
        A word is not valid.
    CommandError
        Files of the destination would be replaced, or a side failed.
    WaitInterrupted
        The user interrupted: the transfer is stopped, and can be continued.
    """
    options = list[Option]()
    if kind == "copy" and any(word.startswith("-") for word in words):
        words, options = split_options(words, option_table(cluster or current(), "sbatch"))
    request = parse_words(kind, words)
    cluster = with_id(request.cluster) if request.cluster else cluster or current()
    sources, dest = request.sources, request.dest
    asked: dict[str, object] = {"kind": kind}
    if kind in ("get", "copy") or request.to_cluster:
        sources = [path_on(cluster, path) for path in sources]
    if kind == "put":
        dest = path_on(cluster, dest)
    asked |= {"sources": sources, "dest": dest}
    if kind == "copy":
        to_cluster = with_id(request.to_cluster) if request.to_cluster else cluster
        asked |= {"to_cluster": to_cluster.name, "dest": path_on(to_cluster, dest)}
    elif request.to_cluster:
        asked |= {"to_cluster": cluster.name}
    if kind in ("copy", "stage"):
        asked |= _job(cluster, request, options)
    asked |= {name: True for word, name in _FLAGS.items() if word in request.keywords}
    path = cluster.path("transfers")
    started: api.Transfer = answering(
        cluster.client,
        cluster.name,
        lambda: cluster.client.post(path, json=asked, timeout=None),
        others=[str(asked["to_cluster"])] if "to_cluster" in asked else [],
    )
    if "background" in request.keywords:
        return f"Transfer {started['id']} has started. `%slurm transfers` shows its progress."
    return _follow(cluster, request, started)


def _job(cluster: Cluster, request: Request, options: Sequence[Option]) -> dict[str, object]:
    """Return the job that copies, if the options or ``where=`` request one."""
    if options and request.where == "login":
        raise OptionError(
            f"--{options[0].name} has no effect with where=login: the login node copies without a job.",
            hint="Omit the options of sbatch.",
            option=options[0].name,
        )
    if not options and request.where != "job":
        return {}
    words = [word for option in options for word in option.tokens]
    with Submission("script", "", words).body(cluster) as body:
        return {"job": {name: body[name] for name in ("options", "origin", "context")}}


def stop_transfer(transfer_id: str, cluster: Cluster | None = None) -> str:
    """Stop a transfer."""
    cluster = cluster or current(log_in=False)
    stopped: api.Transfer = cluster.client.post(cluster.path("transfers", transfer_id, "stop"))
    return f"Transfer {transfer_id}: {stopped['state']}. The same command continues a stopped transfer."


def list_transfers(cluster: Cluster | None = None) -> Table:
    """Return the running and the recent transfers of a cluster."""
    cluster = cluster or current(log_in=False)
    found: list[api.Transfer] = cluster.client.get(cluster.path("transfers"))
    return Table(
        ["ID", "KIND", "STATE", "COPIED", "TOTAL", "FILES", "SOURCE", "DESTINATION"], [_row(one) for one in found]
    )


def _row(one: api.Transfer) -> list[str]:
    more = f" and {len(one['sources']) - 1} more" if len(one["sources"]) > 1 else ""
    total = "" if one["total"] is None else format_size(one["total"])
    files = "" if one["files"] is None else str(one["files"])
    ends = (printable(one["sources"][0]) + more, printable(one["dest"]))
    return [one["id"], one["kind"], one["state"], format_size(one["bytes"]), total, files, *ends]


def _follow(cluster: Cluster, request: Request, now: api.Transfer) -> str:
    line, path, began = _Line(request), cluster.path("transfers", now["id"]), time.monotonic()
    try:
        while now["state"] == "running":
            waited = time.monotonic() - began
            time.sleep(min(max(_POLL_S[0], _POLL_SHARE * waited), _POLL_S[1]))
            now = cluster.client.get(path)
            line.show(now)
    except KeyboardInterrupt:
        cluster.client.post(f"{path}/stop")
        job = f" and job {now['job']} is cancelled" if now["job"] else ""
        raise WaitInterrupted(
            f"Interrupted: the transfer is stopped{job}. Files that have arrived are kept; the same command continues "
            "it."
        ) from None
    finally:
        line.end()
    if (error := now["error"]) is not None:
        raise from_problem(error)
    if now["state"] == "stopped":
        raise UsageError("The transfer was stopped.", hint="The same command continues it.")
    return _result(now)


def _result(now: api.Transfer) -> str:
    place = printable(now["dest"])
    files = now["files"] or 0
    copied = f"{files} file{'' if files == 1 else 's'} ({format_size(now['total'] or 0)})"
    said = f"Copied {copied} to {place}."
    if now["kind"] == "stage":
        said = f"Staged in {place}. {copied} {'was' if files == 1 else 'were'} copied."
    if same := now["unchanged"]:
        said += f" {same} {'is' if same == 1 else 'are'} unchanged."
    if job := now["job"]:
        said += f" Job {job} copied."
    how = (
        [f"A job runs in it with --chdir={shlex.quote(place)}."] if now["kind"] == "stage" and now["to_cluster"] else []
    )
    return "\n".join([said, *how, *map(printable, now["warnings"])])


class _Line:
    """Line on standard error that is redrawn: bytes, rate and remaining time of a transfer."""

    def __init__(self, request: Request) -> None:
        self._subject = request.kind
        self._next = time.monotonic() + _SHOWN_AFTER_S
        self._is_shown = False

    def show(self, now: api.Transfer) -> None:
        """Redraw the line, if it was not redrawn just now."""
        if time.monotonic() < self._next:
            return
        self._next, self._is_shown = time.monotonic() + _REDRAW_S, True
        total, rate = now["total"], now["rate"]
        if now["waits"]:
            subject = f"{self._subject}: job {now['job']} waits." if now["job"] else f"{self._subject}:"
            self._write(f"{subject} {printable(now['waits'])}"[:_WIDTH])
            return
        text = f"{self._subject}: {format_size(now['bytes'])}"
        text += "" if total is None else f" of {format_size(total)}"
        if rate:
            text += f", {format_size(int(rate))}/s"
            text += "" if total is None else f", {(total - now['bytes']) / rate:.0f} s left"
        self._write(text)

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(f"\r{text:<{_WIDTH}}")
        sys.stderr.flush()

    def end(self) -> None:
        """End the line."""
        if self._is_shown:
            sys.stderr.write("\n")
            sys.stderr.flush()
