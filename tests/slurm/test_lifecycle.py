"""Life cycle of a cluster: starts in time, exists once, and leaves nothing behind however its starter ended."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_slurm.embedded import EmbeddedCluster, load_description
from jupyter_slurm.embedded import cluster as cluster_module
from jupyter_slurm.embedded.control import ClusterControl
from jupyter_slurm.embedded.layout import default_directory
from jupyter_slurm.embedded.state import State
from jupyter_slurm.errors import EmbeddedError

pytestmark = pytest.mark.slurm
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def test_arandu_is_ready_within_fifteen_seconds_and_gone_without_a_trace(short_tmp, nothing_left):
    cluster = EmbeddedCluster(directory=short_tmp / "x")
    cluster.start(timeout=15)
    status = cluster.status()
    assert status.state == "running"
    assert status.nodes == dict.fromkeys(["c4aiscw1", "c4aiscw2", "c4aiscw3", "c4aiscw4", "dgx01"], "idle")
    cluster.run("sbatch", "--output=/dev/null", "--array=0-3", "--wrap", "sleep 1000 & wait")
    assert cluster.stop()
    nothing_left(cluster.directory)
    assert not cluster.stop()
    assert cluster.status().state == "stopped"


def test_directories_made_for_it_go_with_it(short_tmp, new_cluster):
    cluster = new_cluster(directory=short_tmp / "deep" / "er" / "c")
    (short_tmp / "deep" / "mine").touch()
    cluster.stop()
    assert [path.name for path in (short_tmp / "deep").iterdir()] == ["mine"]


def test_two_clusters_with_the_same_names_side_by_side(new_cluster, wait_for):
    one, two = new_cluster(), new_cluster()
    jobs: dict[int, list[str]] = {}
    for number, cluster in enumerate((one, two), 1):
        submit = ["sbatch", "--parsable", "--output=/dev/null", "--nodelist=c4aiscw1", "--wrap", "sleep 1000"]
        jobs[number] = [cluster.run(*submit).stdout.strip() for _ in range(number)]
    running = ["squeue", "--noheader", "--states=running", "--format=%A"]
    for number, cluster in enumerate((one, two), 1):
        wait_for(lambda c=cluster, n=number: len(c.run(*running).stdout.split()) == n, "all jobs to run")
    one.stop()
    assert sorted(two.run(*running).stdout.split()) == jobs[2]
    assert two.run("srun", "--nodelist=c4aiscw1", "echo", "still here").stdout == "still here\n"


def test_two_clusters_started_at_the_same_moment(new_cluster):
    clusters = [new_cluster(start=False) for _ in range(3)]
    threads = [threading.Thread(target=cluster.start) for cluster in clusters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [cluster.status().state for cluster in clusters] == ["running"] * 3


def test_a_second_start_says_that_it_is_running(new_cluster):
    cluster = new_cluster()
    with pytest.raises(EmbeddedError, match="is already running in") as caught:
        EmbeddedCluster(directory=cluster.directory).start()
    assert str(cluster.slurm_conf) in caught.value.hint
    assert cluster.status().state == "running"


def test_a_directory_with_something_else_in_it_is_left_alone(short_tmp, new_cluster):
    directory = short_tmp / "mine"
    directory.mkdir()
    (directory / "thesis.tex").touch()
    with pytest.raises(EmbeddedError, match=r"thesis\.tex"):
        new_cluster(directory=directory)
    assert not EmbeddedCluster(directory=directory).stop()
    assert [path.name for path in directory.iterdir()] == ["thesis.tex"]


def test_a_folder_of_jobs_is_not_taken_for_a_cluster(short_tmp, new_cluster):
    """Check a directory with the agent's cluster.json, which the agent keeps beside its job directories."""
    directory = short_tmp / "local"
    directory.mkdir()
    (directory / "cluster.json").write_text('{"format": 1, "slurm_conf": null, "path": null}')
    with pytest.raises(EmbeddedError, match=r"do not belong to a cluster: cluster\.json"):
        new_cluster(directory=directory)
    assert not EmbeddedCluster(directory=directory).stop()
    assert [path.name for path in directory.iterdir()] == ["cluster.json"]


@as_root
def test_a_directory_of_somebody_else_is_refused(alice, short_tmp, new_cluster):
    directory = short_tmp / "theirs"
    directory.mkdir()
    shutil.chown(directory, alice)
    with pytest.raises(EmbeddedError, match="belongs to another user"):
        new_cluster(directory=directory)


