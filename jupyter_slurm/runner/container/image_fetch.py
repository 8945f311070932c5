"""Images of registries, fetched once: into Docker's own store of the node, else into a folder shared by the nodes.

If several jobs want an image, one fetches it and the others wait (``lock.py``). In the folder an image appears only
when complete, by renaming. A moved tag is not fetched again: to update an image, remove it.

Sources: docker-pull(1), apptainer-pull(1), apptainer-build(1), ch-image(1), ch-convert(1). Python 3.8+, standard
library only.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import hashlib
import os
import runpy
import shutil
import signal
import stat
import subprocess
from typing import TYPE_CHECKING, Any, Callable, Iterator

load = runpy.run_path(__file__[: -len("container/image_fetch.py")] + "loader.py")["load"]
if TYPE_CHECKING:
    from jupyter_slurm.runner import proc
    from jupyter_slurm.runner.container import charliecloud, image_notes, lock, sudo
    from jupyter_slurm.runner.container import runtime_commands as runtimes
    from jupyter_slurm.runner.container.runtime_commands import RuntimeRefused
    from jupyter_slurm.runner.job_document import ImageFolder
else:
    image_notes, lock = load("container.image_notes"), load("container.lock")
    charliecloud, sudo = load("container.charliecloud"), load("container.sudo")
    proc = load("proc")
    runtimes = load("container.runtime_commands")
    RuntimeRefused = runtimes.RuntimeRefused

_ANSWER_TIMEOUT_S = 60.0  # seconds for an answer of the daemon
_MAX_NAME_LENGTH = 180  # characters of a file name, without suffixes
_MAX_LAST_LINES = 20
_MAX_LINE_BYTES = 65_536
_SUFFIXES = {"charliecloud": (".charliecloud",), "apptainer": (".sif", ".sandbox"), "singularity": (".sif", ".sandbox")}


def folder_of(described: ImageFolder) -> str:
    """Return the folder of images: a configured one, else one in the user's cache, unknown inside containers."""
    if told := os.environ.get("JUPYTER_SLURM_IMAGE_DIR"):
        return told
    if described.get("image_dir"):
        return os.path.expanduser(str(described["image_dir"]))
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return os.path.join(cache if cache.startswith("/") else os.path.expanduser("~/.cache"), "jupyter_slurm", "images")


def make_folder(described: ImageFolder, *names: str) -> str:
    """Create the folder of images, or a folder in it, if missing; return its path.

    A folder named in the profile may be shared by a group. Such a folder is created with the user's umask, but never
    writable for everybody. An existing one keeps its owner and mode. A folder in the user's cache is private; an
    existing one must belong to the user or to root.

    Raises
    ------
    RuntimeRefused
        The folder cannot be created, or others may write into it.
    """
    path, is_named = os.path.join(folder_of(described), *names), bool(described.get("image_dir"))
    more = "set image_dir in [container] of the cluster's profile"
    try:
        os.makedirs(path, mode=0o775 if is_named else 0o700, exist_ok=True)
        found = os.stat(path)
    except OSError as error:
        raise RuntimeRefused(f"{path} cannot be created: {error.strerror}. To use another folder, {more}.") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_mode & stat.S_IWOTH:
        raise RuntimeRefused(f"All users can write to {path}. Run `chmod o-w` on it, or {more}.")
    if not is_named and found.st_uid not in (os.geteuid(), 0):
        raise RuntimeRefused(f"{path} belongs to another user (uid {found.st_uid}). Remove it, or {more}.")
    return path


def check_whose(folder: str) -> None:
    """Refuse a folder in which another user could replace a folder of this process."""
    found = os.stat(folder)
    if not {os.lstat(folder).st_uid, found.st_uid} <= {0, os.geteuid()}:
        raise RuntimeRefused(f"{folder} belongs to another user. Set build_dir in [container] of the profile.")
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise RuntimeRefused(f"All users can write to {folder}. Run `chmod o-w` on it.")


def file_name(image: str) -> str:
    """Return the file name of an image: as in Charliecloud, and with limited length."""
    name = image.replace("/", "%").replace(":", "+")
    if len(name) > _MAX_NAME_LENGTH:
        name = f"{name[: _MAX_NAME_LENGTH - 17]}-{hashlib.sha256(image.encode()).hexdigest()[:16]}"
    return name


def run_query(*argv: str) -> tuple[int, str, str]:
    """Run a query of a runtime; return its exit code and output."""
    env, words = {**os.environ, "LC_ALL": "C"}, sudo.called([*argv])
    kept: Any = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": _ANSWER_TIMEOUT_S}
    try:
        done = subprocess.run(words, env=env, check=False, **kept)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, "", str(error)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


