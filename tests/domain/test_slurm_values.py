"""Time limits, memory, TRES and GRES."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_slurm.domain import slurm_values
from jupyter_slurm.domain.slurm_values import Gres
from jupyter_slurm.errors import UsageError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 300),
        ("90", 5400),
        ("60:00", 3600),
        ("1:30", 90),
        ("2:00:00", 7200),
        ("1-0", 86400),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("7-00:00:00", 604800),
        ("365-00:00:00", 31536000),
        ("0", 0),
        ("UNLIMITED", None),
        ("infinite", None),
        ("-1", None),
    ],
)
def test_time_limits(text: str, seconds: int | None) -> None:
    assert slurm_values.parse_time_limit(text) == seconds


DURATIONS = Path(__file__).parents[2] / "labextension" / "test" / "common" / "durations.json"


@pytest.mark.parametrize(("text", "expected"), json.loads(DURATIONS.read_text()).items())
def test_durations_as_in_the_form_of_jupyterlab(text: str, expected: int | str | None) -> None:
    if expected is None:
        with pytest.raises(UsageError):
            slurm_values.parse_duration(text)
        return
    seconds = slurm_values.parse_duration(text)
    assert seconds == (None if expected == "no limit" else expected)
    if seconds:
        assert slurm_values.parse_duration(slurm_values.duration_words(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "1:2:3:4", "1-", "-5", "1h", "NOT_SET", "1.5", "1-2-3", ":", "٣"])
def test_what_is_no_time_limit(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        slurm_values.parse_time_limit(text)
    assert caught.value.hint
    assert slurm_values.read_time_limit(text) is None


@given(st.none() | st.integers(0, 10**9))
def test_time_limits_round_trip(seconds: int | None) -> None:
    assert slurm_values.parse_time_limit(slurm_values.format_time_limit(seconds)) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4G", 4 * GIB),
        ("1500", 1500 * MIB),
        ("1500M", 1500 * MIB),
        ("62.50G", 64000 * MIB),
        ("512k", 512 * KIB),
        ("1T", 1024 * GIB),
        ("4Gn", 4 * GIB),
        ("100Mc", 100 * MIB),
        ("2GB", 2 * GIB),
        ("0", 0),
    ],
)
def test_memory(text: str, size: int) -> None:
    assert slurm_values.parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "G", "4X", "-1G", "1e9", "4 G", "1_0G"])
def test_what_is_no_memory(text: str) -> None:
    with pytest.raises(UsageError):
        slurm_values.parse_memory(text)


@given(st.integers(0, 1 << 60))
def test_memory_is_written_so_that_it_suffices(size: int) -> None:
    back = slurm_values.parse_memory(slurm_values.format_memory(size))
    assert size <= back < size + KIB


@pytest.mark.parametrize(("size", "text"), [(4 * GIB, "4G"), (1536 * MIB, "1536M"), (1, "1K"), (0, "0K")])
def test_memory_is_written_in_the_largest_exact_unit(size: int, text: str) -> None:
    assert slurm_values.format_memory(size) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "cpu=4,mem=8G,node=1,billing=4,gres/gpu:a100=2",
            {"cpu": 4, "mem": 8 * GIB, "node": 1, "billing": 4, "gres/gpu:a100": 2},
        ),
        ("gres:gpu:a100:2", {"gres/gpu:a100": 2}),
        ("gres:gpu", {"gres/gpu": 1}),
        ("gres/gpu:2,cpu=1", {"gres/gpu": 2, "cpu": 1}),
        ("mem=15.50G", {"mem": 15872 * MIB}),
        ("fs/disk=1M,vmem=3", {"fs/disk": MIB, "vmem": 3 * MIB}),
        ("", {}),
        ("(null)", {}),
        ("cpu=x,mem=,=3", {}),
    ],
)
def test_tres(text: str, expected: dict[str, int]) -> None:
    assert slurm_values.parse_tres(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu", [Gres("gpu")]),
        ("gpu:8", [Gres("gpu", None, 8)]),
        ("gpu:a100:8(S:0-1)", [Gres("gpu", "a100", 8)]),
        ("gpu:a100:2(IDX:0-1,5)", [Gres("gpu", "a100", 2, (0, 1, 5))]),
        ("gpu:(null):0(IDX:N/A)", [Gres("gpu", None, 0)]),
        ("gpu:tesla:2,shard:a100:8(0/4,8/8)", [Gres("gpu", "tesla", 2), Gres("shard", "a100", 8, (), 1)]),
        ("craynetwork:no_consume:4", [Gres("craynetwork", None, 4)]),
        ("gres/gpu:a100=2", [Gres("gpu", "a100", 2)]),
        ("gres:gpu:a100:2", [Gres("gpu", "a100", 2)]),
        ("mps:1.50K", [Gres("mps", None, 1536)]),
        ("(null)", []),
        ("N/A", []),
        ("", []),
        ("gpu:1(IDX:0-99999999)", [Gres("gpu", None, 1)]),
    ],
)
def test_gres(text: str, expected: list[Gres]) -> None:
    assert slurm_values.parse_gres(text) == expected


@given(
    st.lists(
        st.builds(
            Gres, st.sampled_from(["gpu", "shard", "mps"]), st.sampled_from([None, "a100", "h-1"]), st.integers(0, 99)
        )
    )
)
def test_gres_round_trip(items: list[Gres]) -> None:
    assert slurm_values.parse_gres(",".join(map(str, items))) == items


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3:0", (3, 0)),
        ("0:9", (0, 9)),
        ("768", (3, 0)),
        ("9", (0, 9)),
        ("4021", (0, 53)),
        ("0", (0, 0)),
        ("137", (0, 9)),
        ("4294967294", (None, None)),
        ("-2", (None, None)),
        ("", (None, None)),
        ("1:", (None, None)),
    ],
)
def test_exit(text: str, expected: tuple[int | None, int | None]) -> None:
    assert slurm_values.parse_exit(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("1795233529", 1795233529), ("0", None), ("N/A", None), ("2026-11-21T03:59:17", None)]
)
def test_epoch(text: str, expected: int | None) -> None:
    assert slurm_values.parse_epoch(text) == expected


@given(st.text())
def test_readers_of_what_slurm_printed_never_raise(text: str) -> None:
    for read in (
        slurm_values.parse_tres,
        slurm_values.parse_gres,
        slurm_values.parse_exit,
        slurm_values.parse_epoch,
        slurm_values.parse_count,
        slurm_values.read_time_limit,
        slurm_values.present,
    ):
        read(text)


@given(st.text())
def test_readers_of_what_people_type_raise_usage_errors(text: str) -> None:
    for read in (slurm_values.parse_memory, slurm_values.parse_time_limit):
        try:
            read(text)
        except UsageError:
            continue


@given(st.lists(st.text(alphabet="ab1", max_size=4), min_size=1))
def test_splitting_outside_brackets(pieces: list[str]) -> None:
    wrapped = [f"{piece}[{piece},{piece}]({piece},x)" for piece in pieces]
    assert list(slurm_values.split_outside_brackets(",".join(wrapped))) == wrapped
