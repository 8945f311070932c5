"""SSH transport under hostile conditions: start-up files, the server, or its messages."""

import asyncio
import re
import resource
import time
from pathlib import Path

import pytest

from jupyter_slurm.errors import CommandTimeout, TransportError
from jupyter_slurm.transport.base import Completed, Context
from jupyter_slurm.transport.ssh.protocols import AnswerTooLarge, LinkLost
from jupyter_slurm.transport.ssh.shell import shell as shell_module
from jupyter_slurm.transport.ssh.shell.calls import ShellAnswer
from jupyter_slurm.transport.ssh.shell.files import RemoteFiles
from jupyter_slurm.transport.ssh.shell.functions import FUNCTIONS
from jupyter_slurm.transport.ssh.shell.shell import Shell

pytestmark = pytest.mark.root


@pytest.fixture(params=["paramiko", "openssh"])
def ssh_carrier(request):
    """Return both carriers in turn."""
    return request.param


@pytest.fixture
def fragile(ssh_host, common):
    """Provide a host that the test may break; its /bin/sh is dash."""
    host = ssh_host(name="frail", shared=[common])
    yield host
    host.close()


async def _no_sleep(host):
    async with asyncio.timeout(20):
        while "sleep" in host.processes().values():
            await asyncio.sleep(0.05)


# Sessions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sessions", [1, 2])
async def test_sessions_refused_at_once_do_not_cost_the_connection(ssh_host, connect, ssh_carrier, sessions):
    host = ssh_host(name=f"few{sessions}", options={"MaxSessions": sessions})
    for _ in range(10 if ssh_carrier == "paramiko" else 2):  # OpenSSH waits for room, two seconds each time
        one = connect(host)
        await one.link.connect()
        done = await asyncio.gather(*(one.transport.run(["echo", "x"]) for _ in range(8)))
        assert (done, one.told) == ([Completed(0, b"x\n", b"")] * 8, [])
        one.transport.close()


@pytest.mark.parametrize("sh", ["dash", "bash"])
async def test_no_lock_outlives_a_connection_that_is_cut_under_an_answer(ssh_host, connect, common, new_folder, sh):
    host = ssh_host(name=f"cut-{sh}", shared=[common], mounts={"/bin/sh": Path(f"/bin/{sh}")})
    folder = new_folder(host.user)
    one = connect(host)
    await one.transport.run(["true"])
    for number in range(4):
        start = one.transport.start_detached(
            f"{folder}/{number}/run", ["sh", "-c", "sleep 0.3; echo x"], files={"a": b"1"}
        )
        task = asyncio.create_task(start)
        await asyncio.sleep(0.2)
        await asyncio.to_thread(host.kill_sessions)
        once = await task
        await once.result(10)
        if once.lock is not None:
            once.lock.release()
    await _no_sleep(host)
    host.close()


async def test_shells_of_a_lost_connection_are_ended_by_the_second_new_one_too(fragile, connect, monkeypatch):
    one = connect(fragile)
    await one.transport.run(["true"])
    task = asyncio.create_task(one.transport.run(["sleep", "500"]))
    while "sleep" not in fragile.processes().values():
        await asyncio.sleep(0.05)
    start, failed = Shell.start, []

    def fail(shell):
        if not failed:
            failed.append(shell)
            raise TransportError("not this time")
        start(shell)

    monkeypatch.setattr(Shell, "start", fail)
    fragile.kill_sessions()
    with pytest.raises(TransportError):
        await task
    with pytest.raises(TransportError, match="not this time"):
        await one.transport.run(["true"])
    await one.transport.run(["true"])
    await _no_sleep(fragile)


# Start-up files --------------------------------------------------------------------------------------------------

