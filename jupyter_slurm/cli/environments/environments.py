"""Command ``jupyter slurm env``: Python environments on a cluster, and jobs that make one."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from jupyter_slurm.cli.arguments.cluster import with_cluster_first
from jupyter_slurm.cli.environments.job_output import follow_job
from jupyter_slurm.cli.terminal import add_verbatim, is_help
from jupyter_slurm.documentation import page_url
from jupyter_slurm.errors import UsageError

__all__ = ["add_parser", "run"]

_USAGE = f"""\
Make Python environments on a cluster, in a job, and use them by name: env=NAME in cells, steps, sessions and kernels.

  jupyter slurm env create NAME [from=FILE|this] [options of sbatch] [keywords]
  jupyter slurm env list
  jupyter slurm env remove NAME

  jupyter slurm env create torch from=requirements.txt python=3.12 -p normal --time 30:00 --cluster mycluster

The command waits until the environment is ready, and prints the output of the job. Press Ctrl-C to choose between
cancelling the job and keeping it. A failed build leaves an existing environment of the name as it was.
If an environment with the same packages exists, it gets the name at once, without a job.

Options and keywords (options of sbatch have dashes, keywords do not):
  --cluster NAME  name of a site profile, or local for the Slurm of this computer
  from=FILE       requirements.txt, pyproject.toml (its dependencies), uv.lock or environment.yml on this computer.
                  from=this (default): the exact versions of the packages of this Python
  python=3.12     version of Python (default: that of the cluster; with from=this, that of this Python)
  tool=NAME       uv, pip, micromamba, mamba or conda (default: uv if the cluster has it, else pip; for environment.yml
                  the first of the last three that the node has)
  replace         make the environment also if one with the same packages exists
  force           install packages for a newer CUDA than the drivers of the nodes run
  where=login     make it on the login node, without a job: for clusters whose nodes reach no index of packages
  show            print the submission without submitting

{page_url("how-to/make-environments")}"""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    usage = "jupyter slurm env create|list|remove … [--cluster NAME]"
    add_verbatim(subparsers, "env", usage=usage, description=_USAGE)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    if is_help(args.words) or not args.words:
        args.explain()
        return 0 if args.words else 2
    from jupyter_slurm.client.environments.environment import (
        USAGE,
        addressed,
        create_environment,
        environments,
        parse_environment_line,
        remove_environment,
    )
    from jupyter_slurm.client.jobs.job import Job

    cluster, line = addressed(shlex.join(with_cluster_first(args.words)))
    words = shlex.split(line)
    if words == ["list"]:
        found = environments(cluster)
        print(repr(found) if len(found) else "No environments yet.")
    elif words[:1] == ["remove"] and len(words) == 2:
        print(remove_environment(words[1], cluster))
    elif words[:1] == ["create"]:
        made = create_environment(cluster, parse_environment_line(cluster, line))
        if isinstance(made, Job):
            return follow_job(made)
        print(made if isinstance(made, str) else repr(made))
    else:
        raise UsageError(f"`env {shlex.join(words)}` is not a valid command.", hint=f"Use {USAGE}.")
    return 0
