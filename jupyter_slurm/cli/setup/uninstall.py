"""Command ``jupyter slurm uninstall``: removal of what pip does not remove from this computer."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
import time
from typing import TYPE_CHECKING, Any

from jupyter_slurm.cli.terminal import add_command, yes
from jupyter_slurm.errors import SlurmError

if TYPE_CHECKING:
    from jupyter_slurm.config import Settings

__all__ = ["add_parser", "run"]

_END_TIMEOUT_S = 20.0


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = add_command(
        subparsers,
        "uninstall",
        description="Stop the agent, and remove remote kernels from Jupyter, hosts from the configuration of ssh, "
        "and the agent's state, before you uninstall the package with pip. Jobs continue. Job directories and site "
        "profiles are kept.",
        page="getting-started/install",
    )
    parser.add_argument("--yes", action="store_true", help="remove them without a question")


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    from jupyter_slurm.cli.agent import stop
    from jupyter_slurm.cli.editors.hosts import remove_hosts
    from jupyter_slurm.cli.editors.ssh_files import remove_files
    from jupyter_slurm.client.kernels import kernelspecs
    from jupyter_slurm.client.render.terminal import printable
    from jupyter_slurm.config import load_settings

    settings = load_settings()
    kernels = kernelspecs.listed()
    for kernel in kernels:
        print(printable(f"Remote kernel {kernel.display_name}: {kernel.folder}"))
    print(printable(f"Agent, and its state: {settings.state_dir}"))
    print("Hosts of jupyter_slurm for ssh: ~/.ssh/jupyter_slurm.conf, if there are any")
    if not (args.yes or yes("Stop the agent, and remove these?", default=False)):
        print("Removed nothing.")
        return 1
    stop(settings, argparse.Namespace(json=False, only_idle=False))
    code = 0
    for kernel in kernels:
        try:
            kernelspecs.remove(kernel.name)
        except SlurmError as error:  # for example a kernel for all users of this computer
            print(printable(f"{error.message} {error.hint}"))
            code = 1
    try:
        remove_files()
        remove_hosts()
    except SlurmError as error:
        print(printable(f"{error.message} {error.hint}"))
        code = 1
    _remove_sockets(settings)
    code = _remove_state(settings) or code
    kept = ", ".join([*settings.sites, settings.job_root])
    print(printable(f"Kept your site profiles and job directories: {kept}"))
    print("Uninstall the package: `python -m pip uninstall jupyter_slurm`.")
    return code


def _remove_sockets(settings: Settings) -> None:
    """Remove the files of the stopped agent that are not in its state directory."""
    from jupyter_slurm.agent.hosting.discovery import search_locations

    for place in search_locations(settings):
        _wait_released(place.lock)
        for path in (place.socket, place.record, place.secret, place.lock, place.start_lock):
            with contextlib.suppress(OSError):
                os.unlink(path)
        with contextlib.suppress(OSError):  # it has files of another home
            os.rmdir(place.folder)


def _wait_released(lock: str) -> None:
    """Wait until a stopped agent, which answers no longer, has written the last of its state."""
    deadline = time.monotonic() + _END_TIMEOUT_S
    with contextlib.suppress(FileNotFoundError), open(lock, "rb") as file:
        while time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            time.sleep(0.05)


def _remove_state(settings: Settings) -> int:
    """Remove the state directory, unless the user has chosen it: it may have other files."""
    from jupyter_slurm.client.render.terminal import printable
    from jupyter_slurm.config import Settings

    if settings.state_dir != Settings().state_dir:
        print(printable(f"Kept {settings.state_dir}, because your settings name this directory. Remove it by hand."))
        return 0
    try:
        shutil.rmtree(settings.state_dir)
    except FileNotFoundError:
        pass
    except OSError as error:
        print(printable(f"{settings.state_dir} cannot be removed: {error.strerror}. Check its permissions."))
        return 1
    return 0
