"""What two kernels ask for: whether one can have the allocation of the other."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jupyter_slurm.client.clusters.option_tables import option_table
from jupyter_slurm.client.kernels.kernel import WORDS
from jupyter_slurm.client.sessions.session import named_in
from jupyter_slurm.domain.magic_line.parser import MagicLine, parse_cell_line

if TYPE_CHECKING:
    from jupyter_slurm.client.clusters.cluster import Cluster

__all__ = ["is_of_same_allocation"]

_OF_ALLOCATION = ("on", "lease")


def is_of_same_allocation(before: Sequence[str], now: MagicLine, cluster: Cluster) -> bool:
    """Tell whether words ask for such an allocation as a line does: a kernelspec may change, and be restarted.

    Parameters
    ----------
    before : sequence of str
        The words of a kernelspec.
    now : MagicLine
        Those of another one.
    cluster : Cluster
        Where.
    """
    _, line = named_in(shlex.join(before))
    parsed = parse_cell_line(line, option_table(cluster, "sbatch"), WORDS)
    asked = [
        (
            [(option.name, option.value) for option in one.parsed.options],
            [one.words.get(word) for word in _OF_ALLOCATION],
        )
        for one in (parsed, now)
    ]
    return asked[0] == asked[1]
