"""Run of a job on its node's own disk: ``python -u stage.py JOBDIR [args]``, from the batch script.

The working folder of the job (``stage`` of job.json) is copied to that disk, and the cell or script runs there. New or
changed files are copied back when Slurm announces the time limit (``--signal``), when Slurm cancels the job, and at any
end. If the disk lacks space, or the job has several nodes, the job runs in the original folder. Files that cannot be
copied back stay on the node, and their place is reported.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import runpy
import shutil
import signal
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Iterator

if TYPE_CHECKING:
    from jupyter_slurm.runner.job_directory import JobDirectory

# The runner is not a package: its files are loaded by path.
loader = runpy.run_path(__file__[: -len("lifecycle/stage.py")] + "loader.py")
load, path_of = loader["load"], loader["path_of"]

_LEFT_OUT = frozenset({".jupyter-slurm-stage", ".rsync-partial"})
_END_TIMEOUT_S = (
    10.0  # seconds for the program to end after Slurm's signal; copying its files back needs the rest of KillWait
)
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)


def report(text: str) -> None:
    """Print a message for the user, between output of the job."""
    sys.stderr.write(f"stage: {text}\n")
    sys.stderr.flush()


def place_of(template: str) -> str:
    """Return the folder of the node that a template names."""
    env = {"USER": pwd.getpwuid(os.getuid()).pw_name, **os.environ}
    for name in sorted(env, key=len, reverse=True):
        template = template.replace("${" + name + "}", env[name]).replace("$" + name, env[name])
    return os.path.expanduser(template)


def files_below(top: str, unread: dict[str, str] | None = None) -> Iterator[str]:
    """Return the files, links and folders below a folder, without following links.

    Folders that cannot be read are recorded in ``unread`` with the reason. Without ``unread``, they raise OSError.
    """
    folders = [""]
    while folders:
        below = folders.pop()
        try:
            items = list(os.scandir(os.path.join(top, below)))
        except FileNotFoundError:
            continue  # the job has removed it meanwhile
        except OSError as error:
            if unread is None:
                raise
            unread[below or "."] = error.strerror or str(error)
            continue
        for item in items:
            name = os.path.join(below, item.name)
            if item.is_dir(follow_symlinks=False):
                if item.name not in _LEFT_OUT:
                    folders.append(name)
                    yield name
            elif item.name not in _LEFT_OUT and (item.is_symlink() or item.is_file(follow_symlinks=False)):
                yield name


def sign_of(path: str) -> tuple[int, int, int]:
    """Return a signature of a version of a file."""
    found = os.lstat(path)
    return found.st_mode, found.st_size, found.st_mtime_ns


def copy(source: str, target: str) -> None:
    """Copy a file, a link or an (empty) folder atomically, with its times."""
    if os.path.isdir(source) and not os.path.islink(source):
        os.makedirs(target, exist_ok=True)
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    draft = os.path.join(os.path.dirname(target), f".{os.urandom(8).hex()}.tmp")
    try:
        shutil.copy2(source, draft, follow_symlinks=False)
        os.replace(draft, target)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise


def check_whose(folder: str) -> None:
    """Refuse a folder in which another user could replace a folder of this process, by OSError."""
    for found in (os.lstat(folder), os.stat(folder)):
        if found.st_uid not in (0, os.getuid()):
            raise OSError(f"{folder} belongs to another user ({found.st_uid})")
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        raise OSError(f"others may write in {folder}")


class StageCopy:
    """Copy of a folder on the node's disk."""

    def __init__(self, shared: str, local: str) -> None:
        self.shared, self.local = shared, local
        self.signatures: dict[str, tuple[int, int, int]] = {}
        self.failed: dict[str, str] = {}

    def make(self) -> None:
        """Copy the folder if there is enough space."""
        names = list(files_below(self.shared))
        wanted = sum(os.lstat(os.path.join(self.shared, name)).st_size for name in names)
        os.makedirs(self.local, mode=0o700)
        check_whose(os.path.dirname(self.local))
        free = shutil.disk_usage(self.local).free
        if wanted > free:
            raise OSError(f"{wanted / 1e6:.0f} MB are needed, {free / 1e6:.0f} MB are free")
        for name in names:
            copy(os.path.join(self.shared, name), os.path.join(self.local, name))
            self.signatures[name] = sign_of(os.path.join(self.local, name))

    def bring_back(self) -> int:
        """Copy new or changed files back; return their number."""
        count = 0
        self.failed = {}
        for name in list(files_below(self.local, self.failed)):
            source = os.path.join(self.local, name)
            try:
                sign, is_folder = sign_of(source), os.path.isdir(source) and not os.path.islink(source)
                if sign == self.signatures.get(name) or (is_folder and name in self.signatures):
                    continue
                copy(source, os.path.join(self.shared, name))
                self.signatures[name] = sign
                count += not is_folder
            except FileNotFoundError:
                continue  # the job has removed it meanwhile
            except OSError as error:
                self.failed[name] = error.strerror or str(error)
        return count

    def report_failures(self) -> None:
        """Remove the copy if all files were copied back. Otherwise keep it and report the failures."""
        if not self.failed:
            shutil.rmtree(self.local, ignore_errors=True)
            return
        first = next(iter(self.failed))
        node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
        report(
            f"{len(self.failed)} file{'' if len(self.failed) == 1 else 's'} could not be copied to {self.shared} "
            f"({first}: {self.failed[first]}). The files of the job are on {node} in {self.local}."
        )


