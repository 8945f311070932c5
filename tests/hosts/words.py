"""Words that texts for users avoid: the documentation, help, messages, hints and texts of the interface.

The rules are in docs/development/documentation.md; a text is refused with the words to use instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["REFUSED_IN_TEXTS", "find_refused"]

# Regular expressions, with the words to use instead.
REFUSED_IN_TEXTS: Final = {
    r"(?<!there )(?<!There )\b(?:is|are|was|be) no (?!longer\b|more\b)": "is not a …",
    r"(?i)\b(?:we|us|our|ours)\b": "jupyter_slurm, the agent",
    r"(?i)\b(?:somebody|nobody|everybody|anybody|whoever)\b": "another user, no user, all users, the user who",
    r"(?i)\bhere\b": "on this computer, in this notebook",
    r"(?i)\bthere\b(?! (?:is|are|was|were|must|can|may|has)\b)": "on the cluster, on HOST",
    r"(?i)\bthis machine\b": "this computer",
    r"(?i)\b(?:anew|of whom|as of any)\b": "again; name the thing",
    r"(?i)\b(?:lets?|letting) (?:\w+ )?in\b|\blet in\b": "log in, login failed",
    r"(?i)\btravel(?:s|led|ling)?\b": "is sent, is copied",
    r"(?i)\b(?:com|go|tak|bring)(?:e|es|ing)? along\b|\btaken along\b|\bbrought\b|\bbring back\b": "send, copy, copy back",
    r"(?i)\bhops?\b": "jump host",
    r"(?i)\b(?:front doors?|far side|over there|in cipher)\b": "front end, remote host, on HOST, encrypted",
    r"(?i)\b(?:the way|no way leads|on the way)\b": "the connection, jump host",
    r"(?i)(?<![/\w-])log-ins?\b(?!\.)": "login (noun), log in (verb)",
    r"(?i)\btold\b": "name the one who says it, and where",
    r"\b[Jj]ob ids?\b|\b[Ii]ds? of (?:a|the) job\b|\bnumber of the job\b": "job ID",
    r"(?i)\bg(?:ive|ives|iven|iving) back\b": "release",
    r"(?i)\blook(?:s|ed|ing)? over\b": "check",
    r"(?i)\bgo(?:es)? on\b": "is running, continue",
    r"(?i)\b(?:is|are) over\b": "has ended",
    r"(?i)\bREADME\b": "the address of a page: page_url()",
    r"(?i)\b(?:\w+n't|it's|let's|you're|that's)\b": "no contractions",
}

_CODE: Final = re.compile(r"`+[^`]*`+")


def find_refused(text: str) -> Iterator[str]:
    """Yield a line for each refused word of a text. Code in backquotes keeps its words."""
    plain = _CODE.sub("`", text)
    for pattern, instead in REFUSED_IN_TEXTS.items():
        if found := re.search(pattern, plain):
            yield f"for {found[0]!r} use: {instead}"
