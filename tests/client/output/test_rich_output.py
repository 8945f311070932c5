"""Tests of a cell's displays from the runner's record, which may be cut anywhere or hostile."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_slurm.client.output.rich_output import DisplayedOutput
from jupyter_slurm.client.output.timeline import Timeline, omitted_text


def _line(kind: str, text: str = "", name: str | None = None, **more: Any) -> bytes:
    message = {"type": kind, "data": {"text/plain": text}, "metadata": {}, "id": name, **more}
    return json.dumps(message).encode() + b"\n"


class Record:
    """The growing record file."""

    def __init__(self, limit: int = 10_000) -> None:
        self.timeline, self.size = Timeline(1000, limit), 0

    def feed(self, data: bytes) -> str:
        self.size += len(data)
        return self.timeline.feed("display", self.size - len(data), data).decode()

    def shown(self) -> list[DisplayedOutput]:
        return [block for block in self.timeline.blocks(1000, {}) if isinstance(block, DisplayedOutput)]

    def texts(self) -> list[str]:
        return [shown.data["text/plain"] for shown in self.shown()]


def _fed(*lines: bytes, limit: int = 10_000) -> Record:
    record = Record(limit)
    record.feed(b"".join(lines))
    return record


def test_an_update_takes_the_place_of_all_outputs_with_its_id() -> None:
    displays = _fed(_line("display", "1", "a"), _line("display", "2"), _line("display", "3", "a"))
    before = displays.shown()
    displays.feed(_line("update", "new", "a"))
    assert displays.texts() == ["new", "2", "new"]
    assert [now is then for now, then in zip(displays.shown(), before, strict=True)] == [False, True, False]


def test_a_display_of_very_many_lists_is_left_out() -> None:
    huge = b'{"type": "display", "metadata": {}, "data": {"application/json": [' + b"[]," * 1_000_000 + b"[]]}}\n"
    assert _fed(huge, _line("display", "1"), limit=100 << 20).texts() == ["1"]


def test_an_update_of_what_is_not_there_is_shown() -> None:
    assert _fed(_line("update", "x", "a")).texts() == ["x"]


def test_clearing_waits_for_the_next_output_where_that_was_said() -> None:
    displays = _fed(_line("display", "1", "a"), _line("display", "2"))
    displays.feed(_line("clear", wait=True))
    assert displays.texts() == ["1", "2"]
    displays.feed(_line("update", "one", "a"))
    assert displays.texts() == ["one", "2"]
    displays.feed(_line("display", "3"))
    assert displays.texts() == ["3"]
    displays.feed(_line("clear", wait=False))
    assert displays.texts() == []


def test_half_a_line_of_a_killed_job_costs_only_itself() -> None:
    displays = _fed(_line("display", "1"), _line("display", "2")[:20], b"\n", b'{"format":1}\n', _line("display", "3"))
    assert displays.texts() == ["1", "3"]
    displays.feed(_line("display", "4")[:-1])
    assert displays.texts() == ["1", "3"]


def test_more_than_the_limit_is_counted_and_updates_in_place_go_on() -> None:
    displays = _fed(_line("display", "x" * 400, "a"), _line("display", "y" * 700), limit=1000)
    assert (len(displays.shown()), displays.timeline.omitted) == (1, 1)
    displays.feed(_line("update", "z" * 500, "a") * 50)
    assert displays.texts() == ["z" * 500]
    assert displays.timeline.omitted == 1
    displays = _fed(*[_line("display", str(i)) for i in range(3000)], limit=10_000_000)
    assert (len(displays.shown()), displays.timeline.omitted) == (1000, 2000)
    assert omitted_text(2000, "/job", displays.timeline).endswith("are not shown; all are in /job.")
    displays.feed(b'{"type": "full"}\n')
    assert omitted_text(2000, "/job", displays.timeline).endswith("they are in /job; later ones were not kept.")


def test_what_is_new_has_a_text_form() -> None:
    displays = Record(1000)
    assert displays.feed(_line("display", "one") + _line("display", "two")[:9]) == "one\n"
    assert displays.feed(_line("display", "two")[9:] + b"rubbish\n") == "two\n"


@given(
    st.lists(st.sampled_from([_line("display", "1", "a"), _line("update", "2", "a"), _line("clear", wait=True)])),
    st.lists(st.integers(0, 2000)),
)
def test_it_does_not_matter_where_the_file_is_cut(lines: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(lines)
    at = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    displays = Record()
    for start, end in itertools.pairwise(at):
        displays.feed(whole[start:end])
    assert displays.texts() == _fed(whole).texts()


@settings(suppress_health_check=[HealthCheck.too_slow])  # it is slow on a busy machine
@given(
    st.one_of(
        st.binary(),
        st.dictionaries(
            st.sampled_from(["type", "data", "metadata", "id", "wait", "at", "format"]),
            st.one_of(
                st.none(), st.integers(), st.just("display"), st.just("update"), st.dictionaries(st.text(), st.text())
            ),
        ).map(lambda message: json.dumps(message).encode() + b"\n"),
    )
)
def test_nothing_in_the_file_stops_it(content: bytes) -> None:
    displays = _fed(content, b"\n", _line("display", "last"))
    assert displays.shown()[-1].data["text/plain"] == "last"
    deep = b'{"type":"display","data":' + b"[" * 100_000
    assert not _fed(deep + b"\n").shown()
