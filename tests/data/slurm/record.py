"""Record what a real Slurm answers to each question of the domain layer.

    python tests/data/slurm/record.py 22.05 /
    .ci/with-slurm 24.11 python tests/data/slurm/record.py 24.11 /
    python tests/data/slurm/record.py 26.05 /path/of/a/root

as root, with the package importable. The second argument is where that Slurm is unpacked: ``/`` for this machine's, else a
directory made by ``mmdebstrap --include=slurm-wlm,slurmdbd,munge,mariadb-server,procps,hostname SUITE DIR MIRROR``.

A cluster with accounting is started in namespaces of its own (host name c4aiscm1, own network, own processes), so
that nothing of the machine shows and nothing is left behind. Jobs with names, comments and paths that are
meant to mislead are submitted, and the answers go to ``tests/data/slurm/VERSION/`` with an ``index.json``
that says what had been asked and submitted.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_slurm.domain.environment_variables import QUERY_ENV
from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.queries import cluster, job_detail, job_history, queue, tables

MARK = "0123456789abcdef"
USER, UID = "alice", 61001
HOST = "c4aiscm1"
HERE = Path(__file__).parent

CONFIG = """
ClusterName=arandu
SlurmctldHost=c4aiscm1(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=/rec/munge/sock
StateSaveLocation=/rec/state
SlurmdSpoolDir=/rec/spool/%n
SlurmctldPidFile=/rec/ctld.pid
SlurmdPidFile=/rec/slurmd-%n.pid
SlurmctldLogFile=/rec/ctld.log
SlurmdLogFile=/rec/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightFairshare=10000
ReturnToService=2
GresTypes=gpu
MailProg=/bin/true
DefMemPerCPU=100
KillWait=2
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePass=/rec/munge/sock
AccountingStoreFlags=job_comment
AccountingStorageTRES=gres/gpu
MaxArraySize=20001
NodeName=dgx01 NodeHostname=c4aiscm1 NodeAddr=127.0.0.1 Port=17001 CPUs=64 RealMemory=64000 Gres=gpu:a100:8 Feature=dgx,a100
NodeName=c4aiscw1 NodeHostname=c4aiscm1 NodeAddr=127.0.0.1 Port=17002 CPUs=8 RealMemory=8000 Gres=gpu:1
NodeName=c4aiscw2 NodeHostname=c4aiscm1 NodeAddr=127.0.0.1 Port=17003 CPUs=8 RealMemory=8000 Gres=gpu:1
PartitionName=arandu Nodes=dgx01 Default=YES MaxTime=7-00:00:00
PartitionName=devwork Nodes=c4aiscw1,c4aiscw2 MaxTime=1:00:00 DefaultTime=30
PartitionName=drained Nodes=c4aiscw2
PartitionName=hidden Nodes=c4aiscw1 Hidden=YES
PartitionName=down Nodes=c4aiscw1 State=DOWN
"""
GRES = "".join(
    f"NodeName={node} Name=gpu {kind} File=/rec/nvidia{which}\n"
    for node, kind, which in (("dgx01", "Type=a100", "[0-7]"), ("c4aiscw[1-2]", "", "0"))
)
DBD = """
AuthType=auth/munge
AuthInfo=socket=/rec/munge/sock
DbdHost=localhost
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=3399
StorageUser=slurm
StoragePass=slurm
StorageLoc=acct
LogFile=/rec/dbd.log
PidFile=/rec/dbd.pid
"""

FAKE_RECORD = (
    "JobId=99 JobName=fake\n   UserId=root(0) GroupId=root(0) MCS_label=N/A\n   JobState=COMPLETED Reason=None "
    "Dependency=(null)\n   StartTime=1 EndTime=2 Deadline=N/A\n   Command=/bin/true\n   WorkDir=/root\n   StdOut=/etc/passwd"
)
NAMES = {
    "separators": "a|b,c;d~e\x1f\x1e\tf = g\\n %j '\"",
    "lines": "evil\n   UserId=root(0) GroupId=root(0) MCS_label=N/A\n   JobState=COMPLETED Reason=None Dependency=(null)",
    "row": "x\n99|COMPLETED|None\n99~fedcba9876543210~COMPLETED~fedcba9876543210;",
    "bytes": os.fsdecode(b"caf\xe9 \xff\xfe"),
    "unicode": "schrödinger ☃",
    "record": FAKE_RECORD,
}
COMMENTS = {
    "lines": f"first\n\n{FAKE_RECORD}",
    "bytes": os.fsdecode(b"\xff|\x80"),
    "separators": "k=v, StdOut=/x\n   StdErr=/etc/shadow",
}


class Recorder:
    """A cluster in its namespaces, and the answers so far."""

    def __init__(self, root: str, out: Path) -> None:
        self.root, self.out = root, out
        self.index: dict[str, Any] = {"mark": MARK, "questions": {}, "jobs": {}}

    def command(self, argv: list[str], *, as_user: bool = False, env: dict[str, str] | None = None) -> list[str]:
        words = [
            "env",
            "-i",
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
            "SLURM_CONF=/rec/slurm.conf",
            "TZ=UTC",
            "HOME=/rec/home",
        ]
        words += [f"{key}={value}" for key, value in (env or {}).items()]
        words += ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"] if as_user else []
        words += ["sh", "-c", 'cd /rec/home && exec "$@"', "sh", *argv]
        return words if self.root == "/" else ["chroot", self.root, *words]

    def run(
        self, *argv: str, as_user: bool = False, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(self.command(list(argv), as_user=as_user, env=env), capture_output=True, check=False)

    def must(self, *argv: str, as_user: bool = False) -> str:
        done = self.run(*argv, as_user=as_user)
        if done.returncode:
            raise SystemExit(f"{argv} failed: {done.stderr.decode(errors='replace')}")
        return done.stdout.decode(errors="surrogateescape")

    def start(self, *argv: str) -> None:
        subprocess.Popen(self.command(list(argv)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def until(self, condition: Callable[[], Any], what: str, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                logs = "".join(
                    path.read_text(errors="replace")[-2000:] for path in (Path(self.root) / "rec").glob("*.log")
                )
                raise SystemExit(f"not within {seconds} s: {what}\n{logs}")
            time.sleep(0.2)

    def start_cluster(self) -> None:
        rec = Path(self.root) / "rec"
        for name in ("munge", "state", "spool", "home", "home/missing-later"):
            (rec / name).mkdir(parents=True, exist_ok=True)
        (rec / "munge").chmod(0o711)
        for path in (rec / "home", rec / "home/missing-later"):
            os.chown(path, UID, UID)
        (rec / "slurm.conf").write_text(CONFIG)
        (rec / "gres.conf").write_text(GRES)
        (rec / "cgroup.conf").write_text("" if self.root == "/" else "CgroupPlugin=disabled\n")
        (rec / "slurmdbd.conf").write_text(DBD)
        (rec / "slurmdbd.conf").chmod(0o600)
        for number in range(8):
            (rec / f"nvidia{number}").symlink_to("/dev/null")
        passwd = Path(self.root) / "etc/passwd"
        if f"{USER}:" not in passwd.read_text():
            self.must("useradd", "--uid", str(UID), "--home-dir", "/rec/home", USER)
        (rec / "munge/key").write_bytes(os.urandom(1024))
        (rec / "munge/key").chmod(0o600)
        files = [f"--{name}-file=/rec/munge/{name}" for name in ("key", "pid", "log", "seed")]
        self.must("munged", "--force", "--socket=/rec/munge/sock", *files)
        self.must("mariadb-install-db", "--no-defaults", "--user=root", "--datadir=/rec/db")
        self.start(
            "mariadbd", "--no-defaults", "--user=root", "--datadir=/rec/db", "--socket=/rec/db.sock", "--port=3399"
        )
        sql = "create database acct; " + "".join(
            f"create user slurm@'{host}' identified by 'slurm'; grant all on acct.* to slurm@'{host}'; "
            for host in ("localhost", "127.0.0.1")
        )
        self.until(
            lambda: self.run("mariadb", "--no-defaults", "-S", "/rec/db.sock", "-e", sql).returncode == 0, "MariaDB"
        )
        self.must("slurmdbd")
        self.until(lambda: self.run("sacctmgr", "-i", "add", "cluster", "arandu").returncode == 0, "slurmdbd")
        self.must("sacctmgr", "-i", "add", "account", "cs", "description=the cs group", "organization=c4ai")
        self.must("sacctmgr", "-i", "add", "user", USER, "account=cs")
        self.must("slurmctld", "-c")
        for node in ("dgx01", "c4aiscw1", "c4aiscw2"):
            self.must("slurmd", "-N", node)
        states = ("sinfo", "-a", "-h", "-N", "-o", "%T")
        self.until(lambda: set(self.run(*states).stdout.split()) == {b"idle"}, "nodes")

    def submit(self, key: str, *args: str, script: str = "/rec/home/my job.sh") -> int:
        name, comment = NAMES.get(key), COMMENTS.get(key)
        options = ["--parsable", *args]
        options += [f"--job-name={name}"] if name else []
        options += [f"--comment={comment}"] if comment else []
        words = [script] if script else []
        number = int(self.must("sbatch", *options, *words, as_user=True).strip().partition(";")[0])
        self.index["jobs"][key] = {"id": number, "name": name, "comment": comment}
        return number

    def state(self, number: int) -> str:
        return self.run("squeue", "-a", "-h", "-t", "all", "-j", str(number), "-o", "%T").stdout.decode().strip()

    def submit_jobs(self) -> None:
        home = Path(self.root) / "rec/home"
        for name, body in (
            ("my job.sh", "exit 3"),
            ("ok.sh", "srun true; true"),
            ("sleep.sh", "exec sleep 600"),
            ("kill.sh", "kill -9 $$"),
            ("quick.sh", "sleep 0.1"),
        ):
            (home / name).write_text(f"#!/bin/bash\n{body}\n")
        ok, sleep = "/rec/home/ok.sh", "/rec/home/sleep.sh"
        self.submit("timeout", "--time=1", script=sleep)
        for key in NAMES:
            self.submit(key)
        self.submit("arguments", script="/rec/home/my job.sh")
        self.submit("completed", script=ok)
        self.submit("killed", script="/rec/home/kill.sh")
        self.submit("no-folder", "--output=/rec/home/nowhere/%j.out", script=ok)
        self.submit("pattern", "--output=/rec/home/%x-%5j-%%.out", "--error=/rec/home/%u.err", script=ok)
        self.submit("array-done", "--array=3-5", script="/rec/home/quick.sh")
        self.submit("hidden", "--partition=hidden", script=ok)
        running = self.submit("running", "--gpus=2", "--time=2:00:00", "--cpus-per-task=4", "--mem=4G", script=sleep)
        suspended = self.submit("suspended", script=sleep)
        cancelled = self.submit("cancelled", script=sleep)
        requeued = self.submit("requeued", "--requeue", script=sleep)
        self.submit("array-running", "--array=1-20:3%2", script=sleep)
        self.submit("array-down", "--array=2,4-12:2%3", "--partition=down", script=ok)
        self.submit("array-odd", f"--array={','.join(str(n) for n in range(1, 400, 2))}", "--partition=down", script=ok)
        self.submit("held", "--hold", script=ok)
        self.submit("later", "--begin=now+1hour", script=ok)
        self.submit(
            "het",
            "--partition=down",
            "--mem=2G",
            "--gres=gpu:1",
            "--wrap=true",
            ":",
            "--mem=1G",
            "--partition=down",
            "--wrap=true",
            script="",
        )
        failed = self.index["jobs"]["arguments"]["id"]
        self.must("scontrol", "update", "nodename=c4aiscw2", "state=drain", 'reason=bad disk, "GPU 3" NodeName=x')
        self.submit("drained", "--partition=drained", script=ok)
        self.submit("drained-node", "--partition=devwork", "--nodelist=c4aiscw2", script=ok)
        for number in (running, suspended, cancelled, requeued):
            self.until(lambda number=number: self.state(number) == "RUNNING", f"job {number}")
        self.until(lambda: self.state(failed) == "FAILED", "the failed job")
        self.submit("dependency", f"--dependency=afterok:{running}", script=ok)
        self.submit("never", f"--dependency=afterok:{failed}", script=ok)
        self.must("scontrol", "suspend", str(suspended))
        self.must("scancel", str(cancelled), as_user=True)
        self.must("scontrol", "requeue", str(requeued))

    def wait(self) -> None:
        jobs = {key: job["id"] for key, job in self.index["jobs"].items()}
        wanted = {"timeout": "TIMEOUT", "cancelled": "CANCELLED", "requeued": "PENDING", "suspended": "SUSPENDED"}
        for key, state in wanted.items():
            self.until(lambda key=key, state=state: self.state(jobs[key]) == state, f"{key} {state}", 150)
        for key in ("completed", "no-folder", "killed", "hidden"):
            # A missing folder of the output is an error up to some version, and made from then on.
            self.until(lambda key=key: self.state(jobs[key]) in ("COMPLETED", "FAILED"), f"end of {key}")
        ended = str(jobs["timeout"])
        self.until(
            lambda: "TIMEOUT" in self.run("sacct", "-n", "-X", "-j", ended, "-o", "State").stdout.decode(), "sacct"
        )

    def ask(self, name: str, argv: list[str], *, plain: bool = False) -> None:
        env = {"COLUMNS": "500"} if plain else dict(QUERY_ENV)
        done = self.run(*argv, as_user=True, env=env)
        (self.out / f"{name}.out").write_bytes(done.stdout)
        self.index["questions"][name] = {
            "argv": argv,
            "exit_code": done.returncode,
            "stderr": done.stderr.decode(errors="replace"),
        }

    def ask_all(self) -> None:
        jobs = [JobId(job["id"]) for job in self.index["jobs"].values()]
        self.ask("poll", queue.poll_argv(MARK))
        self.ask("lookup", queue.lookup_argv(MARK))
        self.ask("sacct", job_history.sacct_argv(jobs, 0, MARK))
        self.ask("nodes", cluster.nodes_argv(MARK))
        self.ask("partitions", cluster.partitions_argv())
        self.ask("config", cluster.config_argv())
        for key, job in self.index["jobs"].items():
            self.ask(f"detail-{key}", job_detail.detail_argv(JobId(job["id"]), MARK))
        for line in TABLES:
            command, *args = line.split()
            name = "table-" + line.replace(" ", "_").replace("=", "-")
            argv = tables.tabular_argv(command, args, MARK)
            if argv is None:
                raise SystemExit(f"no table for {line}")
            self.ask(name, argv, plain=True)
            self.ask(f"{name}.plain", [command, *args], plain=True)

    def save(self) -> None:
        self.index["version"] = self.must("sinfo", "--version").strip()
        text = json.dumps(self.index, indent=1, ensure_ascii=True)
        (self.out / "index.json").write_text(text + "\n")


TABLES = (
    "squeue", "squeue -t all", "squeue -lt all", "squeue --start", "squeue -s", "squeue --me -r",
    "sinfo", "sinfo -l", "sinfo -s", "sinfo -N", "sinfo -Nl", "sinfo -R", "sinfo -Rl", "sinfo -e",
    "sacct", "sacct -X", "sacct -b", "sacct -l",
    "sprio", "sprio -l", "sprio -w", "sprio -n", "sshare", "sshare -a", "sshare -al",
    "sacctmgr show qos", "sacctmgr list assoc tree", "sacctmgr show user withassoc", "sacctmgr sho acc",
    "sacctmgr show event", "sacctmgr show tres", "sacctmgr show cluster",
    "sreport cluster utilization", "sreport user top", "sreport cluster AccountUtilizationByUser",
)  # fmt: skip


def in_namespaces(version: str, root: str) -> None:
    """Run this script again where it has host name, network, processes and mounts of its own."""
    argv = ["unshare", "--uts", "--net", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child"]
    done = subprocess.run([*argv, sys.executable, __file__, version, root, "inside"], check=False)
    (Path(root) / "rec").rmdir()
    raise SystemExit(done.returncode)


def main() -> None:
    """Record one version."""
    version, root = sys.argv[1], sys.argv[2].rstrip("/") or "/"
    if sys.argv[3:] != ["inside"]:
        in_namespaces(version, root)
    subprocess.run(["hostname", HOST], check=True)
    # An address that is not the loopback's: Slurm resolves names with AI_ADDRCONFIG.
    for words in (
        "link set lo up",
        "link add rec0 type veth peer name rec1",
        "addr add 10.9.9.1/24 dev rec0",
        "link set rec0 up",
    ):
        subprocess.run(["ip", *words.split()], check=True)
    rec = Path(root) / "rec"
    rec.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(rec)], check=True)
    if root != "/":
        subprocess.run(["mount", "-t", "proc", "proc", f"{root}/proc"], check=True)
        subprocess.run(["mount", "--rbind", "/dev", f"{root}/dev"], check=True)
    (rec / "hosts").write_text(f"127.0.0.1 localhost {HOST}\n")
    (Path(root) / "etc/hosts").touch()
    subprocess.run(["mount", "--bind", str(rec / "hosts"), f"{root}/etc/hosts"], check=True)
    out = HERE / version
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    recorder = Recorder(root, out)
    recorder.start_cluster()
    recorder.submit_jobs()
    recorder.wait()
    recorder.ask_all()
    recorder.save()


if __name__ == "__main__":
    main()
