"""Discovery of the agent, and trust in its directory."""

from __future__ import annotations

import json
import os
import pwd
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_slurm.agent.hosting import discovery
from jupyter_slurm.config import Settings
from jupyter_slurm.errors import AgentRefused, AgentUnreachable

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to somebody else")


def test_a_new_place_is_private(make_settings: Callable[..., Settings], place: Path) -> None:
    found = discovery.place_to_start(make_settings())
    assert os.stat(found.folder).st_mode & 0o7777 == 0o700
    assert len(os.fsencode(found.socket)) <= 100
    assert os.path.basename(found.socket).startswith(f"v{discovery.API_MAJOR}-")


def test_a_link_is_refused(make_settings: Callable[..., Settings], place: Path) -> None:
    (place / "real").mkdir(mode=0o700)
    (place / "run").symlink_to(place / "real")
    with pytest.raises(AgentRefused, match="link") as caught:
        discovery.place_to_start(make_settings())
    assert caught.value.hint
    with pytest.raises(AgentRefused):
        discovery.search_locations(make_settings())


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701, 0o1777])
def test_an_open_folder_is_refused(make_settings: Callable[..., Settings], place: Path, mode: int) -> None:
    (place / "run").mkdir()
    (place / "run").chmod(mode)
    with pytest.raises(AgentRefused, match="open to other users") as caught:
        discovery.place_to_start(make_settings())
    assert "chmod 700" in caught.value.hint


@needs_root
@pytest.mark.root
def test_somebody_elses_folder_is_refused(make_settings: Callable[..., Settings], place: Path) -> None:
    (place / "run").mkdir(mode=0o700)
    os.chown(place / "run", 12345, 12345)
    with pytest.raises(AgentRefused, match="user 12345"):
        discovery.place_to_start(make_settings())


@needs_root
@pytest.mark.root
def test_a_folder_that_somebody_made_first_is_passed_over(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a directory in /tmp created by another user is skipped, and its content is not read."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(discovery, "_LOCAL_TEMP", str(place))
    theirs = place / f"jupyter-slurm-{os.geteuid()}"
    theirs.mkdir(mode=0o777)
    os.chown(theirs, 12345, 12345)
    settings = Settings(state_dir=str(place / "state"))
    found = discovery.place_to_start(settings)
    assert found.folder == str(place / "state" / "run")
    assert [p.folder for p in discovery.search_locations(settings)] == [found.folder]


def test_too_long_a_name_is_told(make_settings: Callable[..., Settings], place: Path) -> None:
    with pytest.raises(AgentRefused, match="too long for a socket"):
        discovery.place_to_start(make_settings(runtime_dir=str(place / ("x" * 100))))


def test_no_place_at_all_names_each_reason(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(discovery, "_LOCAL_TEMP", "/proc/nothing")
    (place / "state").write_text("a file")
    with pytest.raises(AgentUnreachable, match="/proc/nothing") as caught:
        discovery.place_to_start(Settings(state_dir=str(place / "state")))
    assert str(place / "state") in caught.value.message
    assert "runtime_dir" in caught.value.hint


def test_the_runtime_directory_of_the_session_is_preferred(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "xdg").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place / "xdg"))
    assert discovery.place_to_start(Settings()).folder == str(place / "xdg" / "jupyter-slurm")
    # A job inherits the variable from the login node: on the node it names nothing, or another user's directory.
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place / "gone"))
    monkeypatch.setattr(discovery, "_LOCAL_TEMP", str(place))
    assert str(place / "gone") not in discovery.place_to_start(Settings(state_dir=str(place))).folder


