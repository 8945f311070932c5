"""Parsing of df, quota and lfs output about the space in a directory."""

import pytest

from jupyter_slurm.domain.queries.disk_space import parse_room

DF = """Filesystem     1024-blocks      Used Available Capacity Mounted on
10.0.0.1@o2ib:/scratch   26000000  20000000   6000000      77% /scratch
"""
QUOTA = """Disk quotas for user ana (uid 1001):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
10.0.0.2:/home   31000000 30000000 31457280   1700000000       9       0       0       0
10.0.0.1@o2ib:/scratch {used} 0 {limit} 0 12 0 0 0
"""
LUSTRE = "     /scratch/projeto/a-long-name\n                 [{used}]*      0  {limit}       -      20       0       0       -\n"


@pytest.mark.parametrize(
    ("said", "free", "words"),
    [
        (DF, 6_000_000, "free"),
        (f"{DF}\0\0", 6_000_000, "free"),
        (DF + "\0" + QUOTA.format(used=5_000_000, limit=5_500_000), 500_000, "quota"),
        (DF + "\0" + QUOTA.format(used="5500001*", limit=5_500_000), 0, "quota"),
        (DF + "\0" + QUOTA.format(used=1, limit=50_000_000), 6_000_000, "free"),
        (DF + "\0" + QUOTA.format(used=1, limit=0), 6_000_000, "free"),
        (f"{DF}\0Disk quotas for user ana (uid 1001): none\n\0", 6_000_000, "free"),
        (f"{DF}\0\0{LUSTRE.format(used=100, limit=1100)}", 1000, "quota"),
        (f"{DF}\0\0{LUSTRE.format(used='?', limit='-')}", 6_000_000, "free"),
        (f"{DF}\0\0/scratch quotas are not enabled.\n", 6_000_000, "free"),
    ],
)
def test_the_smaller_of_what_is_free_and_what_a_quota_leaves(said: str, free: int, words: str) -> None:
    room = parse_room(said)
    assert room is not None
    assert (room.free, words in room.description) == (free << 10, True)


@pytest.mark.parametrize("said", ["", "\0", "\0\0", "df: no such file", "Filesystem\n"])
def test_where_nobody_tells_nothing_is_known(said: str) -> None:
    assert parse_room(said) is None
