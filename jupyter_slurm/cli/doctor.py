"""``jupyter slurm doctor``: the way to a cluster looked over, from here to the Python of its cells."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import queue
import shlex
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_slurm.domain.findings import Finding
from jupyter_slurm.errors import ConfigError, SlurmError, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.config import Settings
    from jupyter_slurm.transport.ssh.prompts import Prompt
    from jupyter_slurm.transport.ssh.survey import Hop

__all__ = ["Terminal", "add_parser", "examine", "run"]

_T = TypeVar("_T")
_FAREWELL = 15.0  # seconds for work that is given up to take back what it has begun


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    doctor = subparsers.add_parser(
        "doctor",
        help="look over the way to a cluster and say what is wrong",
        description="Log in once more, look at everything on the way to a cluster, and say what is wrong and what to "
        "do. The exit code is 1 when something failed.",
    )
    doctor.add_argument("cluster", metavar="CLUSTER", help="name of a site profile")
    doctor.add_argument(
        "--job", action="store_true", help="also look at a node by a short test job, which you are asked about before"
    )
    doctor.add_argument("--submit", action="store_true", help="submit that test job without asking")
    doctor.add_argument(
        "--sbatch", metavar="OPTIONS", help="options of sbatch for the test job: --sbatch='-p PARTITION --gpus 1'"
    )


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    from jupyter_slurm.config import load_settings

    try:
        options = shlex.split(args.sbatch or "")
    except ValueError as error:
        raise UsageError(f"--sbatch: {error}", hint="As in a shell: every quote has its end.") from None
    wanted = args.job or args.submit or args.sbatch is not None
    return examine(args.cluster, load_settings(), options if wanted else None, sure=args.submit)


def examine(
    name: str,
    settings: Settings,
    options: Sequence[str] | None = None,
    *,
    sure: bool = False,
    arrived: Callable[[Terminal, Sequence[Hop]], Awaitable[bool]] | None = None,
) -> int:
    """Look over the cluster of a profile, print what is found, and return 1 when something failed.

    Parameters
    ----------
    name : str
        Of the profile.
    settings : Settings
        Where profiles are, and the agent.
    options : sequence of str, optional
        Of sbatch, for a test job; None: none is submitted.
    sure : bool
        The person has agreed to it before.
    arrived : callable, optional
        Is given the hosts when all have let us in; True: it has changed something there.
    """
    from jupyter_slurm.sites.profile import load_profile

    try:
        profile = load_profile(name, settings.sites)
    except ConfigError as error:
        _show(Finding("failed", "profile", error.message, error.hint))
        return 1
    _show(Finding("ok", "profile", f"{name} leads to {profile.host}"))
    from jupyter_slurm.agent.discovery import place_to_start
    from jupyter_slurm.services import doctor

    folder = os.path.join(place_to_start(settings).folder, "ssh")
    terminal, found = Terminal(name), list[Finding]()

    def tell(finding: Finding) -> None:
        found.append(finding)
        terminal.do(lambda: _show(finding))

    async def agree(question: str) -> bool:
        return sure or await terminal.agree(question)

    async def look(hops: Sequence[Hop]) -> bool:
        return arrived is not None and await arrived(terminal, hops)

    job = None if options is None else doctor.TestJob(options, agree)
    terminal.call(lambda: doctor.examine(profile, terminal, tell, job, look, folder=folder))
    statuses = [finding.status for finding in found]
    failed, warnings = statuses.count("failed"), statuses.count("warning")
    print(f"{failed} failed, {warnings} to look at." if failed or warnings else "Everything is fine.")
    return 1 if failed else 0


def _show(finding: Finding) -> None:
    from jupyter_slurm.handles.terminal import printable

    first, *more = printable(f"{finding.about}: {finding.said}").splitlines()
    lines = [f"{finding.status:<8} {first}", *(f"         {line}" for line in more)]
    lines += [f"         -> {line}" for line in printable(finding.todo).splitlines()]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


class Terminal:
    """The person at this terminal: who is asked by work that has an event loop in a thread of its own.

    Parameters
    ----------
    cluster : str
        What the work is about.
    """

    def __init__(self, cluster: str) -> None:
        # What paramiko has to say is said by our errors, in words for people.
        logging.getLogger("paramiko").addHandler(logging.NullHandler())
        self._cluster = cluster
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def do(self, act: Callable[[], None]) -> None:
        """Do a thing between two questions, such as to print; from any thread."""
        self._inbox.put(act)

    def say(self, text: str) -> None:
        """Show text between two questions; from any thread."""
        from jupyter_slurm.handles.terminal import printable

        self.do(lambda: print(printable(text), flush=True))

    async def ask(self, prompt: Prompt) -> Sequence[str] | None:
        """See :class:`jupyter_slurm.transport.ssh.prompts.Prompter`."""
        answers: Future[Sequence[str] | None] = Future()
        self.do(lambda: self._put(prompt, answers))
        return await asyncio.wrap_future(answers)

    async def agree(self, question: str) -> bool:
        """Ask for a yes or a no; False where nobody can be asked."""
        from jupyter_slurm.cli.asking import yes

        answer: Future[bool] = Future()

        def put() -> None:
            said = False
            try:
                said = yes(question, default=True)
            except SlurmError as error:
                print(f"{error.message} {error.hint}", file=sys.stderr)
            finally:
                answer.set_result(said)

        self.do(put)
        return await asyncio.wrap_future(answer)

    def call(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Return what work returns, and be there for the person meanwhile.

        Raises
        ------
        KeyboardInterrupt
            The person gave up; the work was told, and had a moment to put things in order.
        """
        done: Future[_T] = Future()
        begun: Future[Callable[[], object]] = Future()

        async def cancellable() -> _T:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None
            begun.set_result(lambda: loop.call_soon_threadsafe(task.cancel))
            return await work()

        def make() -> None:
            try:
                done.set_result(asyncio.run(cancellable()))
            except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
                done.set_exception(error)
            finally:
                self._inbox.put(None)

        threading.Thread(target=make, name="jupyter-slurm-work", daemon=True).start()
        try:
            while (act := self._inbox.get()) is not None:
                act()
        except KeyboardInterrupt:
            begun.result()()
            with contextlib.suppress(Exception, CancelledError):
                done.exception(_FAREWELL)
            raise
        return done.result()

    def _put(self, prompt: Prompt, answers: Future[Sequence[str] | None]) -> None:
        from jupyter_slurm.handles.answering import ask

        if answers.done():  # it is of no interest any more
            return
        said: Sequence[str] | None = None
        try:
            said = ask({**asdict(prompt), "cluster": self._cluster})
        except SlurmError as error:
            print(error.message, file=sys.stderr)
        if prompt.questions:  # else it was to be read, and goes away by itself
            with contextlib.suppress(InvalidStateError):
                answers.set_result(said)