def copied(place: JobDirectory) -> StageCopy | None:
    """Copy the folder of the job. Return None if the job runs in the original folder; the reason is reported.

    Signals that end the job end this program. Other signals are ignored until :func:`follow` begins.
    """
    stage, here = place.job["stage"], os.getcwd()
    shared = stage["folders"][0]["dest"]
    if os.path.realpath(here) != os.path.realpath(shared):
        return None  # it was submitted to run elsewhere
    if int(os.environ.get("SLURM_JOB_NUM_NODES") or 1) > 1:
        report(f"The job has several nodes and runs in {shared}, which all of them see.")
        return None
    name = f"jupyter_slurm-{place.job_id}{place.suffix}-{os.getpid()}"
    made = StageCopy(shared, os.path.join(place_of(stage["local"]), name))
    before = {number: signal.signal(number, lambda got, _: sys.exit(128 + got)) for number in _ENDING}
    before.update((number, signal.signal(number, lambda *_: None)) for number in _PASSED_ON)
    try:
        made.make()
    except BaseException as error:
        shutil.rmtree(made.local, ignore_errors=True)
        if not isinstance(error, OSError):
            raise
        report(f"{made.local} cannot be used ({error}). The job runs in {shared}.")
        for number, handler in before.items():
            signal.signal(number, handler)
        return None
    return made


def command(place: JobDirectory, args: list[str]) -> list[str]:
    """Return the command of the cell or the script."""
    job = place.job
    is_contained = bool((job.get("environment") or {}).get("image"))
    if "run" in job and not is_contained:
        return [*job["run"], *args]
    started = "ranks.launch" if job.get("launcher") else "container.run" if is_contained else "cell.run"
    return [sys.executable, "-u", path_of(started), place.folder, *args]


def report_refusal(program: str, error: OSError) -> int:
    """Report that a program cannot be started; return the exit code of a shell for this."""
    report(f"{program} cannot be run: {error.strerror}.")
    return 127 if isinstance(error, FileNotFoundError) else 126


def follow(argv: list[str], made: StageCopy, *, is_announced: bool) -> int:
    """Run the command on the node's disk; return its exit code as a shell would see it."""
    heard: list[int] = []
    early: list[int] = []  # signals that arrived before the process started
    started: list[subprocess.Popen[bytes]] = []

    def forward(number: int, _: Any) -> None:
        heard.append(number)
        if number == signal.SIGUSR1 and is_announced:
            return
        if not started:
            early.append(number)
        for process in started:  # at once: copying back takes its time
            process.send_signal(number)

    for listened in (*_ENDING, *_PASSED_ON):
        signal.signal(listened, forward)
    environment = {**os.environ, "PWD": made.local}
    try:
        process: subprocess.Popen[bytes] = load("proc").start_written(
            lambda: subprocess.Popen(argv, cwd=made.local, env=environment)
        )
    except OSError as error:
        return report_refusal(argv[0], error)
    started.append(process)
    for missed in early:
        process.send_signal(missed)
    left, is_ending = _END_TIMEOUT_S, False
    while process.poll() is None and left > 0:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
        left -= 0.2 if is_ending else 0.0
        while heard:
            if (number := heard.pop(0)) in _ENDING:
                is_ending = True
                made.bring_back()  # at once: Slurm's waiting time is unknown
            elif number == signal.SIGUSR1 and is_announced:
                count = made.bring_back()
                report(f"The time limit is near. {count} new or changed files were copied to {made.shared}.")
    if process.poll() is None:
        process.kill()
    code = process.wait()
    return 128 - code if code < 0 else code


def main() -> int:
    """Copy, run, copy back."""
    cell, args = load("cell.run"), sys.argv[2:]
    cell.heedless()
    place = cell.JobDirectory(sys.argv[1])
    if not place.is_ours():
        return 0
    made = copied(place)
    try:
        argv = command(place, args)
        if "run" in place.job:
            place.publish_event("started")
        if made is not None:
            return follow(argv, made, is_announced=bool(place.job["stage"].get("announced")))
    finally:
        if made is not None:
            made.bring_back()
            made.report_failures()
    sys.stdout.flush()
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - an argument list, as everywhere
    except OSError as error:
        return report_refusal(argv[0], error)


if __name__ == "__main__":
    sys.exit(main())
