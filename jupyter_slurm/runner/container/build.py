"""Job that fetches or builds the image of a container: ``python -u build.py JOBDIR``.

``image`` of job.json is the request. The source is a registry, Docker on this node, a Dockerfile, a definition file of
Apptainer, or a list of Python packages. The image is stored in Docker's store of this node, or in the shared folder of
images, under its name, where ``env=docker://NAME`` finds it. The image appears only when complete, and one job at a
time makes it (``image_fetch.py``).

Sources: docker-build(1), apptainer-build(1), ch-image(1), ch-convert(1). Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import runpy
import shutil
import sys
import tarfile
import time
from typing import TYPE_CHECKING, Iterator

load = runpy.run_path(__file__[: -len("container/build.py")] + "loader.py")["load"]
if TYPE_CHECKING:
    from jupyter_slurm.runner.container import charliecloud, job_memory, lock, run, sudo
    from jupyter_slurm.runner.container import image_fetch as images
    from jupyter_slurm.runner.container import runtime_commands as runtimes
    from jupyter_slurm.runner.container.runtime_commands import RuntimeRefused
    from jupyter_slurm.runner.job_document import ImagePackages, ImagePart
else:
    run = load("container.run")
    images, job_memory, lock, runtimes, sudo = run.images, run.job_memory, run.lock, run.runtimes, run.sudo
    charliecloud = run.charliecloud
    RuntimeRefused = runtimes.RuntimeRefused

_FAILED = 1
_STORES = ("docker", "podman")
_OF_DEFINITIONS = ("apptainer", "singularity")
_OF_DOCKERFILES = (*_STORES, "charliecloud")
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy")
_DOCKERFILE = "Dockerfile"
_DEFINITION = "image.def"
_PACKAGES = "requirements.txt"
_CONDA = "environment.yml"
_INSTALL = f"python3 -m pip install --no-cache-dir --disable-pip-version-check -r /{_PACKAGES}"
_PREFIX = "/opt/env"
# A separate environment: the base environment runs conda, and its packages would constrain the requested ones.
_INSTALL_CONDA = (
    'PATH="$PATH:/opt/conda/bin"; if command -v conda; '
    f"then conda env create --prefix {_PREFIX} --file /{_CONDA} && conda clean --all --yes; "
    f"else micromamba create --yes --prefix {_PREFIX} --file /{_CONDA} && micromamba clean --all --yes; fi"
)
_BASE_CONDA = "docker.io/continuumio/miniconda3"


class Build:
    """Requested image.

    Attributes
    ----------
    name : str
        Name of the image, without ``docker://``.
    runtime : str
        Runtime for the image. The same software also makes the image.
    """

    def __init__(self, wish: ImagePart, folder: str) -> None:
        self._wish, self._folder = wish, folder
        self.name: str = wish["name"]
        sudo.use_for(wish)
        self.runtime = _runtime(wish)
        self._is_anew = bool(wish.get("replace"))
        self._from = str(wish.get("from") or "")  # a daemon or a file; empty for a registry

    def have(self) -> str:
        """Fetch or build the image if necessary; return its place.

        Raises
        ------
        RuntimeRefused
            The image cannot be made; the message says why.
        """
        with images.ending_on_sigterm():
            if self.runtime not in _STORES:
                return self._in_folder()
            if self._wish["act"] == "pull" and not self._is_anew and not self._from:
                return str(images.provide(self.runtime, self.name, self._wish, report))
            return self._in_store()

    # -- Docker's store

    def _in_store(self) -> str:
        """Make the image in the store of this node, one job at a time."""
        program = self.runtime
        if said := images.unwell(program):
            raise RuntimeRefused(said)

        def is_present() -> bool:
            return not self._is_anew and images.run_query(program, "image", "inspect", self.name)[0] == 0

        path = images.store_lock(program, self.name, self._wish)
        with lock.held(path, is_present, images.waiting(report)) as is_ours:
            if not is_ours:
                raise RuntimeRefused(self._refusal_to_replace("this node"))
            if self._from:
                self._load(self._archive())
            elif self._wish["act"] == "pull":
                self._run([program, "pull", self.name])
            else:
                with self._room("") as room, self._files(_DOCKERFILE, room) as (file, context):
                    self._run([program, "build", *self._limits(), f"--tag={self.name}", f"--file={file}", context])
            images.note_store(program, self.name, self._wish, self._source())
        return self.name

    def _load(self, path: str) -> None:
        """Load an image from a file, and give it the requested name. The file may contain another name, or none."""
        lines = self._run([self.runtime, "load", f"--input={path}"])
        found = [match[1] for line in lines if (match := re.fullmatch(r"Loaded image(?: ID)?\S*:\s+(\S+)", line))]
        if not found:
            raise RuntimeRefused(f"{self.runtime} found no image in {path}.")
        self._run([self.runtime, "tag", found[-1], self.name])

    def _limits(self) -> list[str]:
        """Return options that limit a build to the resources of the job: Docker's daemon runs it outside the job."""
        words = ["--network=host", "--force-rm"]
        # Without a value, the option takes it from the environment: a proxy variable may contain a password.
        words += [f"--build-arg={name}" for name in sorted(os.environ) if name.lower() in _PROXIES]
        if self.runtime == "docker":
            words.append(f"--cpuset-cpus={runtimes.ranges(sorted(os.sched_getaffinity(0)))}")
            if memory := job_memory.memory_of(dict(os.environ)):
                words.append(f"--memory={memory}")
        return words

    # -- the folder of images

    def _in_folder(self) -> str:
        """Make the image in the folder, one job at a time."""
        make = self._charliecloud if self.runtime == "charliecloud" else self._apptainer

        def make_it(draft: str) -> str:
            os.mkdir(draft, 0o700)
            with self._room(draft) as room:
                return make(draft, room)

        path, is_ours = images.keep(
            self.runtime, self.name, self._wish, make_it, report, is_anew=self._is_anew, source=self._source()
        )
        if not is_ours and self._wish["act"] == "build":
            raise RuntimeRefused(self._refusal_to_replace(path))
        return str(path)

    @contextlib.contextmanager
    def _room(self, draft: str) -> Iterator[str]:
        """Provide a temporary folder, in the site's ``build_dir`` if set, and remove the folder at the end."""
        if not (told := self._wish.get("build_dir")):
            yield draft
            return
        top = os.path.expanduser(os.path.expandvars(told))
        stem = os.path.join(top, images.file_name(self.name))
        room = f"{stem}.{os.urandom(4).hex()}.part"
        try:
            os.makedirs(top, mode=0o700, exist_ok=True)
            images.check_whose(top)
            # of a build that was killed on this node
            images.remove(*glob.glob(f"{glob.escape(stem)}.{'[0-9a-f]' * 8}.part"))
            os.mkdir(room, 0o700)
        except OSError as error:
            more = "Set build_dir in [container] of the cluster's profile."
            raise RuntimeRefused(f"{room} cannot be created: {error.strerror}. {more}") from None
        for name in ("TMPDIR", "APPTAINER_TMPDIR", "SINGULARITY_TMPDIR"):
            os.environ[name] = room
        try:
            yield room
        finally:
            images.remove(room)

    def _refusal_to_replace(self, place: str) -> str:
        return f"The image {self.name} already exists: {place}. Add `replace` to replace it."

    def _source(self) -> str:
        """Return a short name of the image's source."""
        if self._wish["act"] == "pull":
            return f"{self._from} of a node" if self._from in _STORES else os.path.basename(self._from) or "docker://"
        return str(self._wish["file"]["name"]) if self._wish.get("file") else "environment"

    def _apptainer(self, draft: str, room: str) -> str:
        made, tree = os.path.join(draft, "image.sif"), os.path.join(draft, "image.sandbox")
        build = [self.runtime, "build", "--disable-cache"]
        if self._wish["act"] == "pull":
            self._run([*build, *self._daemon(), made, self._origin()])
        else:
            with self._files(_DEFINITION, room) as (file, context):
                self._run([*build, "--fakeroot", made, file], cwd=context)
        return str(images.runnable(self.runtime, self.name, made, tree, report))

    def _origin(self) -> str:
        """Return the URI from which Apptainer gets an image."""
        if self._from in _STORES:
            return f"docker-daemon:{self.name}"
        return f"docker-archive:{self._archive()}" if self._from else f"docker://{self.name}"

    def _archive(self) -> str:
        """Return the path of the file that contains the image."""
        path = os.path.expanduser(self._from)
        if not os.path.isfile(path):
            raise RuntimeRefused(f"This node has no file {path}.")
        return path

    def _daemon(self) -> list[str]:
        """Return options for a daemon other than the default one."""
        host = os.environ.get("DOCKER_HOST") if self._from in _STORES else None
        return [f"--docker-host={host}"] if host else []

    def _charliecloud(self, draft: str, room: str) -> str:
        made = os.path.join(draft, "image.charliecloud")
        if self._from:
            kind, origin = (self._from, self.name) if self._from in _STORES else ("tar", self._archive())
            if said := charliecloud.refusal(kind, origin):
                raise RuntimeRefused(said)
            self._run(["ch-convert", "-i", kind, "-o", "dir", origin, made])
            return made
        if charliecloud.is_old():
            if self._wish["act"] == "pull":
                return str(charliecloud.pull(self._run, self.name, room, made))
            with self._files(_DOCKERFILE, room) as paths:
                return str(charliecloud.make(self._run, self.name, *paths, room, made))
        env = {**os.environ, "CH_IMAGE_STORAGE": os.path.join(room, "store")}
        if self._wish["act"] == "pull":
            self._run(["ch-image", "--no-cache", "pull", self.name], env=env)
        else:
            with self._files(_DOCKERFILE, room) as (file, context):
                words = ["build", "--force", f"--tag={self.name}", f"--file={file}", context]
                self._run(["ch-image", "--no-cache", *words], env=env)
        report("unpacking")
        self._run(["ch-convert", "-i", "ch-image", "-o", "dir", self.name, made], env=env)
        return made

    # -- build files

    @contextlib.contextmanager
    def _files(self, kind: str, room: str = "") -> Iterator[tuple[str, str]]:
        """Provide the build file and its context folder.

        Files sent with the job are unpacked in the site's ``build_dir`` if set; else in the job directory. With sudo,
        all files are in ``build_dir``: root may have no access to the job directory.
        """
        place = os.path.join(room if room and sudo.is_used(self.runtime) else self._folder, "build")
        shutil.rmtree(place, ignore_errors=True)  # of a run before a requeue
        os.mkdir(place, 0o700)
        try:
            for name, text in self._texts(kind).items():
                with open(os.path.join(place, name), "w", encoding="utf-8") as file:
                    file.write(text)
            context = place
            if archive := (self._wish.get("file") or {}).get("archive"):
                context = os.path.join(room or place, "context")
                unpack(os.path.join(self._folder, archive), context)
            elif told := (self._wish.get("file") or {}).get("folder"):
                context = os.path.expanduser(told)
                if not os.path.isdir(context):
                    raise RuntimeRefused(f"This node has no folder {context}, the build context.")
            yield os.path.join(place, kind), context
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _texts(self, kind: str) -> dict[str, str]:
        """Return the build files: those that were sent, or generated files for Python packages."""
        if file := self._wish.get("file"):
            return {kind: file["text"]}
        told = self._wish.get("environment")
        return of_packages(told, kind, self._wish.get("base")) if told else {}

    # -- running builders

    def _run(self, argv: list[str], *, env: dict[str, str] | None = None, cwd: str | None = None) -> list[str]:
        """Run a program, with its output in that of the job; return its last lines.

        Raises
        ------
        RuntimeRefused
            The program failed.
        """
        code, lines = images.run(argv, self._shown, report, env, cwd)
        if code == 0:
            return list(lines)
        if self._wish["act"] == "pull" and not self._from:
            is_root = sudo.is_used(self.runtime)
            raise RuntimeRefused(runtimes.why_not(self.runtime, self.name, lines, is_root=is_root))
        last = (lines or ["no message"])[-1]
        raise RuntimeRefused(
            f"{argv[0]} could not build {self.name}: {last[:300]}. The lines above show the failed step."
        )

    @staticmethod
    def _shown(line: str) -> str:
        """Return a line of build output without colours, and of a progress bar its last state."""
        return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line).rpartition("\r")[2]


