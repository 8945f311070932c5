"""Walk: the commands of a cluster's page, run in their order by one laptop with one login."""

from __future__ import annotations

import os
import re
import shlex
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ssh_hosts.terminal import converse

from jupyter_slurm.sites.toml_writer import toml_text

if TYPE_CHECKING:
    from replicas import Replica

__all__ = ["Step", "Walk", "replace_words", "run_walk"]

_NUMBER = re.compile(r"(?<!-c )(?<![\d.:=/-])12(?![\d.:])|(?<=on=)12\b")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")


@dataclass(frozen=True)
class Step:
    """One command, as the page writes it.

    Attributes
    ----------
    command : str
    shows : str
        Pattern in what it shows; for a job, in its output.
    body : str
        The cell below it, or what is typed in its terminal.
    more : str
        Options at the end of the line, which keep the job short.
    value : str
        Expression for what a job shows, with ``{}`` for its variable.
    makes : str
        Path that exists afterwards: in the laptop's folder, or on the cluster if it begins with ``/``.
    """

    command: str
    shows: str
    body: str = ""
    more: str = ""
    value: str = "{}.stdout"
    makes: str = ""


@dataclass(frozen=True)
class Walk:
    """The steps of a cluster.

    Attributes
    ----------
    rows : int
        Number of lines of the guide on the page.
    steps : sequence of Step
    outside : dict of str
        By the beginning of the guide's line, a part of the sentence with which the page says why jupyter_slurm has no part in it.
    words : dict of str
        What the user writes in place of the page's words.
    files : dict of str
        Texts by path in the laptop's folder.
    remote : dict of str
        Texts by path on the cluster's shared storage.
    job : str
        Expression for the running job that the page calls 12.
    before : sequence of str
        Commands on the login node, before the first step.
    allocation : str
        Line that opens an allocation before the first step, where no step does.
    environments : dict
        Tables ``[env.NAME]`` of the user's profile.
    after : sequence of str
        Commands that end sessions.
    parsed : sequence of str
        Beginnings of the guide's lines whose commands are parsed only here: they need a package index, or an
        image that the replica lacks or takes a minute to pack.
    last : sequence of Step
        Steps after the end of all jobs; then the laptop logs in again, for the next test.
    """

    rows: int
    steps: tuple[Step, ...]
    outside: dict[str, str] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    remote: dict[str, str] = field(default_factory=dict)
    job: str = "node"
    before: tuple[str, ...] = ()
    allocation: str = ""
    environments: dict[str, dict[str, object]] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    parsed: tuple[str, ...] = ()
    last: tuple[Step, ...] = ()


def run_walk(walk: Walk, replica: Replica) -> list[str]:
    """Run all steps; return what is wrong, one line for each."""
    return _Walker(walk, replica).run()


def replace_words(text: str, words: Mapping[str, str]) -> str:
    """Return a command of the page as the user of the replica writes it."""
    for word, instead in words.items():
        text = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", instead, text)
    return text


