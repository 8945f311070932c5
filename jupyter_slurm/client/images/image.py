"""Container images as objects of the user: the list, and jobs that pull or build an image."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from jupyter_slurm.client.clusters.cluster import Cluster, current
from jupyter_slurm.client.clusters.option_tables import option_table
from jupyter_slurm.client.images.python_packages import installed_packages
from jupyter_slurm.client.jobs.array import handle
from jupyter_slurm.client.jobs.job import Job
from jupyter_slurm.client.jobs.upload import submit_job
from jupyter_slurm.client.render.present_size import format_size
from jupyter_slurm.client.render.table import Table
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.client.sessions.launch import cluster_before
from jupyter_slurm.client.submission.submit import Preview, Submission
from jupyter_slurm.domain.containers.build_files import MAX_BUILD_FILE_BYTES, context_sources, detect_kind
from jupyter_slurm.domain.containers.image_reference import RUNTIMES
from jupyter_slurm.domain.magic_line.expand import Lookup
from jupyter_slurm.domain.magic_line.parser import MagicLine, parse_cell_line
from jupyter_slurm.domain.magic_line.tokenizer import tokenize
from jupyter_slurm.errors import OptionError, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["KEYWORDS", "USAGE", "ImageRequest", "addressed", "images", "parse_image_line", "remove", "submit_image"]

ACTIONS = ("build", "pull", "list", "remove")

USAGE = "image build NAME FILE|environment …, image pull NAME …, image list, image remove NAME"
"""Usage text for ``%slurm`` and ``jupyter slurm``."""

KEYWORDS: dict[str, bool | None] = {
    "as": True,
    "base": True,
    "context": True,
    "from": True,
    "replace": False,
    "runtime": True,
    "show": False,
    "wait": False,
}
"""The keywords of ``image build`` and ``image pull``, and whether each takes a value."""

ENVIRONMENT = "environment"
_REQUEST_KEYS = ("key", "options", "origin", "context")
_UNSUPPORTED_OPTIONS = ("array", "test-only", "wrap", "help", "usage", "version")
_VARIABLES: Mapping[str, str] = {}


class ImageRequest(NamedTuple):
    """The parsed request of an image line.

    Attributes
    ----------
    act : str
        ``pull`` or ``build``.
    image : str
        Name of the image.
    file : str or None
        Of a build: the file on this machine; None: the packages of this Python.
    parsed : MagicLine
        Options of sbatch and keywords.
    start : int
        Start of the parsed part in the line.
    """

    act: str
    image: str
    file: str | None
    parsed: MagicLine
    start: int


def addressed(line: str) -> tuple[Cluster, str]:
    """Return the cluster and the rest of a line. The first word names the cluster unless it is an action."""
    return cluster_before(ACTIONS, line)


def parse_image_line(
    cluster: Cluster, line: str, lookup: Lookup | None = None, variables: Mapping[str, str] = _VARIABLES
) -> ImageRequest:
    """Return the parsed request of a line, ``build NAME FILE …`` or ``pull NAME …``.

    Raises
    ------
    UsageError
        The line has another form.
    """
    tokens = tokenize(line, lookup, variables)
    act, operands = tokens[0].text, []
    for token in tokens[1 : 3 if act == "build" else 2]:
        if token.text.startswith("-") or _is_keyword(token.text):
            break
        operands.append(token)
    if not operands or (act == "build" and len(operands) < 2):
        missing = "a name" if not operands else "a file or `environment`"
        raise UsageError(
            f"`image {act}` needs {missing}.",
            hint="Use `image build NAME Dockerfile`, `image build NAME environment` (the packages of this notebook's "
            "Python) or `image pull NAME:TAG`, followed by options of sbatch.",
        )
    start = operands[-1].end
    parsed = parse_cell_line(line[start:], option_table(cluster, "sbatch"), KEYWORDS, lookup, variables)
    file = operands[1].text if act == "build" and operands[1].text != ENVIRONMENT else None
    return ImageRequest(act, operands[0].text, file, parsed, start)


def _is_keyword(text: str) -> bool:
    """Return whether a word is a keyword, with a value if it needs one."""
    name, equals, _ = text.partition("=")
    return KEYWORDS.get(name) is bool(equals)


def submit_image(cluster: Cluster, request: ImageRequest) -> Job | Preview:
    """Submit a job that pulls or builds an image; with ``show``, return a preview.

    Raises
    ------
    UsageError, SubmitRefused
        Nothing was submitted.
    """
    words = request.parsed.keywords
    _check(request)
    wish: dict[str, object] = {"act": request.act, "image": request.image, "replace": "replace" in words}
    wish |= {word: words.get(word) for word in ("runtime", "base")}
    wish["from"] = _origin(cluster, words.get("from"))
    if request.act == "build" and request.file is not None:
        wish["file"] = _read(cluster, request.file, words.get("context"))
    elif request.act == "build":
        wish["environment"], said = installed_packages()
        for line in said:
            sys.stderr.write(printable(line) + "\n")
    submission = Submission("script", "", request.parsed.options)
    with submission.body(cluster) as body:
        wish |= {name: value for name, value in body.items() if name in _REQUEST_KEYS}
        if "show" in words:
            return Preview(cluster.client.post(cluster.path("images"), json={**wish, "dry_run": True}))
        data = submit_job(cluster, cluster.path("images"), wish)
    return handle(cluster, data, from_start=True)


def _check(request: ImageRequest) -> None:
    """Refuse contradictory keywords."""
    words = request.parsed.keywords
    for option in request.parsed.parsed.options:
        if option.name in _UNSUPPORTED_OPTIONS:
            message = f"--{option.name} is not supported: one job makes an image."
            raise OptionError(message, hint="Omit it. The keyword `show` prints the submission.", option=option.name)
    if request.parsed.args:
        raise UsageError("`image` takes no arguments after --.", hint="Remove -- and the words after it.")
    meant = {"from": request.act == "pull", "context": request.file is not None}
    meant["base"] = request.act == "build" and request.file is None
    for word, is_meant in meant.items():
        if word in words and not is_meant:
            hint = {"from": "image pull", "context": "image build NAME FILE", "base": "image build NAME environment"}
            raise UsageError(f"{word}= has no effect for this command.", hint=f"Use it with `{hint[word]}`.")
    if (runtime := words.get("runtime")) and runtime not in RUNTIMES:
        raise UsageError(f"runtime={runtime} is not supported.", hint=f"Use one of {', '.join(RUNTIMES)}.")


def _origin(cluster: Cluster, text: str | None) -> str | None:
    """Return the source of a pull: a daemon of the node, or a file that the nodes see."""
    if text is None or text in ("docker", "podman"):
        return text
    path = text if cluster.is_remote else os.path.abspath(os.path.expanduser(text))
    if not path.startswith(("/", "~/")) or "/" not in text:
        raise UsageError(
            f"from={text} is not a supported source.",
            hint="Use from=docker or from=podman for the store of a node, or from=/…/image.tar for a file on nodes.",
        )
    return path


def _read(cluster: Cluster, name: str, context: str | None) -> api.ImageWantedFile:
    """Return a build file of this machine, and the folder of the files that it copies.

    The folder is one of this machine (``context``) if the nodes do not see it, else its path on the nodes (``folder``).
    """
    path = os.path.expanduser(name)
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BUILD_FILE_BYTES + 1)
    except OSError as error:
        hint = "Give a file on this computer, or `environment` for the packages of this Python."
        raise UsageError(printable(f"{path} cannot be read: {error.strerror}."), hint=hint) from None
    if len(raw) > MAX_BUILD_FILE_BYTES:
        raise UsageError(
            printable(f"{path} is larger than {MAX_BUILD_FILE_BYTES // 1024} KB."),
            hint="Check the path: it must be a Dockerfile or a definition file.",
        )
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(
            printable(f"{path} is not text in UTF-8."),
            hint="Check the path: it must be a Dockerfile or a definition file.",
        ) from None
    told: api.ImageWantedFile = {"name": os.path.basename(path), "text": text}
    takes = bool(context_sources(detect_kind(path, text), text))
    if cluster.is_remote and context is not None and context.startswith(("/", "~/")):
        return {**told, "folder": context}
    if context is None and not takes:
        return told
    here = os.path.abspath(os.path.expanduser(context) if context else os.path.dirname(os.path.abspath(path)))
    return {**told, "context": here} if cluster.is_remote else {**told, "folder": here}


def images(cluster: Cluster | None = None) -> Table:
    """Return the images stored for jobs of a cluster, the latest first."""
    meant = cluster or current()
    told = meant.client.get(meant.path("images"))
    return Table(["IMAGE", "SIZE", "MADE", "WHERE", "FROM", "ENV"], [_row(one) for one in told["images"]])


def _row(one: api.Image) -> list[str]:
    where = f"{one['runtime'] or 'store'} on {one['node']}" if one["node"] else one["path"]
    made = time.strftime("%Y-%m-%d %H:%M", time.localtime(one["made"])) if one["made"] else ""
    size = "" if one["size"] is None else format_size(int(one["size"]))
    source = "the site" if one["shared"] else one["source"]
    cells = (one["image"], size, made, where, source, ", ".join(one["environments"]))
    return [printable(str(cell or "")) for cell in cells]


def remove(image: str, cluster: Cluster | None = None) -> str:
    """Remove an image from the folder of images; return a sentence about the result."""
    meant = cluster or current()
    told = meant.client.post(meant.path("images", "remove"), json={"image": image})
    lines = [f"Removed: {path}" for path in told["removed"]]
    if told["nodes"]:
        nodes = ", ".join(told["nodes"])
        lines.append(
            f"Docker's own store on {nodes} has it, too. Remove it with `srun -w NODE docker image rm {image}`."
        )
    return printable("\n".join(lines))
