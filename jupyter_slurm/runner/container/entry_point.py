"""Entry point of an image, as a program in its container: the variable ``JUPYTER_SLURM_ENTRYPOINT`` has its path.

Scripts run it in place of `docker run IMAGE` or `singularity run IMAGE`. Sources: docker-run(1), the OCI image
configuration (``Entrypoint``, ``Cmd``), apptainer-run(1), ch-image(1) on ``ch/config.pulled.json``. Python 3.8+,
standard library only.
"""

from __future__ import annotations

import json
import os
import shlex
from typing import Any, Callable

VARIABLE = "JUPYTER_SLURM_ENTRYPOINT"
_RUNSCRIPT = "/.singularity.d/runscript"
_RC = "/etc/rc"  # by which enroot starts an image
_MAX_BYTES = 1_000_000
_NONE = """if [ "$#" = 0 ]; then
    echo 'container: The image has no entry point. Name a program after "$JUPYTER_SLURM_ENTRYPOINT".' >&2
    exit 125
fi
"""

Query = Callable[..., Any]


def script(runtime: str, image: str, run_query: Query) -> str:
    """Return the text of a shell script that runs the entry point with its arguments, else with those of the image.

    Parameters
    ----------
    runtime : str
        Runtime of the container.
    image : str
        Name in the store of Docker or Podman, else a path.
    run_query : callable
        Runs a command; returns its exit code, its output and its errors.
    """
    if runtime in ("apptainer", "singularity") and not _is_charliecloud(image):
        return f'#!/bin/sh\nexec {_RUNSCRIPT} "$@"\n'
    if runtime == "pyxis":
        return f'#!/bin/sh\nexec /bin/sh {_RC} "$@"\n'
    entry, default = _words(_configuration(runtime, image, run_query))
    start, choice = shlex.join(entry), "" if entry else _NONE
    if default:
        choice = f'[ "$#" -gt 0 ] || set -- {shlex.join(default)}\n'
    return f'#!/bin/sh\n{choice}exec {start}{" " if start else ""}"$@"\n'


def write(path: str, text: str) -> None:
    """Write the script for the user alone; another process of the job may write the same one."""
    draft = f"{path}.{os.getpid()}"
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700), "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(draft, path)


def _is_charliecloud(image: str) -> bool:
    return os.path.isdir(image) and not os.path.exists(image + _RUNSCRIPT)


def _configuration(runtime: str, image: str, run_query: Query) -> Any:
    """Return the configuration of the image; None if there is none."""
    if runtime in ("docker", "podman"):
        text = run_query(runtime, "image", "inspect", "--format", "{{json .Config}}", image)[1]
    else:
        try:
            with open(os.path.join(image, "ch", "config.pulled.json"), encoding="utf-8") as file:
                text = file.read(_MAX_BYTES)
        except (OSError, UnicodeError):
            return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found.get("config", found) if isinstance(found, dict) else None


def _words(configuration: Any) -> tuple[list[str], list[str]]:
    """Return the words of the entry point, and its default arguments."""
    found = configuration if isinstance(configuration, dict) else {}
    lists = [found.get(name) or [] for name in ("Entrypoint", "Cmd")]
    entry, default = ([str(word) for word in one] if isinstance(one, list) else [] for one in lists)
    return entry, default
