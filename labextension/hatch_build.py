"""Build hook: builds the JupyterLab panel, or fails if Node.js is missing and nobody asked to leave the panel out."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from hatch_jupyter_builder import npm_builder

ROOT = Path(__file__).resolve().parent.parent
BUILT = ROOT / "jupyter_slurm" / "labextension"
# pip shows no output of a build that succeeds, so a package without the panel must be asked for.
LEFT_OUT = "JUPYTER_SLURM_WITHOUT_LABEXTENSION"


def _stale() -> bool:
    """Whether a source is newer than what was built from it."""
    manifest = BUILT / "package.json"
    if not manifest.exists():
        return True
    front_end = ROOT / "labextension"
    folders = [front_end / name for name in ("src", "style", "schema")]
    sources = [path for folder in folders for path in folder.rglob("*")]
    sources += [*front_end.glob("*.json"), *front_end.glob("*.cjs")]
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
        Node.js is missing, and the environment does not ask to leave the panel out.
    """
    from_sdist = (ROOT / "PKG-INFO").exists()
    if (from_sdist and BUILT.exists()) or not _stale():
        return
    if os.environ.get(LEFT_OUT) == "1":
        print(f"{LEFT_OUT}=1: the JupyterLab panel is not built.", file=sys.stderr)
        BUILT.mkdir(exist_ok=True)  # hatchling requires all files of the wheel to exist
        return
    if not (shutil.which("npm") and shutil.which("node")):
        raise RuntimeError(
            "Building jupyter_slurm from source needs Node.js 20 or newer and npm, for the JupyterLab panel. Install "
            f"them, or set {LEFT_OUT}=1 to install everything but the panel. A released wheel or sdist contains the "
            "built panel and needs no Node.js."
        )
    npm_builder(target_name, version, path=str(ROOT / "labextension"), npm="npm", build_cmd="build:prod", **options)
