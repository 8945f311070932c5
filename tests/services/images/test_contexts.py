"""Tests of the build context from a laptop's folder: the files that the build file names, and no other files."""

from __future__ import annotations

import io
import os
import re
import tarfile
from pathlib import Path

import pytest

from jupyter_slurm.domain.containers.build_context import IgnoreRules, definition_sources, dockerfile_sources
from jupyter_slurm.errors import UsageError
from jupyter_slurm.services.images.build_context import PackedContext, packed


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("FROM a\nRUN true\nCOPY --from=b /x /y\nADD https://a/b git@h:x /c\n", []),
        ("FROM a\ncopy --chown=1:1 a b/ /x/\nADD ./c /y\n", ["a", "b/", "./c"]),
        ('FROM a\nCOPY ["a b", "c", "/x"]\nCOPY [ab] /x\n', ["a b", "c", "[ab]"]),
        ("FROM a\nCOPY a \\\n  # between\n\n  b \\\n  /x\nRUN true\n", ["a", "b"]),
        ("# escape=`\nFROM a\nCOPY a `\n  b /x\n", ["a", "b"]),
        ("FROM a\nARG D\nCOPY ${D}/x /x\n", ["."]),
        ("FROM a\nCOPY / /x\nCOPY /a /x\n", [".", "a"]),
        ("FROM a\nRUN <<EOF\nCOPY no /x\nEOF\nCOPY <<-'END' /y\n\tCOPY no /x\n\tEND\nCOPY a /x\n", ["a"]),
        ("FROM a\nRUN cat <<EOF\nCOPY a /x\n", ["a"]),
        ("FROM a\nRUN --mount=type=bind,source=s --mount=type=cache,target=/c true\n", ["s"]),
        ("FROM a\nRUN --mount=target=/all true\nRUN --mount=from=b,target=/x true\n", ["."]),
        ("FROM a\n#COPY a /x\nONBUILD COPY a /x\nENV COPY a\n", []),
    ],
)
def test_what_a_dockerfile_takes(text: str, found: list[str]) -> None:
    assert dockerfile_sources(text) == found


def test_what_a_definition_file_takes() -> None:
    text = 'Bootstrap: docker\nFrom: a\n%files\n  a /x\n  # not b\n\n  "c d" /y\n  e*\n%post\n  f\n%files from one\n  g /g\n'
    assert definition_sources(text) == ["a", "c d", "e*"]
    assert definition_sources("Bootstrap: docker\nFrom: a\n%files\n  {{ WHERE }}/a /x\n") == ["."]


@pytest.mark.parametrize(
    ("lines", "out", "kept"),
    [
        ("*.log\n", ["a.log"], ["b/a.log", "a.logs"]),
        ("**/*.log\n", ["a.log", "b/c/a.log"], ["alog"]),
        ("/data\n# note\n  \n", ["data", "data/x"], ["b/data", "note"]),
        ("*/temp?\n", ["b/temp1"], ["b/temp", "temp1", "b/c/temp1"]),
        ("*\n!README*\n!src/**\nsrc/no\n", ["a", "src/no"], ["README.md", "src/a/b"]),
        ("docs\n!docs/keep\n", ["docs/x"], ["docs/keep"]),
        ("a[0-9]\n[^x]y\n\\*z\n./q/../r\n", ["a1", "by", "*z", "r"], ["ab", "xy", "az", "q"]),
        ("**/a/**/b*.[ch]?\n", ["a/b.cc", "x/a/y/z/b1.h+"], ["b.cc", "a/b.c", "a/b/x.cc", "xa/b.cc"]),
        pytest.param(f"{'**/' * 60}{'*a' * 60}b\n", [f"{'c/' * 60}{'a' * 90}b"], ["c/" * 60 + "a" * 90], id="in time"),
        (".\n**/.git\nbuild/**\n", [".git", "x/.git/y", "build/x"], ["git", "build"]),
    ],
)
def test_what_a_dockerignore_leaves_out(lines: str, out: list[str], kept: list[str]) -> None:
    rules = IgnoreRules(lines)
    assert [path for path in [*out, *kept] if rules.leaves_out(path)] == out


def _folder(tmp_path: Path) -> Path:
    folder = tmp_path / "con text"
    for path in ("src/a.py", "src/deep/b.py", "src/c.log", "data/big", "one", "two"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    (folder / "run").write_text("#!")
    (folder / "run").chmod(0o750)
    (tmp_path / "secret").write_text("of the laptop")
    (folder / "out").symlink_to("../secret")
    (folder / "src/out").symlink_to("/etc/hostname")
    (folder / "src/beside").symlink_to("../data")
    (folder / "linked").symlink_to("again")
    (folder / "again").symlink_to("src")
    (folder / "empty").mkdir()
    os.mkfifo(folder / "src/pipe")
    return folder


def _take(folder: Path, text: str, **more: int) -> PackedContext:
    kind = "definition" if text.startswith("Bootstrap") else "dockerfile"
    return packed(str(folder), kind, "Dockerfile", text, **more)


def _inside(made: PackedContext) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(made.data)) as archive:
        return {member.name: member for member in archive}


