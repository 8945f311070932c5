"""Login shells that start ahead of their command: the same results as of a fresh shell, and their end."""

from __future__ import annotations

import asyncio
import base64
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts import SshHost

from jupyter_slurm.services.login_commands.runner import LoginCommands
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.transport.ssh.shell import live, live_ahead
from jupyter_slurm.transport.ssh.shell.live_ahead import text_line

pytestmark = pytest.mark.root

NOISE = "echo welcome; echo oops >&2; "
SH = NOISE + "f() { echo of the shell; }; export FAR=y; alias a='echo alias'; "

# Login shell, its start-up files, whether a login reads them.
SHELLS: dict[str, tuple[str, dict[str, str], bool]] = {
    "bash": ("bash", {".bashrc": SH + "shopt -s expand_aliases; set -eu"}, False),
    "zsh": ("zsh", {".zshenv": SH}, False),
    "dash": ("dash", {".profile": SH}, True),
    "fish": ("fish", {".config/fish/config.fish": NOISE + "function f; echo of the shell; end; set -gx FAR y"}, False),
    "tcsh": ("tcsh", {".tcshrc": "echo welcome; alias f echo of the shell", ".login": "setenv FAR y"}, True),
}
ANY = (
    "f; pwd; env | grep -v '^_=' | sort; ls /dev/fd; sh -c 'umask; ulimit -t'",
    "cat; cat $0; echo \"a  'b' \\\\n é \udcff\"\techo",
    "sh -c 'exit 3'",
    "sh -c 'echo out; echo err >&2; kill -9 $PPID'",
    "no-such-command",
    "exec sh -c 'echo replaced; exit 4'",
    "echo )",
)
POSIX = (
    'echo "$#" "$-" "$?" "${0%-*}"; set -- x; echo "$@"',
    "cat <<END\n$FAR `echo x` \\$y\nEND\na b",
    "trap 'echo bye; trap - EXIT' EXIT; (exit 5); exit $?",
    "set -e; echo before; false; echo after",
    "sleep 0.1 & wait $! && echo waited; jobs; read x || echo $?",
    "trap 'echo caught' INT; kill -INT $$; trap - INT; kill -INT $$; echo alive",
)
TEXTS = {"bash": ANY + POSIX, "zsh": ANY + POSIX, "dash": ANY + POSIX, "fish": ANY, "tcsh": ANY}


@pytest.fixture(scope="module")
def shell_host(ssh_host: Callable[..., SshHost], new_user: Callable[..., str]) -> tuple[SshHost, dict[str, str]]:
    users = {name: new_user(shell=shell, files=files) for name, (shell, files, _) in SHELLS.items()}
    users["plain"] = new_user(files={".bashrc": NOISE + "export VERSION=1"})
    return ssh_host(name="ahead", users=list(users.values())), users


def service(transport: Any, *, login: bool = False, **limits: Any) -> LoginCommands:
    where = ClusterLocation(
        "far", "/tmp/x", "ana", "/", "login", {}, is_remote=True, commands=limits, login_shell=login
    )  # type: ignore[arg-type]
    return LoginCommands(transport, where)


async def said(commands: LoginCommands, text: str) -> tuple[bytes, bytes, int]:
    """Return both streams of a command without the random names in them, and its exit code."""
    streams, code = {"stdout": b"", "stderr": b""}, -1
    async for event, data in commands.stream(text + "\n", {}):
        if event == "output":
            streams[str(data["stream"])] += base64.b64decode(str(data["data"]))
        else:
            code = int(str(data["exit_code"]))
    out, err = (re.sub(rb"[0-9a-f]{32}|\b[0-9]{3,}\b", b"-", streams[name]) for name in ("stdout", "stderr"))
    return out, err, code


async def until_ready(transport: Any) -> None:
    async with asyncio.timeout(60):
        while transport._live._waiting is None:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("name", SHELLS)
async def test_a_shell_that_started_ahead_does_what_a_fresh_one_does(shell_host: Any, connect: Any, name: str) -> None:
    host, users = shell_host
    login = SHELLS[name][2]
    transport = connect(host, user=users[name]).transport
    fresh, ahead = service(transport, login=login, start_ahead=False), service(transport, login=login)
    await said(ahead, "true")
    for text in TEXTS[name]:
        expected = await said(fresh, text)
        await until_ready(transport)
        waiting = transport._live._waiting
        assert await said(ahead, text) == expected, text
        assert transport._live._waiting is not waiting
        assert waiting.call._out.value is not None, "it was not used"
    out, _, _ = await said(fresh, "f")
    assert out == b"of the shell\n"


