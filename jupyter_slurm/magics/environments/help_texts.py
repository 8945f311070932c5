"""Help of ``%slurm image``, ``%slurm env`` and ``%slurm copy``."""

from __future__ import annotations

__all__ = ["COPY_HELP", "ENVIRONMENT_HELP", "IMAGE_HELP"]

COPY_HELP = """
Copy files between two clusters, through this computer, or within one cluster: on its login node or in a job. Files that
are the same are not copied. If files of the destination differ, nothing is copied, and the error names them.

    %slurm copy mycluster:results other:results
    %slurm copy mycluster:data mycluster:/scratch/ana/
    %slurm copy data /scratch/ana/ -p normal --time 1:00:00

Options of sbatch, as in the last line, let a job named copy do the work. The login node is for short copies.

Keywords at the end (they have no dashes; options of Slurm have):
    where=job     copy within the cluster in a job, also without options of sbatch; where=login: on the login node
                  (default)
    overwrite     replace files of the destination that differ
    background    do not wait for the end: %slurm transfers shows the progress

An interrupt, or %slurm transfers stop ID, stops the copy and cancels its job. The same command continues it.
"""

IMAGE_HELP = """
Jobs on a node pull and build container images, with the runtime of the cluster. The card of the job shows the output
of the builder; its last line is the word that runs a cell in the image: env=docker://NAME.

    %slurm image build NAME FILE         build from a Dockerfile (Docker, Charliecloud) or a definition file (Apptainer)
    %slurm image build NAME environment  build with the pip and conda packages of this kernel's Python
    %slurm image pull NAME:TAG           pull from a registry
    %slurm image list                    list images with size, time and location
    %slurm image remove NAME             remove an image from the folder of images

Options of sbatch and keywords follow.

Keywords of image build and pull (they have no dashes; options of Slurm have):
    runtime=NAME  use docker, podman, apptainer, singularity or charliecloud (default: the runtime in the profile)
    replace       replace an existing image of this name
    base=NAME:TAG use this base image for the packages of a Python (default: python:3.11-slim, of its version)
    context=DIR   take other files from this folder (default: the folder of the file). Over SSH they are sent with the
                  job, and /… and ~/… are folders of the cluster
    from=docker   copy from Docker on the node instead of a registry; from=/…/image.tar reads a file of `docker save`,
                  for Charliecloud of `docker export`
    as=NAME       assign the job to a Python variable
    wait          wait until the job has finished; raise an error if it failed
    show          print the command line and the script; submit nothing

Examples:
    %slurm image build me/train:1 Dockerfile --time 1:00:00
    %slurm image pull pytorch/pytorch:2.3.1-cuda12.1-cudnn8-runtime -p gpu -w dgx01 wait

The value is the Job.
"""

ENVIRONMENT_HELP = """
Jobs make Python environments on the cluster, with uv, pip or conda. The card of the job shows their output. The
environment appears when it is complete: env=NAME uses it in cells, steps, sessions and kernels.

    %slurm env create NAME [from=FILE|this|notebook]  make an environment; options of sbatch and keywords follow
    %slurm env list                          list the environments
    %slurm env remove NAME                   remove an environment that no job uses

Keywords of env create (they have no dashes; options of Slurm have):
    from=FILE     install the packages of a requirements.txt, a pyproject.toml (its dependencies), a uv.lock or an
                  environment.yml; from=this (default): the exact versions of the packages of this notebook's Python;
                  from=notebook: only those that the cells of this notebook import
    python=3.12   use this version of Python (default: that of this notebook; with from=FILE that of the cluster)
    tool=NAME     use uv, pip, micromamba, mamba or conda (default: uv if the cluster has it, else pip)
    replace       make the environment also if one with the same packages exists
    force         install packages for a newer CUDA than the drivers of the nodes run
    where=login   make it on the login node, without a job: for clusters whose nodes reach no index of packages. Options
                  of sbatch are not allowed, and the limits of `%slurm sh` apply
    as=NAME       assign the job to a Python variable
    wait          wait until the job has finished; raise an error if it failed
    show          print the command line and the script; submit nothing

If an environment with the same packages exists, it gets the name at once, without a job. A failed build changes
nothing. env=auto in the line of a cell makes the environment of from=notebook when it is first needed, and uses it.

Examples:
    %slurm env create torch from=requirements.txt python=3.12 --time 30:00 wait
    %slurm env create mine from=this -p normal

The value is the Job.
"""
