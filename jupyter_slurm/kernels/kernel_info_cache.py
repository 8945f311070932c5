"""Cache of kernel info replies: clients ask before the kernel has started."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

if TYPE_CHECKING:
    from jupyter_slurm.client.jupyter_types import MessagePart

__all__ = ["cached_kernel_info", "remember"]

_MAX_CACHE_CHARACTERS = 1 << 20  # characters
_PLAIN: MessagePart = {
    "status": "ok",
    "protocol_version": "5.3",
    "implementation": "ipython",
    "implementation_version": "",
    "language_info": {
        "name": "python",
        "version": "",
        "mimetype": "text/x-python",
        "codemirror_mode": {"name": "ipython", "version": 3},
        "pygments_lexer": "ipython3",
        "nbconvert_exporter": "python",
        "file_extension": ".py",
    },
    "banner": "",
    "help_links": [],
}
# Language info of IRkernel and IJulia: a new notebook stores the first reply.
_LANGUAGES: dict[str, MessagePart] = {
    "ir": {
        "name": "R",
        "mimetype": "text/x-r-source",
        "codemirror_mode": "r",
        "pygments_lexer": "r",
        "file_extension": ".r",
    },
    "julia": {"name": "julia", "mimetype": "application/julia", "file_extension": ".jl"},
}


def cached_kernel_info(arguments: Sequence[str]) -> MessagePart:
    """Return the last kernel info for this request; for the first kernel, a likely one."""
    with contextlib.suppress(OSError, ValueError):
        with _path(arguments).open("rb") as file:
            told = json.loads(file.read(_MAX_CACHE_CHARACTERS))
        if isinstance(told, dict) and isinstance(told.get("language_info"), dict):
            return told
    return _likely(arguments)


def _likely(arguments: Sequence[str]) -> MessagePart:
    named = next((word.partition("=")[2].lower() for word in arguments if word.startswith("kernel=")), "python3")
    if named.startswith("python"):
        return _PLAIN
    stem = next((stem for stem in _LANGUAGES if re.fullmatch(rf"{stem}[-._0-9]*", named)), "")
    language = _LANGUAGES.get(stem) or {"name": named, "mimetype": "text/plain", "file_extension": ".txt"}
    return {**_PLAIN, "implementation": named, "language_info": {"version": "", **language}}


def remember(arguments: Sequence[str], data: MessagePart) -> None:
    """Store the kernel info; errors are ignored."""
    text = json.dumps(dict(data))
    if len(text) > _MAX_CACHE_CHARACTERS:  # no kernel has a longer reply
        return
    path = _path(arguments)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, path)


def _path(arguments: Sequence[str]) -> Path:
    name = hashlib.sha256("\0".join(arguments).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return Path(platformdirs.user_cache_dir("jupyter_slurm"), "kernels", f"{name}.json")
