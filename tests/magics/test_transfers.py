"""Tests of the words of transfers, in a notebook and a terminal, here and over SSH."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.client.transfers.request import parse_words
from jupyter_slurm.errors import UsageError

pytestmark = pytest.mark.slurm


def terminal(environment: dict[str, str], *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "jupyter_slurm.cli.main", *words]
    env = {**os.environ, **environment}
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=90, check=False, **options)


def test_files_go_to_the_cluster_and_back(kernel: Any, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a file").write_text("of the notebook")
    sent = kernel.ok(f"%slurm put '{tmp_path}/data' {tmp_path}/far/").result["text/plain"]
    assert sent.startswith(f"Copied 1 file (15 B) to {tmp_path}/far")
    assert (tmp_path / "far/data/a file").read_text() == "of the notebook"
    again = kernel.ok(f"%slurm put {tmp_path}/dat[a] {tmp_path}/far").result["text/plain"]
    assert "1 is unchanged" in again

    (tmp_path / "far/data/a file").write_text("of a job")
    refused = kernel.run(f"%slurm get {tmp_path}/far/data {tmp_path}")
    assert (refused.error, "data/a file" in refused.traceback) == ("CommandError", True)
    assert "overwrite" in refused.traceback
    kernel.ok(f"%slurm get {tmp_path}/far/data {tmp_path} overwrite")
    assert (tmp_path / "data/a file").read_text() == "of a job"
    assert "finished" in kernel.ok("%slurm transfers").result["text/plain"]

    for line in (f"put {tmp_path}/data/'a file' {tmp_path}/none/x", f"get {tmp_path}/far/data {tmp_path}/none/x"):
        refused = kernel.run(f"%slurm {line}")
        assert f"the directory {tmp_path}/none does not exist" in refused.traceback, line
    assert "Write the path without the variable" in kernel.run(f"%slurm put {tmp_path}/data '$NONE_SUCH/'").traceback
    assert "There is no transfer '999'." in kernel.run("%slurm transfers stop 999").traceback


def test_copies_within_a_cluster_and_a_staged_folder(kernel: Any, tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from/x").write_text("x")
    kernel.ok(f"%slurm copy {tmp_path}/from {tmp_path}/to")
    assert (tmp_path / "to/x").read_text() == "x"
    (tmp_path / "from/x").write_text("xx")
    assert kernel.run(f"%slurm copy {tmp_path}/from/x {tmp_path}/to/").error == "CommandError"
    kernel.ok(f"%slurm copy {tmp_path}/from/x {tmp_path}/to/ overwrite")
    assert (tmp_path / "to/x").read_text() == "xx"

    staged = kernel.ok(f"%slurm stage {tmp_path}/from").result["text/plain"]
    place = re.fullmatch(r"Staged in (\S+)\. 1 file \(2 B\) was copied\.\s*", staged)
    assert place is not None, staged
    assert (Path(place[1]) / "x").read_text() == "xx"
    again = kernel.ok(f"%slurm stage {tmp_path}/from").result["text/plain"]
    assert "0 files (0 B) were copied. 1 is unchanged." in again


def test_a_folder_of_the_cluster_is_staged_and_a_job_runs_in_it(kernel: Any, tmp_path: Path) -> None:
    (tmp_path / "code/.git").mkdir(parents=True)
    (tmp_path / "code/.git/config").touch()
    (tmp_path / "code/train.py").write_text("print('trained')")
    (tmp_path / "code/out").symlink_to("/etc/passwd")
    kernel.ok("from jupyter_slurm.client.clusters.cluster import current")
    name = kernel.value("current().name")
    staged = kernel.ok(f"%slurm stage {name}:{tmp_path}/code").result["text/plain"]
    found = re.match(r"Staged in (\S+)\. 1 file \(16 B\) was copied\.\nA job runs in it with --chdir=(\S+)\.\n", staged)
    assert found is not None, staged
    assert found[1] == found[2]
    assert "Not copied (links that lead out, or devices): code/out." in staged
    assert sorted(os.listdir(found[1])) == [".jupyter-slurm-stage", "train.py"]
    kernel.ok(f"%%sbatch --chdir={found[2]} -t 2 wait\n#!/bin/bash\npython3 train.py > trained", timeout=90)
    assert (Path(found[1]) / "trained").read_text() == "trained\n"
    (tmp_path / "code/train.py").unlink()
    again = kernel.ok(f"%slurm stage {name}:{tmp_path}/code {found[1]} sync=delete").result["text/plain"]
    assert again.startswith(f"Staged in {found[1]}. 0 files (0 B) were copied.")
    assert sorted(os.listdir(found[1])) == [".jupyter-slurm-stage", "trained"]
    refused = kernel.run(f"%%sbatch stage={name}:{tmp_path}/code\n1")
    assert "%slurm stage CLUSTER:FOLDER" in refused.traceback


@pytest.mark.carrier("paramiko")
def test_a_job_copies_within_a_cluster(kernel: Any, tmp_path: Path) -> None:
    (tmp_path / "from/sub").mkdir(parents=True)
    (tmp_path / "from/sub/a b").write_text("x" * 1000)
    (tmp_path / "from/empty").mkdir()
    (tmp_path / "other").write_text("other")
    line = f"%slurm copy -t 5 {tmp_path}/from {tmp_path}/other {tmp_path}/to/ --job-name moved"
    copied = kernel.ok(line, timeout=90).result["text/plain"]
    found = re.search(r"Copied 2 files \(1005 B\) to \S+\. Job (\d+) copied\.", copied)
    assert found is not None, copied
    assert (tmp_path / "to/from/sub/a b").read_text() == "x" * 1000
    assert (tmp_path / "to/from/empty").is_dir()
    assert sorted(os.listdir(tmp_path / "to")) == ["from", "other"]
    kernel.ok(f"import jupyter_slurm\njob = jupyter_slurm.job({found[1]!r})")
    assert kernel.value("job.name + ' ' + job.state") == "moved COMPLETED"

    (tmp_path / "other").write_text("another")
    refused = kernel.run(f"%slurm copy {tmp_path}/other {tmp_path}/to/ where=job")
    assert "The destination has other files of these names: other" in refused.traceback
    refused = kernel.run(f"%slurm copy {tmp_path}/other {tmp_path}/third -p none-such")
    assert "invalid partition" in refused.traceback.lower(), refused.traceback
    assert sorted(os.listdir(tmp_path)) == ["from", "other", "to"]


def test_a_terminal(environment: dict[str, str], kernel: Any, tmp_path: Path) -> None:
    kernel.ok("%slurm sh true")  # the login of the notebook
    (tmp_path / "a").write_text("a")
    done = terminal(environment, "put", "a", f"{tmp_path}/b", cwd=tmp_path)
    assert done.returncode == 0, done.stderr  # a transfer that takes more than a moment shows its progress
    assert (tmp_path / "b").read_text() == "a"
    (tmp_path / "b").write_text("longer")
    done = terminal(environment, "get", f"{tmp_path}/b", "a", cwd=tmp_path)
    assert done.returncode == 1
    assert "overwrite" in done.stderr
    done = terminal(environment, "get", f"{tmp_path}/b", "a", "overwrite", "background", cwd=tmp_path)
    assert "`jupyter slurm transfers` shows its progress" in done.stdout
    assert "has started" in done.stdout
    kernel.ok("from jupyter_slurm.client.clusters.cluster import current")
    (tmp_path / "code").mkdir()
    words = (f"{kernel.value('current().name')}:{tmp_path}/code", f"{tmp_path}/far", "sync=delete")
    done = terminal(environment, "stage", *words, cwd=tmp_path)
    assert done.stdout.startswith(f"Staged in {tmp_path}/far. 0 files (0 B) were copied."), done
    assert "get" in terminal(environment, "transfers").stdout
    assert terminal(environment, "transfers", "stop", "0" * 12).returncode == 1


@pytest.mark.here_only("over SSH, they begin in the home directory")
def test_relative_paths_begin_in_the_working_directory_as_those_of_ls_do(kernel: Any, tmp_path: Path) -> None:
    (tmp_path / "one").write_text("one")
    kernel.ok(f"import os\nbefore = os.getcwd()\nos.chdir({str(tmp_path)!r})")
    try:
        kernel.ok("%slurm copy one two\n%slurm put two three/\n%slurm get three/two four")
        assert (tmp_path / "three/two").read_text() == (tmp_path / "four").read_text() == "one"
        kernel.ok("found = %slurm ls three")
        assert kernel.value("found.path") == f"{tmp_path}/three"
    finally:
        kernel.ok("os.chdir(before)")


@pytest.mark.parametrize(
    ("kind", "words", "said"),
    [
        ("put", "x", "A source and a destination are needed"),
        ("put", "far:x y", "Only files of this computer can be sent, but far:x is on a cluster"),
        ("get", "x far:y", "The destination must be on this computer, but far:y is on a cluster"),
        ("put", "no-such-file far:", "does not exist on this computer"),
        ("put", "-r x y", "no option '-r'"),
        ("get", "one:x two:y .", "The sources are on one and two"),
        ("stage", "x y z", "Name one folder"),
        ("copy", "x y where=moon", "where=moon is not supported"),
        ("stage", "one:x two:/y", "one:x is on one, but its destination two:/y is on two"),
        ("stage", "one:x overwrite", "Name one folder"),
        ("stage", "x where=job", "where=job is for a folder of a cluster, but x is on this computer"),
        ("stage", "one:x sync=checksum", "sync=checksum is not supported"),
        ("stage", "one:x where=moon", "where=moon is not supported"),
    ],
)
def test_words_that_are_wrong(kind: str, words: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_words(kind, words.split())


def test_a_file_with_the_name_of_a_keyword_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell puts it in place of ``*``: it must not replace files of the destination."""
    (tmp_path / "overwrite").touch()
    monkeypatch.chdir(tmp_path)
    found = parse_words("put", ["overwrite", "one:x", "background"])
    assert (found.sources, found.keywords) == ([f"{tmp_path}/overwrite"], {"background"})


