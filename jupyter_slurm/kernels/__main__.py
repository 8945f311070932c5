"""Program of a kernelspec: ``python -m jupyter_slurm.kernels -f CONNECTION_FILE [CLUSTER] [options] [keywords]``."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_slurm.kernels import kernel_info_cache

if TYPE_CHECKING:
    from jupyter_client.connect import KernelConnectionInfo

__all__ = ["DISPLAY_NAME_VARIABLE", "main"]

DISPLAY_NAME_VARIABLE = "JUPYTER_SLURM_KERNEL_NAME"
"""Environment variable with the displayed name of the kernel: set for the proxy, not for its child processes.

Without the variable, the parent of the proxy does not use the Slurm provisioner, as with VS Code.
"""


def main(args: Sequence[str]) -> int:
    """Be the kernel of a connection file."""
    parser = argparse.ArgumentParser(prog="python -m jupyter_slurm.kernels", description=main.__doc__)
    parser.add_argument("-f", dest="file", metavar="CONNECTION_FILE", required=True)
    parser.add_argument("--give-back", action="store_true", help="release the remains of a kernel instead")
    parser.add_argument("--after", type=float, default=0.0, help="seconds to wait for a front end to use the kernel")
    # The connection file is followed by cluster, options of sbatch and keywords: argparse would split some of them.
    at = args.index("-f") + 2 if "-f" in args else len(args)
    asked, words = parser.parse_args(args[:at]), list(args[at:])
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s", level=logging.WARNING)
    if asked.give_back:
        from jupyter_slurm.kernels.allocation import release_leftover

        time.sleep(asked.after)
        return release_leftover(asked.file, is_detached=asked.after > 0)
    with open(asked.file, encoding="utf-8") as file:
        connection = json.load(file)
    return asyncio.run(_serve(asked.file, connection, words))


async def _serve(file: str, connection: KernelConnectionInfo, arguments: list[str]) -> int:
    from jupyter_slurm.kernels.proxy import KernelProxy
    from jupyter_slurm.kernels.startup import KernelStartup
    from jupyter_slurm.kernels.state_file import KernelStateFile

    name = str(connection.get("kernel_name") or "")
    shown = os.environ.pop(DISPLAY_NAME_VARIABLE, None)
    is_alone, notebook = shown is None, os.environ.get("JPY_SESSION_NAME")
    signpost = KernelStateFile(file, _starter() if is_alone else notebook, name)
    if is_alone and signpost.data:  # its client has ended or killed it and wants another kernel
        signpost.write(state="died")
    is_lost = is_alone or not notebook
    place = KernelStartup(arguments, signpost, name=name, display_name=shown or "", is_alone=is_alone, is_lost=is_lost)
    front = KernelProxy(
        connection,
        place,
        kernel_info_cache.cached_kernel_info(arguments),
        lambda told: kernel_info_cache.remember(arguments, told),
    )
    return await front.run()


def _starter() -> str:
    """Return an identifier of the parent process and of the folder that it chose for this process."""
    process = os.getppid()
    begun = ""
    with contextlib.suppress(OSError, IndexError):  # proc(5)
        begun = Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    return os.path.join(os.getcwd(), f"{process}-{begun}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
