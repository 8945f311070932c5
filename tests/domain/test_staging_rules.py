"""File transfer before and after a job: parsing of rsync's listing, and files that both sides changed."""

from __future__ import annotations

import calendar

import pytest

from jupyter_slurm.domain.staging_rules import (
    FileSignature,
    FolderChange,
    StagedFolder,
    chosen,
    leads_out,
    parse_listing,
    parse_stage,
    parse_sync,
    with_local_sources,
)
from jupyter_slurm.errors import UsageError

OLD, NEW, NEWER = FileSignature(1, 100), FileSignature(2, 200), FileSignature(3, 300)


def test_the_words_of_a_line():
    assert parse_stage("code") == [StagedFolder("code", None)]
    assert parse_stage("a:b,c:/x y,d:$S/e,~/f:~/g") == [
        StagedFolder("a:b", None),
        StagedFolder("c", "/x y"),
        StagedFolder("d", "$S/e"),
        StagedFolder("~/f", "~/g"),
    ]
    assert parse_sync("delete") == {"checksum": False, "delete": True}
    for wrong in ("", "a,,b", ",", "a,a"):
        with pytest.raises(UsageError):
            parse_stage(wrong)
    with pytest.raises(UsageError, match="not a way to synchronise"):
        parse_sync("deleted")


def test_folders_have_the_variables_of_this_computer_and_directories_those_of_the_cluster():
    far, own = "/users/a/p:/users/a/q,data:$S/d,~/f:~/g", "/home/ana/p:/home/ana/q,data:/s/d,~/f:~/g"
    assert with_local_sources(far, own) == "/home/ana/p:/users/a/q,data:$S/d,~/f:~/g"
    assert with_local_sources("$X", "a,b") == "a,b"


def test_a_list_of_rsync_is_read_with_all_names_there_can_be():
    listing = (
        rb"cd+++++++++ 4096 2026/11/22-15:49:53 d/"
        b"\n"
        rb">f.st...... 12 1970/01/01-00:00:05 d/two\#012lines \#134#123 \#303\#251"
        b"\n"
        rb"cL+++++++++ 1 2024/02/29-23:59:59 link"
        b"\n"
        b"cS+++++++++ 0 2024/02/29-23:59:59 socket\n.d..t...... 9 2024/02/29-23:59:59 ./\nmade up\n"
    )
    at = calendar.timegm((2026, 11, 22, 15, 49, 53))
    assert parse_listing(listing) == [
        FolderChange("d", FileSignature(4096, at), True),
        FolderChange("d/two\nlines \\#123 é", FileSignature(12, 5), False),
        FolderChange("link", FileSignature(1, -1), False),
    ]
    assert parse_listing(b">f+++++++++ 0 2024/02/29-00:00:00 x\n")[0].sign.mtime == calendar.timegm(
        (2024, 2, 29, 0, 0, 0)
    )


@pytest.mark.parametrize(
    ("there", "known", "here", "travels"),
    [
        (NEW, None, None, True),
        (NEW, OLD, OLD, True),
        (NEW, OLD, None, True),
        (OLD, OLD, NEW, False),
        (OLD, OLD, None, False),
        (NEW, OLD, NEWER, None),
        (NEW, None, NEWER, None),
    ],
)
def test_of_results_those_come_that_nobody_has_changed_here(there, known, here, travels):
    """Check that only locally unchanged files are copied back; ``None``: both sides changed the file (reported)."""
    choice = chosen([FolderChange("x", there, False)], {"x": known} if known else {}, lambda _: here, is_pull=True)
    assert (bool(choice.copied), bool(choice.omitted)) == (travels is True, travels is None)


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", "..", "a\0b", ""])
def test_names_that_lead_out_are_left(name):
    choice = chosen([FolderChange(name, NEW, False)], {}, lambda _: None, is_pull=True)
    assert (choice.copied, choice.refused) == ([], [name])


@pytest.mark.parametrize(
    "name", [".git/hooks/pre-commit", "sub/.GIT/config", ".git", ".venv/bin/python", "a/.rsync-partial/b"]
)
def test_nothing_comes_back_into_what_does_not_travel(name):
    """Check any listing of the remote host: this machine would execute a hook of git."""
    assert chosen([FolderChange(name, NEW, False)], {}, lambda _: None, is_pull=True).refused == [name]


def test_what_lies_behind_a_link_is_left():
    def sign_of(name: str) -> FileSignature | None:
        raise OSError(name)

    assert chosen([FolderChange("link/x", NEW, False)], {}, sign_of, is_pull=True).omitted == ["link/x"]
    assert leads_out("a/b", "../../c")
    assert leads_out("a", "/etc")
    assert not leads_out("a/b", "../c")


def test_of_what_is_needed_that_goes_which_the_person_has_changed():
    changes = [FolderChange("mine", NEW, False), FolderChange("of a job that goes on", OLD, False)]
    base = {"mine": OLD, "of a job that goes on": OLD}
    assert [one.path for one in chosen(changes, base, lambda _: None, is_pull=False).copied] == ["mine"]