def _runtime(wish: ImagePart) -> str:
    """Return the runtime for an image: the requested one, else the first suitable one on this node.

    Raises
    ------
    RuntimeRefused
        No runtime of this node can do it, or none can with such a file.
    """
    kind, said = (wish.get("file") or {}).get("kind"), wish.get("runtime")
    fit = _OF_DEFINITIONS if kind == "definition" else _OF_DOCKERFILES if kind else (*_OF_DOCKERFILES, *_OF_DEFINITIONS)
    if wish.get("from") in _STORES:
        fit = ("charliecloud", *_OF_DEFINITIONS)  # an image in Docker's store needs no copy for Docker
    if said and said not in fit:
        raise RuntimeRefused(f"{said} cannot build from this file. Use {' or '.join(fit)}.")
    if not said and not kind:
        return str(run.choose(wish["name"], None))
    needed, tried = {"charliecloud": ["ch-run", *charliecloud.programs()]}, [said] if said else list(fit)
    here = [one for one in tried if all(map(shutil.which, needed.get(one, [one])))]
    if not here:
        raise RuntimeRefused(f"This node has no {' nor '.join(tried)}. Choose another node with -w or -C of sbatch.")
    return str(run.choose(wish["name"], here[0]))


def unpack(path: str, folder: str) -> None:
    """Unpack the archive sent with the job. It comes from the user's own agent, which has checked every path."""
    os.mkdir(folder, 0o700)
    try:
        with tarfile.open(path) as archive:
            archive.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)  # links may point anywhere
            archive.extractall(folder)  # noqa: S202 - made by jupyter_slurm, see above
    except (OSError, tarfile.TarError, EOFError) as error:
        raise RuntimeRefused(f"The build context could not be unpacked in {folder}: {error}.") from None


