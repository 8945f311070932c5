"""Command ``jupyter slurm embedded``: a real Slurm on this computer, for trials and tests."""

from __future__ import annotations

import argparse
import getpass
import json
import shlex
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyter_slurm.cli.terminal import PlainHelp, add_command
from jupyter_slurm.documentation import page_url
from jupyter_slurm.embedded.cluster import EmbeddedCluster
from jupyter_slurm.embedded.control import ClusterControl, ClusterStatus
from jupyter_slurm.embedded.description import Description, default_description, load_description
from jupyter_slurm.embedded.layout import default_directory
from jupyter_slurm.embedded.machine import packages
from jupyter_slurm.embedded.machine.slurm_versions import RELEASES, installation_for, slurm_root

__all__ = ["add_actions", "add_parser", "run"]

STATUS_EXIT = {"running": 0, "silent": 1, "damaged": 1, "stale": 1, "stopped": 3}
"""Exit codes of ``status``, as for an init script (LSB, "program is running", "dead", "not running")."""

_START_HELP = f"""\
A TOML file describes the cluster. For example:

  name = "tiny"
  [[nodes]]
  names = "gpu[1-2]"
  gpus = {{ a100 = 4 }}     # stand-ins; also: cpus, memory, features
  [[partitions]]
  name = "long"
  nodes = "gpu[1-2]"
  default = true            # also: max_time, default_time, max_nodes, ...

To start from the built-in description:

  jupyter slurm embedded describe > my.toml

{page_url("reference/embedded-cluster")}"""


def add_parser(subparsers: Any) -> None:
    """Add ``embedded`` to the commands of ``jupyter slurm``."""
    parser = add_command(
        subparsers,
        "embedded",
        description="Run a real Slurm cluster on this computer, to try jupyter_slurm or to test it.",
        page="getting-started/try-without-a-cluster",
    )
    add_actions(parser)
    parser.set_defaults(run=run)


def add_actions(parser: argparse.ArgumentParser) -> None:
    """Add the actions to a parser."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", help="action")
    start = actions.add_parser(
        "start",
        help="start the cluster, and return when all nodes are idle",
        epilog=_START_HELP,
        formatter_class=PlainHelp,
    )
    start.add_argument("--config", type=Path, metavar="FILE.toml", help="description (default: a small Arandu)")
    start.add_argument("--accounting", action="store_true", help="start MariaDB and slurmdbd, too")
    start.add_argument("--user", action="append", default=[], metavar="NAME", help="add a user to accounting")
    version = start.add_mutually_exclusive_group()
    version.add_argument("--slurm-version", choices=RELEASES, help="use this version, from packages of Debian")
    version.add_argument("--slurm-root", default="", metavar="DIR", help="use the Slurm unpacked in this directory")
    start.add_argument("--timeout", type=float, metavar="SECONDS", help="time limit (default: 15, with accounting 30)")
    start.add_argument("--until", type=int, metavar="PID", help="stop the cluster when this process ends")
    start.add_argument("--foreground", action="store_true", help="stay in the foreground; stop on Ctrl-C or SIGTERM")
    status = actions.add_parser("status", help="print the state of its daemons and nodes")
    status.add_argument("--json", action="store_true", help="print JSON")
    stop = actions.add_parser("stop", help="stop the cluster, and remove its directory")
    env = actions.add_parser("env", help='print shell commands to use it: eval "$(jupyter slurm embedded env)"')
    actions.add_parser("describe", help="print the built-in description (TOML)")
    for action in (start, status, stop, env):
        action.add_argument("--dir", type=Path, metavar="DIR", help=f"its directory (default: {default_directory()})")
    names = actions.add_parser("packages", help="print the system packages that the cluster needs")
    names.add_argument("--missing", action="store_true", help="print only packages that are not installed")
    names.add_argument("--no-accounting", action="store_true", help="print no packages for accounting")


def run(args: argparse.Namespace) -> int:
    """Run one action and return its exit code. Raises SlurmError."""
    actions = {
        "start": _start,
        "status": _status,
        "stop": _stop,
        "env": _env,
        "describe": _print_description,
        "packages": _packages,
    }
    return actions[args.action](args)


def _directory(args: argparse.Namespace) -> Path:
    return Path(args.dir).expanduser().absolute() if args.dir else default_directory()


def _describe(args: argparse.Namespace) -> Description:
    description = load_description(args.config)
    if args.accounting and not description.accounting:
        description = replace(description.with_users(getpass.getuser()), accounting=True)
    return description.with_users(*args.user) if args.user else description


def _start(args: argparse.Namespace) -> int:
    root = str(slurm_root(args.slurm_version)) if args.slurm_version else args.slurm_root
    installation = installation_for(root)
    cluster = EmbeddedCluster(_describe(args), directory=_directory(args), installation=installation)
    if args.foreground:
        # Blocked before the start: a signal that arrives during the start then stops the cluster properly.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGHUP})
    cluster.start(args.timeout, until=args.until)
    if args.foreground:
        return _serve_foreground(cluster)
    _announce(cluster)
    print(f"Stop it with:  jupyter slurm embedded stop{_dir_option(args)}")
    return 0


def _announce(cluster: EmbeddedCluster) -> None:
    print(f"The cluster {cluster.name} is running in {cluster.directory}.")
    for note in cluster.notes:
        print(f"Note: {note}")
    print("Use it with:   " + f"\n{'':15}".join(_exports(cluster)))


def _exports(cluster: ClusterControl) -> list[str]:
    """Return shell lines after which Slurm's commands use that cluster."""
    lines = [f"export SLURM_CONF={shlex.quote(str(cluster.slurm_conf))}"]
    if cluster.installation.path:
        lines.append(f"export PATH={shlex.quote(cluster.installation.path)}:$PATH")
    return lines


