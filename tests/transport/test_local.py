"""The local transport against real processes and files."""

import asyncio
import os
import signal
import stat
import threading
from pathlib import Path

import pytest

from jupyter_slurm.errors import CommandMissing, CommandTimeout, TransportError
from jupyter_slurm.transport.base import Completed, Context
from jupyter_slurm.transport.local import LocalTransport


@pytest.fixture
def transport():
    transport = LocalTransport()
    yield transport
    transport.close()


async def test_streams_are_bytes_and_the_exit_code_is_told(transport):
    done = await transport.run(["/bin/sh", "-c", "cat; printf '\\377' >&2; exit 3"], stdin=b"\xfe\n")
    assert (done.exit_code, done.stdout, done.stderr) == (3, b"\xfe\n", b"\xff")


async def test_arguments_are_never_shell_text(transport):
    hostile = ["$(touch /tmp/x)", "a b", "'", '"', "\n", "*", ";", "\udcff"]
    done = await transport.run(["printf", "%s\\0", *hostile])
    assert done.stdout.split(b"\0")[:-1] == [os.fsencode(word) for word in hostile]


async def test_context_is_that_of_the_command(transport, tmp_path):
    context = Context(cwd=str(tmp_path), env={"PATH": os.environ["PATH"], "ONLY": "this"}, umask=0o027)
    done = await transport.run(["/bin/sh", "-c", "pwd; umask; env | grep -c ^HOME="], context=context)
    assert done.stdout.decode().split() == [str(tmp_path), "0027", "0"]


async def test_time_out_ends_the_whole_group(transport, tmp_path):
    with pytest.raises(CommandTimeout):
        await transport.run(["/bin/sh", "-c", f"sleep 1000 & echo $! > {tmp_path}/pid; wait"], timeout=0.5)
    pid = int((tmp_path / "pid").read_text())
    assert await _ends(pid)


async def test_cancellation_ends_the_whole_group(transport, tmp_path):
    task = asyncio.create_task(transport.run(["/bin/sh", "-c", f"echo $$ > {tmp_path}/pid; sleep 1000"]))
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await _ends(int((tmp_path / "pid").read_text()))


async def test_detached_command_outlives_the_wait_and_us(transport, tmp_path):
    script = f"read line < {tmp_path}/go; echo done; echo sorry >&2"
    os.mkfifo(tmp_path / "go")
    once = await transport.start_once(str(tmp_path / "run"), ["/bin/sh", "-c", script])
    assert await once.result(0.1) is None
    assert await transport.hold(str(tmp_path / "run.out")) is None
    transport.close()
    (tmp_path / "go").write_text("go\n")
    other = LocalTransport()
    while await other.hold(str(tmp_path / "run.out")) is None:
        await asyncio.sleep(0.05)
    other.close()
    assert (tmp_path / "run.out").read_text() == "done\n"
    assert (tmp_path / "run.err").read_text() == "sorry\n"


async def test_command_runs_once_and_tells_its_exit_code(transport, tmp_path):
    prefix = str(tmp_path / "run")
    once = await transport.start_once(prefix, ["/bin/sh", "-c", "echo out; echo err >&2; exit 7"])
    assert await once.result(None) == Completed(7, b"out\n", b"err\n")
    assert once.hold is None
    with pytest.raises(FileExistsError):
        await transport.start_once(prefix, ["/bin/sh", "-c", "exit 7"])
    assert stat.S_IMODE(os.stat(prefix + ".out").st_mode) == 0o600


async def test_limits_reach_the_command(transport, tmp_path):
    command = ["/bin/sh", "-c", 'ulimit -S -n; ulimit -S -c; printf %s "$1"', "sh", "a b"]
    context = Context(limits={"n": "123", "c": "0", "z": "1"})
    once = await transport.start_once(str(tmp_path / "run"), command, context=context)
    assert (await once.result(None)).exit_code == 0
    assert (tmp_path / "run.out").read_text() == "123\n0\na b"


async def test_missing_program_and_missing_folder_are_told_apart(transport, tmp_path):
    with pytest.raises(CommandMissing, match="no-such-program"):
        await transport.run(["no-such-program"])
    with pytest.raises(TransportError, match="working directory"):
        await transport.run(["true"], context=Context(cwd=str(tmp_path / "gone")))


