"""Tests of the arguments that all commands share: groups in the help, and the place of the cluster."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from words import find_refused

from jupyter_slurm.cli import main as command_line
from jupyter_slurm.cli.arguments.cluster import with_cluster_first
from jupyter_slurm.cli.terminal import is_help
from jupyter_slurm.client.sessions import launch as launching
from jupyter_slurm.config import Settings
from jupyter_slurm.documentation import DOCUMENTATION_URL
from jupyter_slurm.errors import UsageError

WITHOUT_CLUSTER = {"init", "sites", "config", "agent", "clean", "embedded", "uninstall"}
FREE_FORM = {"copy", "launch", "kernel", "env", "image", "sh", "code"}


def _run(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "jupyter_slurm.cli.main", *words]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_the_help_has_each_command_in_one_group_and_the_address_of_the_documentation() -> None:
    shown = _run("--help").stdout
    for group, names in command_line._GROUPS.items():
        part = shown.partition(f"\n{group}:\n")[2].partition("\n\n")[0]
        assert [line.split()[0] for line in part.splitlines()] == names.split()
    grouped = [name for names in command_line._GROUPS.values() for name in names.split()]
    assert sorted(grouped) == sorted(command_line._COMMANDS)
    assert shown.rstrip().endswith(f"Documentation: {DOCUMENTATION_URL}")


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        for inner in action.choices.values() if isinstance(action, argparse._SubParsersAction) else ():
            yield from _parsers(inner)


@pytest.mark.parametrize("command", command_line._COMMANDS)
def test_the_help_of_a_command_is_in_plain_words(command: str) -> None:
    whole = command_line._parser(command)[1]
    (choices,) = (action.choices for action in whole._actions if isinstance(action, argparse._SubParsersAction))
    assert choices is not None
    assert command_line._COMMANDS[command][1][0].islower(), "a summary is a phrase without a full stop"
    description = choices[command].description
    assert description[0].isupper()
    assert description.partition("\n\n")[0].endswith(".")
    for parser in _parsers(choices[command]):
        assert not list(find_refused(parser.format_help()))
        assert all(action.help for action in parser._actions)


def test_the_help_of_the_settings_is_in_plain_words() -> None:
    for name, trait in Settings.class_traits(config=True).items():
        assert not list(find_refused(trait.help)), name
        assert trait.help[0].isupper()
        assert trait.help.endswith("."), name


@pytest.mark.parametrize("command", sorted(set(command_line._COMMANDS) - WITHOUT_CLUSTER - FREE_FORM))
def test_each_command_about_a_cluster_has_the_same_option(command: str) -> None:
    _, parser = command_line._parser(command)
    needed = {"show": ["12"], "report": ["12"], "cancel": ["12"], "bring": ["12"], "rename": ["old", "new"]}
    needed |= {"put": ["a", "b"], "get": ["a", "b"], "stage": ["a"]}
    needed |= {name: ["12"] for name in ("hold", "release", "requeue", "suspend", "resume")} | {"stop": ["one"]}
    args = parser.parse_args([command, *needed.get(command, []), "--cluster", "far"])
    is_first = command in ("connect", "disconnect", "doctor")
    assert (args.cluster_option if is_first else args.cluster) == "far"
    if is_first:
        assert parser.parse_args([command, "far"]).cluster == "far"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-p", "gpu", "--cluster", "far", "name=a"], ["far", "-p", "gpu", "name=a"]),
        (["--cluster=far", "-c", "4"], ["far", "-c", "4"]),
        (["far", "-p", "gpu"], ["far", "-p", "gpu"]),
        (["--clusters=far"], ["--clusters=far"]),
        (["-p", "gpu", "--", "serve", "--cluster", "x"], ["-p", "gpu", "--", "serve", "--cluster", "x"]),
    ],
)
def test_the_option_stands_anywhere_before_the_command(words: list[str], expected: list[str]) -> None:
    assert with_cluster_first(words) == expected


def test_an_option_without_a_name_is_refused() -> None:
    for words in (["--cluster"], ["--cluster=", "x"], ["--cluster", "--", "x"]):
        with pytest.raises(UsageError, match="needs the name of a cluster"):
            with_cluster_first(words)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-p", "gpu", "-h"], True),
        (["--help", "--", "serve"], True),
        (["-p", "gpu", "--", "mlflow", "server", "-h", "{host}"], False),
        (["--", "serve", "--help"], False),
        (["-p", "gpu"], False),
    ],
)
def test_the_help_is_requested_before_the_command_alone(words: list[str], expected: bool) -> None:
    assert is_help(words) == expected


def test_an_option_of_the_command_is_not_the_help_of_launch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def resolve(name: str | None) -> None:
        raise UsageError("The line was read.", hint="It goes on.")

    monkeypatch.setattr(launching, "resolve_cluster", resolve)
    assert command_line.main(["launch", "-p", "gpu", "--", "mlflow", "server", "-h", "{host}"]) == 1
    assert "The line was read." in capsys.readouterr().err
    assert command_line.main(["launch", "-p", "gpu", "-h", "--", "mlflow"]) == 0
    assert capsys.readouterr().out.startswith("usage: jupyter slurm launch")


def test_two_different_clusters_are_refused() -> None:
    done = _run("doctor", "near", "--cluster", "far")
    assert (done.returncode, "Two clusters are named: near and far." in done.stderr) == (1, True)


def test_a_kernel_is_added_for_the_cluster_of_the_option(own_agent: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites" / "far.toml").write_text('[login]\nhost = "login.invalid"\n')
    env = {**own_agent, "JUPYTER_DATA_DIR": str(tmp_path / "data")}
    for words in (("--cluster", "far", "-p", "gpu", "name=one"), ("far", "-p", "gpu", "name=two")):
        done = _run("kernel", "add", *words, env=env)
        assert done.returncode == 0, done.stderr
        assert f"Added the kernel '{words[-1][5:]}' as " in done.stdout
    added = json.loads(_run("kernel", "list", "--json", env=env).stdout)
    assert [one["words"][:3] for one in added] == [["far", "-p", "gpu"]] * 2


def test_an_account_is_an_option_and_its_earlier_place_is_still_read() -> None:
    _, parser = command_line._parser("usage")
    assert parser.parse_args(["usage", "-A", "lab"]).account == "lab"
    assert parser.parse_args(["usage", "lab"]).former == "lab"
    assert "ACCOUNT" not in _run("usage", "--help").stdout


def test_a_wrong_word_shows_the_usage_of_its_own_command() -> None:
    for words in (["ls", "--bogus"], ["sessions", "--bogus"], ["agent", "status", "--bogus"]):
        done = _run(*words)
        assert done.returncode == 2
        assert done.stderr.startswith(f"usage: jupyter slurm {words[0]}"), done.stderr
        assert "--bogus" in done.stderr


def test_a_wrong_command_has_the_nearest_one_in_its_error() -> None:
    done = _run("jbos")
    assert (done.returncode, "There is no command 'jbos'. Did you mean 'jobs'?" in done.stderr) == (2, True), (
        done.stderr
    )


def test_words_before_the_command_of_sh_are_checked() -> None:
    for words, said in (
        (["sh", "--bogus", "--", "ls"], "There is no option '--bogus' of sh."),
        (["sh", "--"], "There is no command."),
        (["shell", "--close"], "--close needs the ID of a terminal."),
    ):
        done = _run(*words)
        assert (done.returncode, said in done.stderr) == (1, True), done.stderr
        assert "%" not in done.stderr