def test_a_link_is_refused(short_tmp, new_cluster):
    (short_tmp / "target").mkdir()
    (short_tmp / "link").symlink_to(short_tmp / "target")
    with pytest.raises(EmbeddedError, match="is not a directory"):
        new_cluster(directory=short_tmp / "link")


@pytest.mark.parametrize(
    "place", ["file", "file/below", "link", "/proc/x/cluster", "/sys/x", "n" * 300, "file/" + "d/" * 3000, "gone"]
)
def test_a_place_where_no_directory_can_be_is_told_in_words(short_tmp, place):
    folder = short_tmp / "places"
    folder.mkdir(exist_ok=True)
    (folder / "file").write_text("mine")
    with suppress(FileExistsError):
        (folder / "link").symlink_to("link")
        (folder / "gone").symlink_to(folder / "no" / "where")
    with pytest.raises(EmbeddedError) as caught:
        EmbeddedCluster(directory=folder / place).start()
    assert "--dir" in caught.value.hint
    assert (folder / "file").read_text() == "mine"
    said = subprocess.run(
        [sys.executable, "-m", "jupyter_slurm.cli.main", "embedded", "status", "--dir", str(folder / place)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert "Traceback" not in said.stderr


@as_root
def test_a_folder_that_may_not_be_written_to_is_told_in_words(short_tmp, alice):
    """Check as a user other than root, who has all permissions."""
    closed = short_tmp / "closed"
    closed.mkdir(mode=0o700)
    own = short_tmp / "own"
    own.mkdir(mode=0o500)
    shutil.chown(own, alice)
    user, places = pwd.getpwnam(alice), (closed / "x", own / "x", own, Path("/etc/x"), Path("/root/deep/er"))
    code = f"""if True:
        import encodings.ascii, encodings.idna, os, stringprep, sys, unicodedata
        from pathlib import Path
        from jupyter_slurm.embedded import EmbeddedCluster
        clusters = [EmbeddedCluster(directory=Path(place)) for place in sys.argv[1:]]
        clusters[0].installation.check(accounting=False)
        os.setgroups([]); os.setgid({user.pw_gid}); os.setuid({user.pw_uid})
        for cluster in clusters:
            try:
                cluster.start()
            except Exception as error:
                print(type(error).__name__, *str(error).splitlines())"""
    done = subprocess.run([sys.executable, "-c", code, *map(str, places)], capture_output=True, text=True, cwd="/")
    for place, line in zip(places, done.stdout.splitlines(), strict=True):
        assert line.startswith("EmbeddedError ")
        assert f"{place}: Permission denied" in line or f"{place} belongs to another user, or" in line
        assert "--dir" in line
    own.chmod(0o700)


@pytest.mark.parametrize(("name", "said"), [("d" * 90, "too long for a Unix socket"), ("my dir", "allows no space")])
def test_a_path_that_cannot_be_is_told_before_anything_starts(name, said, short_tmp, new_cluster, nothing_left):
    directory = short_tmp / name
    with pytest.raises(EmbeddedError, match=said):
        new_cluster(directory=directory)
    nothing_left(directory)


def test_what_is_not_ready_in_time_is_undone(new_cluster, nothing_left, short_tmp):
    cluster = new_cluster(start=False)
    with pytest.raises(EmbeddedError, match="in time"):
        cluster.start(timeout=0)
    nothing_left(cluster.directory)


def test_a_daemon_that_cannot_start_is_told_with_its_own_words(new_cluster, nothing_left):
    cluster = new_cluster(start=False, extra=("SelectType=select/none_such",))
    with pytest.raises(EmbeddedError, match="slurmctld ended as soon as it was started") as caught:
        cluster.start()
    assert "select/none_such" in str(caught.value)
    nothing_left(cluster.directory)


@pytest.mark.parametrize("taken", [0, 2])
def test_a_port_that_somebody_was_quicker_to_take(new_cluster, monkeypatch, taken):
    """Check ports (the controller's, a node's) of the first choice on which another program already listens."""
    choose, choices = cluster_module.free_ports, []
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()

        def first_choice_is_bad(count: int) -> list[int]:
            choices.append(choose(count))
            if len(choices) == 1:
                choices[0][taken] = stranger.getsockname()[1]
            return choices[-1]

        monkeypatch.setattr(cluster_module, "free_ports", first_choice_is_bad)
        cluster = new_cluster()
    assert len(choices) == 2
    assert cluster.status().state == "running"


START = """
import sys, time
from pathlib import Path
from jupyter_slurm.embedded import EmbeddedCluster
EmbeddedCluster(directory=Path(sys.argv[1])).start()
print("started", flush=True)
time.sleep(1000)
"""


def test_it_outlives_a_starter_that_is_killed_and_can_be_stopped_by_another(short_tmp, nothing_left, wait_for):
    directory = short_tmp / "k"
    with subprocess.Popen([sys.executable, "-c", START, str(directory)], stdout=subprocess.PIPE) as starter:
        assert starter.stdout.readline() == b"started\n"
        starter.kill()
    control = EmbeddedCluster(directory=directory)
    assert control.status().state == "running"
    assert control.run("srun", "echo", "alive").stdout == "alive\n"
    assert control.stop()
    nothing_left(directory)


def test_it_can_be_told_to_live_no_longer_than_a_process(
    new_cluster, short_tmp, nothing_left, processes_about, wait_for
):
    owner = subprocess.Popen(["sleep", "1000"])
    with owner:
        cluster = EmbeddedCluster(new_cluster(start=False).description, directory=short_tmp / "until")
        cluster.start(until=owner.pid)
        assert cluster.status().state == "running"
        owner.kill()
    # The directory disappears before the keeper that removed it.
    wait_for(lambda: not processes_about(cluster.directory), "the cluster and its watch to be gone")
    nothing_left(cluster.directory)
    with pytest.raises(EmbeddedError, match="no process"):
        cluster.start(until=owner.pid)
    nothing_left(cluster.directory)


def test_a_starter_killed_half_way_leaves_something_that_can_be_stopped_and_started(short_tmp, nothing_left, wait_for):
    directory = short_tmp / "h"
    for moment in ("embedded.json", "etc/slurm.conf", "munge/socket", "run/slurmctld.pid"):
        with subprocess.Popen([sys.executable, "-c", START, str(directory)], stdout=subprocess.PIPE) as starter:
            wait_for((directory / moment).exists, moment, interval=0.001)
            starter.kill()
        cluster = EmbeddedCluster(directory=directory)
        assert cluster.stop()
        nothing_left(directory)
    with cluster:
        assert cluster.status().state == "running"


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize(("accounting", "longest"), [(False, 2.0), (True, 6.0)])
def test_a_starter_killed_at_any_moment_leaves_nothing_that_stop_or_start_refuse(
    short_tmp, nothing_left, processes_about, wait_for, accounting, longest
):
    directory, steps = short_tmp / "m", 20
    argv = [sys.executable, "-m", "jupyter_slurm.embedded", "start", "--dir", str(directory)]
    for step in range(steps):
        with subprocess.Popen([*argv, *["--accounting"] * accounting], stdout=subprocess.DEVNULL) as starter:
            wait_for(directory.exists, "the directory", interval=0.0005)
            # The moment varies: the first steps are close together, when the directory is created.
            time.sleep(longest * (step / (steps - 1)) ** 3)
            starter.kill()
        cluster = EmbeddedCluster(directory=directory)
        if step % 2 and not processes_about(directory):
            cluster.start()
        if not cluster.stop() and directory.exists():
            directory.rmdir()  # created, but empty
        nothing_left(directory)


def test_what_was_begun_before_it_could_be_remembered_is_ours(new_cluster, short_tmp, nothing_left):
    directory = short_tmp / "begun"
    directory.mkdir()
    (directory / "embedded.new").write_text('{"na')
    EmbeddedCluster(directory=directory).stop()
    nothing_left(directory)
    directory.mkdir()
    (directory / "embedded.new").write_text('{"na')
    cluster = new_cluster(directory=directory)
    assert cluster.status().state == "running"
    assert not (directory / "embedded.new").exists()


def test_a_cluster_that_runs_in_part_is_not_taken_for_one_that_runs(new_cluster):
    cluster = new_cluster()
    cluster.stop_controller()
    with pytest.raises(EmbeddedError, match="only partly running: slurmctld is missing") as caught:
        EmbeddedCluster(directory=cluster.directory).start()
    assert caught.value.hint == f"Stop it first: `jupyter slurm embedded stop --dir {cluster.directory}`."


def test_daemons_that_died_are_told_and_stop_clears_the_rest(new_cluster, nothing_left, wait_for):
    cluster, killed = new_cluster(), ["slurmctld", "slurmd/c4aiscw1"]
    for role in killed:
        cluster.daemons.running()[role].send(signal.SIGKILL)
    wait_for(lambda: cluster.status().missing == killed, "both to have ended")
    assert cluster.status().state == "damaged"
    cluster.stop()
    nothing_left(cluster.directory)


def test_a_directory_from_before_the_machine_was_restarted(new_cluster, short_tmp, nothing_left):
    """Check that processes in the state of an earlier boot count as ended, whatever their marks."""
    directory = short_tmp / "stale"
    directory.mkdir()
    state = State("old", "0" * 32, ["n1"], False, 1, 2, boot="another boot")
    (directory / "embedded.json").write_text(json.dumps(state.__dict__))
    (directory / "state").mkdir()
    control = ClusterControl(directory)
    assert control.status().state == "stale"
    cluster = new_cluster(directory=directory)
    assert cluster.status().state == "running"
    cluster.stop()
    nothing_left(directory)


def test_a_damaged_state_is_told_and_nothing_is_touched(short_tmp):
    directory = short_tmp / "damaged"
    directory.mkdir()
    (directory / "embedded.json").write_text('{"format": 1, "name"')
    with pytest.raises(EmbeddedError, match="is damaged"):
        EmbeddedCluster(directory=directory).stop()
    assert (directory / "embedded.json").exists()


def test_stop_spares_what_only_looks_like_the_cluster(new_cluster, wait_for):
    """Check that a user's shell survives, also inside salloc, and a process that names the directory."""
    cluster = new_cluster()
    shell = subprocess.Popen(
        ["salloc", "bash", "-c", "echo ready; exec sleep 1000"], env=cluster.env(), stdout=subprocess.PIPE
    )
    assert shell.stdout.readline() == b"ready\n"
    reader = subprocess.Popen(["sleep", "1000"], env=cluster.env(), cwd=cluster.directory)
    (child,) = wait_for(lambda: _children(shell.pid), "the shell of salloc")
    try:
        cluster.stop()
        assert reader.poll() is None
        assert Path(f"/proc/{child}").exists()
    finally:
        os.kill(child, signal.SIGKILL)
        for process in (reader, shell):
            process.kill()
            process.wait()
        shell.stdout.close()


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_what_an_ordinary_user_runs(user_cluster, alice):
    status = user_cluster.status()
    assert status.state == "running"
    done = user_cluster.run("srun", "--partition=arandu", "--gpus=2", "printenv", "CUDA_VISIBLE_DEVICES", user=alice)
    assert done.stdout == "0,1\n"


@as_root
def test_root_can_use_a_cluster_below_a_closed_directory(short_tmp, new_cluster):
    (short_tmp / "private").mkdir(mode=0o700)
    cluster = new_cluster(directory=short_tmp / "private" / "c")
    assert any("is closed to them. Use --dir DIR" in note for note in cluster.notes)
    assert cluster.run("srun", "id", "-u").stdout == "0\n"


@as_root
def test_a_computer_with_127_0_0_1_alone_is_told_why_nothing_starts(short_tmp, nothing_left):
    directory = short_tmp / "alone"
    argv = [sys.executable, "-m", "jupyter_slurm.embedded", "start", "--dir", str(directory)]
    alone = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *argv]
    said = subprocess.run(alone, capture_output=True, text=True, check=False, timeout=60)
    assert said.returncode == 1
    assert "This computer has no address but 127.0.0.1" in said.stderr
    assert "ip addr add 127.0.0.2/8 dev lo" in said.stderr
    assert not directory.exists()


@as_root
@pytest.mark.parametrize(
    ("names", "configured"),
    [
        ("127.0.0.1 elsewhere", "SlurmctldHost=elsewhere(127.0.0.1)\nNoCtldInAddrAny,NoInAddrAny"),
        ("127.0.1.1 elsewhere", "SlurmctldHost=elsewhere(127.0.0.1)\n"),
        ("192.0.2.7 elsewhere", "SlurmctldHost=elsewhere(127.0.0.1)\n"),
        ("", "SlurmctldHost=elsewhere(127.0.0.1)\n"),
    ],
    ids=["localhost", "debian", "container", "unknown"],
)
def test_the_name_of_the_computer_may_have_any_address(short_tmp, nothing_left, names, configured):
    """Slurm's daemons and srun may listen on the address of that name: with Debian's installer, 127.0.1.1."""
    directory = short_tmp / f"named{names[:9]}".rstrip(".")
    (short_tmp / "hosts").write_text(f"127.0.0.1 localhost\n{names}\n")
    script = f"""
        mount --bind {short_tmp}/hosts /etc/hosts && hostname elsewhere || exit
        {sys.executable} -m jupyter_slurm.embedded start --timeout 60 --dir {directory} || exit
        export SLURM_CONF={directory}/etc/slurm.conf
        timeout 60 srun -p devwork -N 2 printenv SLURMD_NODENAME | sort
        sed -n '/^SlurmctldHost=/p; s/^CommunicationParameters=//p' $SLURM_CONF
        {sys.executable} -m jupyter_slurm.embedded stop --dir {directory}
    """
    argv = ["unshare", "--mount", "--uts", "sh", "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"c4aiscw1\nc4aiscw2\n{configured.rstrip()}\n" in done.stdout
    assert not directory.exists()


def test_a_home_with_a_blank_has_the_cluster_elsewhere(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for home in ("a home", "100%"):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / home))
        assert str(tmp_path) not in str(default_directory())
        assert default_directory().parent == Path(tempfile.gettempdir())


@as_root
def test_an_ordinary_user_leaves_nothing_behind_either(bob, user_python, nothing_left, wait_for):
    """Check also a directory closed to others, like many homes, and a state directory in it."""
    closed, (python, env) = Path(f"~{bob}").expanduser() / "closed", user_python
    closed.mkdir(mode=0o700)
    shutil.chown(closed, bob, bob)
    home = closed / "own"

    def embedded(action: str) -> str:
        argv = [*python, "-m", "jupyter_slurm.embedded", action, "--dir", str(home)]
        options = {"user": bob, "group": bob, "extra_groups": [], "env": {**os.environ, **env}, "cwd": "/"}
        return subprocess.run(argv, capture_output=True, text=True, check=True, **options).stdout

    assert f"Only {bob} can run jobs" in embedded("start")
    control = ClusterControl(home)
    control.run("sbatch", "--output=/dev/null", "--wrap", "setsid --fork sleep 1000; sleep 1000", user=bob)
    running = ["squeue", "--noheader", "--states=running"]
    wait_for(lambda: control.run(*running, user=bob).stdout, "the job to run")
    wait_for(lambda: len(_processes_of(bob)) > 8, "the job's processes beside the daemons")
    embedded("stop")
    nothing_left(home)
    assert _processes_of(bob) == []


def _processes_of(user: str) -> list[str]:
    """Return the live processes of a user, by name: those of a cluster that only this user runs."""
    done = subprocess.run(["ps", "-o", "stat=,comm=", "-u", user], capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if not line.startswith("Z")]


@as_root
def test_root_may_stop_and_a_stranger_may_not(new_cluster, alice, user_python):
    cluster, (python, env) = new_cluster(), user_python
    argv = [*python, "-m", "jupyter_slurm.embedded", "stop", "--dir", str(cluster.directory)]
    done = subprocess.run(argv, user=alice, env={**os.environ, **env}, cwd="/", capture_output=True, text=True)
    assert done.returncode == 1
    assert "belongs to another user" in done.stderr
    assert cluster.status().state == "running"


@as_root
def test_secrets_are_closed_to_others(accounting_cluster, alice):
    root = accounting_cluster.directory
    for name in ("etc/slurmdbd.conf", "key/munge.key", "embedded.json", "db/data", "log/slurmctld.log", "state"):
        assert (root / name).exists()
        done = accounting_cluster.run("test", "-r", str(root / name), user=alice, check=False)
        assert done.returncode == 1, name


def test_nothing_listens_beyond_this_machine(accounting_cluster):
    pids = {process.pid for process in accounting_cluster.daemons.running().values()}
    sockets = {os.readlink(path) for pid in pids for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()}
    addresses = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                addresses.append(fields[1].split(":")[0])
    # One for each node, one for slurmctld, one for slurmdbd; 127.0.0.1 in the kernel's notation.
    assert addresses == ["0100007F"] * 7


def test_extra_lines_reach_slurm(new_cluster):
    cluster = new_cluster(extra=("MinJobAge=17",), private_data=("jobs", "usage"))
    shown = cluster.run("scontrol", "show", "config").stdout
    assert "MinJobAge               = 17 sec" in shown
    assert "PrivateData             = jobs,usage" in shown


def test_notes_say_what_this_machine_could_not_give(new_cluster, monkeypatch):
    monkeypatch.setattr(cluster_module.cgroups, "detect", lambda: ("", "for a test"))
    cluster = new_cluster()
    assert cluster.notes[0] == "CPU masks and memory limits of jobs are not enforced: for a test."
    assert cluster.run("srun", "echo", "runs").stdout == "runs\n"


def test_the_default_description_is_used_without_one(short_tmp):
    assert replace(load_description()) == EmbeddedCluster(directory=short_tmp / "u").description
