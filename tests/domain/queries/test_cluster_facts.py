"""Nodes, partitions, configuration and lists of hosts."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_slurm.domain.queries import cluster
from jupyter_slurm.errors import ParseError


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", []),
        ("dgx01", ["dgx01"]),
        ("dgx[01-03,7]", ["dgx01", "dgx02", "dgx03", "dgx7"]),
        ("c4aiscw[1-2],dgx01", ["c4aiscw1", "c4aiscw2", "dgx01"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("a-b.c[8-10]", ["a-b.c8", "a-b.c9", "a-b.c10"]),
    ],
)
def test_hosts(text: str, hosts: list[str]) -> None:
    assert sorted(cluster.expand_hosts(text)) == sorted(hosts)
    assert cluster.count_hosts(text or "x") >= len(hosts)


@pytest.mark.parametrize(
    "text", ["n[0-99999999]", "a[1-999]b[1-999]", "n[0-9999999999]", ",".join(["n[1-9999]"] * 100)]
)
def test_expansion_bombs_are_not_expanded(text: str) -> None:
    with pytest.raises(ParseError):
        cluster.expand_hosts(text)


@pytest.mark.parametrize("text", ["n[1-2", "n[5-2]", "n[]", "n[a-b]", "@all", "n 1", "n\n", "n!m", "n&m", "n^m", "é"])
def test_what_is_no_list_of_hosts(text: str) -> None:
    with pytest.raises(ParseError):
        cluster.expand_hosts(text)


@given(st.text() | st.text("n[]-,0123456789/", max_size=30))
def test_only_parse_errors(text: str) -> None:
    try:
        hosts = cluster.expand_hosts(text, limit=1000)
    except ParseError:
        return
    assert len(hosts) <= 1000


def test_clustershell_is_imported_only_where_it_is_needed() -> None:
    code = "import sys; import jupyter_slurm.domain.queries.cluster; sys.exit('ClusterShell' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("slurm-wlm 22.05.8", (22, 5)),
        ("slurm 26.05.5-1", (26, 5)),
        ("slurm-wlm 24.11", (24, 11)),
        ("slurm 23.02.0-0rc1", (23, 2)),
    ],
)
def test_versions(text: str, version: tuple[int, int]) -> None:
    assert cluster.parse_version(text) == version


@pytest.mark.parametrize("text", ["", "slurm", "slurm 2205", "v1.2.3"])
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(ParseError):
        cluster.parse_version(text)


def test_partitions_with_rules() -> None:
    line = (
        "PartitionName=gpu AllowGroups=ALL AllowAccounts=cs,es AllowQos=normal Default=NO DefaultTime=00:30:00 Hidden=NO"
        " MaxTime=UNLIMITED Nodes=(null) State=DRAIN TotalCPUs=0 TotalNodes=0 TRES=(null)"
    )
    (partition,) = cluster.parse_partitions(f"{line}\n\nnoise a=b\n".encode())
    assert (partition.allow_accounts, partition.allow_qos) == (("cs", "es"), ("normal",))
    assert (partition.default_time, partition.max_time, partition.nodes, partition.state) == (1800, None, "", "DRAIN")
    assert partition.fields["AllowGroups"] == "ALL"


def test_configuration_keeps_what_stands_first() -> None:
    text = b"Configuration data as of now\nMinJobAge   = 300 sec\nPrologFlags  = (null)\nX=y\nMinJobAge = 1\nEpilog = a = b\n"
    assert cluster.parse_config(text) == {"MinJobAge": "300 sec", "PrologFlags": "", "Epilog": "a = b"}
