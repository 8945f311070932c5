"""Tests of ``jupyter slurm sites``: the profiles of the user, the built-in profiles, and their errors."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def sites(tmp_path: Path) -> Run:
    """Return ``sites(*words)``, which runs the command as a user with only a folder for profiles."""
    (tmp_path / "jupyter_slurm_config.json").write_text(json.dumps({"Settings": {"sites": [str(tmp_path / "own")]}}))
    env = {**os.environ, "JUPYTER_CONFIG_DIR": str(tmp_path), "HOME": str(tmp_path)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "jupyter_slurm.cli.main", "sites", *words]
        return subprocess.run(
            argv,
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    return run


def test_one_that_ships_becomes_ones_own_and_is_overridden(sites: Run, tmp_path: Path) -> None:
    assert "  arandu       Arandu (C4AI, USP)\n" in sites("list").stdout
    assert 'host = "c4aiscm1"' in sites("show", "arandu").stdout
    done = sites("add", "aau-aicloud", "aau", "--user", "ana")
    assert done.returncode == 0, done.stderr
    path = tmp_path / "own" / "aau.toml"
    assert f"Wrote {path}." in done.stdout
    assert "--mem=64G" in done.stdout, "what its users should know"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert tomllib.loads(path.read_text()) == {
        "extends": "aau-aicloud",
        "login": {"user": "ana", "jump": ["ana@sshgw.aau.dk"]},
    }
    path.write_text(path.read_text() + "[tunnels]\nports = [8100, 8200]\n")
    shown = tomllib.loads(sites("show", "aau").stdout)
    assert (shown["login"]["host"], shown["login"]["user"]) == ("ai-pilot.srv.aau.dk", "ana")
    assert (shown["container"]["runtime"], shown["tunnels"]) == ("singularity", {"ports": [8100, 8200]})
    assert f"aau              AI Cloud (AAU)  (ai-pilot.srv.aau.dk; {path})" in sites("list").stdout
    assert sites("add", "aau-aicloud", "aau", "--user", "eva").returncode == 1
    assert sites("add", "aau-aicloud", "aau", "--user", "eva", "--overwrite").returncode == 0
    assert "eva" in path.read_text()


def test_a_file_that_is_handed_on_is_checked_and_taken(sites: Run, tmp_path: Path) -> None:
    file = tmp_path / "sixth.toml"
    file.write_text(
        'title = "A sixth"\n\n[login]\nhost = "sixth.example.org"\nuser = "ana"\n\n[slurm]\npol_shortest = 30\n'
    )
    done = sites("check", "sixth.toml", "arandu")
    assert done.returncode == 1
    assert "sixth.toml:8: slurm.pol_shortest is not a valid key." in done.stderr
    assert "Did you mean poll_shortest?" in done.stderr
    assert "arandu: valid" in done.stdout
    assert sites("add", "sixth.toml").returncode == 1
    assert not (tmp_path / "own").exists()
    file.write_text(file.read_text().replace("pol_", "poll_"))
    assert sites("check", str(file)).returncode == 0
    assert sites("add", "sixth.toml").returncode == 0
    assert (tmp_path / "own" / "sixth.toml").read_text() == file.read_text()
    assert "sixth: valid" in sites("check").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show",), "Name a profile to print."),
        (("show", "nosuch"), "There is no site profile 'nosuch'"),
        (("show", "nosuch.toml"), "nosuch.toml cannot be read"),
        (("check", "../.."), "cannot be read: Is a directory"),
        (("add", "nosuch"), "Name a file, or a built-in profile: aau-aicloud, arandu"),
        (("add", "arandu", "local", "--user", "a"), "is the name of the Slurm of this computer"),
        (("add", "arandu", "a/b", "--user", "a"), "'a/b' is not a valid name of a cluster"),
        (("add", "arandu", "--user=-oProxyCommand=x"), "cannot be used"),
        (("add", "arandu"), "There is no terminal to ask this question: Your user name on c4aiscm1?"),
    ],
)
def test_what_makes_no_sense_is_told(sites: Run, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = sites(*words)
    assert done.returncode == 1
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "own").exists()


def shared(folder: Path, name: str, host: str = "login.invalid") -> Path:
    path = folder / "jupyter_slurm" / "sites" / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'[login]\nhost = "{host}"\n')
    return path


@pytest.fixture
def at_a_site(tmp_path: Path) -> Run:
    """Return ``at_a_site(*words)``, which runs commands where an administrator fills a folder of `jupyter --paths`."""
    home, env = tmp_path / "home", dict(os.environ)
    home.mkdir()
    for name in ("XDG_CONFIG_HOME", "JUPYTER_PREFER_ENV_PATH"):
        env.pop(name, None)
    site = os.pathsep.join(str(tmp_path / name) for name in ("first", "second"))
    env |= {"HOME": str(home), "JUPYTER_CONFIG_DIR": str(home / ".jupyter"), "JUPYTER_CONFIG_PATH": site}
    (home / ".jupyter").mkdir()
    settings = {"agent_host": "inprocess", "state_dir": str(tmp_path / "state")}
    (home / ".jupyter" / "jupyter_slurm_config.json").write_text(json.dumps({"JupyterSlurm": settings}))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "jupyter_slurm.cli.main", *words]
        return subprocess.run(
            argv, env=env, cwd=home, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
        )

    return run


def test_profiles_of_a_site_are_found_below_those_of_the_user(at_a_site: Run, tmp_path: Path) -> None:
    second = shared(tmp_path / "second", "ours")
    assert f"ours             ours  (login.invalid; {second})\n" in at_a_site("sites", "list").stdout
    assert f"    Profile ours: {second}\n" in at_a_site("config", "sites").stdout
    first = shared(tmp_path / "first", "ours", "first.invalid")
    assert f"(first.invalid; {first})" in at_a_site("sites", "list").stdout
    done = at_a_site("sites", "add", str(second), "ours", "--user", "ana")
    assert f"Wrote {tmp_path}/home/.config/jupyter_slurm/sites/ours.toml." in done.stdout
    assert tomllib.loads(at_a_site("sites", "show", "ours").stdout)["login"] == {"host": "login.invalid", "user": "ana"}


@pytest.mark.parametrize("opened", ["file", "folder"])
def test_a_profile_of_a_site_that_others_can_change_is_refused(at_a_site: Run, tmp_path: Path, opened: str) -> None:
    path, below = shared(tmp_path / "first", "ours"), shared(tmp_path / "second", "ours", "below.invalid")
    shared(tmp_path / "second", "other")
    (path if opened == "file" else path.parent).chmod(0o666 if opened == "file" else 0o777)
    for words in (("sites", "check", "ours"), ("init", "ours", "--yes"), ("doctor", "ours")):
        done = at_a_site(*words)
        assert done.returncode == 1
        assert f"The site profile {path} is not used" in " ".join((done.stdout + done.stderr).split())
    assert below.exists(), "no other profile takes its place unseen"
    assert at_a_site("sites", "check", "other").returncode == 0, "the open folder has no profile of that name"


def test_init_uses_the_profile_of_the_site_without_a_copy(at_a_site: Run, tmp_path: Path) -> None:
    path, own = shared(tmp_path / "first", "ours"), tmp_path / "home/.config/jupyter_slurm/sites/ours.toml"
    done = at_a_site("init")
    assert f"  ours         {path}\n" in done.stdout
    # Without that host, what follows fails.
    done = at_a_site("init", "ours", "--yes", "--key", "no")
    assert f"Uses the site profile {path}." in done.stdout
    assert "ok       profile" in done.stdout
    assert not own.exists()
    done = at_a_site("init", "ours", "--yes", "--key", "no", "--user", "ana")
    assert f"Wrote {own}." in done.stdout
    assert tomllib.loads(own.read_text())["login"] == {"host": "login.invalid", "user": "ana"}


def test_editors_get_the_schema(sites: Run) -> None:
    schema = json.loads(sites("show", "--schema").stdout)
    assert "job_root" in schema["properties"]["slurm"]["properties"]
