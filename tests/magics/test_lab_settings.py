"""Tests of the start values of the launch form as a widget: those of JupyterLab's settings and of the profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_slurm.widgets.lab_settings import lab_start_values, with_lab_values

# As JupyterLab writes it: it describes each setting in a comment.
WRITTEN = """{
    // Slurm launch form
    // jupyter-slurm:sessions
    // **********************

    // GPUs
    // 0: without a GPU. Empty: as the site profile says, else 1.
    "gpus": "2",

    // Partition
    // Empty: the default of the cluster.
    "partition": "gpu//a",
    "memory": " ",
    "idle": "90 min"
}
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide the file of the settings, in a folder of JupyterLab's settings."""
    monkeypatch.setenv("JUPYTERLAB_SETTINGS_DIR", str(tmp_path))
    file = tmp_path / "jupyter-slurm" / "sessions.jupyterlab-settings"
    file.parent.mkdir()
    return file


def test_the_settings_of_jupyterlab_count_over_the_profile(settings: Path) -> None:
    assert lab_start_values() == {}
    settings.write_text(WRITTEN)
    found = lab_start_values()
    assert found == {"gpus": "2", "partition": "gpu//a", "idle": "90 min"}
    profile = {"idle": 86400, "gpus": 1, "gpu_type": "a100", "cpus": 4, "partition": "cpu"}
    values = {"idle": "90 min", "gpus": "a100:2", "cpus": 4, "partition": "gpu//a"}
    assert with_lab_values(profile, found) == values
    assert with_lab_values(profile, {}) == {"idle": "", "gpus": "a100:1", "cpus": 4, "partition": "cpu"}


@pytest.mark.parametrize(("profile", "given"), [({"gpus": 0}, {"gpus": "2"}), ({"gpus": 1}, {"gpus": "0"})])
def test_no_gpus_are_requested_where_there_are_none_or_the_user_wants_none(
    profile: dict[str, object], given: dict[str, str]
) -> None:
    assert "gpus" not in with_lab_values({**profile, "gpu_type": "a100"}, given)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"gpus": 2}'])
def test_settings_that_cannot_be_read_change_nothing(settings: Path, text: str) -> None:
    settings.write_text(text)
    assert lab_start_values() == {}