_FUNCTIONS = "printf cd command kill mv cat read umask echo test [ rm sleep flock setsid dd true grep mkdir stat"
ODD_FILES = {
    "functions": f'for f in {_FUNCTIONS}; do eval "$f() {{ builtin echo evil; }}; builtin export -f $f"; done',
    "errexit": "set -e; export SHELLOPTS",
    "nounset": "set -u; export SHELLOPTS",
    "noglob-noclobber": "set -fC; export SHELLOPTS",
    "loud": "set -xv; export SHELLOPTS",
    "allexport": "set -a; export SHELLOPTS",
    "dotglob": "shopt -s dotglob failglob; export BASHOPTS GLOBIGNORE=f",
    "own": "js_end() { echo evil; }; export -f js_end; export js_mark=abc js_how=once js_n=1",
    "umask-0": "umask 000",
    "umask-777": "umask 777",
    "variables": "export POSIXLY_CORRECT=1 CDPATH=.:/tmp IFS=ab QUOTING_STYLE=c TMOUT=1",
}
ODD_PRELUDES = [
    *("set -e", "set -u", "set -f", "set -C", "IFS=,", "umask 000", "set -x", "trap true EXIT", "cd() { false; }"),
    'mv() { /bin/mv -v "$@"; }',
]


async def _work(transport, folder):
    """Do the work of a submission, and check that no other user can read it."""
    for _ in range(2):
        done = await transport.run(["/bin/sh", "-c", "echo a; echo b >&2; exit 3"])
        assert done == Completed(3, b"a\n", b"b\n")
    done = await transport.run(["pwd"], context=Context(cwd=str(folder)))
    assert done == Completed(0, f"{folder}\n".encode(), b"")
    assert (await transport.run(["cat"], stdin=b"xyz")).stdout == b"xyz"
    for name, data in (("f", b"data\0\\x"), ("g", b"d" * 200_000)):
        await transport.write(f"{folder}/{name}", data)
        assert await transport.read(f"{folder}/{name}") == data
    await transport.make_dir(f"{folder}/d/e")
    assert sorted(await transport.list_dir(str(folder))) == ["d", "f", "g"]
    assert (await transport.stat(f"{folder}/f")).size == 7
    with pytest.raises(FileNotFoundError):
        await transport.read(f"{folder}/none")
    for number in range(2):
        once = await transport.start_detached(
            f"{folder}/j{number}/run", ["/bin/sh", "-c", "echo job; echo w >&2; exit 4"], files={"a": b"1", "b": b"\\c"}
        )
        assert await once.result(10) == Completed(4, b"job\n", b"w\n")
        once.lock.release()
    for path in folder.rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    await transport.remove(f"{folder}/d")


@pytest.fixture(scope="module")
def odd_users(new_user):
    return {name: new_user(files={".bashrc": text + "\n"}) for name, text in ODD_FILES.items()}


@pytest.fixture(scope="module", params=["dash", "bash"])
def odd_host(ssh_host, common, odd_users, request):
    mounts = {"/bin/sh": Path(f"/bin/{request.param}")}
    return ssh_host(name=f"odd-{request.param}", shared=[common], users=list(odd_users.values()), mounts=mounts)


@pytest.mark.parametrize("name", ODD_FILES)
async def test_what_start_up_files_leave_in_the_environment_changes_nothing(
    odd_host, odd_users, connect, new_folder, name
):
    await _work(connect(odd_host, user=odd_users[name]).transport, new_folder(odd_users[name]))


@pytest.mark.parametrize("prelude", ODD_PRELUDES)
async def test_what_a_prelude_leaves_in_the_shell_changes_nothing(odd_host, odd_users, connect, new_folder, prelude):
    user = odd_users["umask-0"]
    await _work(connect(odd_host, user=user, prelude=prelude).transport, new_folder(user))


@pytest.mark.parametrize("line", ["exec 2>&1", "exec 2>/dev/null"])
async def test_start_up_files_that_lead_stderr_elsewhere_are_named_at_once(ssh_host, new_user, connect, line):
    host = ssh_host(name="led", users=[new_user(files={".bashrc": line + "\n"})])
    begin = time.monotonic()
    with pytest.raises(TransportError, match=r"start-up files.*error output"):
        await connect(host).transport.run(["true"])
    assert time.monotonic() - begin < 25


