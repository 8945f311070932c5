"""Guarantees of every transport, against real processes and files: locally, and behind a real sshd."""

import asyncio
import hashlib
import os
import signal
import stat
from pathlib import Path

import pytest

from jupyter_slurm.errors import CommandMissing, CommandTimeout, TransportError
from jupyter_slurm.transport.base import Completed, Context


async def test_streams_are_bytes_and_the_exit_code_is_told(transport):
    done = await transport.run(["/bin/sh", "-c", "cat; printf '\\377' >&2; exit 3"], stdin=b"\xfe\n")
    assert (done.exit_code, done.stdout, done.stderr) == (3, b"\xfe\n", b"\xff")


async def test_a_command_of_a_stream_may_print_any_amount_of_errors(transport):
    """A window of SSH and a pipe hold some of it; rsync prints a line for each of a hundred thousand files."""
    command = "head -c 8000000 /dev/zero | tr '\\0' x >&2; echo done"
    await transport.run(["true"])
    stream = await asyncio.to_thread(transport.pipe, ["/bin/sh", "-c", command], 30)
    async with asyncio.timeout(60):
        assert await asyncio.to_thread(stream.recv, 100) == b"done\n"
        with pytest.raises(ConnectionResetError, match="xxx"):
            await asyncio.to_thread(stream.recv, 100)
    stream.close()


async def test_a_start_brings_large_files_along(transport, place):
    data = os.urandom(3 << 20)
    folder = place.path / "large"
    once = await transport.start_detached(
        f"{folder}/run", ["sha256sum", f"{folder}/b"], files={"a": b"1", "b": data, "c": b"2"}
    )
    done = await once.result(60)
    assert done.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()
    assert (folder / "b").stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        await transport.start_detached(f"{folder}/run", ["true"], files={"a": b"1", "b": data})
    async with asyncio.timeout(60):
        while any(path.stat().st_size for path in place.path.glob(".*/*")):
            await asyncio.sleep(0.05)


async def test_arguments_are_never_shell_text(transport):
    hostile = ["$(touch /tmp/x)", "a b", "'", '"', "\n", "*", ";", "\udcff"]
    done = await transport.run(["printf", "%s\\0", *hostile])
    assert done.stdout.split(b"\0")[:-1] == [os.fsencode(word) for word in hostile]


async def test_context_is_that_of_the_command(transport, place):
    context = Context(cwd=str(place.path), env={"PATH": os.environ["PATH"], "ONLY": "this"}, umask=0o027)
    done = await transport.run(["/bin/sh", "-c", "pwd; umask; echo $ONLY"], context=context)
    assert done.stdout.decode().split() == [str(place.path), "0027", "this"]


async def test_time_out_ends_the_whole_group(transport, place):
    await transport.run(["true"])  # the connection itself takes longer than the first of these times
    file, timeout = place.path / "pid", 0.5
    while not (file.exists() and file.read_text()):  # a busy computer has not begun with it so soon
        with pytest.raises(CommandTimeout):
            await transport.run(["/bin/sh", "-c", f"sleep 1000 & echo $! > {file}; wait"], timeout=timeout)
        timeout *= 2
    assert await _ends(place, int(file.read_text()))


async def test_cancellation_ends_the_whole_group(transport, place):
    task = asyncio.create_task(transport.run(["/bin/sh", "-c", f"echo $$ > {place.path}/pid; sleep 1000"]))
    while not (place.path / "pid").exists() or not (place.path / "pid").read_text():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await _ends(place, int((place.path / "pid").read_text()))


async def test_detached_command_outlives_the_wait_and_us(transport, place):
    script = f"read line < {place.path}/go; echo done; echo sorry >&2"
    os.mkfifo(place.path / "go")
    once = await transport.start_detached(str(place.path / "run"), ["/bin/sh", "-c", script])
    assert await once.result(0.1) is None
    assert await transport.acquire_lock(str(place.path / "run.out")) is None
    transport.close()
    (place.path / "go").write_text("go\n")
    other = place.new_transport()
    while await other.acquire_lock(str(place.path / "run.out")) is None:
        await asyncio.sleep(0.05)
    other.close()
    assert (place.path / "run.out").read_text() == "done\n"
    assert (place.path / "run.err").read_text() == "sorry\n"


async def test_command_runs_once_and_tells_its_exit_code(transport, place):
    prefix = str(place.path / "run")
    once = await transport.start_detached(prefix, ["/bin/sh", "-c", "echo out; echo err >&2; exit 7"])
    assert await once.result(None) == Completed(7, b"out\n", b"err\n")
    assert once.lock is None
    with pytest.raises(FileExistsError):
        await transport.start_detached(prefix, ["/bin/sh", "-c", "exit 7"])
    assert stat.S_IMODE(os.stat(prefix + ".out").st_mode) == 0o600


async def test_limits_reach_the_command(transport, place):
    command = ["/bin/sh", "-c", 'ulimit -S -n; ulimit -S -c; printf %s "$1"', "sh", "a b"]
    context = Context(limits={"n": "123", "c": "0", "z": "1"})
    once = await transport.start_detached(str(place.path / "run"), command, context=context)
    assert (await once.result(None)).exit_code == 0
    assert (place.path / "run.out").read_text() == "123\n0\na b"