def _env(args: argparse.Namespace) -> int:
    cluster = ClusterControl(_directory(args))
    assert cluster.state  # raises an error if there is no state
    print("\n".join(_exports(cluster)))
    return 0


def _print_description(args: argparse.Namespace) -> int:
    print(default_description(), end="")
    return 0


def _serve_foreground(cluster: EmbeddedCluster) -> int:
    try:
        _announce(cluster)
        print("Stop it with:  Ctrl-C", flush=True)  # may be used at once
        signal.sigwait({signal.SIGTERM, signal.SIGHUP, signal.SIGINT})
    except KeyboardInterrupt:
        pass
    finally:
        cluster.stop()
    return 0


def _dir_option(args: argparse.Namespace) -> str:
    return f" --dir {shlex.quote(str(_directory(args)))}" if args.dir else ""


def _status(args: argparse.Namespace) -> int:
    status = ClusterControl(_directory(args)).status()
    if args.json:
        print(json.dumps(status.to_dict(), indent=2))
    else:
        _print_status(status)
    return STATUS_EXIT[status.state]


def _print_status(status: ClusterStatus) -> None:
    if status.state == "stopped":
        print(f"No cluster in {status.directory}.")
        return
    what = {
        "running": "is running",
        "silent": "is running, but its controller does not answer",
        "damaged": "has lost daemons",
        "stale": "was stopped by a restart of this computer",
    }
    print(f"{status.name} (Slurm {status.version}) {what[status.state]}: {status.directory}")
    print(f"SLURM_CONF={status.slurm_conf}")
    for role in sorted({*(status.daemons or {}), *(status.missing or [])}):
        pid = (status.daemons or {}).get(role)
        print(f"  {role:<20} {f'pid {pid}' if pid else 'not running'}")
    for name, state in (status.nodes or {}).items():
        print(f"  node {name:<15} {state}")


def _stop(args: argparse.Namespace) -> int:
    directory = _directory(args)
    stopped = EmbeddedCluster(directory=directory).stop()
    print(f"Stopped the cluster in {directory}." if stopped else f"No cluster in {directory}.")
    return 0


def _packages(args: argparse.Namespace) -> int:
    accounting = not args.no_accounting
    find = packages.missing_packages if args.missing else packages.packages_for
    for name in find(accounting=accounting):
        print(name)
    return 0