@pytest.mark.parametrize("flood", ["yes", "yes >&2", "yes & yes >&2"])
async def test_an_answer_without_an_end_is_given_up_and_its_command_ended(fragile, connect, monkeypatch, flood):
    monkeypatch.setattr(shell_module, "_MAX_ANSWER_BYTES", 4 << 20)
    one = connect(fragile)
    done = await one.transport.run(["head", "-c", "3000000", "/dev/zero"])
    assert len(done.stdout) == 3_000_000
    with pytest.raises(TransportError, match=r"sh: .*larger than 4 MiB") as caught:
        await one.transport.run(["sh", "-c", flood], timeout=None)
    assert "terminal on the login node" in caught.value.hint
    async with asyncio.timeout(60):
        while "yes" in fragile.processes().values():
            await asyncio.sleep(0.05)
    assert (await one.transport.run(["echo", "x"])).stdout == b"x\n"


@pytest.mark.parametrize("flood", ["yes >&2", "yes", "yes >&2 & sleep 1"])
async def test_start_up_files_that_print_without_end_cost_little(ssh_host, new_user, connect, flood):
    host = ssh_host(name="loud", users=[new_user(files={".bashrc": flood + "\n"})])
    one = connect(host)
    before, begin = _memory(), time.monotonic()
    with pytest.raises(TransportError, match="printed without end"):
        await one.transport.run(["true"])
    assert (_memory() - before < 100 << 20, time.monotonic() - begin < 45) == (True, True)


async def test_a_flood_in_the_background_does_not_outlast_a_time_out(login_node, connect):
    one = connect(login_node, prelude="(sleep 1; exec yes) & (sleep 1; exec yes >&2) &")
    await one.transport.run(["true"])
    begin = time.monotonic()
    with pytest.raises((CommandTimeout, AnswerTooLarge)):
        await one.transport.run(["sleep", "50"], timeout=3)
    assert time.monotonic() - begin < 40


def _memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


# Lost connections ------------------------------------------------------------------------------------------------


async def test_who_waits_for_a_shell_is_told_of_a_refusal_at_once(fragile, connect):
    one = connect(fragile, shells=2)
    await one.transport.run(["true"])
    busy = [asyncio.create_task(one.transport.run(["sleep", "100"], timeout=None)) for _ in range(2)]
    while list(fragile.processes().values()).count("sleep") < 2:
        await asyncio.sleep(0.05)
    waiting = [asyncio.create_task(one.transport.run(["squeue"], timeout=60)) for _ in range(2)]
    await asyncio.sleep(0.2)
    fragile.new_host_key()
    fragile.kill_sessions()
    begin = time.monotonic()
    await asyncio.gather(*busy, return_exceptions=True)
    for error in await asyncio.gather(*waiting, return_exceptions=True):
        assert re.search(r"not that host|has changed", str(error))
    with pytest.raises(TransportError, match=r"not that host|has changed"):
        await one.transport.run(["squeue"])
    assert time.monotonic() - begin < 45


async def test_who_waits_for_a_shell_is_told_that_the_connection_was_closed(login_node, connect):
    one = connect(login_node, shells=1)
    tasks = [asyncio.create_task(one.transport.run(["sleep", "30"], timeout=30)) for _ in range(4)]
    while "sleep" not in login_node.processes().values():
        await asyncio.sleep(0.05)
    begin = time.monotonic()
    one.transport.close()
    errors = await asyncio.gather(*tasks, return_exceptions=True)
    assert time.monotonic() - begin < 20
    assert all(isinstance(error, LinkLost) for error in errors)
    assert ["was closed" in str(error) for error in errors[1:]] == [True] * 3
    with pytest.raises(LinkLost, match="was closed") as refused:
        await one.transport.read("/etc/hostname")
    assert "jupyter slurm connect" in refused.value.hint


