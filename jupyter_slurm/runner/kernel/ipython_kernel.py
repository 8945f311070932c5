"""Start ipykernel as ``ipykernel_launcher`` does: ``python ipython_kernel.py -f CONNECTION_FILE``.

A kernel throws away what is printed while a thousand messages wait for who reads them. On a node that has more to do,
a fast loop that prints gets there within milliseconds: so here many more may wait. Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

_MAY_WAIT = 100_000  # messages


def let_more_wait(app: Any) -> None:
    """Have more messages wait at the socket that publishes; never a reason to fail."""
    begins = app.init_iopub

    def init_iopub(self: Any, context: Any) -> Any:
        with contextlib.suppress(Exception):
            context.sndhwm = _MAY_WAIT  # of sockets that this context makes from now on
        try:
            return begins(self, context)
        finally:
            with contextlib.suppress(Exception):
                context.sockopts.clear()

    app.init_iopub = init_iopub


def main() -> None:
    """Become the kernel."""
    if not getattr(sys.flags, "safe_path", False):  # with PYTHONSAFEPATH there is no entry for the runner's folder
        del sys.path[0]
    from ipykernel import kernelapp

    if hasattr(kernelapp.IPKernelApp, "init_iopub"):
        let_more_wait(kernelapp.IPKernelApp)
    kernelapp.launch_new_instance()


if __name__ == "__main__":
    main()