def of_packages(told: ImagePackages, kind: str, base: str | None) -> dict[str, str]:
    """Return the build files of an image with Python packages.

    Parameters
    ----------
    told : dict
        ``python``: version; ``pip``: lines of requirements; with ``conda``: ``channels`` and ``packages``.
    kind : str
        Which of the two files to return.
    base : str or None
        Base image.
    """
    if conda := told.get("conda"):
        base = base or _BASE_CONDA
        packages = [*conda["packages"], *([{"pip": told["pip"]}] if told["pip"] else [])]
        name, install, path = _CONDA, _INSTALL_CONDA, f"{_PREFIX}/bin:$PATH"
        text = json.dumps({"channels": conda["channels"], "dependencies": packages}, indent=1) + "\n"
    else:
        base = base or f"python:{told['python']}-slim"
        name, install, path, text = _PACKAGES, _INSTALL, "", "".join(f"{line}\n" for line in told["pip"])
    if kind == _DEFINITION:
        made = f"Bootstrap: docker\nFrom: {base}\n\n%files\n    {name} /{name}\n\n%post\n    {install}\n"
        made += f"\n%environment\n    export PATH={path}\n" if path else ""
    else:
        made = f"FROM {base}\nCOPY {name} /{name}\nRUN {install}\n"
        made += f"ENV PATH={path}\n" if path else ""
    return {kind: made, name: text}


