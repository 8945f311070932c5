"""Commands in the login shell of the user: every shell, noisy start-up files, and a link that is cut."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts import SshHost

from jupyter_slurm.errors import CommandError, ConfigError, TransportError
from jupyter_slurm.services.login_commands import runner
from jupyter_slurm.services.login_commands.runner import LoginCommands
from jupyter_slurm.services.slurm.location import ClusterLocation

pytestmark = pytest.mark.root

NOISE = "echo welcome; echo oops >&2; "

# Login shell, its start-up files, a text in its language.
SHELLS = {
    "bash": ("bash", {".bash_profile": NOISE + "f() { echo of profile; }; PATH=$PATH:/far"}, "f; echo $PATH"),
    "bash-aliases": (
        "bash",
        {".bash_profile": "shopt -s expand_aliases; alias echo='/bin/echo of profile /far'"},
        "echo",
    ),
    "zsh": ("zsh", {".zprofile": NOISE + "f() { echo of profile; }; path+=/far"}, "f; echo $PATH"),
    "dash": ("dash", {".profile": NOISE + "f() { echo of profile; }; PATH=$PATH:/far"}, "f; echo $PATH"),
    "fish": (
        "fish",
        {".config/fish/config.fish": NOISE + "function f; echo of profile; end; set -gx PATH $PATH /far"},
        "f; echo $PATH",
    ),
    "tcsh": (
        "tcsh",
        {
            ".tcshrc": "echo welcome; sh -c 'echo oops >&2'; alias f echo of profile",
            ".login": "setenv PATH ${PATH}:/far",
        },
        "f\necho $PATH",
    ),
}
# Start-up files that ssh HOST COMMAND reads, too, and others that it does not read.
PLAIN = {
    "bash": {".bashrc": NOISE + "f() { echo of the shell; }; export FAR=y", ".bash_profile": "FAR=no"},
    "zsh": {".zshenv": NOISE + "f() { echo of the shell; }; export FAR=y", ".zprofile": "FAR=no"},
    "fish": {".config/fish/config.fish": NOISE + "function f; echo of the shell; end; set -gx FAR y"},
    "tcsh": {".tcshrc": "echo welcome; alias f echo of the shell; setenv FAR y", ".login": "setenv FAR no"},
}
FAILING = {"tcsh": "sh -c 'exit 4'", "fish": "sh -c 'exit 4'"}


@pytest.fixture(params=["paramiko", "openssh"])
def ssh_carrier(request: pytest.FixtureRequest) -> str:
    """Return the carrier."""
    return str(request.param)


@pytest.fixture(scope="module")
def shell_host(ssh_host: Callable[..., SshHost], new_user: Callable[..., str]) -> tuple[SshHost, dict[str, str]]:
    users = {name: new_user(shell=shell, files=files) for name, (shell, files, _) in SHELLS.items()}
    users |= {f"plain-{shell}": new_user(shell=shell, files=files) for shell, files in PLAIN.items()}
    users["ends"] = new_user(files={".bash_profile": "echo closed for today; exit 9"})
    users["plain"] = new_user()
    return ssh_host(name="commands", users=list(users.values())), users


def commands(transport: Any, *, login: bool = False, **limits: Any) -> LoginCommands:
    where = ClusterLocation(
        "far", "/tmp/x", "ana", "/", "login", {}, is_remote=True, commands=limits, login_shell=login
    )  # type: ignore[arg-type]
    return LoginCommands(transport, where)


async def said(service: LoginCommands, text: str) -> tuple[bytes, bytes, dict[str, Any]]:
    """Return both streams of a command, and its end."""
    streams = {"stdout": b"", "stderr": b""}
    end: dict[str, Any] = {}
    async for event, data in service.stream(text, {}):
        if event == "output":
            streams[str(data["stream"])] += base64.b64decode(str(data["data"]))
        else:
            end = dict(data)
    return streams["stdout"], streams["stderr"], end


@pytest.mark.parametrize("name", SHELLS)
async def test_a_text_runs_as_at_a_login(shell_host: Any, connect: Any, name: str) -> None:
    host, users = shell_host
    service = commands(connect(host, user=users[name]).transport, login=True)
    out, err, end = await said(service, f"{SHELLS[name][2]}\n")
    assert out.startswith(b"of profile")
    assert b"/far" in out
    assert (err, end) == (b"", {"exit_code": 0, "reason": ""})
    odd = "echo \"a  'b' é\"\n"
    assert (await said(service, odd))[0].endswith("a  'b' é\n".encode())
    out, err, end = await said(service, f"{FAILING.get(name, 'exit 4')}\n")
    assert (out, err, end["exit_code"]) == (b"", b"", 4)
    assert (await said(service, "cat\n"))[0] == b""


@pytest.mark.parametrize("name", PLAIN)
async def test_a_text_runs_as_with_ssh(shell_host: Any, connect: Any, name: str) -> None:
    """Check that only the start-up files of every shell are read, and their output is left out."""
    host, users = shell_host
    service = commands(connect(host, user=users[f"plain-{name}"]).transport)
    out, err, end = await said(service, "f\nsh -c 'echo $FAR; exit 4'\n")
    assert (out, err, end["exit_code"]) == (b"of the shell\ny\n", b"", 4)


async def test_start_up_files_that_end_the_shell_are_named(shell_host: Any, connect: Any) -> None:
    host, users = shell_host
    with pytest.raises(CommandError, match="closed for today") as refused:
        await said(commands(connect(host, user=users["ends"]).transport, login=True), "echo x\n")
    assert refused.value.details["exit_code"] == 9


async def test_limits_of_the_profile(shell_host: Any, connect: Any) -> None:
    host, users = shell_host
    transport = connect(host, user=users["plain"]).transport
    _, _, end = await said(commands(transport, time_limit=1), "sleep 1000\n")
    assert "It ran for 1 s, the time limit" in end["reason"]
    _, _, end = await said(commands(transport, cpu_limit=1), "while :; do :; done\n")
    assert "more than 1 s of CPU time" in end["reason"]
    with pytest.raises(ConfigError, match="does not allow commands"):
        commands(transport, allowed=False).check_allowed()


async def test_a_cut_link_is_named_and_the_command_ends(shell_host: Any, connect: Any) -> None:
    host, users = shell_host
    transport = connect(host, user=users["plain"]).transport
    home = Path(f"~{users['plain']}").expanduser()
    (home / "sign").unlink(missing_ok=True)  # of the other carrier
    text = f"( while :; do echo >{home}/sign; sleep 0.1; done ) >/dev/null 2>&1 &\nsleep 1000\n"
    running = asyncio.ensure_future(said(commands(transport), text))
    async with asyncio.timeout(30):
        while not (home / "sign").exists():
            await asyncio.sleep(0.1)
    host.kill_sessions()
    with pytest.raises(TransportError, match="broke while the command ran") as broken:
        async with asyncio.timeout(60):
            await running
    assert "Check what the command has done" in broken.value.hint
    async with asyncio.timeout(30):
        before = 0
        while (now := (home / "sign").stat().st_mtime_ns) != before:
            before = now
            await asyncio.sleep(0.5)


async def test_two_commands_at_a_time(shell_host: Any, connect: Any) -> None:
    host, users = shell_host
    service = commands(connect(host, user=users["plain"]).transport)
    streams = [service.stream("echo x; sleep 1000\n", {}) for _ in range(runner._MAX_RUNNING)]
    for stream in streams:
        assert (await anext(stream))[0] == "output"
    with pytest.raises(runner.AgentBusy, match="are running on the login node"):
        service.check_allowed()
    for stream in streams:
        await stream.aclose()
    service.check_allowed()
    assert (await said(service, "echo again\n"))[0] == b"again\n"