def unwell(program: str) -> str:
    """Return the reason why Docker or Podman cannot run containers, with its own last line; empty if it can."""
    code, _, said = run_query(program, "version")
    if why := code and sudo.refusal(program, said):
        return str(why)
    if "permission denied" in said.lower():
        return f"You have no permission to use {program} on this node. Ask the administrators to add you to its group."
    last = ([""] + [line.strip() for line in said.splitlines() if line.strip()])[-1]
    why = "The daemon of docker does not answer" if program == "docker" else f"{program} does not work"
    return f"{why} on this node{f' ({last})' if last else ''}." if code else ""


def provide(runtime: str, image: str, described: ImageFolder, report: Callable[[str], None]) -> str:
    """Fetch the image of a registry if necessary; return the runtime's name or path of it.

    Parameters
    ----------
    runtime : str
        Runtime for the image.
    image : str
        Name of the image, without ``docker://``.
    described : dict
        Description of the environment: ``image_dir`` is the folder of images.
    report : callable
        Called with a text that describes the progress.

    Raises
    ------
    RuntimeRefused
        The image cannot be fetched; the message says why.
    """
    with ending_on_sigterm():
        if runtime in ("docker", "podman"):
            return _in_store(runtime, image, described, report)
        return _in_folder(runtime, image, described, report)


def _in_store(program: str, image: str, described: ImageFolder, report: Callable[[str], None]) -> str:
    def is_present() -> bool:
        return run_query(program, "image", "inspect", image)[0] == 0

    if is_present():
        return image
    if said := unwell(program):
        raise RuntimeRefused(said)
    with contextlib.ExitStack() as held:
        is_ours = True  # also without a folder: the daemon merges two fetches of an image
        with contextlib.suppress(RuntimeRefused, OSError):
            path = store_lock(program, image, described)
            is_ours = held.enter_context(lock.held(path, is_present, waiting(report)))
        if is_ours:
            try:
                _fetch(program, image, [program, "pull", image], report)
            except RuntimeRefused as error:
                if node := image_notes.node_with(folder_of(described), image):
                    raise RuntimeRefused(
                        f"{error} A job created an image of this name on {node}: add `-w {node}`."
                    ) from None
                raise
            note_store(program, image, described)
    return image


def note_store(program: str, image: str, described: ImageFolder, source: str = "docker://") -> None:
    """Record, in the folder of images, that the store of this node has an image."""
    size = run_query(program, "image", "inspect", "--format", "{{.Size}}", image)[1].strip()
    with contextlib.suppress(RuntimeRefused):
        path = image_notes.of_store(make_folder(described), program, file_name(image))
        node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
        more = {"size": int(size)} if size.isdigit() else {}
        image_notes.write(path, image=image, runtime=program, node=node, source=source, **more)


def store_lock(program: str, image: str, described: ImageFolder) -> str:
    """Return the path of the lock of an image in the store of this node."""
    return os.path.join(make_folder(described), f".{program}-{os.uname().nodename}-{file_name(image)}.lock")


def waiting(report: Callable[[str], None]) -> Callable[[str], None]:
    """Return a callback that reports the awaited job."""
    return lambda who: report(f"waiting for {who}, which fetches the image")


def _in_folder(runtime: str, image: str, described: ImageFolder, report: Callable[[str], None]) -> str:
    def fetch(draft: str) -> str:
        return (_charliecloud if runtime == "charliecloud" else _apptainer)(runtime, image, draft, report)

    return keep(runtime, image, described, fetch, report)[0]


def find_image(runtime: str, image: str, described: ImageFolder) -> str:
    """Return the path of an image for this runtime in the folder; empty: there is none."""
    path = os.path.join(folder_of(described), file_name(image))
    return next((path + kind for kind in _SUFFIXES[runtime] if os.path.exists(path + kind)), "")


def keep(
    runtime: str,
    image: str,
    described: ImageFolder,
    make: Callable[[str], str],
    report: Callable[[str], None],
    *,
    is_anew: bool = False,
    source: str = "docker://",
) -> tuple[str, bool]:
    """Make an image in the folder if missing. Return its path, and whether this job made it.

    Parameters
    ----------
    make : callable
        Makes the image in a folder with the given name, which does not exist yet; returns its path. Of several jobs
        that want the image, one calls it.
    is_anew : bool
        Replace an existing image.
    source : str
        Source of the image, for the note beside it.
    """
    folder = make_folder(described)
    path = os.path.join(folder, file_name(image))

    def is_present() -> bool:
        return not is_anew and bool(find_image(runtime, image, described))

    if is_present():
        return find_image(runtime, image, described), False
    try:
        with lock.held(f"{path}{_SUFFIXES[runtime][0]}.lock", is_present, waiting(report)) as is_ours:
            if is_ours:
                remove(*glob.glob(glob.escape(path) + "." + "[0-9a-f]" * 8 + ".part"))  # of builds that were killed
                draft = f"{path}.{os.urandom(4).hex()}.part"
                try:
                    made = make(draft)
                    final = path + "." + made.rpartition("/")[2].rpartition(".")[2]
                    size = image_notes.size_of(made)
                    _set_aside([path + kind for kind in _SUFFIXES[runtime]] if is_anew else [], draft)
                    _place(made, final)
                    image_notes.write(
                        image_notes.of_file(final), image=image, runtime=runtime, size=size, source=source
                    )
                finally:
                    remove(draft)
    except OSError as error:
        raise RuntimeRefused(f"The image {image} cannot be stored in {folder}: {error.strerror or error}.") from None
    return find_image(runtime, image, described), is_ours


