"""Container images of jobs: references, and checks of a container's description.

The runner composes the command line of the runtime on the node (``runner/container/run.py``), which knows GPUs, CPUs
and IDs.

Sources: the grammar of github.com/distribution/reference; docker-run(1), apptainer-exec(1), ch-run(1).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from jupyter_slurm.errors import UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain.profile_tables import ContainerTable, EnvironmentTable

__all__ = ["RUNTIMES", "check_bind", "check_described", "check_settings", "is_path", "reference", "runtimes_for"]

RUNTIMES: Final = ("docker", "podman", "apptainer", "singularity", "charliecloud", "pyxis")
"""Container runtimes."""

_ENROOT_SUFFIX: Final = ".sqsh"  # of image files of enroot, which Pyxis runs
_SCHEME: Final = "docker://"
_MAX_NAME_CHARACTERS: Final = 255  # characters of a name, without tag and digest
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?P<name>(?:(?:{_HOST}\.)+{_HOST}(?::[0-9]+)?/|{_HOST}:[0-9]+/|localhost/)?{_PART}(?:/{_PART})*)"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[0-9a-f]{32,})?"
)
_HINT: Final = (
    "Give docker://NAME:TAG (docker://nvcr.io/nvidia/pytorch:24.01-py3), the path of a SIF file or an .sqsh file, "
    "or the directory of an unpacked image."
)


def is_path(image: str) -> bool:
    """Return whether an image is a file or directory on the cluster, not a name in a registry."""
    return image.startswith(("/", "~/", "./", "../"))


def reference(image: str) -> str:
    """Return the name of an image in a registry, without ``docker://``.

    Raises
    ------
    UsageError
        Not an image name: options, blanks and capital letters are not allowed.
    """
    name = image.removeprefix(_SCHEME)
    found = _REFERENCE.fullmatch(name)
    if found is None or len(found["name"]) > _MAX_NAME_CHARACTERS:
        lower = _REFERENCE.fullmatch(name.lower())
        hint = f"Write the name in lower case: {_SCHEME}{name.lower()}" if lower else _HINT
        raise UsageError(f"{image!r} is not a valid image name.", hint=hint)
    return name


def runtimes_for(image: str) -> tuple[str, ...]:
    """Return the runtimes that may run an image, of which the first one present on the node is used.

    Only the node knows the kind of a path.
    """
    if not is_path(image):
        return RUNTIMES
    return ("pyxis", *RUNTIMES[2:-1]) if image.endswith(_ENROOT_SUFFIX) else RUNTIMES[2:-1]


def check_described(text: EnvironmentTable) -> None:
    """Check that an environment's description in a profile is valid for a container.

    Raises
    ------
    UsageError
        The description contradicts itself, or contains an invalid value.
    """
    image = text.get("image")
    if image is None:
        if alone := [name for name in ("runtime", "bind") if name in text]:
            raise UsageError(f"{alone[0]} is a setting for containers, but no image is given.", hint=_HINT)
        return
    if both := [name for name in ("venv", "conda") if name in text]:
        raise UsageError(
            f"`image` and `{both[0]}` are two environments, and only one can be used.",
            hint='Leave one of them out. To choose one of several Pythons in the image, set python = "/…/bin/python".',
        )
    if not is_path(image):
        reference(image)
    if (runtime := text.get("runtime")) and runtime not in runtimes_for(image):
        what = "unpacked images and SIF files" if is_path(image) else "images of registries"
        what = f"{_ENROOT_SUFFIX} files" if is_path(image) and image.endswith(_ENROOT_SUFFIX) else what
        fit = ", ".join(runtimes_for(image))
        raise UsageError(f"{runtime} cannot run {image}.", hint=f"Use one of these for {what}: {fit}.")
    for bind in text.get("bind", ()):
        check_bind(bind)


def check_settings(container: ContainerTable) -> None:
    """Check the settings of all containers in a profile.

    Raises
    ------
    UsageError
        A setting is not valid. ``option`` of its details is the setting.
    """
    option = "bind"
    try:
        for bind in container.get("bind", ()):
            check_bind(bind)
        option = "sudo"
        if container.get("sudo") and (runtime := container.get("runtime", "docker")) != "docker":
            raise UsageError(
                f"The runtime {runtime} does not use sudo, which is for Docker.",
                hint='Set runtime = "docker", or remove `sudo`. The other runtimes work without sudo.',
            )
    except UsageError as error:
        error.details["option"] = option
        raise


def check_bind(bind: str) -> None:
    """Check that a bind, ``SRC[:DST[:ro]]``, is valid for a container on a node.

    Raises
    ------
    UsageError
        The bind is not valid, or it would hide a directory that the container needs.
    """
    source, _, rest = bind.partition(":")
    target, _, mode = rest.partition(":")
    if not source.startswith(("/", "~/")) or (rest and not target.startswith("/")) or mode not in ("", "ro", "rw"):
        raise UsageError(
            f"{bind!r} is not a valid directory for a container.",
            hint='Write bind = ["/scratch/me"], ["/data/sets:/data"] or ["/data/sets:/data:ro"], without a '
            "colon in a path.",
        )
    if (target or source).rstrip("/") in ("", "/proc", "/sys", "/dev"):
        raise UsageError(
            f"{bind!r} would hide a directory that a container needs.",
            hint="Bind directories below it, or choose another place in the container.",
        )
