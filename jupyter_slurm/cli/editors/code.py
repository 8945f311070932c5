"""Command ``jupyter slurm code``: VS Code, Cursor and everything else that uses ssh, in a job that starts by itself."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from jupyter_slurm.cli.arguments.cluster import with_cluster_first
from jupyter_slurm.cli.editors.hosts import EditorHost, host_names, load_host, remove_host, write_host
from jupyter_slurm.cli.terminal import add_verbatim, is_help
from jupyter_slurm.documentation import page_url
from jupyter_slurm.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.client.clusters.cluster import Cluster
    from jupyter_slurm.domain.magic_line.parser import MagicLine

__all__ = ["add_parser", "run"]

_EDITORS = ("code", "cursor")
_USAGE = "jupyter slurm code [CLUSTER] [keywords] [options of sbatch] [FOLDER]"
_ABOUT = f"""\
Open a folder of the cluster in VS Code or Cursor, in a job. The command writes a host for ssh and opens the editor with
it. The job starts when the host is first connected to. All connections share the job, which stops after a time without
a connection.

  jupyter slurm code mycluster -p gpu --gpus 1 --time 8:00:00 /home/ana/project
  jupyter slurm code mycluster name=training idle=1h -p gpu --gpus 2
  ssh mycluster-code nvidia-smi

FOLDER is a path on the cluster, and comes last. Keywords (without dashes) come first:
  name=NAME     name of the host (default: CLUSTER-code)
  idle=TIME     stop the job after this time without a connection: 30m, 2h (default: 1d)
  env=NAME      environment of the job, as for `jupyter slurm launch`
  image=NAME:TAG
                container image of the job; it needs sshd
  modules=A,B   modules to load first, as `module load` does
  keep          Ctrl-C during the wait keeps the pending job
  editor=cursor the editor to open: code or cursor (default: the first that is installed)
  noopen        only write the host

Other forms:
  --list          list the hosts
  --remove NAME   remove a host; its job continues until it is idle

The hosts are in ~/.ssh/jupyter_slurm.conf, which the command includes at the top of ~/.ssh/config. ssh, scp, sftp,
rsync and ssh -L work with them. The node needs OpenSSH's sshd. It runs as you and accepts only the key of this host.

{page_url("how-to/vscode")}"""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    add_verbatim(subparsers, "code", usage=_USAGE, description=_ABOUT)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    words: list[str] = args.words
    if is_help(words):
        args.explain()
        return 0
    if words[:1] in (["--list"], ["--remove"], ["--connect"]):
        return _manage(words[0], words[1:])
    from jupyter_slurm.cli.editors.connection import WORDS, parse_words
    from jupyter_slurm.client.sessions.launch import named_in, resolve_cluster

    words = with_cluster_first(words)
    is_cluster_open = words[:1] and (words[0] in WORDS or words[0].startswith(("/", "~", ".")))
    name, line = (None, shlex.join(words)) if is_cluster_open else named_in(shlex.join(words))
    cluster = resolve_cluster(name)
    host, parsed = _host(cluster, parse_words(cluster, line))
    write_host(host)
    return _open(host, parsed)


def _manage(action: str, names: list[str]) -> int:
    if action == "--list" and not names:
        for host in map(load_host, host_names()):
            print(f"{host.name}: {' '.join(filter(None, (host.cluster, host.line.strip())))}")
        return 0
    if len(names) != 1 or action == "--list":
        raise UsageError(f"{action} is used with {'no name' if action == '--list' else 'one name'}.", hint=_USAGE)
    if action == "--remove":
        remove_host(load_host(names[0]))
        print(f"Removed the host {names[0]}. Stop its job with `jupyter slurm stop {names[0]}`, if it runs.")
        return 0
    from jupyter_slurm.cli.editors.connection import connect_host

    return connect_host(names[0])


def _host(cluster: Cluster, parsed: MagicLine) -> tuple[EditorHost, MagicLine]:
    """Return the host of a command line, after a check of what could fail at the first connection."""
    import getpass

    from jupyter_slurm.client.sessions.launch import idle_time

    words, folder = parsed.keywords, parsed.rest[0] if parsed.rest else ""
    if len(parsed.rest) > 1:
        raise UsageError(
            f"{parsed.rest[1]!r} stands after the folder {folder!r}.", hint=f"Write the folder last: {_USAGE}."
        )
    if folder and not folder.startswith("/"):
        raise UsageError(
            f"{folder!r} is not an absolute path on the cluster.",
            hint="Write a path that begins with /, after all options.",
        )
    if words.get("editor") not in (None, *_EDITORS):
        raise UsageError(f"editor={words['editor']} is not supported.", hint="Use editor=code or editor=cursor.")
    idle_time(words.get("idle"))
    user = cluster.login_variables().get("USER") or getpass.getuser()
    own = cluster.name if cluster.is_remote else "local"
    typed = shlex.join(
        [*(name if value is None else f"{name}={value}" for name, value in words.items()), *parsed.options]
    )
    name = words.get("name") or f"{own}-code"
    _check_free(name)
    return EditorHost(name, own, typed, user, folder), parsed


def _check_free(name: str) -> None:
    """Refuse the name of a host by which a cluster is reached: each login would start a job, which needs a login."""
    from jupyter_slurm.client.settings import settings
    from jupyter_slurm.sites.profile import list_profiles, load_profile

    for site in list_profiles(folders := settings().sites):
        hosts = [site]
        with contextlib.suppress(ConfigError):
            profile = load_profile(site, folders)
            hosts += [profile.host, *(profile.jump or ())]
        if name.lower() in {host.rpartition("@")[2].partition(":")[0].lower() for host in hosts}:
            raise UsageError(
                f"{name} is a host by which the cluster {site} is reached.", hint="Choose another name=NAME."
            )


def _open(host: EditorHost, parsed: MagicLine) -> int:
    """Open the editor, or print how."""
    from jupyter_slurm.cli.editors.ssh_files import include, report

    try:
        include(host.name, sure=True)
    except ConfigError as error:  # for example a link to a file that a program manages
        report(f"{error.message}. Add this line at its top by hand: Include jupyter_slurm.conf")
    wanted = parsed.keywords.get("editor")
    editor = next(filter(shutil.which, [wanted] if wanted else _EDITORS), None)
    argv = ["--remote", f"ssh-remote+{host.name}", *([host.folder] if host.folder else [])]
    if editor is None or "noopen" in parsed.keywords:
        print(
            f"The host {host.name} starts a job when it is first connected to.\n"
            f"Use it in Remote-SSH of an editor, or type:\n"
            f"    {shlex.join([wanted or 'code', *argv])}\n    ssh {host.name}"
        )
        return 0
    print(f"Opening {editor} with the host {host.name}.")
    return subprocess.run([str(shutil.which(editor)), *argv], stdin=subprocess.DEVNULL, check=False).returncode