# False answers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"abc.def", b"12.x", b" ", b"-1.-1", b"9" * 5000 + b".1", b"\xff.\xff"])
async def test_a_shell_that_says_nonsense_is_told_so(login_node, connect, monkeypatch, said):
    monkeypatch.setattr(
        shell_module,
        "FUNCTIONS",
        FUNCTIONS + f"js_end() {{ printf '%s:{_octal(said)}\\n' $js_mark; printf '%s:\\n' $js_mark >&2; }}\n",
    )
    with pytest.raises(TransportError, match="instead of a number"):
        await connect(login_node).transport.run(["true"])


def _octal(data: bytes) -> str:
    return "".join(f"\\{byte:03o}" for byte in data)


@pytest.mark.parametrize("value", [b"\xff x", b"x", b"", b"-1 1.5", b"1 nan"])
async def test_answers_that_are_no_numbers_are_told_so(login_node, connect, monkeypatch, value):
    transport = connect(login_node).transport
    await transport.run(["true"])
    monkeypatch.setattr(Shell, "call", lambda *args, **named: ShellAnswer("0", (), value, b""))
    with pytest.raises(TransportError, match="instead of a number"):
        await transport.stat("/")
    with pytest.raises(TransportError, match="instead of a number"):
        await transport.acquire_lock("/")


# Names -----------------------------------------------------------------------------------------------------------


async def test_a_folder_called_minus_is_no_other_folder(login_node, connect, new_folder):
    folder = new_folder(login_node.user)
    transport = connect(login_node, prelude=f"cd {folder}; export CDPATH=/").transport
    with pytest.raises(TransportError, match="does not exist on the cluster"):
        await transport.run(["pwd"], context=Context(cwd="-"))
    await transport.make_dir(f"{folder}/-")
    await transport.make_dir(f"{folder}/etc")
    for name in ("-", "etc"):
        done = await transport.run(["pwd"], context=Context(cwd=name))
        assert done == Completed(0, f"{folder}/{name}\n".encode(), b"")


async def test_a_variable_of_our_own_is_refused(login_node, connect):
    with pytest.raises(TransportError, match="js_n"):
        await connect(login_node).transport.run(["env"], context=Context(env={"js_n": "3"}))


@pytest.mark.parametrize("sh", ["dash", "bash"])
async def test_a_full_disk_is_told_as_such(ssh_host, connect, sh):
    host = ssh_host(name=f"full-{sh}", mounts={"/bin/sh": Path(f"/bin/{sh}")})
    fill = "mount -t tmpfs -o size=64k tmpfs /mnt; chmod 777 /mnt; mkdir -m 777 /mnt/a /mnt/b; cat /dev/zero >/mnt/fill"
    host.run("sh", "-c", fill, check=False)
    transport = connect(host).transport
    for work in (
        transport.write("/mnt/x", b"abc"),
        transport.write("/mnt/x", bytes(300_000)),
        transport.start_detached("/mnt/a/j/run", ["true"], files={"a": b"1"}),
    ):
        with pytest.raises(TransportError) as caught:
            await work
        assert "The disk is full" in caught.value.hint


async def test_a_file_without_an_end_is_not_read_into_memory(monkeypatch):
    """Check a host that answers each request for the next part of a file."""
    monkeypatch.setattr("jupyter_slurm.transport.ssh.shell.files._MAX_FILE_BYTES", 16 << 20)
    count = 0

    async def call(arguments, stdin=None):
        nonlocal count
        count += 1
        return ShellAnswer("0", (), bytes(int(arguments[-1]) if count < 100 else 0), b"")

    with pytest.raises(TransportError, match="/proc/self/mounts was not read, because it is larger than 16 MiB"):
        await RemoteFiles(call).read("/proc/self/mounts", 0, None)
    count = 0
    assert len(await RemoteFiles(call).read("/large", 0, 40 << 20)) == 40 << 20
