"""Start of ipykernel as in ``ipykernel_launcher``: ``python ipython_kernel.py -f CONNECTION_FILE``.

A kernel discards printed output while a thousand messages wait for the reader. On a busy node, a fast loop that prints
reaches this limit within milliseconds. So this start raises the limit. Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

_MAY_WAIT = 100_000  # messages


def raise_message_limit(app: Any) -> None:
    """Raise the number of messages that may wait at the publishing socket. Errors are ignored."""
    begins = app.init_iopub

    def init_iopub(self: Any, context: Any) -> Any:
        with contextlib.suppress(Exception):
            context.sndhwm = _MAY_WAIT  # of later sockets of this context
        try:
            return begins(self, context)
        finally:
            with contextlib.suppress(Exception):
                context.sockopts.clear()

    app.init_iopub = init_iopub


def main() -> None:
    """Run the kernel in this process."""
    if not getattr(sys.flags, "safe_path", False):  # with PYTHONSAFEPATH, sys.path has no entry for the runner's folder
        del sys.path[0]
    from ipykernel import kernelapp

    if hasattr(kernelapp.IPKernelApp, "init_iopub"):
        raise_message_limit(kernelapp.IPKernelApp)
    kernelapp.launch_new_instance()


if __name__ == "__main__":
    main()
