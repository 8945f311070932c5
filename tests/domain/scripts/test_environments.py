"""Shell text of an environment, run by a real bash."""

import subprocess

import pytest

from jupyter_slurm.domain.scripts.environments import FAILED_EXIT, Environment


@pytest.mark.parametrize("name", ["torch", "~/venvs/torch", "/a folder/it's $(here)"])
def test_what_cannot_be_had_is_named_as_it_was_typed(name):
    text = Environment(name, venv="/no/such").activation()
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == FAILED_EXIT
    assert done.stderr.startswith(f"the environment {name} cannot be had on ")
    assert done.stderr.count("\n") == 1


def test_nothing_is_said_when_all_is_there(tmp_path):
    (tmp_path / "bin").mkdir()
    text = Environment("~/venvs/torch", venv=str(tmp_path)).activation() + "echo $VIRTUAL_ENV"
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{tmp_path}\n", "")
