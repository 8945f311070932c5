"""The folder on this computer: links that lead out, environments, and the home."""

from __future__ import annotations

import pytest

from jupyter_slurm.errors import UsageError
from jupyter_slurm.services.staging.local_folder import FolderTree, check_source


@pytest.mark.parametrize(
    ("name", "target", "is_safe"),
    [
        ("a", "b", True),
        ("sub/a", "../b", True),
        ("a", "../b", False),
        ("a", "/etc/passwd", False),
        ("a", "sub/../b", False),
        ("a", "out/file", False),
        ("a", ".git/config", False),
        ("a", "env/bin/python", False),
    ],
)
def test_a_new_link_stays_in_the_folder(tmp_path, name, target, is_safe):
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "env").mkdir()
    (folder / "env" / "pyvenv.cfg").touch()
    (folder / "out").symlink_to(tmp_path)  # the user's own
    assert FolderTree.read(str(folder)).is_safe_link(name, target) is is_safe


def test_an_environment_made_in_the_folder_itself_leaves_the_files_of_the_user(tmp_path):
    for name in ("bin/python", "lib/site.py", "pyvenv.cfg", "train.py", "src/model.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert set(FolderTree.read(str(tmp_path)).files) == {"train.py", "src/model.py"}


def test_a_home_is_not_staged_by_any_of_its_names(tmp_path, monkeypatch):
    home = tmp_path / "homes" / "me"
    home.mkdir(parents=True)
    (tmp_path / "link").symlink_to(home)
    monkeypatch.setenv("HOME", str(home))
    for path in (home, tmp_path / "link", tmp_path / "homes", tmp_path):
        with pytest.raises(UsageError, match="all of your files"):
            check_source(str(path))
    (home / "project").mkdir()
    assert check_source(str(home / "project")).path == str(home / "project")
