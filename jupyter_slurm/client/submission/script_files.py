"""Batch scripts in files: of this computer, or of the cluster (``CLUSTER:PATH``)."""

from __future__ import annotations

import os
import posixpath
import shutil
import stat
from typing import TYPE_CHECKING, NamedTuple

from jupyter_slurm.agent.json_encoding import encode
from jupyter_slurm.client.clusters.cluster import Cluster, chosen
from jupyter_slurm.client.clusters.cluster_names import is_site_or_id, split_address
from jupyter_slurm.client.clusters.file_listing import path_on
from jupyter_slurm.domain.scripts.script import MAX_SCRIPT_BYTES, classify
from jupyter_slurm.errors import CellError, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["ScriptFile", "read_script"]

_USAGE = "Use `%sbatch [options] job.sh [arguments]`."


class ScriptFile(NamedTuple):
    """A batch script.

    Attributes
    ----------
    name : str
        Name of the file, without its directory.
    text : str
        Its content.
    folder : str or None
        Of a file of the cluster: its directory, from which sbatch would be called there.
    """

    name: str
    text: str
    folder: str | None = None


def read_script(cluster: Cluster, word: str, local_name: str | None = None) -> ScriptFile:
    """Read a script.

    Parameters
    ----------
    cluster : Cluster
        The cluster of the job.
    word : str
        Path of a file of this computer, found as sbatch finds it; or ``CLUSTER:PATH`` for a file of the cluster.
    local_name : str, optional
        The path of a file of this computer, if its variables differ from those of the cluster.

    Raises
    ------
    UsageError, CellError
        The file cannot be read, or is not a batch script.
    FileError
        The cluster has no such file.
    """
    name, path = split_address(word)
    local = local_name or word
    if name is None or os.path.exists(local) or not (name in (cluster.name, chosen()) or is_site_or_id(name)):
        path = _find(local)
        return ScriptFile(os.path.basename(path), _checked(path, _read(cluster, path, word)))
    if name not in (cluster.name, chosen()):
        raise UsageError(
            f"{word} is a file of {name}, and this notebook uses {cluster.name}.",
            hint=f"Choose the cluster first: `%slurm use {name}`.",
        )
    return _read_on_cluster(cluster, word, path_on(cluster, path))


def _read_on_cluster(cluster: Cluster, word: str, path: str) -> ScriptFile:
    """Read a file of the cluster."""
    if cluster.is_remote:
        cluster.log_in()
    entry: api.FileEntry = cluster.client.post(cluster.path("files", "entry"), json={"path": path})
    if entry["type"] != "file":
        raise UsageError(f"{word} is not a file.", hint=_USAGE)
    if entry["size"] > MAX_SCRIPT_BYTES:
        raise CellError(
            f"{word} is larger than a batch script may be ({MAX_SCRIPT_BYTES >> 20} MiB).", hint="Name another file."
        )
    folder = posixpath.dirname(path)
    if not path.startswith("/"):
        listed: api.FileList = cluster.client.post(cluster.path("files", "list"), json={"path": folder or "."})
        folder = listed["path"].rstrip("/") or "/"
    wanted = {"path": path, "limit": MAX_SCRIPT_BYTES + 1, "version": entry["version"]}
    raw, _ = cluster.client.get_bytes(cluster.path("files", "read"), content=encode(wanted))
    return ScriptFile(posixpath.basename(path), _checked(word, raw), folder)


def _find(name: str) -> str:
    """Find a script as sbatch does: in the working directory, then on the PATH."""
    if os.path.exists(name) or "/" in name:
        return name
    return shutil.which(name, mode=os.R_OK) or name


def _read(cluster: Cluster, path: str, word: str) -> bytes:
    """Read a file of this computer. ``word`` is its name with the variables of the cluster."""
    try:
        with open(path, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(f"{path} is not a file.", hint=_USAGE)
            return file.read(MAX_SCRIPT_BYTES + 1)
    except OSError as error:
        folder = os.path.dirname(path)
        why = error.strerror if os.path.isdir(folder or ".") else f"there is no folder {folder or os.curdir}"
        hint = "Check the path. It is relative to %pwd, and means a file of the computer of this notebook."
        if cluster.is_remote:
            hint += f" For a script on the cluster, use `%sbatch {cluster.name}:{word}`."
        raise UsageError(f"{path} cannot be read: {why}.", hint=hint) from None


def _checked(path: str, raw: bytes) -> str:
    """Return the text of a batch script."""
    text = raw.decode("utf-8", "surrogateescape")
    if text.startswith("\ufeff#!"):
        hint = "Save it as UTF-8 without a byte order mark (BOM) and with Unix line ends."
        raise CellError(f"{path} begins with a byte order mark before #!, so Slurm would refuse it.", hint=hint)
    if not text.startswith("#!"):
        raise CellError(
            f"{path} is not a batch script: its first line does not begin with #!.",
            hint="Add #!/bin/bash as its first line, or put Python into a %%sbatch cell.",
        )
    classify(text)
    return text
