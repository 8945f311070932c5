"""The build hook: builds the labextension where Node.js is, and says what is missing where it is not."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from hatch_jupyter_builder import npm_builder

ROOT = Path(__file__).resolve().parent.parent
BUILT = ROOT / "jupyter_slurm" / "labextension"
# Set by whatever makes a release: a wheel without the panel must not be published by mistake.
REQUIRED = "JUPYTER_SLURM_REQUIRE_LABEXTENSION"


def _stale() -> bool:
    """Whether a source is newer than what was built from it."""
    manifest = BUILT / "package.json"
    if not manifest.exists():
        return True
    front_end = ROOT / "labextension"
    folders = [front_end / name for name in ("src", "style", "schema")]
    sources = [*(path for folder in folders for path in folder.rglob("*")), *front_end.glob("*.json")]
    return any(path.stat().st_mtime > manifest.stat().st_mtime for path in sources if path.is_file())


def build(target_name: str, version: str, **options: Any) -> None:
    """Build the labextension unless it is there and fresh.

    Parameters
    ----------
    target_name : str
        "wheel" or "sdist".
    version : str
        "standard" or "editable".
    **options
        Passed on to :func:`hatch_jupyter_builder.npm_builder`.

    Raises
    ------
    RuntimeError
        Node.js is not here, and the environment says that the labextension must be part of the result.
    """
    from_sdist = (ROOT / "PKG-INFO").exists()
    if (from_sdist and BUILT.exists()) or not _stale():
        return
    if shutil.which("npm") and shutil.which("node"):
        npm_builder(target_name, version, path=str(ROOT / "labextension"), npm="npm", build_cmd="build:prod", **options)
        return
    message = "Node.js 20 or newer and npm are not here: the JupyterLab panel is not built. All else is installed."
    if os.environ.get(REQUIRED) == "1":
        raise RuntimeError(message)
    print(message, file=sys.stderr)
    # hatchling insists that what it is told to ship exists.
    BUILT.mkdir(exist_ok=True)
