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


@pytest.mark.parametrize(
    ("line", "is_old"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82.01  Wed Oct 27 21:21:55 UTC 2021", True),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs@U22)", False),
        ("", False),
    ],
)
def test_a_node_whose_driver_is_too_old_is_named(tmp_path, line, is_old):
    (tmp_path / "bin").mkdir()
    file = tmp_path / "version"
    if line:
        file.write_text(line + "\n")
    environment = Environment("it's mine", venv=str(tmp_path), cuda=12, min_driver=525)
    text = environment.activation().replace("/proc/driver/nvidia/version", str(file))
    done = subprocess.run(["bash", "-e", "-c", text], capture_output=True, text=True, check=True)
    expected = "the packages of it's mine are built for CUDA 12, which needs driver 525 or newer. The driver of "
    assert (expected in done.stderr and "is 470." in done.stderr) if is_old else done.stderr == ""
    assert "cuda" not in environment.as_dict()
