"""Page ``reference/settings``: the settings of a user, from the traits of ``config.py``."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

from jupyter_slurm.config import Settings

_HEAD = """\
# Settings

Settings are [traitlets](https://traitlets.readthedocs.io). They stand in `jupyter_slurm_config.py` in one of Jupyter's
configuration directories (`jupyter --paths`), usually `~/.jupyter`:

```python
c.JupyterSlurm.poll_shortest = 30
c.JupyterSlurm.cluster = "mycluster"
```

`jupyter slurm config` prints all settings with their present values. A running agent reads its settings when it
starts: `jupyter slurm agent stop` makes the next command start one with the new settings.

Times are in seconds unless the text says otherwise.

"""


def neutral(value: Any) -> str:
    """Return a default without the names of this machine and its user."""
    text = repr(value)
    for own, general in (
        (sys.prefix, "PREFIX"),  # the environment, which may lie in the home
        (str(Path.home()), "~"),
        (socket.gethostname(), "HOST"),
        (f"/run/user/{os.getuid()}", "$XDG_RUNTIME_DIR"),
    ):
        text = text.replace(own, general)
    return text


def page() -> str:
    """Return the page."""
    parts = [_HEAD]
    settings = Settings()
    for name, trait in sorted(Settings.class_traits(config=True).items()):
        kind = type(trait).__name__
        values = f", one of {', '.join(f'`{one}`' for one in trait.values)}" if hasattr(trait, "values") else ""
        parts.append(
            f"## {name}\n\n{trait.help}\n\nType: {kind}{values}. Default: `{neutral(getattr(settings, name))}`.\n\n"
        )
    return "".join(parts)
