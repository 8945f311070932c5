"""Answers of df and of the tools for quotas, as their documentation shows them, about directories."""

import subprocess
import time

import pytest

from jupyter_slurm.domain.storage.disk_space import DISK_SPACE_SCRIPT, find_shortage, parse_quotas, parse_room

DF = """Filesystem     1024-blocks      Used Available Capacity Mounted on
10.0.0.1@o2ib:/scratch   26000000  20000000   6000000      77% /scratch
"""
INODES = """Filesystem       Inodes   IUsed    IFree IUse% Mounted on
10.0.0.1@o2ib:/scratch   1000 400 600 40% /scratch
"""
QUOTA = """Disk quotas for user ana (uid 1001):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
10.0.0.2:/home   31000000 30000000 31457280   1700000000       9       0       0       0
10.0.0.1@o2ib:/scratch {used} 0 {limit} 0 12 0 0 0
"""
GROUPS = """Disk quotas for group lab (gid 500):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
10.0.0.1@o2ib:/scratch 10 0 20 0 12 0 100 0
Disk quotas for group users (gid 100): none
"""
LUSTRE = "     /scratch/projeto/a-long-name\n                 [{used}]*      0  {limit}       -      20       0       0       -\n"
GPFS = (
    "mmlsquota:user:HEADER:version:reserved:reserved:filesystemName:quotaType:id:name:blockUsage:blockQuota:blockLimit:"
    "blockInDoubt:blockGrace:filesUsage:filesQuota:filesLimit:filesInDoubt:filesGrace:remarks:fid:filesetname:\n"
    "mmlsquota:user:0:1:::gpfs0:USR:1001:ana:100:1000:2000:0:none:7:0:500:0:none::0:root:\n"
    "mmlsquota:user:0:1:::gpfs0:USR:1001:ana:1:10:20:0:none:7:0:500:0:none::1:small%3Aset:\n"
    "mmlsquota:user:0:1:::gpfs0:GRP:500:lab:30:40:0:0:none:7:0:0:0:none::0:root:\n"
)
GPFS_DF = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/gpfs0 9000 1000 8000 12% /gpfs\n"
# Of xfsprogs: a name longer than its column has its own line.
XFS = "/dev/mapper/vg-a-long-name\n                         100        0       1100   00 [6 days]          7          0         10   00 [--------] /x\n"
XFS_DF = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/mapper/vg-a-long-name 9000 1000 8000 12% /x\n"
BEEGFS = "\nQuota information for storage pool Default (ID: 1):\n\nname,id,size,hard,files,hard\nana,1001,{used},{limit},{files},unlimited\n"
BEEGFS_DF = "Filesystem 1024-blocks Used Available Capacity Mounted on\nbeegfs_nodev 9000 1000 8000 12% /b\n"


def answer(*parts: tuple[str, str, str, str]) -> str:
    """Return what the script prints: tool, owner, directory and answer."""
    return "".join(f"{part}\0" for one in parts for part in one)


def df(text: str, folder: str = "/d") -> tuple[str, str, str, str]:
    return "df", "", folder, text