def report(text: str) -> None:
    """Report the progress."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    """Make the image that the job directory requests; record the end."""
    folder, begun = sys.argv[1], time.monotonic()
    place = load("cell.run").JobDirectory(folder)
    if not place.is_ours("makes this image"):
        return 0
    load("container.host_folders").drop_missing(os.environ)
    code, wish = _FAILED, place.job["image"]
    place.publish_event("started")
    try:
        build = Build(wish, folder)
        where = build.have()
        node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
        there = f"in {build.runtime}'s store of {node}" if build.runtime in _STORES else where
        took = time.monotonic() - begun
        report(f"{build.name} is {there}, after {took:.0f} s. env=docker://{build.name} runs in it.")
        code = 0
    except RuntimeRefused as error:
        sys.stderr.write(f"image: {error} (node {os.environ.get('SLURMD_NODENAME') or os.uname().nodename})\n")
    except SystemExit as stop:  # ended by a signal: incomplete files are removed
        sys.stderr.write(f"image: The job ended before {wish['name']} was complete.\n")
        return stop.code if isinstance(stop.code, int) else _FAILED  # Slurm reports the reason
    place.end(code)
    if archive := (wish.get("file") or {}).get("archive"):  # not earlier: a requeued job needs it again
        images.remove(os.path.join(folder, archive))
    return code


if __name__ == "__main__":
    sys.exit(main())