def test_words_of_a_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = parse_words("stage", ["one:my/code", "sync=delete", "where=job"])
    assert (found.cluster, found.to_cluster, found.sources, found.dest) == ("one", "one", ["my/code"], "")
    assert (found.keywords, found.where) == ({"sync=delete", "where=job"}, "job")
    for dest in ("$SCRATCH/a:b", "one:$SCRATCH/a:b"):
        assert parse_words("stage", ["one:$HOME/code", dest]).dest == "$SCRATCH/a:b"
    assert parse_words("stage", ["one:"]).sources == ["."]
    (tmp_path / "one:x").mkdir()
    for words in (["one:x", "two:/y"], ["./one:x", "two:/y"]):
        found = parse_words("stage", words)
        assert (found.cluster, found.to_cluster, found.sources) == ("two", None, [f"{tmp_path}/one:x"])


def test_words_of_a_copy() -> None:
    found = parse_words("copy", ["one:x", "y", "two:", "overwrite"])
    assert (found.cluster, found.sources, found.to_cluster, found.dest) == ("one", ["x", "y"], "two", ".")
    found = parse_words("get", ["one:$SCRATCH/a:b", "./c:d"])
    assert (found.cluster, found.sources, found.dest) == ("one", ["$SCRATCH/a:b"], os.path.abspath("c:d"))
