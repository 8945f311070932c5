"""Messages of Slurm's commands about a daemon that does not answer: nothing is known, and nothing is refused."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

__all__ = ["is_silence"]

# The messages of slurm_errno.c (22.05 to 26.05) for a controller or a database that is away, starts or stops.
_SILENCE = re.compile(
    rb"Unable to contact slurm controller|Socket timed out|Zero Bytes were transmitted|Unexpected missing socket error"
    rb"|Connection (refused|reset|timed out|rejected by handler|forced closed)"
    rb"|Communication (connection|shutdown) failure|Message (send|receive) failure|Unexpected message received"
    rb"|Insane message length|Header lengths are longer than data|Transport endpoint is not connected"
    rb"|Slurm temporarily unable to accept job|Rate limit exceeded|Unable to create job record, try again"
    rb"|slurm_receive_msg|slurm_load_jobs error: Unable|in standby mode|Slurm backup controller"
    rb"|Problem talking to (the )?database|Unable to connect to database",
    re.IGNORECASE,
)


def is_silence(stderr: bytes, argv: Sequence[str] = ()) -> bool:
    """Return whether a command complains about a missing answer of a daemon, and not about a refusal.

    Text from its command line (a partition named "Connection refused") that the complaint repeats does not
    count.
    """
    for word in argv:
        for quoted in _SILENCE.finditer(os.fsencode(word)):
            stderr = stderr.replace(quoted[0], b"")
    return _SILENCE.search(stderr) is not None
