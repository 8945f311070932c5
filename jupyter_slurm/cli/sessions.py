"""Commands ``jupyter slurm launch|sessions|open|stop|rename|log``: servers in jobs, on a local port."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from jupyter_slurm.cli.arguments.cluster import add_cluster_option, requested_cluster, with_cluster_first
from jupyter_slurm.cli.terminal import add_verbatim, is_help
from jupyter_slurm.documentation import page_url
from jupyter_slurm.errors import JobNotFound, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.client.sessions.session import Session
    from jupyter_slurm.domain import api_types as api

__all__ = ["add_parser", "run"]

_LAUNCH = f"""\
Run JupyterLab, or another server, in a job and forward it to a local port (8000 to 9000). The session opens in a
browser, logged in.

  jupyter slurm launch mycluster -p gpu --gpus 1 --time 8:00:00 name=training idle=2h
  jupyter slurm launch -p gpu --gpus 1 image=nvcr.io/nvidia/pytorch:24.01-py3
  jupyter slurm launch -p gpu app=tensorboard logdir=runs
  jupyter slurm launch on=12345
  jupyter slurm launch -p gpu -- python3 -m http.server --bind {{host}} {{port}}

The cluster can also be given as for other commands: --cluster NAME.

Keywords (without dashes; options of sbatch have dashes):
  app=NAME      server by name: jupyter (default), code-server, marimo, mlflow, rstudio, tensorboard
  logdir=DIR    with app=tensorboard: the directory of its logs
  store=URI     with app=mlflow: its backend store, a directory or a database (default: mlflow.db in dir=)
  notebook=FILE with app=marimo: the notebook (default: a list of those in dir=)
  name=NAME     name of the session (default: jupyter-1, jupyter-2, ...)
  dir=DIR       directory that the server shows or starts in (default: the job's working directory)
  env=NAME      environment of the job: a name of the profile, the directory of a venv or a conda environment, or an
                image: docker://NAME:TAG
  image=NAME:TAG
                container image: of a registry, a SIF file, or the directory of an unpacked image
  modules=A,B   modules to load first, as `module load` does
  python=PATH   Python whose Jupyter runs; a command after -- is looked for on the job's PATH, then next to this Python
  jupyter=install
                install JupyterLab with pip if that Python has none; done once, into the directory of images
  idle=TIME     stop the session after this time without use: 30m, 2h, or as for --time (default: 1d)
  on=JOB        run in this job of yours or this open allocation, as a step: an ID, or the name of an allocation. The
                session ends with the job, and the job continues when the session ends
  port=PORT     local port (default: the first free one)
  resume        continue in the same job after its time limit, preemption or a node failure, at most 20 times
                (resume=3: three times)
  stage=DIR     send a directory; the session works in the copy. stage=DIR:DEST names the destination. New files are
                copied back when the session ends
  sync=checksum,delete
                how stage= compares files, and whether it deletes others
  open          open the session in a browser (default)
  noopen        do not open a browser

In a command after --, {{port}} becomes a free port of the node, {{host}} becomes 127.0.0.1, and {{base_url}} the path
of the session. {{socket}}, instead of {{port}} and {{host}}, becomes the path of a Unix socket that only you can open.
The command must stay in the foreground and listen on 127.0.0.1 only. Other users on the node can see its arguments and
connect to its port. Do not write a secret on the command line. Use the server's own login if it has one.

The command waits until the session is ready. Press Ctrl-C to choose between cancelling the session and keeping it.

{page_url("how-to/jupyter-on-a-node")}"""


_NAME_HELP = "name of the session, or ID or key of its job"


def add_parser(subparsers: Any) -> None:
    """Add the subcommands."""
    add_verbatim(
        subparsers,
        "launch",
        usage="jupyter slurm launch [CLUSTER] [options of sbatch] [keywords] [-- command with a {port}]",
        description=_LAUNCH,
    )
    listing = subparsers.add_parser(
        "sessions", description="List the remote Jupyter sessions and other servers that run in jobs."
    )
    listing.add_argument("-a", "--all", action="store_true", help="list finished sessions, too")
    listing.add_argument("-v", "--verbose", action="store_true", help="print the start and end of each step")
    listing.add_argument("--json", action="store_true", help="print JSON")
    opening = subparsers.add_parser("open", description="Open a session in a browser, logged in.")
    opening.add_argument("--no-browser", action="store_true", help="print the URL without opening a browser")
    stop = subparsers.add_parser("stop", description="Stop sessions and all that runs in them. Waits for their end.")
    rename = subparsers.add_parser("rename", description="Rename a session.")
    log = subparsers.add_parser("log", description="Print the end of the log of a session's server.")
    log.add_argument("-n", "--lines", type=int, default=20, metavar="N", help="number of lines (default: %(default)s)")
    stop.add_argument("names", metavar="NAME", nargs="+", help="names of sessions, or IDs or keys of their jobs")
    for parser in (opening, log):
        parser.add_argument("name", metavar="NAME", nargs="?", help=f"{_NAME_HELP} (default: the only active session)")
    rename.add_argument("name", metavar="NAME", help=_NAME_HELP)
    rename.add_argument("new", metavar="NEW", help="new name")
    for parser in (listing, opening, stop, rename, log):
        add_cluster_option(parser)


def run(args: argparse.Namespace) -> int:
    """Run one of the subcommands."""
    if args.command == "launch":
        return _launch(args)
    if args.cluster:
        requested_cluster(args)
    if args.command == "sessions":
        return _list(is_active=not args.all, as_json=args.json, is_verbose=args.verbose)
    return {"open": _open, "stop": _stop, "rename": _rename, "log": _log}[args.command](args)


def _launch(args: argparse.Namespace) -> int:
    if is_help(args.words):
        args.explain()
        return 0
    from jupyter_slurm.client.allocations.choice import place_named
    from jupyter_slurm.client.clusters.option_tables import option_table
    from jupyter_slurm.client.render.terminal import printable
    from jupyter_slurm.client.sessions.launch import WORDS, launch, named_in, resolve_cluster
    from jupyter_slurm.domain.magic_line.parser import parse_cell_line

    name, line = named_in(shlex.join(with_cluster_first(args.words)))
    cluster = resolve_cluster(name)
    parsed = parse_cell_line(line, option_table(cluster, "sbatch"), WORDS)
    on = parsed.keywords.get("on")
    session = launch(cluster, parsed, on=place_named(cluster, on, {}) if on else None)
    for warning in session._data.get("warnings") or ():
        print(printable(f"Warning: {warning}"), file=sys.stderr)
    if not _await(session):
        return 130
    _open_session(session)
    if "noopen" not in parsed.keywords:
        _show(session)
    return 0


def _open_session(session: Session) -> None:
    """Forward a session to this machine, and print its address."""
    page = session.page()
    url = session.browser_url
    print(f"{url}\nTo open it logged in, open this file in a browser: {page}" if page else url)


def _await(session: Session) -> bool:
    """Show the progress until the session is ready, and return whether it is; an interrupt asks for a cancellation."""
    from jupyter_slurm.client.interrupts import WaitInterrupted
    from jupyter_slurm.client.jobs.wait import interrupted

    said: list[str] = []

    def tell(data: api.Job) -> None:
        line = _progress(data)
        if line and line not in said[-1:]:
            said.append(line)
            print(line, flush=True)

    try:
        session.wait_ready(notify=tell)
    except WaitInterrupted:
        print(interrupted(session).message, file=sys.stderr)
        return False
    return True


def _progress(data: api.Job) -> str:
    """Describe the progress of a session in a line."""
    from jupyter_slurm.client.render.job_card import title
    from jupyter_slurm.client.render.session_card import start_note
    from jupyter_slurm.client.render.terminal import printable

    session, start = data["session"], start_note(data)
    assert session is not None
    line = f"{title(data)}: {session['state']}"
    if session["state"] == "pending" and data.get("reason_text"):
        line += f": {data['reason_text']}"
    if session["state"] == "pending" and start:
        line += f" {start}."
    if data.get("nodes"):
        line += f", on {data['nodes']}"
    return printable(line + (f": {session['message']}" if session["message"] else "")).replace("\n", " ")


def _show(session: Session) -> None:
    try:
        session.open()
    except UsageError as error:  # no browser on this machine
        print(f"{error.message} {error.hint}", file=sys.stderr)


def _list(*, is_active: bool, as_json: bool, is_verbose: bool) -> int:
    from jupyter_slurm.cli.editors.hosts import hosts_by_job
    from jupyter_slurm.client.sessions.session import sessions, sessions_elsewhere

    found = sessions(active=is_active)
    if as_json:
        print(json.dumps([session._data for session in found], indent=2))
    elif found:
        print(found.table(hosts_by_job()))
        for one in found if is_verbose else ():
            print(one.history())
        for one in found:
            for said in filter(None, (one.trouble(), one.near_end())):
                print(said, file=sys.stderr)
    else:
        print("No sessions." if not is_active else "No active sessions. Add --all to list finished sessions.")
    if not as_json:
        for other, count in Counter(one.cluster for one in sessions_elsewhere()).items():
            print(f"Cluster {other} has {count} more: `jupyter slurm sessions --cluster {other}`.", file=sys.stderr)
    return 0


def _meant(name: str | None) -> Session:
    """Return the session of a name, or without a name the only active one."""
    from jupyter_slurm.client.sessions.session import session, sessions, sessions_elsewhere

    if name is not None:
        return session(name)
    found = sessions() or sessions_elsewhere()
    if len(found) != 1:
        names = ", ".join(sorted(str(one.name) for one in found))
        raise UsageError(
            f"There are several sessions: {names}." if names else "There is no active session.",
            hint="Add the name of the session." if names else "Start one with `jupyter slurm launch`.",
        )
    return found[0]


def _open(args: argparse.Namespace) -> int:
    found = _meant(args.name)
    if (told := found._data["session"]) is not None and told["app"] == "ssh":
        raise UsageError(
            f"{found.title} is a host for ssh and has no page.",
            hint="`jupyter slurm sessions` shows how to connect to it.",
        )
    _open_session(found)
    if not args.no_browser:
        _show(found)
    return 0


def _stop(args: argparse.Namespace) -> int:
    from jupyter_slurm.client.sessions.session import session

    try:
        found = list(dict.fromkeys(map(session, args.names)))  # two names may mean one session
    except JobNotFound as error:
        error.hint = f"Nothing was stopped. {error.hint}"
        raise
    going = [one for one in found if not one.is_finished]
    for one in going:  # all sessions end in parallel
        one.cancel()
    for one in found:
        if one not in going:
            print(f"{one.title} had finished before.")
        elif one.stop().is_finished:
            print(f"Stopped: {one.title}")
        else:
            print(f"{one.title} was asked to stop and is still {one.state}. See `jupyter slurm sessions`.")
    return 0 if all(one.is_finished for one in found) else 1


def _rename(args: argparse.Namespace) -> int:
    from jupyter_slurm.client.sessions.session import session

    print(session(args.name).rename(args.new).title)
    return 0


def _log(args: argparse.Namespace) -> int:
    if args.lines < 1:
        raise UsageError(f"-n {args.lines} is not a positive number.", hint="For example: -n 20.")
    print(_meant(args.name).log(args.lines))
    return 0
