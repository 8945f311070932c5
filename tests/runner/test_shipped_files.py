"""The files of the runner that go to a cluster: all of the package but those that are sent in another way."""

from __future__ import annotations

import ast
import re
from importlib import resources
from pathlib import Path

import pytest

from jupyter_slurm.services.jobdir.runner_files import RUNNER, find_files, shipped

PACKAGE = Path(str(resources.files("jupyter_slurm.runner")))
MODULES = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"}


def test_all_of_the_runner_goes_to_the_cluster() -> None:
    moves = {name for name in MODULES if name.startswith("variables/")} - {
        "variables/safe_form.py",
        "variables/values_file.py",
    }
    sent_as_text = {"login_node/files.py", "login_node/starter.py", *moves}  # to a login node, to a kernel
    assert MODULES - set(RUNNER) == {*sent_as_text, "job_document.py"}  # which no program loads
    assert set(RUNNER) <= MODULES


def test_what_most_jobs_start_is_written_last() -> None:
    assert RUNNER[0] == "cell/run.py"  # they are written in the reverse order
    assert list(RUNNER[1:]) == sorted(RUNNER[1:])


def test_a_new_file_is_shipped(tmp_path: Path) -> None:
    (tmp_path / "kernel" / "__pycache__").mkdir(parents=True)
    for name in ("kernel/new.py", "kernel/__init__.py", "kernel/__pycache__/new.pyc", "kernel/notes.txt", "top.py"):
        (tmp_path / name).touch()
    assert find_files(tmp_path) == ("kernel/new.py", "top.py")


@pytest.mark.parametrize("name", sorted(MODULES))
def test_types_of_documents_are_for_type_checkers_alone(name: str) -> None:
    tree = ast.parse((PACKAGE / name).read_text("utf-8"))
    checked = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    skipped = {id(inner) for node in checked for part in node.body for inner in ast.walk(part)}
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and id(node) not in skipped]
    assert "jupyter_slurm.runner.job_document" not in {node.module for node in imports}


@pytest.mark.parametrize("name", RUNNER)
def test_a_file_finds_what_it_loads_and_is_python_3_8(name: str) -> None:
    text = shipped(name).decode("utf-8")
    ast.parse(text, feature_version=(3, 8))
    loaded = re.findall(r'(?:\bload|\bpath_of|\["load"\]|\["path_of"\])\("([\w.]+)"\)', text)
    assert {f"{one.replace('.', '/')}.py" for one in loaded} <= set(RUNNER)
