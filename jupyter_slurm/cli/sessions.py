"""Commands ``jupyter slurm launch|sessions|open|stop|rename|log``: servers in jobs, on a local port."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from typing import TYPE_CHECKING, Any

from jupyter_slurm.cli.terminal import add_verbatim
from jupyter_slurm.errors import JobNotFound, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.client.sessions.session import Session
    from jupyter_slurm.domain import api_types as api

__all__ = ["add_parser", "run"]

_LAUNCH = """\
Have a job run the Jupyter of a Python, bring it to a local port (8000 to 9000), and open it, logged in.

  jupyter slurm launch [CLUSTER] [options of sbatch] [words] [-- command with a {port}]
  jupyter slurm launch arandu -p arandu --gpus 1 --time 8:00:00 name=training idle=2h
  jupyter slurm launch arandu -p arandu --gpus 1 image=nvcr.io/nvidia/pytorch:24.01-py3
  jupyter slurm launch arandu -p arandu -- tensorboard --logdir runs --port {port}

Words (ours have no dashes, Slurm's have):
  name=NAME     its name; by default jupyter-1, jupyter-2 …
  dir=FOLDER    the folder that it shows, or begins in; by default the job's working directory
  image=NAME:TAG
                the image that it runs in: of a registry, a SIF file, or the folder of an unpacked one
  env=NAME      the environment of the job: a name, or the folder of a venv or of conda; an image, too: docker://NAME:TAG
  python=PATH   the Python whose Jupyter it is; a command is looked for on the job's PATH, then beside this Python
  jupyter=install
                where that Python has no Jupyter, put a JupyterLab beside it: by pip, once, into the folder of images
  idle=TIME     it ends when nobody has used it for so long: 30m, 2h, or as for --time; by default a day
  port=PORT     the local port; by default the first that is free
  resume        go on in the same job after its time limit, preemption, node failure, 20 times at most (resume=3: three)
  stage=DIR     send a folder along, in whose copy it is; what is new there comes back at its end. stage=DIR:DEST, and
  sync=checksum,delete
                as the README says, "Files that travel with a job"
  noopen        do not start a browser

A command gets a free port of the node for {port}, 127.0.0.1 for {host} and its path here for {base_url}; it has to
stay in the foreground and to listen on the loopback only. Others on that node see its words and can connect to it: a
secret has no place there, and what it shows is as private as its own log-in makes it.

It waits until the session is ready. Ctrl-C asks once whether to cancel it or to keep it."""


_NAME_HELP = "name of the session, Slurm id or key of its job"


def add_parser(subparsers: Any) -> None:
    """Add the subcommands."""
    add_verbatim(
        subparsers,
        "launch",
        summary="run a Jupyter, or another server, in a job and bring it here",
        usage="jupyter slurm launch [CLUSTER] [options of sbatch] [words] [-- command with a {port}]",
        description=_LAUNCH,
    )
    listing = subparsers.add_parser("sessions", help="list the sessions: a Jupyter or another server in a job each")
    listing.add_argument("-a", "--all", action="store_true", help="also those that are over")
    listing.add_argument("-v", "--verbose", action="store_true", help="with the times of their steps")
    listing.add_argument("--json", action="store_true", help="for programs")
    opening = subparsers.add_parser("open", help="open a session in a browser, logged in")
    opening.add_argument("--no-browser", action="store_true", help="only say where it is")
    stop = subparsers.add_parser("stop", help="end sessions, with all that runs in them, and wait until they are over")
    rename = subparsers.add_parser("rename", help="give a session another name")
    log = subparsers.add_parser("log", help="the last lines of what the Jupyter, or the command, of a session says")
    log.add_argument("-n", "--lines", type=int, default=20, metavar="N", help="how many; by default 20")
    stop.add_argument("names", metavar="NAME", nargs="+", help="names of sessions, Slurm ids or keys of their jobs")
    for parser in (opening, log):
        parser.add_argument(
            "name", metavar="NAME", nargs="?", help=f"{_NAME_HELP}; by default the only one that goes on"
        )
    rename.add_argument("name", metavar="NAME", help=_NAME_HELP)
    rename.add_argument("new", metavar="NEW", help="its new name")
    for parser in (listing, opening, stop, rename, log):
        parser.add_argument("--cluster", metavar="CLUSTER", help="name of a site profile, or local")


def run(args: argparse.Namespace) -> int:
    """Run one of the subcommands."""
    if args.command == "launch":
        return _launch(args)
    from jupyter_slurm.client.clusters.cluster import use

    if args.cluster:
        use(args.cluster)
    if args.command == "sessions":
        return _list(is_active=not args.all, as_json=args.json, is_verbose=args.verbose)
    return {"open": _open, "stop": _stop, "rename": _rename, "log": _log}[args.command](args)


def _launch(args: argparse.Namespace) -> int:
    if {"-h", "--help"} & set(args.words):
        args.explain()
        return 0
    from jupyter_slurm.client.clusters.option_tables import option_table
    from jupyter_slurm.client.render.terminal import printable
    from jupyter_slurm.client.sessions.launch import WORDS, launch, named_in, resolve_cluster
    from jupyter_slurm.domain.magic_line.parser import parse_cell_line

    name, line = named_in(shlex.join(args.words))
    cluster = resolve_cluster(name)
    parsed = parse_cell_line(line, option_table(cluster, "sbatch"), WORDS)
    session = launch(cluster, parsed)
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
    print(f"{session.url}\nThis file opens it, logged in: {page}" if page else session.url)


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
    from jupyter_slurm.client.sessions.session import sessions

    found = sessions(active=is_active)
    if as_json:
        print(json.dumps([session._data for session in found], indent=2))
    elif found:
        print(found.table())
        for one in found if is_verbose else ():
            print(one.history())
        for one in found:
            for said in filter(None, (one.trouble(), one.near_end())):
                print(said, file=sys.stderr)
    else:
        print("No sessions." if not is_active else "No sessions that are not over; --all shows the others.")
    return 0


def _meant(name: str | None) -> Session:
    """Return the session of a name, or without a name the only active one."""
    from jupyter_slurm.client.sessions.session import session, sessions

    if name is not None:
        return session(name)
    found = sessions()
    if len(found) != 1:
        names = ", ".join(sorted(str(one.name) for one in found))
        raise UsageError(
            f"Which session? There are: {names}." if names else "There is no session that goes on.",
            hint="Say its name." if names else "`jupyter slurm launch` begins one; `sessions --all` lists the others.",
        )
    return found[0]


def _open(args: argparse.Namespace) -> int:
    found = _meant(args.name)
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
            print(f"{one.title} was over already.")
        elif one.stop().is_finished:
            print(f"Stopped: {one.title}")
        else:
            print(f"{one.title} was told to end, and has not yet: {one.state}. `jupyter slurm sessions` shows when.")
    return 0 if all(one.is_finished for one in found) else 1


def _rename(args: argparse.Namespace) -> int:
    from jupyter_slurm.client.sessions.session import session

    print(session(args.name).rename(args.new).title)
    return 0


def _log(args: argparse.Namespace) -> int:
    if args.lines < 1:
        raise UsageError(f"{args.lines} lines cannot be shown.", hint="-n 20, for example.")
    print(_meant(args.name).log(args.lines))
    return 0