@pytest.mark.parametrize(
    ("told", "free", "words"),
    [
        ([], 6_000_000, "free"),
        ([("quota", "", "", QUOTA.format(used=5_000_000, limit=5_500_000))], 500_000, "of your quota"),
        ([("quota", "", "", QUOTA.format(used="5500001*", limit=5_500_000))], 0, "of your quota"),
        ([("quota", "", "", QUOTA.format(used=1, limit=50_000_000))], 6_000_000, "free"),
        ([("quota", "", "", QUOTA.format(used=1, limit=0))], 6_000_000, "free"),
        ([("quota", "", "", "Disk quotas for user ana (uid 1001): none\n")], 6_000_000, "free"),
        ([("lustre", "user ana", "/d", LUSTRE.format(used=100, limit=1100))], 1000, "of your quota"),
        ([("lustre", "project 7", "/d", LUSTRE.format(used=100, limit=1100))], 1000, "of the quota of its project"),
        ([("lustre", "group lab", "/d", LUSTRE.format(used=100, limit=1100))], 6_000_000, "free"),
        ([("lustre", "user ana", "/elsewhere", LUSTRE.format(used=100, limit=1100))], 6_000_000, "free"),
        ([("lustre", "user ana", "/d", LUSTRE.format(used="?", limit="-"))], 6_000_000, "free"),
        ([("lustre", "user ana", "/d", "/scratch quotas are not enabled.\n")], 6_000_000, "free"),
        ([("beegfs", "", "/d", BEEGFS.format(used="1024", limit="3072", files="5"))], 2, "of your quota"),
        ([("beegfs", "", "/d", BEEGFS.format(used="0 Byte", limit="4096 Byte", files="-"))], 4, "of your quota"),
        ([("beegfs", "", "/d", BEEGFS.format(used="1024", limit="unlimited", files="5+"))], 6_000_000, "free"),
        ([("xfs", "user ana", "/d", XFS)], 1000, "of your quota"),
        ([("gpfs", "", "", GPFS)], 6_000_000, "free"),
    ],
)
def test_the_smaller_of_what_is_free_and_what_a_quota_leaves(
    told: list[tuple[str, str, str, str]], free: int, words: str
) -> None:
    room = parse_room(answer(*told, df(DF)), "/d")
    assert room is not None
    assert (room.free, words in room.description) == (free << 10, True)


def test_of_several_filesets_none_counts_for_a_directory() -> None:
    room = parse_room(answer(("gpfs", "", "", GPFS), df(GPFS_DF)), "/d")
    assert room == (1900 << 10, "left of your quota")


def test_disks_and_quotas_are_listed_by_directory() -> None:
    text = answer(
        ("quota", "", "", QUOTA.format(used=1, limit=50)),
        ("groups", "", "", GROUPS),
        ("gpfs", "", "", GPFS),
        df(DF),
        ("inodes", "", "/d", INODES),
        df(DF, "/d/below"),
        df(GPFS_DF, "/gpfs"),
        df(BEEGFS_DF, "/b"),
        ("beegfs", "", "/b", BEEGFS.format(used="1024", limit="3072", files="5+")),
        df(XFS_DF, "/x"),
        ("xfs", "user ana", "/x", XFS),
    )
    found = parse_quotas(text, ["/d", "/d/below", "/gpfs", "/b", "/x", "/gone"])
    sizes = [None if one.quota.limit is None else one.quota.limit >> 10 for one in found]
    assert [(one.folder, one.tool, one.quota.owner, size) for one, size in zip(found, sizes, strict=True)] == [
        ("/d", "disk", "", 26_000_000),
        ("/d", "quota", "user ana", 50),
        ("/d", "quota", "group lab", 20),
        ("/gpfs", "disk", "", 9000),
        ("/gpfs", "GPFS", "user ana", 2000),
        ("/gpfs", "GPFS", "user ana in fileset small:set", 20),
        ("/gpfs", "GPFS", "group lab", 40),
        ("/b", "disk", "", 9000),
        ("/b", "BeeGFS", "user ana", 3),
        ("/x", "disk", "", 9000),
        ("/x", "XFS", "user ana", 1100),
        ("", "quota", "user ana", 31_457_280),
    ]
    counts = [(one.quota.files, one.quota.files_limit) for one in found]
    assert counts[:3] == [(400, 1000), (12, None), (12, 100)]
    assert counts[-4:] == [(5, None), (None, None), (7, 10), (9, None)]
    assert found[-1].quota.file_system == "10.0.0.2:/home"


NODEV_DF = "Filesystem 1024-blocks Used Available Capacity Mounted on\nbeegfs_nodev {total} 1000 {free} 12% {mount}\n"
NFS_DF = "Filesystem 1024-blocks Used Available Capacity Mounted on\nserver:/data 9000 1000 8000 12% {mount}\n"


