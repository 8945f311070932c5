"""Trust in clusters: who is asked, what is remembered, and what is read without a question."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.client import settings as settings_module
from jupyter_slurm.client import trust
from jupyter_slurm.client.jobs.returned_values import Outputs, read_outputs
from jupyter_slurm.config import JupyterSlurm
from jupyter_slurm.errors import JobError
from jupyter_slurm.runner.variables import values_file


class Laptop:
    """A process of a user, with a profile ``far``; ``asked`` has the questions, ``answers`` what is answered."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._monkeypatch = folder, monkeypatch
        self.asked: list[str] = []
        self.answers: list[str] = []
        (folder / "sites").mkdir()
        monkeypatch.setattr("builtins.input", self._input)
        self.profile()
        self.start()

    def _input(self, text: str) -> str:
        self.asked.append(text)
        if not self.answers:
            raise EOFError
        return self.answers.pop(0)

    def profile(self, said: str = "", host: str = "login.example") -> None:
        (self._folder / "sites" / "far.toml").write_text(f'{said}\n[login]\nhost = "{host}"\n')

    def start(self, setting: str = "ask") -> None:
        """Begin as a new process does."""
        places = {"state_dir": str(self._folder / "state"), "sites": [str(self._folder / "sites")], "trust": setting}
        self._monkeypatch.setattr(settings_module, "_settings", JupyterSlurm(**places))
        self._monkeypatch.setattr(trust, "_declined", set())


@pytest.fixture
def laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laptop:
    return Laptop(tmp_path, monkeypatch)


def test_slurm_of_this_computer_is_trusted_and_no_other_cluster_is(laptop: Laptop) -> None:
    assert trust.is_trusted("local")
    assert trust.is_trusted("local-0a1b")
    assert not trust.is_trusted("far")
    assert not trust.is_trusted("unknown")
    assert not trust.is_trusted("../far")


def test_the_user_is_asked_once_for_a_cluster(laptop: Laptop, tmp_path: Path) -> None:
    laptop.answers = ["yes"]
    assert trust.ask_trust("far", "x")
    assert "x can only be loaded from a pickle" in laptop.asked[0]
    assert "far (login.example)" in laptop.asked[0]
    laptop.start()
    assert trust.ask_trust("far", "x")
    assert trust.is_trusted("far")
    assert len(laptop.asked) == 1
    assert os.stat(tmp_path / "state" / "trusted-clusters.json").st_mode & 0o777 == 0o600
    laptop.profile(host="other.example")  # another host under the same name
    assert not trust.is_trusted("far")
    laptop.profile()
    laptop.start("never")
    assert not trust.is_trusted("far")


@pytest.mark.parametrize("answers", [["no"], [""], ["YESNO"], []])
def test_anything_but_yes_is_a_no_which_holds_for_the_process(laptop: Laptop, answers: list[str]) -> None:
    laptop.answers = list(answers)
    assert not trust.ask_trust("far", "x")
    assert not trust.ask_trust("far", "y")
    assert len(laptop.asked) == (1 if answers else 2)  # nobody was there
    laptop.answers = ["yes"]
    laptop.start()
    assert trust.ask_trust("far", "x")


@pytest.mark.parametrize(
    ("profile", "setting", "expected"),
    [
        *(("always", "ask", True), ("always", "never", True), ("never", "always", False)),
        *((None, "always", True), (None, "never", False), ("ask", "always", False)),
    ],
)
def test_the_profile_comes_before_the_setting(
    laptop: Laptop, profile: str | None, setting: str, expected: bool
) -> None:
    laptop.profile(f'trust = "{profile}"' if profile else "")
    laptop.start(setting)
    assert trust.is_trusted("far") is expected
    assert trust.ask_trust("far", "x") is expected
    assert len(laptop.asked) == ("ask" in (profile, setting) and not expected)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"far": 1}', b"[" * 100_000], ids=range(5))
def test_a_damaged_list_is_nobodys_trust(laptop: Laptop, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "trusted-clusters.json").write_bytes(content)
    assert not trust.is_trusted("far")


class Forged:
    """A value whose pickle runs a command where it is loaded."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Outputs]:
    """Return ``read(cluster)``, which reads a file with a forged value, ``bad``, and others."""
    found = {"bad": Forged(f"touch {tmp_path / 'ran'}"), "good": {"loss": [1.0, 2.0]}, "lazy": range(3)}
    items = [values_file.PackedValue({name: value}, safe=True) for name, value in found.items()]
    values_file.write(str(tmp_path / "out.values"), [(one.item, one.pieces) for one in items])
    return lambda cluster: read_outputs(bytearray((tmp_path / "out.values").read_bytes()), cluster)


def test_a_forged_value_runs_nothing_unless_its_cluster_is_trusted(
    laptop: Laptop, read: Callable[..., Outputs], tmp_path: Path
) -> None:
    outputs = read("far")
    assert (dict(outputs), sorted(outputs.errors)) == ({"good": {"loss": [1.0, 2.0]}}, ["bad", "lazy"])
    with pytest.raises(JobError, match="bad was not returned: it is a pickle") as raised:
        outputs["bad"]
    assert 'trust = "always"' in raised.value.hint
    assert [said.count('trust = "always"') for said in outputs.troubles("")] == [1, 1]
    laptop.answers = ["no"]
    read("far")
    assert not (tmp_path / "ran").exists()
    laptop.start()
    laptop.answers = ["yes"]
    assert read("far")["lazy"] == range(3)
    assert (tmp_path / "ran").exists()


def test_values_of_this_computer_are_read_as_they_are(
    laptop: Laptop, read: Callable[..., Outputs], tmp_path: Path
) -> None:
    assert read("local")["lazy"] == range(3)
    assert laptop.asked == []