@pytest.mark.parametrize("carrier", ["paramiko", "openssh"])
async def test_a_changed_start_up_file_is_read(shell_host: Any, connect_by: Any, carrier: str) -> None:
    host, users = shell_host
    transport = connect_by(carrier, host, user=users["plain"]).transport
    home = Path(f"~{users['plain']}").expanduser()
    commands, bashrc = service(transport), (home / ".bashrc").read_text()
    assert await said(commands, "echo $VERSION") == (b"1\n", b"", 0)
    try:
        for number, change in enumerate((rewrite, replace), 2):
            await until_ready(transport)
            change(home / ".bashrc", f"{NOISE}export VERSION={number}\n")
            assert await said(commands, "echo $VERSION") == (b"%d\n" % number, b"", 0)
    finally:
        (home / ".bashrc").write_text(bashrc)


def rewrite(path: Path, text: str) -> None:
    path.write_text(text)


def replace(path: Path, text: str) -> None:
    """Put an older file in its place, as version control and editors do."""
    other = path.with_name("other")
    other.write_text(text)
    subprocess.run(["touch", "-d", "2001-01-01", str(other)], check=True)
    other.rename(path)


def waiting_shells(user: str) -> list[str]:
    done = subprocess.run(["pgrep", "-u", user, "-f", r"\.jupyter_slurm-"], capture_output=True, text=True, check=False)
    return done.stdout.split()


async def until_none(user: str) -> None:
    async with asyncio.timeout(60):
        while waiting_shells(user):
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("end", ["unused", "logged out", "cut"])
async def test_a_waiting_shell_ends(shell_host: Any, connect: Any, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    host, users = shell_host
    if end == "unused":
        monkeypatch.setattr(live_ahead, "_MAX_WAIT_S", 0.5)
    connected = connect(host, user=users["plain"])
    await said(service(connected.transport), "true")
    await until_ready(connected.transport)
    if end == "logged out":
        connected.transport.close()
    elif end == "cut":
        host.kill_sessions()
    await until_none(users["plain"])
    left = [path for folder in (Path("/tmp"), Path(f"~{users['plain']}").expanduser()) for path in folder.glob(".jup*")]
    assert [path for path in left if path.owner() == users["plain"]] == []


async def test_other_commands_come_first(shell_host: Any, connect: Any) -> None:
    """Check a host with few sessions: the waiting shell is ended for another command."""
    host, users = shell_host
    transport = connect(host, user=users["plain"]).transport
    await said(service(transport), "true")
    await until_ready(transport)
    waiting = transport._live._waiting.shell
    sleeps = [asyncio.ensure_future(transport.run(["sleep", "1"])) for _ in range(transport._pool.limit)]
    await asyncio.gather(*sleeps)
    assert not transport._pool.waits_for_text(waiting)
    assert (await said(service(transport), "echo still"))[0] == b"still\n"


async def test_limits_hold(shell_host: Any, connect: Any) -> None:
    host, users = shell_host
    transport = connect(host, user=users["plain"]).transport
    commands = service(transport, time_limit=1)
    await said(commands, "true")
    await until_ready(transport)
    await asyncio.sleep(1.5)  # the time of waiting does not count
    assert await said(commands, "echo x") == (b"x\n", b"", 0)
    await until_ready(transport)
    assert (await said(commands, "sleep 1000"))[2] in (143, 137)


async def test_the_time_limit_holds_without_the_client(
    shell_host: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check a client that stops after it has sent the text: the host ends the command a little later."""
    monkeypatch.setattr(live, "_CLOCK_DELAY_S", float("inf"))
    monkeypatch.setattr(live_ahead, "_MAX_WAIT_S", 3.0)
    monkeypatch.setattr(live_ahead, "_SLACK_S", 0.0)
    host, users = shell_host
    transport = connect(host, user=users["plain"]).transport
    commands = service(transport, time_limit=1)
    await said(commands, "true")
    await until_ready(transport)
    async with asyncio.timeout(30):
        assert (await said(commands, "sleep 1000"))[2] in (143, 137)


async def test_a_short_command_starts_no_clock(shell_host: Any, connect: Any) -> None:
    """The clock of its time limit is two processes, which would compete with the command."""
    host, users = shell_host
    transport = connect(host, user=users["plain"]).transport
    commands = service(transport, time_limit=77)
    await said(commands, "true")
    await until_ready(transport)
    count = "pgrep -c -u $(id -u) -fx 'timeout 77 cat'"
    out, _, _ = await said(commands, f"{count}; sleep 1; {count}")
    assert out == b"0\n1\n"


def test_texts_that_show_the_age_of_a_shell_or_are_long() -> None:
    assert text_line(b"echo $SECONDS") is None
    assert text_line(b"x" * 10_000) is None
    assert text_line("a\\n\té".encode()) == rb"a\0134n\0011\0303\0251" + b"\n"
