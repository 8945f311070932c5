"""Run a cell or a script in a container, on the node: ``python -u run.py JOBDIR [args]``, from the batch script.

Which image, is ``environment`` of job.json. The command line of the runtime is made here, since only the node knows
which GPUs, CPUs and ids there are; :func:`start` does it for any command.

Apptainer, Singularity and Charliecloud become this process: what Slurm does to the job, it does to the container.
Docker's daemon starts a container outside of the job. It hangs by the job's end of two pipes: its first process reads
from there, and ends the container when one is closed, by whatever has ended the job. One goes through the daemon, and
is there in any case; the other lies in the job directory, and ends the container of a daemon that hangs, too.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Iterator

# The files of the runner are no package: each is read by its path.
loader = runpy.run_path(__file__[: -len("container/run.py")] + "loader.py")
load, path_of = loader["load"], loader["path_of"]
if TYPE_CHECKING:
    from jupyter_slurm.runner.container import images, lock, runtimes
    from jupyter_slurm.runner.container.runtimes import RuntimeRefused
else:
    images = load("container.images")
    lock, runtimes = images.lock, images.runtimes
    RuntimeRefused = runtimes.RuntimeRefused

FAILED = 125  # there was no container, as domain/scripts/environments.py has it of other environments
_HINT = "`jupyter slurm log` may say more; -x NODE of sbatch leaves a node out, image= and env= name another image."
_GPU_QUERY_TIMEOUT_S = 60.0  # seconds that nvidia-smi may take
_PARENT_CHECK_INTERVAL_S = 2.0  # seconds between two looks whether slurmstepd is there
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def make_places(image: str, targets: list[str]) -> None:
    """Make what is missing in an unpacked image of folders to bind to; a link in it is never followed."""
    for target in targets:
        path = image
        for part in target.strip("/").split("/"):
            path = os.path.join(path, part)
            if os.path.islink(path):
                break  # ch-run says whether that will do
            try:
                os.mkdir(path)
            except FileExistsError:
                continue
            except OSError as error:
                raise RuntimeRefused(
                    f"{target} cannot be bound, the image has no such folder: {path}: {error.strerror}"
                ) from None


def list_gpus() -> list[tuple[str, str]]:
    """Ask nvidia-smi which GPUs there are; nothing where there is none."""
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
    """Tell whether Slurm counts no GPUs for this job, and lets nobody else on its nodes: then they are the job's."""
    if variable in env or env.get("SLURM_GPUS_ON_NODE"):
        return False
    told = images.run_query("squeue", "--noheader", f"--jobs={env.get('SLURM_JOB_ID', '0')}", "--format=%h")
    return bool(told[1].strip() == "NO")


def facts(described: dict[str, Any]) -> Any:
    """Look at the node and at the job."""
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
        memory=runtimes.memory_of(env),
        shm=shm,
        gpus=gpus,
        name=f"jupyter_slurm-{job}-{os.getpid()}-{os.urandom(4).hex()}",
        holder=lock.holder(),
        env=runtimes.variables(env, list(described.get("variables", {}))),
    )


def choose(image: str, runtime: str | None) -> str:
    """Return what runs the image here: what was said, else the first that fits and is there."""
    if not image.startswith("/"):
        fit = ["docker", "podman", "apptainer", "singularity", "charliecloud"]
    elif os.path.isdir(image):
        fit = ["charliecloud", "apptainer", "singularity"]
    elif os.path.exists(image):
        fit = ["apptainer", "singularity"]
    else:
        raise RuntimeRefused(f"there is no {image} on this node")
    needed = {"charliecloud": ["ch-run"] if image.startswith("/") else ["ch-run", "ch-image", "ch-convert"]}
    tried = [(name, needed.get(name, [name])) for name in ([runtime] if runtime else fit)]
    here = [name for name, programs in tried if all(map(shutil.which, programs))]
    if not here:
        wanted = " nor ".join(next(one for one in programs if not shutil.which(one)) for _, programs in tried)
        otherwise = f", and nothing else runs {image}"
        raise RuntimeRefused(
            f"this node has no {wanted}{'' if runtime else otherwise}; -w or -C of sbatch choose another one"
        )
    return "podman" if here[0] == "docker" and is_podman(shutil.which("docker") or "") else here[0]


