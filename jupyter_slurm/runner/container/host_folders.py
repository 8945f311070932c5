"""Folders of the submitting machine in the variables of a job: container runtimes fail if the node has no such folder.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import os
from typing import Iterator, MutableMapping

_TEMPORARY = ("TMPDIR", "TMP", "TEMP")
_MADE_IF_MISSING = (
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
    *("APPTAINER_CACHEDIR", "APPTAINER_TMPDIR", "SINGULARITY_CACHEDIR", "SINGULARITY_TMPDIR", "CH_IMAGE_STORAGE"),
)
_EXISTING = (
    *("CONTAINERS_CONF", "CONTAINERS_REGISTRIES_CONF", "CONTAINERS_STORAGE_CONF", "REGISTRY_AUTH_FILE"),
    *("DOCKER_CERT_PATH", "DOCKER_CONFIG"),
)


def drop_missing(env: MutableMapping[str, str]) -> list[str]:
    """Remove variables that name folders which this node does not have; return them as ``NAME=value``."""
    dropped = [f"{name}={env[name]}" for name in _missing(env)]
    for word in dropped:
        del env[word.partition("=")[0]]
    return dropped


def _missing(env: MutableMapping[str, str]) -> Iterator[str]:
    if not _is_own(env.get("XDG_RUNTIME_DIR")):
        yield "XDG_RUNTIME_DIR"
    for name in _TEMPORARY:
        if env.get(name) and not (os.path.isdir(env[name]) and os.access(env[name], os.W_OK | os.X_OK)):
            yield name
    for name in _MADE_IF_MISSING:
        if env.get(name):
            with contextlib.suppress(OSError):
                os.makedirs(env[name], mode=0o700, exist_ok=True)
            if not os.path.isdir(env[name]):
                yield name
    yield from (name for name in _EXISTING if env.get(name) and not os.path.exists(env[name]))
    kind, _, path = env.get("DBUS_SESSION_BUS_ADDRESS", "").partition("unix:path=")
    if path and not kind and not os.path.exists(path.partition(",")[0]):
        yield "DBUS_SESSION_BUS_ADDRESS"


def _is_own(folder: str | None) -> bool:
    """Return whether a runtime can use the folder: it has to belong to the user."""
    if not folder:
        return True
    try:
        return os.path.isdir(folder) and os.stat(folder).st_uid == os.geteuid()
    except OSError:
        return False
