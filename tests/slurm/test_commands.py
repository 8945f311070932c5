"""``jupyter slurm embedded`` as it is typed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from jupyter_slurm.cli.main import main

pytestmark = pytest.mark.slurm

SMALL = 'name = "tiny"\n[[nodes]]\nnames = "n1"\n[[partitions]]\nname = "p"\nnodes = "n1"\n'


@pytest.fixture
def embedded(short_tmp, tmp_path, capsys):
    """``embedded(action, *options)`` on a directory of its own: exit code and both outputs."""
    directory = short_tmp / "cli"
    config = tmp_path / "tiny.toml"
    config.write_text(SMALL)

    def run(action: str, *options: str):
        more = ["--config", str(config)] if action == "start" else []
        code = main(["embedded", action, "--dir", str(directory), *more, *options])
        out, err = capsys.readouterr()
        return code, out, err

    yield run
    run("stop")


def test_start_status_stop(embedded, short_tmp, nothing_left):
    code, out, _ = embedded("start")
    assert code == 0
    assert f"export SLURM_CONF={short_tmp}/cli/etc/slurm.conf" in out
    code, out, _ = embedded("status")
    assert code == 0
    assert "tiny (Slurm " in out
    assert "slurmd/n1" in out
    assert "idle" in out
    code, out, _ = embedded("status", "--json")
    status = json.loads(out)
    assert (status["state"], status["nodes"], status["missing"]) == ("running", {"n1": "idle"}, [])
    code, _, err = embedded("start")
    assert code == 1
    assert "is running in" in err
    assert embedded("stop")[0] == 0
    assert embedded("status")[0] == 3
    code, out, _ = embedded("stop")
    assert (code, out) == (0, f"No cluster in {short_tmp}/cli.\n")
    nothing_left(short_tmp / "cli")


def test_accounting_and_users_by_option(embedded, short_tmp):
    assert embedded("start", "--accounting", "--user", "nobody")[0] == 0
    env = {"SLURM_CONF": f"{short_tmp}/cli/etc/slurm.conf", "PATH": "/usr/bin:/bin"}
    shown = subprocess.run(
        ["sacctmgr", "-nP", "list", "user", "format=user"], env=env, capture_output=True, text=True, check=True
    )
    assert "nobody" in shown.stdout.split()


def test_a_mistake_in_the_description_is_a_message(tmp_path, capsys):
    (tmp_path / "c.toml").write_text(SMALL.replace("names", "nmaes"))
    assert main(["embedded", "start", "--config", str(tmp_path / "c.toml"), "--dir", str(tmp_path / "d")]) == 1
    assert "nodes.names: missing." in capsys.readouterr().err
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_in_the_foreground_it_ends_with_its_command(short_tmp, tmp_path, nothing_left, number):
    directory, config = short_tmp / "fg", tmp_path / "tiny.toml"
    config.write_text(SMALL)
    argv = [sys.executable, "-u", "-m", "jupyter_slurm.embedded", "start", "--foreground", "--dir", str(directory)]
    with subprocess.Popen([*argv, "--config", str(config)], stdout=subprocess.PIPE, text=True) as process:
        assert any("Ctrl-C" in line for line in iter(process.stdout.readline, ""))
        process.send_signal(number)
        assert process.wait(60) == 0
    nothing_left(directory)


def test_the_packages_for_make(capsys):
    assert main(["embedded", "packages", "--no-accounting"]) == 0
    assert capsys.readouterr().out.split() == ["slurm-wlm", "munge", "util-linux"]