def test_two_file_systems_without_a_device_are_two() -> None:
    """BeeGFS has the same name for all its file systems, and one that is almost full must not be missed."""
    home = NODEV_DF.format(total=9000, free=8000, mount="/home")
    scratch = NODEV_DF.format(total=700, free=100, mount="/scratch space")
    text = answer(
        df(home, "/home/ana"),
        ("beegfs", "", "/home/ana", BEEGFS.format(used="1024", limit="3072", files="5")),
        df(home, "/home/ana/jobs"),
        ("beegfs", "", "/home/ana/jobs", BEEGFS.format(used="1024", limit="3072", files="5")),
        df(scratch, "/scratch space/ana"),
        ("beegfs", "", "/scratch space/ana", BEEGFS.format(used="1024", limit="1025", files="5")),
    )
    found = parse_quotas(text, ["/home/ana", "/home/ana/jobs", "/scratch space/ana"])
    assert [(one.folder, one.tool, one.quota.limit) for one in found] == [
        ("/home/ana", "disk", 9000 << 10),
        ("/home/ana", "BeeGFS", 3072),
        ("/scratch space/ana", "disk", 700 << 10),
        ("/scratch space/ana", "BeeGFS", 1025),
    ]
    shortage = find_shortage(found, 1 << 20)
    assert shortage is not None
    assert (shortage[0], shortage[1].free) == ("/scratch space/ana", 1)


def test_one_file_system_at_two_mount_points_is_one() -> None:
    gpfs = GPFS_DF.replace("/dev/gpfs0", "gpfs0")
    text = answer(
        ("gpfs", "", "", GPFS),
        *[df(NFS_DF.format(mount=folder), folder) for folder in ("/home", "/data")],
        *[df(gpfs.replace("/gpfs", folder), folder) for folder in ("/work", "/scratch")],
    )
    found = parse_quotas(text, ["/home", "/data", "/work", "/scratch"])
    assert [(one.folder, one.tool) for one in found] == [
        ("/home", "disk"),
        ("/work", "disk"),
        *[("/work", "GPFS")] * 3,
    ]


@pytest.mark.parametrize("said", ["", "\0", "\0\0", answer(df("df: no such file")), answer(df("Filesystem\n"))])
def test_without_an_answer_nothing_is_known(said: str) -> None:
    assert parse_room(said, "/d") is None
    assert parse_quotas(said, ["/d"]) == []


@pytest.mark.parametrize(
    "piece", ["1 ", "[", "9", "\n", "a\n", " ", "1 1 1 - /", "mmlsquota:a:HEADER:", "x,", "-\n1 1 0 0"]
)
def test_hostile_answers_are_read_in_little_time(piece: str) -> None:
    text = piece * (65536 // len(piece))
    tools = [(tool, "user ana", "/d", text) for tool in ("lustre", "xfs", "beegfs")]
    general = [(tool, "", "", text) for tool in ("quota", "groups", "gpfs")]
    begun = time.process_time()
    parse_quotas(answer(*general, df(DF), *tools), ["/d"])
    parse_quotas(answer(*general, df(text), *tools), ["/d"])
    assert time.process_time() - begun < 2


def test_the_script_asks_the_real_df(tmp_path) -> None:
    folder = tmp_path / "a b'$(c)"
    folder.mkdir()
    argv = ["/bin/sh", "-c", DISK_SPACE_SCRIPT, "sh", str(folder), str(tmp_path / "gone")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    found = parse_quotas(done.stdout, [str(folder), str(tmp_path / "gone")])
    disk = found[0].quota
    shown = subprocess.run(["stat", "-f", "-c", "%b %S", str(folder)], capture_output=True, text=True, check=True)
    blocks, size = map(int, shown.stdout.split())
    assert (found[0].folder, found[0].tool, disk.limit) == (str(folder), "disk", blocks * size)
    assert not [one for one in found if one.folder.endswith("gone")]