async def test_missing_program_and_missing_folder_are_told_apart(transport, place):
    with pytest.raises(CommandMissing, match="no-such-program"):
        await transport.run(["no-such-program"])
    with pytest.raises(TransportError, match="working directory"):
        await transport.run(["true"], context=Context(cwd=str(place.path / "gone")))


async def test_files_are_private_and_written_in_one_step(transport, place):
    path = str(place.path / "a" / "b" / "file")
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
        assert stat.S_IMODE((place.path / folder).stat().st_mode) == 0o700
    assert await transport.list_dir(os.path.dirname(path)) == ["file"]
    assert await transport.read(path, 1, 1) == b"w"
    assert (await transport.stat(path)).size == 3
    os.mkfifo(place.path / "fifo")
    async with asyncio.timeout(20):  # the FIFO has no writer
        with pytest.raises(TransportError, match=r"Cannot read .*fifo"):
            await transport.read(str(place.path / "fifo"), 0, 10)


async def test_command_gets_a_folder_of_its_own(transport, place):
    prefix = str(place.path / "d" / "run")
    once = await transport.start_detached(prefix, ["cat", str(place.path / "d" / "b")], files={"a": b"1", "b": b"2"})
    assert await once.result(None) == Completed(0, b"2", b"")
    with pytest.raises(FileExistsError):
        await transport.start_detached(prefix, ["true"], files={"a": b"3"})
    assert (place.path / "d" / "a").read_bytes() == b"1"
    assert [name for name in os.listdir(place.path) if not name.startswith(".")] == ["d"]
    assert stat.S_IMODE((place.path / "d").stat().st_mode) == 0o700
    assert stat.S_IMODE((place.path / "d" / "a").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("argv", "files", "error"),
    [
        (["true"], {"a": b"1", "no such folder/b": b"2"}, FileNotFoundError),  # as with a disk that becomes full
        (["no-such-program"], {"a": b"1"}, CommandMissing),
    ],
)
async def test_the_folder_is_whole_and_has_a_command_or_is_not_there(transport, place, argv, files, error):
    with pytest.raises(error):
        await transport.start_detached(str(place.path / "d" / "run"), argv, files=files)
    assert os.listdir(place.path) == []


async def test_the_folder_is_held_until_it_is_released(transport, place):
    once = await transport.start_detached(str(place.path / "d" / "run"), ["true"], files={"a": b"1", "b": b"2"})
    path = str(place.path / "d" / "a")
    assert await transport.acquire_lock(path) is None
    once.lock.release()
    once.lock.release()
    async with asyncio.timeout(60):
        while (again := await transport.acquire_lock(path)) is None:
            await asyncio.sleep(0.01)
    again.release()


async def test_holds_end_with_the_transport(transport, place):
    other = place.new_transport()
    await other.start_detached(str(place.path / "d" / "run"), ["true"], files={"a": b"1"})
    other.close()
    async with asyncio.timeout(30):  # a remote command ends a moment after the connection
        while await transport.acquire_lock(str(place.path / "d" / "a")) is None:
            await asyncio.sleep(0.05)


async def test_removal_does_not_follow_links(transport, place):
    script = "mkdir kept gone; echo x >kept/file; ln -s ../kept gone/link; ln -s kept direct"
    await transport.run(["/bin/sh", "-c", script], context=Context(cwd=str(place.path)))
    await transport.remove(str(place.path / "gone"))
    await transport.remove(str(place.path / "direct"))
    await transport.remove(str(place.path / "never-was"))
    assert (place.path / "kept" / "file").exists()
    assert not (place.path / "gone").exists()


async def test_lock_is_seen_while_its_holder_lives(transport, place):
    path = place.path / "lock"
    with pytest.raises(FileNotFoundError):
        await transport.acquire_lock(str(path))
    await transport.write(str(path), b"")
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
    assert await transport.acquire_lock(str(path)) is None
    holder.stdin.close()
    await holder.wait()
    assert await transport.acquire_lock(str(path)) is not None


async def test_full_disk_says_what_to_do(transport):
    with pytest.raises(TransportError) as caught:
        await transport.read("/proc/self/mem", 0, 10)
    assert "/proc/self/mem" in caught.value.message


async def _ends(place, pid: int) -> bool:
    for _ in range(1200):
        here = place.pid_here(pid)
        try:
            state = Path(f"/proc/{here}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":
            return True
        await asyncio.sleep(0.05)
    os.kill(here, signal.SIGKILL)
    return False


async def test_many_files_are_looked_at_with_one_question(transport, place):
    names = ["plain", "a b", "new\nline", "é", "-n", *(f"n{number}" for number in range(130))]
    for name in names:
        (place.path / name).write_bytes(b"x" * len(name))
    os.symlink(place.path / "plain", place.path / "link")
    (place.path / "nowhere").symlink_to("gone")
    wanted = [str(place.path / name) for name in (*names, "link", "nowhere", "missing", "plain/below")]
    found = await transport.stat_all(wanted)
    assert {path: one.size for path, one in found.items()} == {
        **{str(place.path / name): len(name) for name in names},
        str(place.path / "link"): 5,
    }
    one = await transport.stat(str(place.path / "plain"))
    assert found[str(place.path / "plain")].mtime == pytest.approx(one.mtime)
    assert await transport.stat_all([]) == {}
