"""Tests of the output of several ranks under a cell: one is visible, the others are folded."""

from __future__ import annotations

import pytest

from jupyter_slurm.client.output.timeline import Timeline
from jupyter_slurm.client.render.job_card import OutputPane, as_html, as_text, output_as_html
from jupyter_slurm.client.render.rank_fold import RankedScreen, fold, open_rank

JOB = {"id": "7", "state": "RUNNING", "launcher": "srun"}


def drawn(*pieces: bytes, limit: int = 100_000) -> RankedScreen:
    screen = RankedScreen(limit)
    for piece in pieces:
        screen.feed(piece)
    return screen


def test_ranks_stand_one_after_the_other_each_as_in_a_terminal() -> None:
    screen = drawn(
        b"[1] b\n[0] a\n[1] 1",
        b"0%\r\x1b[K[0] 5%\r\x1b[K[1] 99%\r",
        b"srun: error\n\x1b[K[0] c\n",
        b"[1] \x1b[2J\x1b[Hnew\n",
    )
    assert screen.text() == "srun: error\n[0] a\n[0] c%\n[1] new\n"
    assert screen
    assert not screen.dropped
    assert not drawn()


def test_much_of_many_ranks_stays_within_the_limit_and_the_first_has_most() -> None:
    lines = b"".join(b"[%d] %s\n" % (rank, b"x" * 60) for _ in range(50) for rank in range(64))
    screen = drawn(lines, limit=65_536)
    assert len(screen.text()) < 65_536
    assert screen.dropped
    assert screen.text().count("[0] ") > screen.text().count("[1] ") > 1
    assert drawn(b"".join(b"[%d] x\n" % rank for rank in range(10_000))).text().count("\n") == 10_000


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 1, 0)])
def test_the_first_rank_has_most_whichever_comes_first(order: tuple[int, ...]) -> None:
    came = [b"[%d] here\n" % rank for rank in order]
    screen = drawn(*came, *(b"[%d] %s\n" % (rank, b"x" * 60) for _ in range(100) for rank in range(3)), limit=65_536)
    counts = [screen.text().count(f"[{rank}] ") for rank in range(3)]
    assert counts[0] == 101
    assert counts[1] == counts[2] < 50
    assert screen.dropped


def test_one_rank_is_open_and_the_others_are_counted() -> None:
    text = drawn(b"[2] only\n[1] one\n[1] two\n[0] here\nsrun says\n").text()
    assert fold(text, 0) == ("srun says\n[0] here", "[1] 2 lines, [2] 1 line", "[1] one\n[1] two\n[2] only")
    assert fold("[3] alone\n", 0) == ("[3] alone", "", "")
    many = "".join(f"[{rank}] x\n" for rank in range(20))
    assert fold(many, 4)[0] == "[4] x"
    assert fold(many, 4)[1].endswith("[8] 1 line, 11 more ranks, 11 lines")
    assert open_rank(JOB) == 0
    assert open_rank({**JOB, "ranks": {"first": {"rank": 5}}}) == 5
    assert open_rank({"id": "7"}) is None


def test_the_card_folds_without_scripts_and_escapes() -> None:
    timeline = Timeline(10_000, 10_000, has_ranks=True)
    timeline.feed("stdout", 0, b"[0] <b>zero</b>\n[1] <script>\n")
    (panes,) = timeline.blocks(10_000, JOB)
    assert isinstance(panes, tuple)
    html = as_html(JOB, panes)
    seen, _, folded = html.partition("[1] 1 line</summary>")
    assert "[0] &lt;b&gt;zero" in seen
    assert "[1] &lt;script&gt;" in folded
    assert as_text(JOB, panes).endswith("[0] <b>zero</b>\n… and [1] 1 line")
    assert "<details>" not in output_as_html(
        [OutputPane("stdout", "[0] a\n[1] b\n", False, None)]
    )  # without ranks: unchanged
