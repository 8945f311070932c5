"""Containers of Pyxis, a plugin of Slurm: the batch script starts one step of srun, which runs in the image by enroot.

Pyxis itself fetches the image of a registry, at each start; enroot keeps its layers.

Sources: srun(1), spank(7), github.com/NVIDIA/pyxis (README, wiki/Usage), github.com/NVIDIA/enroot (doc/cmd/import.md).
Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import os
import re
import runpy
import shlex
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any, Iterator

# The runner is not a package: its files are loaded by path.
load = runpy.run_path(__file__[: -len("container/pyxis.py")] + "loader.py")["load"]
if TYPE_CHECKING:
    from jupyter_slurm.runner.container import client
    from jupyter_slurm.runner.container import image_fetch as images
    from jupyter_slurm.runner.container import runtime_commands as runtimes
    from jupyter_slurm.runner.container.runtime_commands import ContainerRequest, RuntimeFacts, RuntimeRefused
else:
    client = load("container.client")
    images, runtimes = client.images, client.runtimes
    RuntimeRefused = runtimes.RuntimeRefused

IMAGE_SUFFIX = ".sqsh"
_NEEDED = "container-image"
_SETTINGS = re.compile(r"(ENROOT|PYXIS)_\w+")
_OPTION = re.compile(r"^\s+(?:-\w, )?--([a-z][a-z-]+)", re.MULTILINE)
_HOST = re.compile(r"(?:.+[.:].*|localhost)")  # first part of a name that is a registry
# They describe the tasks of the job, of which this step is only one.
_OF_TASKS = re.compile(
    r"SLURM_(NTASKS|NPROCS|NTASKS_PER_\w+|TASKS_PER_NODE|DISTRIBUTION|CPUS_PER_TASK|GPUS_PER_TASK|TRES_PER_TASK|GPU_BIND|"
    r"TRES_BIND|LABELIO|UNBUFFEREDIO|STD\w+MODE|EXPORT_ENV|KILL_BAD_EXIT|WAIT)"
)
_HUBS = ("docker.io", "index.docker.io")  # names of enroot's default registry, which are not its address
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_RETRY_INTERVAL_S = 0.5  # seconds between two attempts to signal a step that is being created
# It runs in the step, just before the command.
_WRITE_STEP = '[ "$hold" ] && printf %s "$SLURM_STEP_ID" 2>/dev/null >"$hold"\n'
_NOT_PASSED = re.compile(r"SLURM\w*|PATH")  # srun and the image set them


def is_offered(help_text: str) -> bool:
    """Return whether srun has Pyxis, from the output of ``srun --help``."""
    return _NEEDED in _OPTION.findall(help_text)


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
    if registry in _HUBS:
        return name
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
    if not is_offered(help_text):
        raise RuntimeRefused(
            "srun on this node has no --container-image: the plugin Pyxis is not installed. Choose another runtime."
        )
    passed = {name: value for name, value in facts.env.items() if not _OF_TASKS.fullmatch(name)}
    env = {**_own_settings(), **passed, "NVIDIA_VISIBLE_DEVICES": ",".join(facts.gpus) or "void"}
    env.setdefault("NVIDIA_DRIVER_CAPABILITIES", "compute,utility")
    node = os.environ.get("SLURMD_NODENAME")
    argv = ["srun", "--nodes=1", "--ntasks=1", *([f"--nodelist={node}"] if node else []), "--export=ALL"]
    argv += ["--input=none", "--mpi=none", "--cpu-bind=none", *gpu_options]
    argv.append(f"--job-name={facts.env.get('SLURM_JOB_NAME') or 'container'}")  # the command sees that of the step
    flags = ("overlap", "disable-status", "no-container-remap-root", "no-container-entrypoint")
    argv += [f"--{name}" for name in flags if name in offered]
    argv += [f"--container-image={image_name(wish.image)}", f"--container-workdir={facts.work_dir}"]
    argv += [f"--container-mounts={','.join(_mounts(wish, facts))}"]
    if "container-env" in offered:
        argv.append(f"--container-env={','.join(sorted(name for name in env if not _NOT_PASSED.fullmatch(name)))}")
    return [*argv, "/bin/sh", *runtimes.entry(wish, facts, _WRITE_STEP + _cpus(facts))], env


def _cpus(facts: RuntimeFacts) -> str:
    """Return the line that sets the CPUs of a task again for the command: srun would give the step no more of them."""
    cpus = facts.env.get("SLURM_CPUS_PER_TASK")
    return f"export SLURM_CPUS_PER_TASK={shlex.quote(cpus)}\n" if cpus else ""


def follow(argv: list[str], env: dict[str, str], path: str) -> int:
    """Run srun; return its exit code. Signals go to its step, because srun answers SIGTERM by killing its task.

    The step writes its number to the file ``path`` when the command starts. Before that, SIGTERM, SIGINT and SIGHUP end
    srun.
    """
    started: list[Any] = []
    early: list[int] = []  # signals that arrived before the process started
    ended: list[int] = []  # signals that have ended srun

    def forward(number: int, _: Any) -> None:
        if not started:
            early.append(number)
        for process in started:
            _pass_on(process, number, path, ended)

    for number in client.FORWARDED:
        signal.signal(number, forward)
    # Without this process, srun kills the step: the parent process may start another one.
    process = subprocess.Popen(argv, env=env, preexec_fn=load("proc").dying_with_us(signal.SIGTERM))
    started.append(process)
    for missed in early:
        _pass_on(process, missed, path, ended)
    code = process.wait()
    with contextlib.suppress(OSError):
        os.unlink(path)
    return 128 + ended[0] if ended else 128 - code if code < 0 else code


def _pass_on(process: Any, number: int, path: str, ended: list[int]) -> None:
    """Send a signal to the step of srun; return at once."""

    def send() -> None:
        while process.poll() is None:
            step = _step(path)
            if not step and number in _ENDING:
                ended.append(number)
                process.terminate()
                return
            if step and not images.run_query("scancel", f"--signal={int(number)}", step)[0]:
                return
            time.sleep(_RETRY_INTERVAL_S)

    threading.Thread(target=send, daemon=True).start()


def _step(path: str) -> str:
    """Return the id of the step; empty if its command has not started."""
    try:
        with open(path, encoding="ascii") as file:
            number = file.read(16)
    except (OSError, UnicodeError):
        return ""
    return f"{os.environ.get('SLURM_JOB_ID')}.{number}" if re.fullmatch("[0-9]+", number) else ""


def _mounts(wish: ContainerRequest, facts: RuntimeFacts) -> Iterator[str]:
    for source, target, is_read_only in runtimes.mounts(wish, facts):
        runtimes.refuse("Pyxis", source + target, ",: ")
        yield f"{source}:{target}" + (":ro" if is_read_only else "")


def _own_settings() -> dict[str, str]:
    """Return the settings of Pyxis and enroot by the user or the site, and the PATH of the node."""
    kept = {name: value for name, value in os.environ.items() if _SETTINGS.fullmatch(name)}
    return {**kept, "PATH": os.environ.get("PATH", os.defpath)}