def is_podman(path: str) -> bool:
    """Tell whether a ``docker`` is a script that calls Podman, as the package podman-docker has it."""
    with contextlib.suppress(OSError):
        with open(path, "rb") as file:
            start = file.read(4096)
        return start.startswith(b"#!") and b"podman" in start
    return False


def start(
    described: dict[str, Any],
    argv: list[str],
    folders: list[str],
    report: Any,
    *,
    is_python: bool = False,
    hold: str = "",
) -> int:
    """Run a command in a container; return its exit code, or do not return at all.

    Parameters
    ----------
    described : dict
        ``image``; ``runtime``, ``bind``, ``gpu_variable``, ``variables`` where they were said.
    argv : list of str
        The command, as the container has it.
    folders : list of str
        That the container must have at their own places, besides the home, where the node has it, and the working
        directory.
    say : callable
        Is told in words how far an image is that has to be fetched.
    is_python : bool
        The command has to be a Python.
    hold : str
        Where a pipe may lie, in one of the folders.

    Raises
    ------
    RuntimeRefused
        There can be none.
    """
    runtime, image = choose(described["image"], described.get("runtime")), described["image"]
    node = facts(described)
    node.env["JUPYTER_SLURM_CONTAINER"] = f"{runtime} {image}"
    own = [folder for folder in (node.home,) if os.path.isdir(folder)]
    if not image.startswith("/"):
        image = images.provide(runtime, image, described, report)
    wish = runtimes.ContainerRequest(image, list(described.get("bind", [])), [*own, *folders], argv, is_python)
    if runtime in ("docker", "podman") and hold:
        wish.hold = f"{hold}.{node.name}"
    for source, _, _ in runtimes.mounts(wish, node):
        if not os.path.exists(source):
            raise RuntimeRefused(f"there is no {source} on this node")
    made, env = runtimes.MAKERS[runtime](wish, node)
    if runtime in ("docker", "podman"):
        sweep(runtime, node.uid)
        with held(wish.hold):
            return follow(made, {**os.environ, **env}, node.name, wish.image)
    if runtime == "charliecloud":
        make_places(wish.image, [word.rpartition(":")[2] for word in made if word.startswith("--bind=")])
    sys.stdout.flush()
    return os.execvpe(made[0], made, env)  # noqa: S606 - an argument list, as everywhere


@contextlib.contextmanager
def held(path: str) -> Iterator[None]:
    """Hold the end of a pipe that has a name; where a file system has no such pipes, the other one has to do."""
    end = -1
    with contextlib.suppress(OSError):
        if path:
            os.mkfifo(path, 0o600)
            end = os.open(path, os.O_RDWR | os.O_NOFOLLOW)  # to write alone would wait for the reader
    try:
        yield
    finally:
        if end >= 0:
            os.close(end)
        with contextlib.suppress(OSError):
            if path:
                os.unlink(path)


def follow(argv: list[str], env: dict[str, str], name: str, image: str) -> int:
    """Run a container of a daemon; return its exit code."""
    read_end, write_end = os.pipe()
    started: list[Any] = []
    early: list[int] = []  # signals that came before there was somebody to have them

    def forward(number: int, _: Any) -> None:
        if not started:
            early.append(number)
        for process in started:
            process.send_signal(number)

    for number in _FORWARDED:  # with control groups Slurm sends them to the batch script alone: to this process
        signal.signal(number, forward)
    parent = os.getppid()
    process = subprocess.Popen(argv, stdin=read_end, env=env)
    os.close(read_end)
    started.append(process)
    for missed in early:
        process.send_signal(missed)
    threading.Thread(target=end_with, args=(parent, process), daemon=True).start()
    code = process.wait()
    os.close(write_end)
    if code < 0 or code in (FAILED, 126, 127):  # those may be of the client, or of the command
        said = why(argv[0], image, has_gpus=code == FAILED and "--gpus" in argv)
        if not said:
            images.run_query(argv[0], "rm", "--force", name)
        end_inside(name)  # what a daemon that is gone cannot end
        if said and code > 0:
            raise RuntimeRefused(said)
    return 128 - code if code < 0 else code


