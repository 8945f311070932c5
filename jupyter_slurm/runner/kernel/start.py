"""Start of a kernel in its final place, perhaps a container: ``python -u start.py NAME CONNECTION_FILE``.

NAME is the name of an installed kernelspec; ``python3`` is the ipykernel of the Python that runs this file. The
interrupt mode of the kernel is written beside the connection file. Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import string
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_slurm.runner.job_document import Kernelspec

LACKING = 78  # exit code: no such kernel; the last line says why (EX_CONFIG of sysexits.h)
HOW = "interrupt"  # file: "message" if the kernel is interrupted by a message
_PYTHON = re.compile(r"python[0-9.]*")


class PackageMissing(Exception):
    """The requested kernel is not installed."""


def places() -> list[str]:
    """Return the folders that may have kernelspecs, as Jupyter searches them."""
    env = os.environ.get
    data = env("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    own, ours = env("JUPYTER_DATA_DIR") or os.path.join(data, "jupyter"), os.path.join(sys.prefix, "share", "jupyter")
    tops = [one for one in env("JUPYTER_PATH", "").split(os.pathsep) if one]
    tops += [ours, own] if sys.prefix != sys.base_prefix or env("CONDA_PREFIX") else [own, ours]
    tops += ["/usr/local/share/jupyter", "/usr/share/jupyter"]
    return list(dict.fromkeys(os.path.join(top, "kernels") for top in tops))


def _is_local(path: str) -> bool:
    """Return whether a kernelspec exists and runs on this node. Those of jupyter_slurm run elsewhere."""
    try:
        with open(path, encoding="utf-8") as file:
            provisioner = json.load(file)["metadata"]["kernel_provisioner"]["provisioner_name"]
        return bool(provisioner == "local-provisioner")
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError, LookupError, TypeError):
        return True  # no contrary entry; an unreadable file is reported when it is requested


def find_kernelspecs() -> dict[str, str]:
    """Return the folders of the installed kernelspecs by name."""
    found: dict[str, str] = {}
    for place in places():
        with contextlib.suppress(OSError):
            for name in os.listdir(place):
                if _is_local(os.path.join(place, name, "kernel.json")):
                    found.setdefault(name.lower(), os.path.join(place, name))
    return found


def own_kernelspec() -> Kernelspec | None:
    """Return the kernelspec of this Python's ipykernel; None: not installed."""
    with contextlib.suppress(ImportError, ValueError):
        if importlib.util.find_spec("ipykernel") is not None:
            options = ["-Xfrozen_modules=off"] if sys.version_info >= (3, 11) else []  # for its debugger
            script = __file__[: -len("start.py")] + "ipython_kernel.py"
            return {"argv": [sys.executable, *options, script, "-f", "{connection_file}"]}
    return None


def find(name: str) -> tuple[Kernelspec, str]:
    """Return a kernelspec and its folder; may raise PackageMissing."""
    told = own_kernelspec() if name == "python3" else None
    if told is not None:
        return told, ""
    there = find_kernelspecs()
    folder = there.get(name.lower())
    if folder is None:
        here = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
        if "JUPYTER_SLURM_CONTAINER" in os.environ:
            here = f"The image {os.environ['JUPYTER_SLURM_CONTAINER'].partition(' ')[2]}"
        if name == "python3":
            how = f"{sys.executable} -m pip install ipykernel"
            raise PackageMissing(
                f"{here}: {sys.executable} has no ipykernel. Install it (`{how}`), or choose another Python or image."
            )
        raise PackageMissing(f"{here} has no kernel {name}. Available kernels: {', '.join(sorted(there)) or 'none'}.")
    try:
        with open(os.path.join(folder, "kernel.json"), encoding="utf-8") as file:
            told = json.load(file)
        told["argv"] = [str(word) for word in told["argv"]]
        if _PYTHON.fullmatch(told["argv"][0]):
            told["argv"][0] = sys.executable
        return told, folder
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise PackageMissing(f"{folder}/kernel.json cannot be read: {error}.") from None


def become(told: Kernelspec, folder: str, connection_file: str) -> None:
    """Replace this process by the kernel; may raise PackageMissing."""
    with open(os.path.join(os.path.dirname(connection_file), HOW), "w", encoding="ascii") as file:
        file.write("message" if told.get("interrupt_mode") == "message" else "signal")
    fills = {"{connection_file}": connection_file, "{resource_dir}": folder, "{prefix}": sys.prefix}
    argv = list(told["argv"])
    for name, value in fills.items():
        argv = [word.replace(name, value) for word in argv]
    env = dict(os.environ)
    for name, text in (told.get("env") or {}).items():
        env[str(name)] = string.Template(str(text)).safe_substitute(env)
    try:
        os.execvpe(argv[0], argv, env)  # noqa: S606 - a kernelspec's words
    except OSError as error:
        raise PackageMissing(f"{argv[0]} cannot be run on this node: {error.strerror}.") from None


def main() -> int:
    """Replace this process by the kernel; report the reason if there is none."""
    try:
        become(*find(sys.argv[1]), sys.argv[2])
    except PackageMissing as error:
        sys.stderr.write(f"{error}\n")
    return LACKING


if __name__ == "__main__":
    sys.exit(main())
