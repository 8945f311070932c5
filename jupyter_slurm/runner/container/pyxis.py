"""Containers of Pyxis, a plugin of Slurm: the batch script starts one step of srun, which runs in the image by enroot.

Pyxis itself fetches the image of a registry, at each start; enroot keeps its layers.

Sources: srun(1), spank(7), github.com/NVIDIA/pyxis (README, wiki/Usage), github.com/NVIDIA/enroot (doc/cmd/import.md).
Python 3.8+, standard library only.
"""

from __future__ import annotations

import os
import re
import runpy
from typing import TYPE_CHECKING, Iterator

# The runner is not a package: its files are loaded by path.
load = runpy.run_path(__file__[: -len("container/pyxis.py")] + "loader.py")["load"]
if TYPE_CHECKING:
    from jupyter_slurm.runner.container import client
    from jupyter_slurm.runner.container import runtime_commands as runtimes
    from jupyter_slurm.runner.container.runtime_commands import ContainerRequest, RuntimeFacts, RuntimeRefused
else:
    client = load("container.client")
    runtimes = client.runtimes
    RuntimeRefused = runtimes.RuntimeRefused

IMAGE_SUFFIX = ".sqsh"
_NEEDED = "container-image"
_SETTINGS = re.compile(r"(ENROOT|PYXIS)_\w+")
_OPTION = re.compile(r"^\s+(?:-\w, )?--([a-z][a-z-]+)", re.MULTILINE)
_HOST = re.compile(r"(?:.+[.:].*|localhost)")  # first part of a name that is a registry
# They describe the tasks of the job, of which this step is only one.
_OF_TASKS = re.compile(
    r"SLURM_(NTASKS|NPROCS|NTASKS_PER_\w+|TASKS_PER_NODE|DISTRIBUTION|GPUS_PER_TASK|TRES_PER_TASK|LABELIO|UNBUFFEREDIO|"
    r"STD\w+MODE|EXPORT_ENV|KILL_BAD_EXIT|WAIT)"
)
_NOT_PASSED = re.compile(r"SLURM\w*|PATH")  # srun and the image set them


def image_name(image: str) -> str:
    """Return the name of an image in the form of enroot: ``REGISTRY#NAME:TAG``; a path stays.

    Raises
    ------
    RuntimeRefused
        The name has a digest, which enroot does not take.
    """
    if image.startswith("/"):
        return image
    if "@" in image:
        raise RuntimeRefused(f"Pyxis takes an image by its tag, not by a digest: {image}. Use NAME:TAG.")
    registry, _, name = image.partition("/")
    return f"{registry}#{name}" if name and _HOST.fullmatch(registry) else image


def command(
    wish: ContainerRequest, facts: RuntimeFacts, gpu_options: list[str], help_text: str
) -> tuple[list[str], dict[str, str]]:
    """Return the command line of srun, and its whole environment, which the container inherits.

    Parameters
    ----------
    wish : ContainerRequest
        Image, folders and command.
    facts : RuntimeFacts
        Facts of the node and the job.
    gpu_options : list of str
        Options of srun that give the step the GPUs of the job.
    help_text : str
        Output of ``srun --help``: options that it lacks are left out.

    Raises
    ------
    RuntimeRefused
        srun has no Pyxis, or Pyxis cannot do what is requested.
    """
    offered = set(_OPTION.findall(help_text))
    if _NEEDED not in offered:
        raise RuntimeRefused(
            "srun on this node has no --container-image: the plugin Pyxis is not installed. Choose another runtime."
        )
    passed = {name: value for name, value in facts.env.items() if not _OF_TASKS.fullmatch(name)}
    env = {**_own_settings(), **passed, "NVIDIA_VISIBLE_DEVICES": ",".join(facts.gpus) or "void"}
    env.setdefault("NVIDIA_DRIVER_CAPABILITIES", "compute,utility")
    node = os.environ.get("SLURMD_NODENAME")
    argv = ["srun", "--nodes=1", "--ntasks=1", *([f"--nodelist={node}"] if node else []), "--export=ALL"]
    argv += ["--input=none", "--mpi=none", "--cpu-bind=none", "--job-name=container", *gpu_options]
    flags = ("overlap", "no-container-remap-root", "no-container-entrypoint")
    argv += [f"--{name}" for name in flags if name in offered]
    argv += [f"--container-image={image_name(wish.image)}", f"--container-workdir={facts.work_dir}"]
    argv += [f"--container-mounts={','.join(_mounts(wish, facts))}"]
    if "container-env" in offered:
        argv.append(f"--container-env={','.join(sorted(name for name in env if not _NOT_PASSED.fullmatch(name)))}")
    return [*argv, "/bin/sh", *runtimes.entry(wish, facts)], env


def _mounts(wish: ContainerRequest, facts: RuntimeFacts) -> Iterator[str]:
    for source, target, is_read_only in runtimes.mounts(wish, facts):
        runtimes.refuse("Pyxis", source + target, ",: ")
        yield f"{source}:{target}" + (":ro" if is_read_only else "")


def _own_settings() -> dict[str, str]:
    """Return the settings of Pyxis and enroot by the user or the site, and the PATH of the node."""
    kept = {name: value for name, value in os.environ.items() if _SETTINGS.fullmatch(name)}
    return {**kept, "PATH": os.environ.get("PATH", os.defpath)}
