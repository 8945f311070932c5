"""``jupyter slurm embedded`` on the command line."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import tomllib

import pytest

from jupyter_slurm.cli.main import main
from jupyter_slurm.embedded.control import ClusterControl
from jupyter_slurm.embedded.description import load_description, parse_description

pytestmark = pytest.mark.slurm

SMALL = 'name = "tiny"\n[[nodes]]\nnames = "n1"\n[[partitions]]\nname = "p"\nnodes = "n1"\n'


@pytest.fixture
def embedded(short_tmp, tmp_path, capsys):
    """Run ``embedded(action, *options)`` with its own directory: exit code and both outputs."""
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
    assert "is already running in" in err
    assert embedded("stop")[0] == 0
    assert embedded("status")[0] == 3
    code, out, _ = embedded("stop")
    assert (code, out) == (0, f"No cluster in {short_tmp}/cli.\n")
    nothing_left(short_tmp / "cli")


def test_a_shell_is_told_how_to_use_it(embedded, short_tmp):
    code, out, err = embedded("env")
    assert (code, out) == (1, "")
    assert "There is no cluster in" in err
    embedded("start")
    use = f'eval "$({sys.executable} -m jupyter_slurm.embedded env --dir {short_tmp}/cli)"; scontrol show config'
    done = subprocess.run(["sh", "-c", use], capture_output=True, text=True, check=True)
    assert re.search(r"ClusterName += tiny\n", done.stdout)


def test_a_controller_that_does_not_answer_is_told_soon(embedded, short_tmp):
    embedded("start")
    with ClusterControl(short_tmp / "cli").frozen_controller():
        begun = time.monotonic()
        code, out, _ = embedded("status")
        assert time.monotonic() - begun < 15
    assert code == 1
    assert "is running, but its controller does not answer" in out
    assert embedded("status")[0] == 0


def test_numbers_of_jobs_do_not_come_again(embedded, short_tmp):
    def submit() -> int:
        embedded("start")
        cluster = ClusterControl(short_tmp / "cli")
        number = int(cluster.run("sbatch", "--parsable", "-pp", "-o/dev/null", "--wrap=true").stdout)
        embedded("stop")
        return number

    assert submit() < submit()


def test_the_description_that_ships_is_one_to_begin_from(tmp_path, capsys):
    assert main(["embedded", "describe"]) == 0
    (tmp_path / "my.toml").write_text(capsys.readouterr().out)
    assert load_description(tmp_path / "my.toml") == load_description()


def test_the_example_in_the_help_is_a_description(capsys):
    with pytest.raises(SystemExit):
        main(["embedded", "start", "--help"])
    example = re.search(r"For example:\n(.*?)\nTo start", capsys.readouterr().out, re.DOTALL)
    assert example
    assert parse_description(tomllib.loads(example[1])).node_names == ["gpu1", "gpu2"]


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
    assert "nodes.names: this key is missing." in capsys.readouterr().err
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_in_the_foreground_it_ends_with_its_command(short_tmp, tmp_path, nothing_left, number):
    directory, config = short_tmp / "fg", tmp_path / "tiny.toml"
    config.write_text(SMALL)
    argv = [sys.executable, "-u", "-m", "jupyter_slurm.embedded", "start", "--foreground", "--dir", str(directory)]
    argv += ["--config", str(config), "--timeout", "240"]  # beside other tests
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert any("Ctrl-C" in line for line in iter(process.stdout.readline, ""))
        process.send_signal(number)
        assert process.wait(240) == 0
    nothing_left(directory)


def test_the_packages_for_make(capsys):
    assert main(["embedded", "packages", "--no-accounting"]) == 0
    assert capsys.readouterr().out.split() == ["slurm-wlm", "munge", "util-linux"]