def end_with(parent: int, process: Any) -> None:
    """End a client of Docker when who started this process is gone: Slurm forgets a job whose slurmstepd was killed."""
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_INTERVAL_S)
    process.kill()


def end_inside(name: str) -> None:
    """Kill the first process of a container, and with it all others: it has the name as a word, as nobody else."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            if name.encode() in words:
                os.kill(int(pid), signal.SIGKILL)


def why(program: str, image: str, *, has_gpus: bool) -> str:
    """Return in words why there was no container; nothing where the runtime is well and has the image."""
    if said := images.unwell(program):
        return str(said)
    if images.run_query(program, "image", "inspect", image)[0]:
        return f"the image {image} was taken away from this node; run this again, and it is fetched"
    if has_gpus and "nvidia" not in images.run_query(program, "info", "--format", "{{json .Runtimes}}")[1]:
        return (
            f"as it seems, {program} on this node gives no GPUs to containers: it has no nvidia-container-toolkit, "
            "which whoever runs it can install; Apptainer needs none"
        )
    return ""


def sweep(program: str, uid: int) -> None:
    """Remove containers of jobs that have ended: a daemon that was away itself did not hear of it.

    With those that never began: their client was ended between its two requests.
    """
    form = f'{{{{.ID}}}} {{{{.Label "{runtimes.LABEL}.holder"}}}}'
    which = ["--all", "--filter", f"label={runtimes.LABEL}.user={uid}"]
    for line in images.run_query(program, "ps", *which, "--format", form)[1].splitlines():
        name, _, label = line.partition(" ")
        if lock.is_gone(label):
            images.run_query(program, "rm", "--force", name)


def command(job: dict[str, Any], folder: str, args: list[str]) -> list[str]:
    """Return what a job runs, as the container has it."""
    if "run" in job:
        return [*job["run"], *args]
    started, python = "cell.run", (job.get("cell") or {}).get("python")
    if job.get("launcher"):  # which has started this process, as one of several
        started = {"torchrun": "ranks.torchrun", "ray": "ranks.ray_node"}.get(job["launcher"], "ranks.rank")
    if "session" in job:
        started, python = "session.serve", (job.get("asked") or {}).get("python") or job["environment"].get("python")
    return [python or "python3", "-u", path_of(started), folder, *args]


def folders(job: dict[str, Any], folder: str) -> list[str]:
    """Return what the container must have: job directories with the runner beside them, what a session shows."""
    session = job.get("session") or {}
    shown = [os.path.join(os.getcwd(), os.path.expanduser(session["dir"]))] if session.get("dir") else []
    if session.get("jupyter"):  # where it is installed
        os.environ["JUPYTER_SLURM_IMAGE_DIR"] = place = images.make_folder(session)
        shown.append(place)
    return [os.path.dirname(folder), *shown]


def main() -> int:
    """Run what the job directory says; where there was no container, tell why."""
    folder, args = sys.argv[1], sys.argv[2:]
    place = load("cell.run").JobDirectory(folder)

    def report(text: str) -> None:
        sys.stderr.write(f"container: {place.job['environment']['image']}: {text}\n")
        if "session" in place.job:
            place.stage(f"image: {text}")

    try:
        argv = command(place.job, folder, args)
        why_not = f"There was no container, or no {argv[0]} in it: the end of the log says which."
        shared = folders(place.job, folder)
        code = start(
            place.job["environment"], argv, shared, report, is_python="run" not in place.job, hold=f"{folder}/held"
        )
    except RuntimeRefused as error:
        why_not, code = f"{error} (node {os.environ.get('SLURMD_NODENAME') or os.uname().nodename})", FAILED
        sys.stderr.write(f"container: {why_not}\n")
    is_told = os.path.exists(os.path.join(folder, f"end{place.suffix}.json"))
    is_watched = any(place.job.get(name) for name in ("launcher", "resume", "run"))  # who started it tells the end
    is_watched = is_watched and "session" not in place.job
    if code == FAILED and not (is_told or is_watched):
        told = {"session": {"why": why_not, "hint": _HINT}} if "session" in place.job else {}
        place.end(FAILED, **told)
    return code


if __name__ == "__main__":
    sys.exit(main())