class _Walker:
    def __init__(self, walk: Walk, replica: Replica) -> None:
        self._walk, self._replica, self._laptop = walk, replica, replica.laptop
        self._jobs: list[tuple[Step, str]] = []
        self._faults: list[str] = []
        self._number, self._submitted = "", 0
        self._held = set[str]()

    def run(self) -> list[str]:
        self._write_files()
        before = self._laptop.profile.read_text()
        if self._walk.environments:
            profile = tomllib.loads(before)
            environments = {**profile.get("env", {}), **self._walk.environments}
            self._use_profile(toml_text({**profile, "env": environments}))
        try:
            self._take_all()
        finally:
            if self._walk.last or self._walk.environments:
                self._use_profile(before)
        return self._faults

    def _take_all(self) -> None:
        opened = [Step(self._walk.allocation, "")] if self._walk.allocation else []
        prepared = [Step(f"%slurm sh {line}", "") for line in self._walk.before]
        for step in (*prepared, *opened, *self._walk.steps):
            self._take(step)
        self._see_jobs()
        for line in (*self._walk.after, *(f"%salloc release on={name}" for name in sorted(self._held))):
            self._take(Step(line, ""))
        for step in self._walk.last:
            self._take(step)

    def _use_profile(self, text: str) -> None:
        self._laptop.profile.write_text(text)
        self._laptop.command("disconnect", self._replica.name, "--yes")
        assert self._laptop.connect().code == 0

    def _write_files(self) -> None:
        for name, text in self._walk.files.items():
            path = self._place(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        owner = self._replica.home.stat()
        for name, text in self._walk.remote.items():
            path = self._place(name)
            made = [each for each in (path, *path.parents) if not each.exists()]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            for each in made:
                os.chown(each, owner.st_uid, owner.st_gid)

    def _typed(self, text: str) -> str:
        text = replace_words(text, {**self._walk.words, "ana": self._replica.user})
        return _NUMBER.sub(lambda _: self._running(), text)

    def _running(self) -> str:
        self._number = self._number or self._laptop.value(self._walk.job)
        return self._number

    def _take(self, step: Step) -> None:
        command = self._typed(f"{step.command} {step.more}".strip())
        if command.startswith("jupyter slurm "):
            try:
                self._expect(step, *self._at_terminal(command.split(" ", 2)[2], step.body))
            except AssertionError as error:
                self._faults.append(f"{step.command}: {error}")
        elif command.startswith(("%%sbatch", "%sbatch")):
            self._submit(step, command)
        else:
            self._run_magic(step, command)

    def _run_magic(self, step: Step, command: str) -> None:
        if command.startswith("%slurm image "):
            self._see_jobs()
        if command.startswith("%srun "):
            command = command.replace("%srun ", "%srun wait ", 1)
        if opened := re.match(r"%salloc .*\bas=(\w+)", command):
            if opened[1] in self._held:
                self._run_magic(Step("", ""), f"%salloc release on={opened[1]}")
            command, self._number = f"{command} wait", ""
            self._held.add(opened[1])
        if command.startswith("%scancel "):
            self._held.discard(self._walk.job)
        if ended := re.match(r"%salloc release on=(\w+)", command):
            self._held.discard(ended[1])
        cell = self._laptop.run(f"{command}\n{step.body}" if step.body else command, timeout=300)
        self._expect(step, cell.text, cell.error)

    def _at_terminal(self, words: str, typed: str) -> tuple[str, str]:
        if not words.startswith("shell "):
            done = self._laptop.command(*shlex.split(words))
            return done.stdout + done.stderr, f"exit code {done.returncode}" if done.returncode else ""
        argv = [sys.executable, "-P", "-m", "jupyter_slurm.cli.main", *shlex.split(words)]
        said = converse(argv, self._laptop.env, [(r"[$#>] ?(\x1b\S*)?$", f"{typed}; exit")])
        return re.sub(r"\x1b\[[?\d;]*[a-zA-Z]|\r", "", said.text), f"exit code {said.code}" if said.code else ""

    def _submit(self, step: Step, command: str) -> None:
        self._submitted += 1
        name = f"job_{self._submitted}"
        magic, _, rest = re.sub(r"\s(?:as=\w+|wait)(?=\s|$)", "", command).partition(" ")
        command = f"{magic} as={name} {rest}" if magic == "%sbatch" else f"{magic} {rest} as={name}"
        cell = self._laptop.run(f"{command}\n{step.body}" if step.command.startswith("%%") else command)
        if cell.error:
            self._faults.append(f"{step.command}: {cell.error}")
        else:
            self._jobs.append((step, name))

    def _see_jobs(self) -> None:
        for step, name in self._jobs:
            ended = self._laptop.run(f"{name}.wait(timeout=180)", timeout=200)
            cell = self._laptop.run(f"print({step.value.format(name)})")
            self._expect(step, cell.text, ended.error or cell.error)
            if ended.error:
                self._laptop.run(f"{name}.cancel()")
        self._jobs.clear()

    def _expect(self, step: Step, text: str, error: str) -> None:
        if error or not re.search(step.shows, text, re.MULTILINE):
            end = "\n".join(_COLOUR.sub("", error).splitlines()[-3:])
            self._faults.append(f"{step.command}: not {step.shows!r} in:\n{text}\n{end}")
        if step.makes and not os.path.lexists(self._place(step.makes)):
            self._faults.append(f"{step.command}: there is no {step.makes}")

    def _place(self, path: str) -> Path:
        if path.startswith("/"):
            return self._replica.on_disk(path.replace("$USER", self._replica.user))
        return self._laptop.home / "work" / path