def _set_aside(paths: list[str], draft: str) -> None:
    """Move the replaced image into the draft, which is removed later: folders cannot be renamed over each other."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.rename(path, os.path.join(draft, "before" + os.path.splitext(path)[1]))
        with contextlib.suppress(OSError):
            os.unlink(image_notes.of_file(path))


def _apptainer(program: str, image: str, draft: str, report: Callable[[str], None]) -> str:
    os.mkdir(draft, 0o700)
    made, tree = os.path.join(draft, "image.sif"), os.path.join(draft, "image.sandbox")
    _fetch(program, image, [program, "pull", "--disable-cache", made, f"docker://{image}"], report)
    return runnable(program, image, made, tree, report)


def runnable(program: str, image: str, made: str, tree: str, report: Callable[[str], None]) -> str:
    """Return the form of a SIF file that this node can run: the file, or a folder with its unpacked content."""
    code, _, said = run_query(program, "exec", made, "/bin/sh", "-c", ":")
    if "temporary sandbox" not in said and (code == 0 or "mount" not in said):
        return made
    report("unpacking, because this node cannot mount SIF files")
    _fetch(program, image, [program, "build", "--sandbox", tree, made], report)
    return tree


def _charliecloud(_: str, image: str, draft: str, report: Callable[[str], None]) -> str:
    os.mkdir(draft, 0o700)
    made = os.path.join(draft, "image.charliecloud")
    if charliecloud.is_old():
        fetch = functools.partial(_fetch, "charliecloud", image, report=report)
        return str(charliecloud.pull(fetch, image, draft, made))
    env = {**os.environ, "CH_IMAGE_STORAGE": os.path.join(draft, "store")}
    _fetch("charliecloud", image, ["ch-image", "--no-cache", "pull", image], report, env)
    report("unpacking")
    _fetch("charliecloud", image, ["ch-convert", "-i", "ch-image", "-o", "dir", image, made], report, env)
    return made


def _place(made: str, final: str) -> None:
    try:
        os.rename(made, final)
    except OSError:
        if not os.path.exists(final):  # another process assumed that this one had ended, and was faster
            raise


def remove(*paths: str) -> None:
    """Remove trees, including folders without write permission."""
    for path in paths:
        with contextlib.suppress(OSError):
            if not os.path.isdir(path) or os.path.islink(path):
                os.unlink(path)
                continue
            for top, names, _ in os.walk(path):  # an image may contain folders without write permission
                for one in [top, *(os.path.join(top, name) for name in names)]:
                    with contextlib.suppress(OSError):
                        if not os.path.islink(one):  # a link in it may point anywhere
                            os.chmod(one, 0o700)
        shutil.rmtree(path, ignore_errors=True)


# -- running fetch commands


@contextlib.contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """Raise SystemExit on SIGTERM, so that held locks are released."""

    def end(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _fetch(
    runtime: str, image: str, argv: list[str], report: Callable[[str], None], env: dict[str, str] | None = None
) -> None:
    """Run a command that fetches an image.

    Raises
    ------
    RuntimeRefused
        The command failed.
    """
    code, lines = run(argv, runtimes.Progress().read, report, env)
    if code:
        raise RuntimeRefused(runtimes.why_not(runtime, image, lines, is_root=sudo.is_used(runtime)))


def run(
    argv: list[str],
    read: Callable[[str], str],
    report: Callable[[str], None],
    env: dict[str, str] | None = None,
    cwd: str | None = None,
) -> tuple[int, list[str]]:
    """Run a program that ends with this process, and report its progress; return its exit code and its last lines.

    ``read`` returns the progress in a line of output.
    """
    said = ""
    lines: list[str] = []
    process = subprocess.Popen(
        sudo.called(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=env,
        cwd=cwd,
        preexec_fn=proc.dying_with_us(signal.SIGKILL),
    )
    output: Any = process.stdout
    try:
        for raw in iter(lambda: output.readline(_MAX_LINE_BYTES), b""):
            line = raw.decode("utf-8", "replace").strip()
            lines = [*lines, line][-_MAX_LAST_LINES:] if line else lines
            told = read(line)
            if told and told != said:
                said = told
                report(told)
        return process.wait(), lines
    finally:
        with contextlib.suppress(PermissionError):  # of sudo, whose program ends with this pipe
            proc.end_process(process)  # with its descendants, which would write into a folder that is being removed
