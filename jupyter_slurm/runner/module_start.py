"""Start of a module as by ``python -m``, without the working directory in the path: ``module_start.py MODULE [args]``.

``python -m`` puts the working directory first. A file of the user named ``logging.py`` there hides the module of that
name while Jupyter, PyTorch or Ray are imported. Python 3.11 has an option against that (``-P``); this file works with
Python 3.8+, standard library only.
"""

from __future__ import annotations

import os
import sys

NOTE = "ended-by"  # in JUPYTER_RUNTIME_DIR: configuration file that has ended Jupyter, and its line


def note_configuration(ended: SystemExit) -> None:
    """Note the configuration file of the user that has ended Jupyter: Jupyter only catches other exceptions."""
    frame, folder = ended.__traceback__, os.environ.get("JUPYTER_RUNTIME_DIR")
    while frame is not None:
        path = frame.tb_frame.f_code.co_filename
        if folder and path.endswith("_config.py"):
            try:
                with open(os.path.join(folder, NOTE), "w", encoding="utf-8", errors="surrogateescape") as file:
                    file.write(f"{path}, line {frame.tb_lineno}")
            except OSError:
                pass  # the exit code tells less
            return
        frame = frame.tb_next


if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):  # with PYTHONSAFEPATH, sys.path has no entry for the runner's folder
        del sys.path[0]
    import runpy

    del sys.argv[0]
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        note_configuration(ended)
        raise
