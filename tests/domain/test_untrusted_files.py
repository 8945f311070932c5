"""Files that run by themselves, and files that are never copied, from any listing of a hostile host."""

from __future__ import annotations

import hostile_job
import pytest

from jupyter_slurm.domain.staging_rules import FileSignature, FolderChange, LocalSide, chosen, difference_options
from jupyter_slurm.domain.untrusted_files import environment_folders, environment_of, is_never_copied, runs_by_itself

NEW = FileSignature(2, 200)


@pytest.mark.parametrize("path", hostile_job.HELD)
def test_what_runs_by_itself_is_held_until_it_is_named(path):
    change = FolderChange(path, NEW, False)
    choice = chosen([change], {}, lambda _: None, is_pull=True)
    assert (choice.copied, choice.held) == ([], [path])
    accepted = LocalSide(accepted=frozenset({path}))
    assert chosen([change], {}, lambda _: None, is_pull=True, local=accepted).copied == [change]
    assert chosen([change], {}, lambda _: None, is_pull=False).copied == [change]


@pytest.mark.parametrize(
    "path",
    "train.py result.csv model/weights.pt out/.hydra/config.yaml a/types.txt notes.ipynb maker é.txt .gitignore".split(),
)
def test_usual_results_are_not_held(path):
    assert not runs_by_itself(path, is_new=True)


def test_a_module_of_the_user_may_have_a_name_of_python_but_a_job_makes_none():
    assert runs_by_itself("pkg/types.py", is_new=True)
    assert not runs_by_itself("pkg/types.py", is_new=False)
    assert not runs_by_itself("types/data.csv", is_new=True)


@pytest.mark.parametrize(
    "path", [".GIT/config", ".g\u200cit/x", "a/.ssh/id", ".hg/hgrc", ".rsync-filter", "a/.RSYNC-FILTER"]
)
def test_never_comes_back_also_if_named(path):
    local = LocalSide(accepted=frozenset({path}))
    choice = chosen([FolderChange(path, NEW, False)], {}, lambda _: None, is_pull=True, local=local)
    assert (choice.copied, choice.refused) == ([], [path])


def test_environments_are_known_by_their_mark_and_told_once():
    listing = [FolderChange(f"my env/{name}", NEW, False) for name in ("bin/python", "lib/x.pth", "pyvenv.cfg")]
    choice = chosen(listing, {}, lambda _: None, is_pull=True)
    assert (choice.copied, choice.held, choice.refused) == ([], [], ["my env"])
    here = LocalSide(environments=frozenset({"my env"}))
    assert chosen(listing[:2], {}, lambda _: None, is_pull=False, local=here).copied == []
    assert environment_folders(["a/b/conda-meta/history", "pyvenv.cfg"]) == {"a/b"}
    assert environment_of("a/b/c", {"a/b"}) == "a/b"
    assert environment_of("a/bc", {"a/b"}) is None
    assert not is_never_copied("git/config")


def test_the_filter_of_this_computer_replaces_one_that_a_job_has_changed():
    change = FolderChange("sub/.rsync-filter", NEW, False)
    assert chosen([change], {change.path: NEW}, lambda _: None, is_pull=False).copied == [change]


def test_exclusions_stand_before_the_filter_of_the_folder():
    options = difference_options({"a[1]\\x", "plain\\y"})
    assert options.index("--exclude=/a\\[1\\]\\\\x") < options.index("--filter=dir-merge .rsync-filter")
    assert "--exclude=/plain\\y" in options
    assert "--exclude=.[gG][iI][tT]" in options


def test_a_link_without_a_target_is_no_link_to_trust():
    link = FolderChange("x", FileSignature(1, -1), False)
    assert chosen([link], {}, lambda _: None, is_pull=True).refused == ["x"]
