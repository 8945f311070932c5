"""Tests of the files that name the packages of an environment."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jupyter_slurm.client.environments.package_files import read_packages
from jupyter_slurm.errors import UsageError


def test_files_become_requests(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "mine"\ndependencies = ["numpy>=1", "torch"]\n')
    (tmp_path / "uv.lock").write_text("version = 1\n")
    (tmp_path / "environment.yml").write_text("dependencies: [python=3.12]\n")
    found = read_packages(str(tmp_path / "pyproject.toml"))
    assert found.files == {"requirements.txt": "numpy>=1\ntorch\n"}
    assert found.notes == ["The project of pyproject.toml itself is not installed."]
    assert set(read_packages(str(tmp_path / "uv.lock")).files) == {"uv.lock", "pyproject.toml"}
    assert read_packages(str(tmp_path / "environment.yml")).kind == "conda"


def test_this_python_is_its_exact_versions() -> None:
    found = read_packages("this")
    assert found.python == "{}.{}".format(*sys.version_info[:2])
    assert "\nparamiko==" in found.files["requirements.txt"]


@pytest.mark.parametrize("line", ["-e .", "./mine", "/data/mine.whl", "-r other.txt", "mine @ file:///data/mine"])
def test_files_of_this_computer_are_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "requirements.txt").write_text(f"--extra-index-url https://example.org/simple\nnumpy\n{line}\n")
    with pytest.raises(UsageError, match=r"Line 3 of requirements.txt"):
        read_packages(str(tmp_path / "requirements.txt"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.poetry.dependencies]\npython = '>=3.11'\nnumpy = '^2'", r"sets dependencies under \[tool.poetry\]"),
        ("[project]\ndynamic = ['version', 'dependencies']", "is made when the project is built"),
        ("[project]\nname = 'mine'", "is empty"),
        ("[project]\ndependencies = ['a']\n[tool.uv.sources]\na = {git = 'https://x'}", r"sources under \[tool.uv\]"),
        ("[project]\ndependencies = ['a']\n[[tool.uv.index]]\nurl = 'https://x'", r"index under \[tool.uv\]"),
    ],
)
def test_a_project_whose_packages_another_program_tells_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError, match=said) as refused:
        read_packages(str(tmp_path / "pyproject.toml"))
    assert "from=uv.lock" in str(refused.value.hint)


def test_settings_of_a_tool_that_change_no_package_are_no_obstacle(tmp_path: Path) -> None:
    text = "[project]\ndependencies = ['a']\n[tool.poetry.dependencies]\npython = '>=3.11'\n[tool.uv]\nindex = []\n"
    (tmp_path / "pyproject.toml").write_text(text)
    assert read_packages(str(tmp_path / "pyproject.toml")).files == {"requirements.txt": "a\n"}
