"""Numbers with their nouns, and shares."""

from jupyter_slurm.client.jobs.report import _share
from jupyter_slurm.domain.slurm_values import counted


def test_one_has_no_plural():
    assert [counted(number, "tunnels") for number in (0, 1, 2)] == ["0 tunnels", "1 tunnel", "2 tunnels"]


def test_a_small_share_is_not_shown_as_nothing():
    assert [_share(share) for share in (0.0, 1e-6, 0.004, 0.006, 0.5)] == [*3 * ["less than 1%"], "1%", "50%"]
