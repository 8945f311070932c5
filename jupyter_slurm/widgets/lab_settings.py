"""Start values of the launch form in JupyterLab's settings, for the same form as a widget."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from jupyter_core.paths import jupyter_config_dir

__all__ = ["lab_start_values", "with_lab_values"]

_FIELDS: Final = ("partition", "gpus", "cpus", "memory", "time", "idle")
_COMMENT: Final = re.compile(r"^\s*//[^\n]*$|/\*.*?\*/", re.MULTILINE | re.DOTALL)


def lab_start_values() -> dict[str, str]:
    """Return the start values that the user has set in JupyterLab on this computer, without empty ones."""
    folder = os.environ.get("JUPYTERLAB_SETTINGS_DIR") or os.path.join(jupyter_config_dir(), "lab", "user-settings")
    file = Path(folder, "jupyter-slurm", "sessions.jupyterlab-settings")
    try:
        told = json.loads(_COMMENT.sub("", file.read_text("utf-8")))  # JupyterLab describes each setting in a comment
    except (OSError, ValueError):
        return {}  # JupyterLab shows a file that it cannot read
    if not isinstance(told, dict):
        return {}
    return {name: told[name].strip() for name in _FIELDS if isinstance(told.get(name), str) and told[name].strip()}


def with_lab_values(profile: Mapping[str, object], settings: Mapping[str, str]) -> dict[str, object]:
    """Return the start values of the form: those of the user's settings, else those of the profile.

    Parameters
    ----------
    profile : mapping
        Start values as the agent describes them (``launch`` of a cluster).
    settings : mapping
        Start values of the user.
    """
    values: dict[str, object] = {**profile, **settings}
    kind = values.pop("gpu_type", None)
    if str(values.get("gpus")) == "0" or profile.get("gpus") == 0:  # a cluster without GPUs refuses the option
        values.pop("gpus", None)
    elif kind:
        values["gpus"] = f"{kind}:{values.get('gpus') or 1}"
    values["idle"] = settings.get("idle", "")
    return values
