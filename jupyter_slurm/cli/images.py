"""Command ``jupyter slurm image``: container images, and jobs that pull or build one."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Any

from jupyter_slurm.cli.terminal import add_verbatim
from jupyter_slurm.errors import UsageError

__all__ = ["add_parser", "run"]

_USAGE = """\
Have a job get or make the image of a container, on a node and with what the cluster has for it.

  jupyter slurm image [CLUSTER] build NAME FILE [options of sbatch] [words]     from a Dockerfile, or a definition file
  jupyter slurm image build NAME environment [options] [words]        with the packages of the Python that runs this
  jupyter slurm image pull NAME:TAG [options] [words]                 from a registry
  jupyter slurm image list
  jupyter slurm image remove NAME

  jupyter slurm image unipi build me/train:1 Dockerfile -p normal --time 1:00:00
  jupyter slurm image pull pytorch/pytorch:2.3.1-cuda12.1-cudnn8-runtime runtime=apptainer

It waits until the image is there, and shows what the job says; Ctrl-C asks once whether to cancel it or to keep it. The
image ends in the folder of images (image_dir in [container] of the profile), or in Docker's store of the node; cells,
scripts and sessions run in it by env=docker://NAME.

Words (ours have no dashes, Slurm's have):
  base=NAME:TAG   of `environment`: what the image begins with; by default python:3.11-slim, for the same Python
  context=FOLDER  of a file: the folder that it takes others from; by default the one it lies in. Over SSH what it takes
                  travels with the job; /… and ~/… are then folders of the cluster
  from=docker     of pull: not a registry, but Docker of the node (-w NODE); or from=/…/image.tar, a file that the nodes
                  see: of `docker save`, for Charliecloud of `docker export`
  replace         also where there is one of that name
  runtime=NAME    docker, podman, apptainer, singularity, charliecloud; by default that of the profile
  show            only show what would be submitted"""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    add_verbatim(
        subparsers,
        "image",
        summary="images of containers: build, pull, list, remove",
        usage="jupyter slurm image [CLUSTER] build|pull|list|remove …",
        description=_USAGE,
    )


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    if {"-h", "--help"} & set(args.words) or not args.words:
        args.explain()
        return 0 if args.words else 2
    from jupyter_slurm.client.images.image import USAGE, addressed, images, parse_image_line, remove, submit_image
    from jupyter_slurm.client.interrupts import WaitInterrupted
    from jupyter_slurm.client.jobs.job import Job
    from jupyter_slurm.client.jobs.wait import interrupted
    from jupyter_slurm.client.render.terminal import printable

    cluster, line = addressed(shlex.join(args.words))
    words = shlex.split(line)
    if words == ["list"]:
        found = images(cluster)
        print(repr(found) if len(found) else "No images are kept there yet.")
    elif words[:1] == ["remove"] and len(words) == 2:
        print(remove(words[1], cluster))
    elif words[:1] in (["build"], ["pull"]):
        made = submit_image(cluster, parse_image_line(cluster, line))
        if not isinstance(made, Job):
            print(repr(made))
            return 0
        print(printable(made.title), flush=True)
        try:
            made._wait(None, check=True, echo=True)
        except WaitInterrupted:
            print(interrupted(made).message, file=sys.stderr)
            return 130
    else:
        raise UsageError(f"image has no {shlex.join(words)}.", hint=USAGE)
    return 0
