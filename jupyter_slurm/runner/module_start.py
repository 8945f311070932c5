"""Start of a module as by ``python -m``, without the working directory in the path: ``module_start.py MODULE [args]``.

``python -m`` puts the working directory first. A file of the user named ``logging.py`` there hides the module of that
name while Jupyter, PyTorch or Ray are imported. Python 3.11 has an option against that (``-P``); this file works with
Python 3.8+, standard library only.
"""

import sys

if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):  # with PYTHONSAFEPATH, sys.path has no entry for the runner's folder
        del sys.path[0]
    import runpy

    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