def test_only_what_is_named_goes_along(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    (folder / ".dockerignore").write_text("**/*.log\n")
    found = _inside(_take(folder, "FROM a\nCOPY src run /x/\nCOPY t?o emp* /y/\n"))
    below = ["src", "src/a.py", "src/beside", "src/deep", "src/deep/b.py", "src/out"]
    assert sorted(found) == sorted(["run", "two", "empty", *below])
    assert (found["run"].mode, found["src/out"].linkname, found["run"].uid) == (0o750, "/etc/hostname", 0)
    whole = _inside(_take(folder, "FROM a\nCOPY . /x/\n"))
    assert {"data/big", "one", ".dockerignore", "out"} <= whole.keys()
    assert whole["out"].issym()
    (folder / "Dockerfile.dockerignore").write_text("*\n!src/deep\n")
    assert sorted(_inside(_take(folder, "FROM a\nCOPY . /x/\n"))) == ["src/deep", "src/deep/b.py"]


def test_links_are_followed_within_the_folder_and_never_out_of_it(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    found = _inside(_take(folder, "FROM a\nCOPY linked/deep /x\n"))
    assert sorted(found) == ["again", "linked", "src/deep", "src/deep/b.py"]
    made = _take(folder, "Bootstrap: docker\nFrom: a\n%files\n  src /src\n")
    assert {"src/beside", "data/big"} <= _inside(made).keys()
    assert (made.skipped, "src/out" in _inside(made)) == (["src/out"], False)
    for source, why in (
        ("out", "out is a link that leads out of"),
        ("src/out", "src/out is a link that leads out of"),
        ("../secret", "../secret, which lies outside of"),
        ("src/../../secret", "which lies outside of"),
        ("no*", "has no such file"),
        ("src/pipe", "has no such file"),
    ):
        with pytest.raises(UsageError, match=f"Dockerfile copies .*{re.escape(why)}"):
            _take(folder, f"FROM a\nCOPY {source} /x\n")
    with pytest.raises(UsageError, match="/etc/hostname, which lies outside of"):
        _take(folder, "Bootstrap: docker\nFrom: a\n%files\n  /etc/hostname /x\n")
    (folder / "whole").symlink_to("/")
    with pytest.raises(UsageError, match="whole is a link that leads out of"):
        _take(folder, "FROM a\nCOPY whole/etc/hostname /x\n")


def test_what_is_too_much_is_refused_before_it_is_read(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    with (folder / "data/big").open("wb") as file:
        file.truncate(300 << 20)
    with pytest.raises(UsageError, match="copies more than 268 MB") as refused:
        _take(folder, "FROM a\nCOPY . /x\n")
    assert ".dockerignore" in str(refused.value.hint)
    (folder / ".dockerignore").write_text("data\n")
    assert "one" in _inside(_take(folder, "FROM a\nCOPY . /x\n"))
    with pytest.raises(UsageError, match=r"has no such file, or \.dockerignore excludes it"):
        _take(folder, "FROM a\nCOPY data /x\n")


def test_what_stays_is_looked_at_only_where_an_exception_may_be_and_not_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _folder(tmp_path)
    for number in range(30):
        (folder / f"data/{number}").touch()
    monkeypatch.setattr("jupyter_slurm.services.images.build_context._MAX_SCANNED_ENTRIES", 20)
    for kept in ("!src/deep", "!./src/d?ep/", "!src/deep/*.py\n!one/more", "!/src/deep/**"):
        (folder / ".dockerignore").write_text(f"*\n{kept}\n")
        assert "src/deep/b.py" in _inside(_take(folder, "FROM a\nCOPY . /x/\n")), kept
    (folder / ".dockerignore").write_text("*\n!**/*.py\n")
    with pytest.raises(UsageError, match="excludes more than 20 files") as refused:
        _take(folder, "FROM a\nCOPY . /x/\n")
    assert "A line with ! and a wildcard" in str(refused.value.hint)


@pytest.mark.parametrize("what", ["a pipe", "a device", "a folder"])
def test_a_dockerignore_that_is_no_file_is_told(tmp_path: Path, what: str) -> None:
    folder = _folder(tmp_path)
    path = folder / ".dockerignore"
    if what == "a pipe":
        os.mkfifo(path)
    elif what == "a device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(UsageError, match=r"\.dockerignore cannot be read: (it is not a file|Is a directory)"):
        _take(folder, "FROM a\nCOPY one /x/\n")