def test_the_place_does_not_depend_on_tmpdir(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = discovery._candidates(Settings())
    monkeypatch.setenv("TMPDIR", str(place))
    assert discovery._candidates(Settings()) == before


def test_network_file_systems_are_recognised() -> None:
    # proc(5), as on a login node; the number of optional fields varies.
    mountinfo = (
        "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
        "95 27 0:52 / /home rw,relatime shared:41 master:2 - nfs4 server:/home rw,vers=4.2\n"
        "96 27 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    )
    assert discovery._network_file_system(os.makedev(0, 52), mountinfo) == "nfs4"
    assert discovery._network_file_system(os.makedev(8, 1), mountinfo) is None
    assert discovery._network_file_system(os.makedev(0, 99), mountinfo) is None


def test_a_folder_on_a_network_file_system_is_refused(
    make_settings: Callable[..., Settings], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = os.stat(place).st_dev
    line = f"95 27 {os.major(device)}:{os.minor(device)} / /home rw - nfs4 server:/home rw\n"
    monkeypatch.setattr(discovery, "_mountinfo", lambda: line)
    with pytest.raises(AgentRefused, match="nfs4"):
        discovery.place_to_start(make_settings())


def test_private_files_are_not_opened_through_links(place: Path) -> None:
    (place / "target").write_text("x")
    (place / "link").symlink_to(place / "target")
    with pytest.raises(OSError, match="symbolic links"):
        discovery.open_private(str(place / "link"), os.O_RDONLY)
    os.mkfifo(place / "fifo")
    with pytest.raises(PermissionError):  # and a FIFO does not block
        discovery.open_private(str(place / "fifo"), os.O_RDONLY)
    (place / "open").write_text("x")
    (place / "open").chmod(0o644)
    os.close(discovery.open_private(str(place / "open"), os.O_RDONLY))
    assert (place / "open").stat().st_mode & 0o777 == 0o600


def test_stale_records_are_recognised(run_python: Callable[..., object]) -> None:
    record = {"pid": os.getpid(), **discovery.machine_identity()}
    assert not discovery.is_stale(record)
    assert discovery.is_stale({**record, "boot_id": "another boot"})
    assert discovery.is_stale({**record, "host": "another host"})
    with run_python("") as process:  # type: ignore[attr-defined]
        process.communicate()
    assert discovery.is_stale({**record, "pid": process.pid})
    assert discovery.is_stale({**record, "pid": "many"})
    assert discovery.is_stale({**record, "pid": -1})


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"null", b"{" * 70000])
def test_a_torn_record_is_no_record(make_settings: Callable[..., Settings], content: bytes) -> None:
    found = discovery.place_to_start(make_settings())
    Path(found.record).write_bytes(content)
    assert discovery.read_record(found) is None


def test_another_major_version_has_another_name(
    make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = discovery.place_to_start(make_settings())
    monkeypatch.setattr(discovery, "API_MAJOR", discovery.API_MAJOR + 1)
    theirs = discovery.place_to_start(make_settings())
    assert ours.folder == theirs.folder
    assert not {ours.socket, ours.lock, ours.record} & {theirs.socket, theirs.lock, theirs.record}


def test_the_record_says_who_listens(agent: object, settings: Settings) -> None:
    found = discovery.place_to_start(settings)
    record = json.loads(Path(found.record).read_text())
    assert record["pid"] == os.getpid()
    assert record["host"] == socket.gethostname()
    assert record["api"]["major"] == discovery.API_MAJOR
    assert record["hosting"] == "inprocess"
    for name in os.listdir(found.folder):
        assert os.stat(os.path.join(found.folder, name)).st_mode & 0o077 == 0, name


def test_a_process_with_another_home_has_another_agent(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that an agent with other job directories, of another home in the same shared folder, is not found."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(discovery, "_LOCAL_TEMP", str(place))
    own = pwd.getpwuid(os.geteuid()).pw_dir
    monkeypatch.setenv("HOME", own)
    usual = discovery.place_to_start(Settings(state_dir=str(place)))
    assert usual.socket in [one.socket for one in discovery.search_locations(Settings(state_dir=str(place)))]
    named = Settings(runtime_dir=str(place / "named"))
    before = discovery.place_to_start(named).socket
    monkeypatch.setenv("HOME", str(place))
    other = discovery.place_to_start(Settings(state_dir=str(place)))
    assert other.folder == usual.folder
    assert other.socket != usual.socket
    assert usual.socket not in [one.socket for one in discovery.search_locations(Settings(state_dir=str(place)))]
    assert discovery.place_to_start(named).socket == before, "a directory that the settings name is used as it is"
