"""The same cluster with other versions of Slurm."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

import pytest

from jupyter_slurm.domain.advice.feasibility import feasibility_warnings
from jupyter_slurm.domain.cluster_facts import Facts
from jupyter_slurm.domain.options.request import Request
from jupyter_slurm.domain.queries.associations import accounts_argv, parse_accounts
from jupyter_slurm.domain.queries.cluster import config_argv, parse_config, parse_partitions, partitions_argv
from jupyter_slurm.embedded import load_description
from jupyter_slurm.embedded.control import ClusterControl
from jupyter_slurm.embedded.machine import cgroups
from jupyter_slurm.embedded.machine.slurm_versions import RELEASES, installation_for, slurm_root
from jupyter_slurm.errors import EmbeddedError

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.nightly]


@pytest.fixture(params=sorted(RELEASES))
def other(request, cluster_for):
    cluster = cluster_for(request.param)
    assert "{}.{:02d}".format(*cluster.installation.version) == request.param
    return cluster


def test_commands_and_daemons_are_of_that_version(other):
    version = "{}.{:02d}".format(*other.installation.version)
    assert version in other.run("sinfo", "--version").stdout
    assert version in other.run("scontrol", "show", "config").stdout
    assert other.status().version == version


def test_jobs_see_this_machine(other, request):
    user = request.getfixturevalue("alice") if os.geteuid() == 0 else None
    script = "echo $CUDA_VISIBLE_DEVICES; readlink /proc/$$/exe; id -un"
    done = other.run("srun", "-p", "arandu", "--gpus=2", "bash", "-c", script, user=user)
    expected = user or os.environ.get("USER", "")
    assert done.stdout.split()[0] == "0,1"
    assert done.stdout.split()[1] == os.path.realpath("/bin/bash")
    assert done.stdout.split()[2] == expected or not expected


@pytest.mark.skipif(not cgroups.detect()[0], reason="no control groups")
def test_memory_limits_hold_there_too(other, wait_for):
    script = "#!/bin/sh\npython3 -c 'x = bytearray(300 * 1024 * 1024)'\n"
    job = other.run("sbatch", "--parsable", "--mem=100M", "-o", "/dev/null", stdin=script).stdout.strip()
    state = ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"]
    wait_for(lambda: other.run(*state).stdout == "OUT_OF_MEMORY\n", "the job to be out of memory")


def test_another_process_finds_the_version_by_the_directory(other):
    control = ClusterControl(other.directory)
    assert control.installation.version == other.installation.version
    assert control.env()["PATH"].startswith(other.installation.path)


def test_accounting_works_with_the_newest(new_cluster, cluster_for, wait_for):
    newest = sorted(RELEASES)[-1]
    cluster_for(newest)
    described = load_description().with_users(pwd.getpwuid(os.geteuid()).pw_name)
    cluster = new_cluster(
        start=False,
        accounting=True,
        accounts=described.accounts,
        users=described.users,
        enforce=("associations",),
        extra=(*described.extra, "EnforcePartLimits=ANY"),
    )
    cluster._installation = installation_for(str(slurm_root(newest)))
    cluster.start()
    job = cluster.run("sbatch", "--parsable", "-o", "/dev/null", "--wrap", "true").stdout.strip()
    argv = ["sacct", "-nPX", "-j", job, "-o", "state"]
    wait_for(lambda: cluster.run(*argv).stdout == "COMPLETED\n", "sacct to tell")
    _accounts_below_others_are_taken_for_them(cluster)


def _accounts_below_others_are_taken_for_them(cluster):
    """Check that sbatch accepts an account below an allowed one exactly when no warning precedes it."""
    user = pwd.getpwuid(os.geteuid()).pw_name
    for name, above in (("below", "c4ai"), ("beside", "root")):
        cluster.run("sacctmgr", "-i", "add", "account", name, f"parent={above}")
        cluster.run("sacctmgr", "-i", "add", "user", user, f"account={name}")
    for name, limit in (("these", "AllowAccounts=c4ai"), ("others", "DenyAccounts=c4ai")):
        cluster.run("scontrol", "create", f"PartitionName={name}", "Nodes=ALL", limit)

    def said(argv):
        return cluster.run(*argv).stdout.encode()

    facts = Facts(
        0.0,
        tuple(parse_partitions(said(partitions_argv()))),
        config=parse_config(said(config_argv())),
        accounts=parse_accounts(said(accounts_argv(cluster.description.name))),
    )
    job, taken, expected = ["sbatch", "--hold", "--chdir=/", "-o", "/dev/null", "--wrap", "true"], {}, {}
    for name in ("these", "others"):
        for account in ("c4ai", "below", "beside"):
            taken[name, account] = not cluster.run(*job, "-p", name, "-A", account, check=False).returncode
            expected[name, account] = not feasibility_warnings(facts, Request({"partition": name, "account": account}))
    assert taken == expected
    assert [place for place, is_taken in taken.items() if is_taken] == [
        ("these", "c4ai"),
        ("these", "below"),
        ("others", "beside"),
    ]


@pytest.mark.root
def test_an_ordinary_user_can_unpack_a_version(new_user, user_python):
    user, (python, env) = new_user(), user_python
    cache = Path(pwd.getpwnam(user).pw_dir) / "cache"
    code = (
        "import sys; from pathlib import Path; from jupyter_slurm.embedded.machine.slurm_versions import slurm_root\n"
        "print(slurm_root('24.11', Path(sys.argv[1])))"
    )
    done = subprocess.run(
        [*python, "-c", code, str(cache)],
        user=user,
        group=user,
        env={**env, "PATH": os.environ["PATH"], "HOME": str(cache.parent)},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{cache / '24.11'}\n"
    shown = subprocess.run([cache / "24.11" / "bin" / "slurmctld", "-V"], capture_output=True, text=True, check=True)
    assert "24.11" in shown.stdout


def test_an_unknown_version_is_told():
    with pytest.raises(EmbeddedError, match=r"Slurm 19\.05 cannot be installed"):
        slurm_root("19.05")


def test_a_directory_without_slurm_is_told(tmp_path):
    with pytest.raises(EmbeddedError, match="no Slurm in"):
        installation_for(str(tmp_path)).check(accounting=False)