async def test_files_are_private_and_written_in_one_step(transport, tmp_path):
    path = str(tmp_path / "a" / "b" / "file")
    before = os.umask(0)
    try:
        await transport.make_dir(os.path.dirname(path))
        await transport.write(path, b"one")
        await transport.write(path, b"two")
    finally:
        os.umask(before)
    assert Path(path).read_bytes() == b"two"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    for folder in ("a", "a/b"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700
    assert await transport.list_dir(os.path.dirname(path)) == ["file"]
    assert await transport.read(path, 1, 1) == b"w"
    assert (await transport.stat(path)).size == 3


async def test_many_commands_share_few_threads(transport, tmp_path):
    before = threading.active_count()
    for turn in range(5):
        prefixes = [str(tmp_path / f"{turn}-{number}") for number in range(3)]
        many = await asyncio.gather(*(transport.start_once(prefix, ["true"]) for prefix in prefixes))
        assert [(await once.result(None)).exit_code for once in many] == [0, 0, 0]
    assert threading.active_count() <= before + 4  # a fourth: the last one may still be on its way back


async def test_command_gets_a_folder_of_its_own(transport, tmp_path):
    prefix = str(tmp_path / "d" / "run")
    once = await transport.start_once(prefix, ["cat", str(tmp_path / "d" / "b")], files={"a": b"1", "b": b"2"})
    assert await once.result(None) == Completed(0, b"2", b"")
    with pytest.raises(FileExistsError):
        await transport.start_once(prefix, ["true"], files={"a": b"3"})
    assert (tmp_path / "d" / "a").read_bytes() == b"1"
    assert os.listdir(tmp_path) == ["d"]
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "d" / "a").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("argv", "files", "error"),
    [
        (["true"], {"a": b"1", "no such folder/b": b"2"}, FileNotFoundError),  # as when the disk fills up in between
        (["no-such-program"], {"a": b"1"}, CommandMissing),
    ],
)
async def test_the_folder_is_whole_and_has_a_command_or_is_not_there(transport, tmp_path, argv, files, error):
    with pytest.raises(error):
        await transport.start_once(str(tmp_path / "d" / "run"), argv, files=files)
    assert os.listdir(tmp_path) == []


async def test_the_folder_is_held_until_it_is_released(transport, tmp_path):
    once = await transport.start_once(str(tmp_path / "d" / "run"), ["true"], files={"a": b"1", "b": b"2"})
    path = str(tmp_path / "d" / "a")
    assert await transport.hold(path) is None
    once.hold.release()
    once.hold.release()
    async with asyncio.timeout(10):
        while (again := await transport.hold(path)) is None:
            await asyncio.sleep(0.01)
    again.release()


async def test_holds_end_with_the_transport(transport, tmp_path):
    other = LocalTransport()
    await other.start_once(str(tmp_path / "d" / "run"), ["true"], files={"a": b"1"})
    other.close()
    assert await transport.hold(str(tmp_path / "d" / "a")) is not None


async def test_removal_does_not_follow_links(transport, tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("x")
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "direct").symlink_to(tmp_path / "kept")
    await transport.remove(str(tmp_path / "gone"))
    await transport.remove(str(tmp_path / "direct"))
    await transport.remove(str(tmp_path / "never-was"))
    assert (tmp_path / "kept" / "file").exists()
    assert not (tmp_path / "gone").exists()


async def test_lock_is_seen_while_its_holder_lives(transport, tmp_path):
    path = tmp_path / "lock"
    with pytest.raises(FileNotFoundError):
        await transport.hold(str(path))
    path.touch()
    holder = await asyncio.create_subprocess_exec(
        "flock",
        str(path),
        "sh",
        "-c",
        "echo held; read line",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert await holder.stdout.readline() == b"held\n"
    assert await transport.hold(str(path)) is None
    holder.stdin.close()
    await holder.wait()
    assert await transport.hold(str(path)) is not None


async def test_full_disk_says_what_to_do(transport):
    with pytest.raises(TransportError) as caught:
        await transport.read("/proc/self/mem", 0, 10)
    assert "/proc/self/mem" in caught.value.message


async def _ends(pid: int) -> bool:
    for _ in range(200):
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":
            return True
        await asyncio.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    return False
