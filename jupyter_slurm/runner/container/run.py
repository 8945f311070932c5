"""Run of a cell or a script in a container on the node: ``python -u run.py JOBDIR [args]``, from the batch script.

``environment`` of job.json names the image. The command line of the runtime is made on the node, because only the node
knows its GPUs, CPUs and ids. :func:`start` makes it for any command.

Apptainer, Singularity and Charliecloud replace this process, so that Slurm's actions on the job reach the container.
With Pyxis this process stays the parent of srun, and passes its signals on to the step.
Docker's daemon starts a container outside the job. Two pipes connect the container with the job. The first process of
the container reads from them, and ends the container when one closes, for any end of the job. One pipe goes through the
daemon and always exists. The other one is in the job directory, and ends the container even if the daemon hangs.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

# The runner is not a package: its files are loaded by path.
loader = runpy.run_path(__file__[: -len("container/run.py")] + "loader.py")
load, path_of = loader["load"], loader["path_of"]
if TYPE_CHECKING:
    from jupyter_slurm.runner.container import charliecloud, client, job_memory, lock, pyxis, sudo
    from jupyter_slurm.runner.container import image_fetch as images
    from jupyter_slurm.runner.container import runtime_commands as runtimes
    from jupyter_slurm.runner.container.runtime_commands import RuntimeRefused
    from jupyter_slurm.runner.job_document import EnvironmentPart, JobDocument
else:
    pyxis, job_memory = load("container.pyxis"), load("container.job_memory")
    client = pyxis.client  # each load makes a module of its own
    images, lock, runtimes, sudo = client.images, client.lock, client.runtimes, client.sudo
    charliecloud = images.charliecloud
    RuntimeRefused = runtimes.RuntimeRefused

FAILED = client.FAILED
_NO_STEP = (
    "Pyxis runs only the cell, the script or the session of a job. For ranks (launcher=), steps of an allocation and "
    "terminals in a container, use another runtime."
)
HINT = "Read `jupyter slurm log`. Exclude the node with -x NODE, or choose another image with image= or env=."
_GPU_QUERY_TIMEOUT_S = 60.0  # seconds for nvidia-smi


def make_places(image: str, targets: list[str]) -> None:
    """Create missing mount points in an unpacked image, without following links in it."""
    for target in targets:
        path = image
        for part in target.strip("/").split("/"):
            path = os.path.join(path, part)
            if os.path.islink(path):
                break  # ch-run reports a problem
            try:
                os.mkdir(path)
            except FileExistsError:
                continue
            except OSError as error:
                raise RuntimeRefused(
                    f"{target} cannot be bound, because the image has no such folder ({path}: {error.strerror})."
                ) from None


def list_gpus() -> list[tuple[str, str]]:
    """Return the GPUs that nvidia-smi lists; empty without GPUs."""
    argv = ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_GPU_QUERY_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = [line.split(", ") for line in done.stdout.decode("utf-8", "replace").splitlines()]
    return [(row[0], row[1]) for row in rows if len(row) == 2] if done.returncode == 0 else []


def has_whole_node(env: dict[str, str], variable: str) -> bool:
    """Return whether Slurm counts no GPUs for this job and gives it whole nodes: their GPUs then belong to the job."""
    if variable in env or env.get("SLURM_GPUS_ON_NODE"):
        return False
    told = images.run_query("squeue", "--noheader", f"--jobs={env.get('SLURM_JOB_ID', '0')}", "--format=%h")
    return set(told[1].split()) == {"NO"}  # a line for each task, if the number is that of an array


def facts(described: EnvironmentPart) -> Any:
    """Collect facts of the node and the job."""
    env, umask = dict(os.environ), os.umask(0o077)
    os.umask(umask)
    job, shm = env.get("SLURM_JOB_ID", "0"), 0
    with contextlib.suppress(OSError):
        place = os.statvfs("/dev/shm")  # noqa: S108 - how large it is
        shm = place.f_blocks * place.f_frsize
    variable = described.get("gpu_variable") or "CUDA_VISIBLE_DEVICES"
    gpus = runtimes.gpus_of(env, variable, list_gpus() if env.get(variable, "")[:1].isdigit() else [])
    if described.get("gpus") == "node" and has_whole_node(env, variable):
        gpus = [uuid for _, uuid in list_gpus()]
    return runtimes.RuntimeFacts(
        uid=os.getuid(),
        gid=os.getgid(),
        groups=sorted(set(os.getgroups()) - {os.getgid()}),
        umask=umask,
        home=os.path.expanduser("~"),
        work_dir=os.getcwd(),
        cpus=sorted(os.sched_getaffinity(0)),
        memory=job_memory.memory_of(env),
        shm=shm,
        gpus=gpus,
        name=f"jupyter_slurm-{job}-{os.getpid()}-{os.urandom(4).hex()}",
        holder=lock.holder(),
        env=runtimes.variables(env, list(described.get("variables", {}))),
    )


def suitable(image: str) -> list[str]:
    """Return the runtimes that may run an image, the first choice first."""
    if not image.startswith("/"):
        return ["docker", "podman", "apptainer", "singularity", "charliecloud"]
    if os.path.isdir(image):
        return ["charliecloud", "apptainer", "singularity"]
    if not image.endswith(pyxis.IMAGE_SUFFIX):
        return ["apptainer", "singularity"]
    others = ["apptainer", "singularity", "charliecloud"]
    is_offered = pyxis.is_offered(images.run_query("srun", "--help")[1])
    return ["pyxis", *others] if is_offered else [*others, "pyxis"]


def choose(image: str, runtime: str | None) -> str:
    """Return the runtime of the image: the requested one, else the first suitable one on this node."""
    fit = [runtime] if runtime else suitable(image)
    if image.startswith("/") and not os.path.exists(image):
        raise RuntimeRefused(f"This node has no image {image}.")
    builders = [] if image.startswith("/") else charliecloud.programs()
    needed = {"pyxis": ["srun"], "charliecloud": ["ch-run", *builders]}
    tried = [(name, needed.get(name, sudo.needed(name))) for name in fit]
    here = [name for name, programs in tried if all(map(shutil.which, programs))]
    if not here:
        wanted = " nor ".join(next(one for one in programs if not shutil.which(one)) for _, programs in tried)
        otherwise = f", and no other runtime for {image}"
        raise RuntimeRefused(
            f"This node has no {wanted}{'' if runtime else otherwise}. Choose another node with -w or -C of sbatch."
        )
    return "podman" if here[0] == "docker" and is_podman(shutil.which("docker") or "") else here[0]


def is_podman(path: str) -> bool:
    """Return whether ``docker`` is a script that calls Podman, as in the package podman-docker."""
    with contextlib.suppress(OSError):
        with open(path, "rb") as file:
            start = file.read(4096)
        return start.startswith(b"#!") and b"podman" in start
    return False


def start(
    described: EnvironmentPart,
    argv: list[str],
    folders: list[str],
    report: Any,
    *,
    is_python: bool = False,
    hold: str = "",
    entry_point: str = "",
    requests: str = "",
    is_batch: bool = False,
) -> int:
    """Run a command in a container; return its exit code, or do not return at all.

    Parameters
    ----------
    described : dict
        ``image``; optional ``runtime``, ``bind``, ``gpu_variable``, ``variables``.
    argv : list of str
        Command, with paths of the container.
    folders : list of str
        Folders that the container needs at the same paths, besides the working directory and the home, if the node has
        it.
    report : callable
        Called with a text that describes the progress of fetching the image.
    is_python : bool
        Whether the command must be a Python.
    hold : str
        Path for a pipe, in one of the folders.
    entry_point : str
        Path for a program that runs the entry point of the image, in one of the folders; empty for none.
    requests : str
        Variable that gets the path of another pipe with the content of standard input, if the runtime uses standard
        input itself; empty: the command needs none of it.
    is_batch : bool
        Whether this is the batch script, which may start a step of the job.

    Raises
    ------
    RuntimeRefused
        The container cannot be started.
    """
    for dropped in load("container.host_folders").drop_missing(os.environ):
        sys.stderr.write(f"container: {dropped} is not used, because this node has no such folder of yours.\n")
    sudo.use_for(described)
    runtime, image = choose(described["image"], described.get("runtime")), described["image"]
    node = facts(described)
    node.env["JUPYTER_SLURM_CONTAINER"] = f"{runtime} {image}"
    own = [folder for folder in (node.home,) if os.path.isdir(folder)]
    if runtime == "pyxis" and not is_batch:
        raise RuntimeRefused(_NO_STEP)
    if not image.startswith("/") and runtime != "pyxis":
        image = images.provide(runtime, image, described, report)
    wish = runtimes.ContainerRequest(image, list(described.get("bind", [])), [*own, *folders], argv, is_python)
    if runtime in ("docker", "podman", "pyxis") and hold:
        wish.hold = f"{hold}.{node.name}"
        if requests:
            node.env[requests] = f"{hold}.input.{node.name}"
    for source, _, _ in runtimes.mounts(wish, node):
        if not os.path.exists(source):
            raise RuntimeRefused(f"This node has no folder {source}.")
    if entry_point:
        _offer_entry_point(entry_point, runtime, image, node.env)
    if runtime in ("docker", "podman"):
        return _by_client(runtime, wish, node, requests)
    sys.stdout.flush()
    if runtime == "pyxis":
        return _in_step(wish, node)
    return _replaced(runtime, wish, node)


def _replaced(runtime: str, wish: runtimes.ContainerRequest, node: runtimes.RuntimeFacts) -> int:
    """Replace this process by a container of Apptainer, Singularity or Charliecloud."""
    made, env = runtimes.MAKERS[runtime](wish, node)
    if runtime == "charliecloud":
        made = charliecloud.accepted(made, images.run_query("ch-run", "--help")[1])
        if os.path.isdir(wish.image):
            make_places(wish.image, [word.rpartition(":")[2] for word in made if word.startswith("--bind=")])
    path = shutil.which(made[0]) or made[0]  # PATH in ``env`` may be that of the container
    return os.execvpe(path, made, env)  # noqa: S606 - an argument list, as everywhere


def _offer_entry_point(path: str, runtime: str, image: str, env: dict[str, str]) -> None:
    entries = load("container.entry_point")
    entries.write(path, entries.script(runtime, image, images.run_query))
    env[entries.VARIABLE] = path


def _by_client(runtime: str, wish: runtimes.ContainerRequest, node: runtimes.RuntimeFacts, requests: str) -> int:
    """Run a container of Docker or Podman."""
    variables = sudo.Variables() if sudo.is_used(runtime) else None
    wish.env_file = variables.path if variables else ""
    made, env = runtimes.MAKERS[runtime](wish, node)
    if variables and (why := variables.write(env)):
        raise RuntimeRefused(f"With sudo, {why}")
    client.sweep(runtime, node.uid)
    with client.held(wish.hold), client.passed_on(node.env.get(requests, "")):
        return int(client.follow(made, {**os.environ, **env}, node.name, wish.image))


def _in_step(wish: runtimes.ContainerRequest, node: runtimes.RuntimeFacts) -> int:
    """Run the step of srun that Pyxis runs in a container."""
    gpu_options = load("ranks.launch").all_gpus(os.environ)
    made, env = pyxis.command(wish, node, gpu_options, images.run_query("srun", "--help")[1])
    return int(pyxis.follow(made, env, wish.hold))


def command(job: JobDocument, folder: str, args: list[str]) -> list[str]:
    """Return the command of a job, with paths of the container."""
    if "run" in job:
        return [*job["run"], *args]
    started, python = "cell.run", (job.get("cell") or {}).get("python")
    if job.get("launcher"):  # its launcher has started this process, as one of several
        started = {"torchrun": "ranks.torchrun", "ray": "ranks.ray_node"}.get(job["launcher"], "ranks.rank")
    if "session" in job:
        started, python = "session.serve", (job.get("asked") or {}).get("python") or job["environment"].get("python")
    return [python or "python3", "-u", path_of(started), folder, *args]


def folders(job: JobDocument, folder: str) -> list[str]:
    """Return the folders that the container needs: job directories with the runner, and the folder of a session."""
    session = job.get("session") or {}
    directory = session.get("dir")
    shown = [os.path.join(os.getcwd(), os.path.expanduser(directory))] if directory else []
    if session.get("jupyter"):  # folder with the installed Jupyter
        os.environ["JUPYTER_SLURM_IMAGE_DIR"] = place = images.make_folder(session)
        shown.append(place)
    return [os.path.dirname(folder), *shown]


def main() -> int:
    """Run the command of the job directory. Without a container, report the reason."""
    folder, args = sys.argv[1], sys.argv[2:]
    place = load("cell.run").JobDirectory(folder)

    def report(text: str) -> None:
        sys.stderr.write(f"container: {place.job['environment']['image']}: {text}\n")
        if "session" in place.job:
            place.stage(f"image: {text}")

    try:
        argv = command(place.job, folder, args)
        why_not = f"The container did not start, or has no {argv[0]}. The end of the log shows the reason."
        shared = folders(place.job, folder)
        entry_point = f"{folder}/entrypoint{place.suffix}" if "run" in place.job else ""
        pipe, environment = f"{folder}/held", place.job["environment"]
        if place.job.get("launcher") == "mpi":
            runtime = choose(environment["image"], environment.get("runtime"))
            environment = runtimes.with_mpi(environment, runtime, dict(os.environ))
        is_batch = not place.job.get("launcher")
        code = start(
            environment,
            argv,
            shared,
            report,
            is_python=not entry_point,
            hold=pipe,
            entry_point=entry_point,
            is_batch=is_batch,
        )
    except RuntimeRefused as error:
        why_not, code = f"{error} (node {os.environ.get('SLURMD_NODENAME') or os.uname().nodename})", FAILED
        sys.stderr.write(f"container: {why_not}\n")
    is_told = os.path.exists(os.path.join(folder, f"end{place.suffix}.json"))
    # its parent process records the end
    is_watched = any(place.job.get(name) for name in ("launcher", "resume", "run"))
    is_watched = is_watched and "session" not in place.job
    if code == FAILED and not (is_told or is_watched):
        told = {"session": {"why": why_not, "hint": HINT}} if "session" in place.job else {}
        place.end(FAILED, **told)
    return code


if __name__ == "__main__":
    sys.exit(main())
