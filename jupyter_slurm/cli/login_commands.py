"""Command ``jupyter slurm sh``: a command on the login node."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from jupyter_slurm.cli.arguments.cluster import with_cluster_first
from jupyter_slurm.cli.terminal import add_verbatim, is_help
from jupyter_slurm.documentation import page_url
from jupyter_slurm.errors import UsageError

__all__ = ["add_parser", "run"]

_ABOUT = f"""\
Run a command on the login node, with the login that is open and in your shell of that host. Its output appears as it
is printed. The exit code is that of the command. Ctrl-C ends the command and its children.

  jupyter slurm sh mycluster -- ls -l results
  jupyter slurm sh -- 'du -sh * | sort -h'
  jupyter slurm sh mycluster < commands.sh

As with ssh, the words after -- are joined with blanks, and your shell on the cluster reads the text. Without --,
the text is read from standard input. The command itself gets no input.

The login node is shared by all users. Use it for short commands: the cluster limits their time. Run anything else as a
job.

The cluster can also be given as for other commands: --cluster NAME.

{page_url("how-to/commands-on-the-login-node")}"""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    add_verbatim(subparsers, "sh", usage="jupyter slurm sh [CLUSTER] [-- COMMAND]", description=_ABOUT)


def run(args: argparse.Namespace) -> int:
    """Run the command, and return its exit code."""
    words = with_cluster_first(args.words)
    end = words.index("--") if "--" in words else len(words)
    before, after = words[:end], words[end + 1 :]
    if is_help(words):
        args.explain()
        return 0
    if options := [word for word in before if word.startswith("-")]:
        raise UsageError(
            f"There is no option {options[0]!r} of sh.", hint="Use `jupyter slurm sh [CLUSTER] -- COMMAND`."
        )
    if len(before) > 1:
        raise UsageError(
            f"{before[1]!r} is one word too many before the command.",
            hint="Use `jupyter slurm sh [CLUSTER] -- COMMAND`.",
        )
    reads_input = not after and end == len(words) and not sys.stdin.isatty()
    text = sys.stdin.buffer.read().decode("utf-8", "surrogateescape") if reads_input else " ".join(after)
    if not text.strip():
        raise UsageError("There is no command.", hint="Use `jupyter slurm sh [CLUSTER] -- COMMAND`.")
    return _run(before[0] if before else None, text)


def _run(name: str | None, text: str) -> int:
    from jupyter_slurm.client.clusters.cluster import current, use
    from jupyter_slurm.client.clusters.login_command import LimitedText, follow_login_command, raw_bytes

    cluster = use(name) if name else current()
    shows = {
        stream: LimitedText(stream, None).show if file.isatty() else raw_bytes(file.buffer)
        for stream, file in (("stdout", sys.stdout), ("stderr", sys.stderr))
    }
    end = follow_login_command(cluster, text, out=shows["stdout"], err=shows["stderr"])
    if end["reason"]:
        print(f"jupyter slurm sh: {end['reason']}", file=sys.stderr)
    return end["exit_code"]
