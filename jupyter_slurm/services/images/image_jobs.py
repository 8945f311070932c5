"""Container images: the existing ones, and jobs that fetch or build one on a node (``runner/container/build.py``)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypedDict, cast

from jupyter_slurm.domain.containers.build_context import has_add
from jupyter_slurm.domain.containers.build_files import detect_kind
from jupyter_slurm.domain.containers.image_reference import is_path, reference
from jupyter_slurm.domain.scripts.script import job_script
from jupyter_slurm.domain.staging_rules import names
from jupyter_slurm.errors import CommandError, UsageError
from jupyter_slurm.services.images.build_context import ARCHIVE, packed
from jupyter_slurm.services.jobdir.job_directory import is_key
from jupyter_slurm.services.jobdir.job_written_files import parse_untrusted
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.large_answers import call_off_loop
from jupyter_slurm.services.slurm.client import SlurmClient, decode_output, printable
from jupyter_slurm.services.slurm.location import ClusterLocation

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.services.submission.request import SubmissionRequest

__all__ = ["ImageCluster", "ImageNote", "ImageNotes", "Images", "RunnerFiles", "TransferredFiles"]

_PYTHON = "python3"  # of the login node, and of any node: it only starts the runner
_LIST_TIMEOUT_S = 60.0  # seconds
_REQUEST_KEYS = ("act", "from", "replace", "base", "environment")
_SITE_KEYS = ("image_dir", "build_dir", "sudo")
_RUNTIMES_OF_FILES = {
    "dockerfile": ("docker", "podman", "charliecloud"),
    "definition": ("apptainer", "singularity"),
}
_ALTERNATIVES = {
    "dockerfile": "Use a definition file (Bootstrap: docker, From: …) for Apptainer and Singularity.",
    "definition": "Use a Dockerfile for Docker, Podman and Charliecloud.",
}


_NUMBERS: Final = {"size": 1 << 62, "made": 1e11}  # most bytes, and seconds since the epoch, that are shown
_LISTS: Final = ("removed", "nodes", "used")


class ImageNote(TypedDict, total=False):
    """Image as ``runner/container/image_notes.py`` lists it."""

    image: str
    path: str | None
    node: str | None
    runtime: str | None
    size: float | None
    made: float | None
    source: str | None
    user: str | None
    job: str | None
    shared: bool


class ImageNotes(TypedDict, total=False):
    """Answer of ``runner/container/image_notes.py``: to ``list`` the first two fields, to ``used`` the last one."""

    folder: str
    images: Sequence[ImageNote]
    removed: Sequence[str]
    nodes: Sequence[str]
    error: str | None
    used: Sequence[str]


class TransferredFiles(TypedDict, total=False):
    """Fields of a submission: the files that travel with it, and what is to be said of them."""

    files: Mapping[str, bytes]
    warnings: Sequence[str]


class RunnerFiles(Protocol):
    """Installed runner files; :class:`jupyter_slurm.services.submission.submitter.Submitter` installs them."""

    async def prepare(self) -> None:
        """Install the runner files, once."""

    def runner_path(self, name: str) -> str:
        """Return the path of a runner file."""


class ImageCluster(Protocol):
    """Cluster of images: :class:`jupyter_slurm.services.clusters.cluster.Cluster`."""

    @property
    def location(self) -> ClusterLocation: ...  # noqa: D102
    @property
    def client(self) -> SlurmClient: ...  # noqa: D102
    @property
    def tracker(self) -> Tracker: ...  # noqa: D102
    @property
    def submitter(self) -> RunnerFiles: ...  # noqa: D102
    async def submit(self, asked: SubmissionRequest) -> api.Job | api.Preview: ...  # noqa: D102


class Images:
    """Images of all clusters.

    Parameters
    ----------
    cluster : callable
        Returns a cluster by its name.
    """

    def __init__(self, cluster: Callable[[str], ImageCluster]) -> None:
        self._cluster = cluster

    async def submit_image(self, name: str, requested: api.ImageWanted) -> api.Job | api.Preview:
        """Submit the job that fetches or builds an image, once for each key; ``dry_run``: only show the submission.

        Raises
        ------
        UsageError, SubmitRefused
            Nothing was submitted.
        """
        cluster = self._cluster(name)
        if not is_key(requested["key"]):
            raise UsageError(
                f"{requested['key']!r} is not a valid submission key.", hint="Run the command again to get a new key."
            )
        site, storage = cluster.location.container, cluster.location.storage
        if local := storage.get("local"):  # a local disk of each node
            site = {"build_dir": local, **site}
        wish = _validated_request(requested, site)
        is_kept = wish.get("runtime") not in ("docker", "podman")
        if is_kept and storage.get("home_on_nodes") is False and "image_dir" not in site:
            raise UsageError(
                f"The nodes of {name} do not see your home directory, which would hold the images.",
                hint="Set image_dir under [container] in the profile of the cluster to a directory that the nodes see.",
            )
        if is_kept and wish.get("replace"):
            await self._check_unused(cluster, wish["name"])
        begun = [
            _PYTHON,
            "-u",
            cluster.submitter.runner_path("container/build.py"),
            cluster.tracker.folder.job(requested["key"]).path,
        ]
        beside = await _transferred_files(requested.get("file"))
        kept = ("key", "context", "origin", "dry_run")
        passed: dict[str, object] = {field: value for field, value in requested.items() if field in kept}
        options = [*site.get("build_options", ()), *(requested.get("options") or ())]
        script = {"kind": "script", "text": job_script(begun), "script_name": "image", "args": [], "image": wish}
        asked = {"python": None, "label": None, **passed, **script, **beside, "options": options}
        return await cluster.submit(cast("SubmissionRequest", asked))

    async def list_to_api(self, name: str) -> api.Images:
        """Return the existing images, latest first, and their folder."""
        cluster = self._cluster(name)
        answer = await self._query_remote(cluster, "list")
        named = cluster.location.environments
        told: list[api.Image] = [
            {
                "image": one["image"],
                "path": one.get("path"),
                "node": one.get("node"),
                "runtime": one.get("runtime"),
                "size": one.get("size"),
                "made": one.get("made"),
                "source": one.get("source"),
                "user": one.get("user"),
                "job": one.get("job"),
                "shared": bool(one.get("shared")),
                "environments": sorted(env for env, said in named.items() if _is_meant(said.get("image"), one)),
            }
            for one in answer["images"]
        ]
        return {"folder": answer["folder"], "images": sorted(told, key=lambda one: -(one["made"] or 0.0))}

    async def remove(self, name: str, image: str) -> api.RemoveImageResponse:
        """Remove an image that no active job uses from the folder of images; Docker's stores are out of reach.

        Raises
        ------
        UsageError
            There is no such image, or a job uses or makes it.
        """
        wanted, cluster = reference(image), self._cluster(name)
        await self._check_unused(cluster, wanted)
        answer = await self._query_remote(cluster, "remove", image=wanted)
        if said := answer.get("error"):
            raise UsageError(
                printable(f"The image {wanted} was not removed: {said}."), hint="Try again when that has ended."
            )
        if not answer["removed"] and not answer["nodes"]:
            raise UsageError(f"There is no image {wanted}.", hint="List your images with `%slurm image list`.")
        return {"removed": answer["removed"], "nodes": answer["nodes"]}

    async def _check_unused(self, cluster: ImageCluster, wanted: str) -> None:
        """Refuse an image that an active job uses, by its name or by its path."""
        active = [(entry, entry.record.environment) for entry in cluster.tracker.active() if entry.record]
        images = [(str(entry.id or entry.key), used.image) for entry, used in active if used and used.image]
        paths = sorted({image for _, image in images if is_path(image)})
        used = (await self._query_remote(cluster, "used", image=wanted, paths=paths))["used"] if paths else ()
        if jobs := [job for job, image in images if printable(image) in used or _named(image) == wanted]:
            raise UsageError(
                f"The image {wanted} is in use by {'jobs' if len(jobs) > 1 else 'job'} {names(jobs)}.",
                hint="Wait for the end of the jobs, cancel them, or give a new image another name.",
            )

    async def _query_remote(self, cluster: ImageCluster, subject: str, **more: object) -> ImageNotes:
        """Query on the login node: the nodes share the folder."""
        site = cluster.location.container
        asked = {"shared": list(site.get("shared", ())), **more}
        asked |= {"image_dir": site["image_dir"]} if "image_dir" in site else {}
        await cluster.submitter.prepare()
        argv = [_PYTHON, cluster.submitter.runner_path("container/image_notes.py"), subject]
        done = await cluster.client.transport.run(argv, stdin=json.dumps(asked).encode(), timeout=_LIST_TIMEOUT_S)
        try:
            answer = _checked(await call_off_loop(parse_untrusted, done.stdout))
        except ValueError:
            answer = None
        if done.exit_code or answer is None:
            said = printable(decode_output(done.stderr)).strip().rpartition("\n")[2] or f"exit code {done.exit_code}"
            raise CommandError(
                f"The images on {cluster.location.host} could not be listed: {said}.",
                hint=f"Check that python3 (3.8 or newer) is on the PATH of {cluster.location.host}.",
            )
        return answer


def _checked(answer: object) -> ImageNotes | None:
    """Return what of an answer of the cluster has the right type; None if it is not an answer."""
    if not isinstance(answer, dict):
        return None
    images = [
        cast("ImageNote", {field: _plain(field, value) for field, value in one.items()})
        for one in _list(answer, "images")
        if isinstance(one, dict) and isinstance(one.get("image"), str)
    ]
    texts = {field: [printable(one) for one in _list(answer, field) if isinstance(one, str)] for field in _LISTS}
    folder, error = (_plain(field, answer.get(field)) for field in ("folder", "error"))
    return {
        "folder": str(folder or ""),
        "images": images,
        "removed": texts["removed"],
        "nodes": texts["nodes"],
        "used": texts["used"],
        "error": str(error) if error else None,
    }


def _plain(field: str, value: object) -> object:
    """Return a text that only shows, or a number in a field of a number; else None."""
    if field in _NUMBERS:
        return value if isinstance(value, int | float) and 0 <= value < _NUMBERS[field] else None
    return printable(value) if isinstance(value, str) else bool(value) if field == "shared" else None


def _list(answer: Mapping[str, object], field: str) -> Sequence[object]:
    return found if isinstance(found := answer.get(field), list) else ()


async def _transferred_files(file: api.ImageWantedFile | None) -> TransferredFiles:
    """Return the build context for the job, if the definition needs files of a local folder."""
    if not file or not (folder := file.get("context")):
        return {}
    kind = detect_kind(file["name"], file["text"])
    made = await asyncio.to_thread(packed, folder, kind, file["name"], file["text"])
    told: TransferredFiles = {"files": {ARCHIVE: await asyncio.to_thread(lambda: made.data)}}
    if not made.skipped:
        return told
    left = printable(names(made.skipped))
    return {**told, "warnings": [f"Links that lead out of {printable(folder)} were not sent: {left}."]}


def _validated_request(requested: Mapping[str, Any], site: Mapping[str, Any]) -> dict[str, Any]:
    """Return the task of the job; refuse an impossible one before anything is queued."""
    file, runtime = requested.get("file"), requested.get("runtime") or site.get("runtime")
    if runtime == "pyxis":
        raise UsageError(
            "Pyxis keeps no images: it fetches the image of a job when the job starts.",
            hint="Use env=docker://NAME:TAG of a registry, or a file of `enroot import`: env=/…/image.sqsh.",
        )
    if requested["act"] == "build" and bool(file) == bool(requested.get("environment")):
        raise UsageError(
            "The request names neither a file nor the packages of a Python for the image.",
            hint="Name one of them, not both.",
        )
    if requested["act"] == "build" and requested.get("from"):
        raise UsageError("An existing image is pulled, not built.", hint="Use `%slurm image pull NAME from=docker`.")
    if file:
        file = {**file, "kind": detect_kind(file["name"], file["text"])}
        if file.pop("context", None):  # a folder of this machine, useless to the cluster
            file["archive"] = ARCHIVE
        fit = _RUNTIMES_OF_FILES[file["kind"]]
        if runtime and runtime not in fit:
            raise UsageError(
                printable(f"{runtime} cannot build an image from {file['name']}, which is a {_called(file['kind'])}."),
                hint=_ALTERNATIVES[file["kind"]],
            )
        if runtime == "charliecloud" and file["kind"] == "dockerfile" and has_add(file["text"]):
            raise UsageError(
                printable(f"Charliecloud ignores ADD, which {file['name']} uses."),
                hint="Use COPY for files and folders. RUN can download and unpack archives.",
            )
    if requested.get("from") in ("docker", "podman") and runtime in ("docker", "podman"):
        raise UsageError(
            f"An image cannot be pulled for {runtime}, which keeps images in its own store.",
            hint="Use runtime=apptainer or runtime=charliecloud.",
        )
    base = requested.get("base") or site.get("base")
    wish = {"name": reference(requested["image"]), "runtime": runtime, "file": file}
    wish |= {field: requested.get(field) for field in _REQUEST_KEYS} | {"base": reference(base) if base else None}
    wish |= {field: site[field] for field in _SITE_KEYS if field in site}
    return {field: value for field, value in wish.items() if value not in (None, False)}


def _called(kind: str) -> str:
    return "definition file" if kind == "definition" else "Dockerfile"


def _is_meant(named: str | None, image: ImageNote) -> bool:
    """Return whether an environment uses this image."""
    if not named:
        return False
    if is_path(named):
        return bool(image.get("path")) and named.rstrip("/") == image["path"]
    return not image.get("shared") and _named(named) == image["image"]


def _named(image: str) -> str | None:
    """Return the name of an image in a registry; None: it is a path, or no valid name."""
    try:
        return reference(image)
    except UsageError:
        return None
