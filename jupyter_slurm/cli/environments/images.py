"""Command ``jupyter slurm image``: container images, and jobs that pull or build one."""

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
Pull or build container images in a job on a node, with the container runtime of the cluster.

  jupyter slurm image build NAME FILE [options of sbatch] [keywords]          from a Dockerfile or a definition file
  jupyter slurm image build NAME environment [options of sbatch] [keywords]   with the packages of this Python
  jupyter slurm image pull NAME:TAG [options of sbatch] [keywords]            from a registry
  jupyter slurm image list
  jupyter slurm image remove NAME

  jupyter slurm image build me/train:1 Dockerfile -p normal --time 1:00:00 --cluster mycluster
  jupyter slurm image pull pytorch/pytorch:2.3.1-cuda12.1-cudnn8-runtime runtime=apptainer

The command waits until the image is ready, and prints the output of the job. Press Ctrl-C to choose between cancelling
the job and keeping it. The image is stored in the directory of images (image_dir in [container] of the profile), or in
the Docker store of the node. Use it with env=docker://NAME in cells, scripts, sessions and kernels.

Options and keywords (options of sbatch have dashes, keywords do not):
  --cluster NAME  name of a site profile, or local for the Slurm of this computer
  base=NAME:TAG   base image of `environment` (default: python:X.Y-slim for the version of this Python)
  context=DIR     build context of a file (default: the directory of the file). Over SSH, the files that the build needs
                  are sent with the job; a path that starts with / or ~/ is a directory on the cluster
  from=docker     for pull: copy the image from Docker of the node (-w NODE). from=/.../image.tar: from a file of
                  `docker save`, for Charliecloud of `docker export`
  replace         replace an image of that name
  runtime=NAME    docker, podman, apptainer, singularity or charliecloud (default: that of the profile)
  show            print the submission without submitting

{page_url("how-to/build-images")}"""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    add_verbatim(
        subparsers,
        "image",
        usage="jupyter slurm image build|pull|list|remove … [--cluster NAME]",
        description=_USAGE,
    )


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    if is_help(args.words) or not args.words:
        args.explain()
        return 0 if args.words else 2
    from jupyter_slurm.client.images.image import USAGE, addressed, images, parse_image_line, remove, submit_image
    from jupyter_slurm.client.jobs.job import Job

    cluster, line = addressed(shlex.join(with_cluster_first(args.words)))
    words = shlex.split(line)
    if words == ["list"]:
        found = images(cluster)
        print(repr(found) if len(found) else "No images yet.")
    elif words[:1] == ["remove"] and len(words) == 2:
        print(remove(words[1], cluster))
    elif words[:1] in (["build"], ["pull"]):
        made = submit_image(cluster, parse_image_line(cluster, line))
        if not isinstance(made, Job):
            print(repr(made))
            return 0
        return follow_job(made)
    else:
        raise UsageError(f"`image {shlex.join(words)}` is not a valid command.", hint=f"Use {USAGE}.")
    return 0
