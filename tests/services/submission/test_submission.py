"""Tests of cells that become jobs of a real Slurm."""

import asyncio
import json
import os
import resource
import subprocess
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

from jupyter_slurm.errors import JobOutputMissing, OptionError, SubmitRefused, TransportError, UsageError
from jupyter_slurm.services.submission.sbatch_execution import SbatchAnswer, refusal

pytestmark = pytest.mark.slurm

SCHEMA = json.loads(resources.files("jupyter_slurm.services.jobdir").joinpath("job.schema.json").read_text())


def slurm(desk, *argv):
    return subprocess.run(argv, env=desk.env, capture_output=True, text=True, errors="replace", check=True).stdout


def batch_script(desk, job):
    path = Path(desk.folder, "script-of-slurm")
    slurm(desk, "scontrol", "write", "batch_script", job["id"], str(path))
    return path.read_bytes()


async def test_script_reaches_slurm_byte_for_byte(desk):
    text = "#!/bin/bash -l\n#SBATCH --comment='a b'  # why\n\techo \"$1\" 'é' \udcff\n\n# no end of line"
    job = await desk.submit(text, "--hold", args=["x y"])
    assert batch_script(desk, job) == text.encode("utf-8", "surrogateescape")
    assert await desk.core.cluster(desk.id).results.script(job["key"]) == text.encode("utf-8", "surrogateescape")
    await desk.core.cluster(desk.id).actions.cancel(job["id"])


async def test_script_runs_with_its_arguments_where_the_cell_was(desk):
    job = await desk.submit("#!/bin/sh\npwd\nprintf '<%s>' \"$@\"\necho oops >&2\nexit 3\n", args=["a b", "$HOME", ""])
    ended = await desk.finished(job["key"])
    assert (ended["state"], ended["exit_code"]) == ("FAILED", 3)
    assert await desk.text(job["key"]) == f"{desk.folder}\n<a b><$HOME><>"
    assert await desk.text(job["key"], "stderr") == "oops\n"


async def test_python_cell_runs_and_its_end_is_known_without_the_queue(desk):
    job = await desk.submit("import sys\nprint('out'); print('err', file=sys.stderr)\nsum(range(4))")
    ended = await desk.finished(job["key"])
    assert (ended["state"], ended["exit_code"], ended["kind"]) == ("COMPLETED", 0, "python")
    assert await desk.text(job["key"]) == "out\n6\n"
    assert await desk.text(job["key"], "stderr") == "err\n"


async def test_header_of_a_python_cell_is_honoured(desk):
    job = await desk.submit("#SBATCH --job-name=from-header\n#SBATCH -p arandu\nprint(1)", "--hold")
    described = slurm(desk, "scontrol", "show", "job", job["id"])
    assert "JobName=from-header" in described
    assert "Partition=arandu" in described
    await desk.core.cluster(desk.id).actions.cancel(job["key"])


async def test_missing_python_is_told_by_the_job(desk):
    job, none = [await desk.submit("print(1)", python=python) for python in ("/no/such/python", "/bin/ls")]
    ended = await desk.finished(job["key"])
    assert ended["exit_code"] == 127
    assert ended["reason_text"] == "The node seems to have no /no/such/python (exit code 127)."
    assert "python=PATH" in ended["next_step"]
    assert "/no/such/python" in await desk.text(job["key"], "stderr")
    ended = await desk.finished(none["key"])
    assert (ended["state"], ended["exit_code"], await desk.text(none["key"])) == ("FAILED", 1, "")
    assert "has no working Python at /bin/ls\nUse python=PATH" in await desk.text(none["key"], "stderr")


async def test_the_limit_that_was_asked_for_is_known_at_once(desk):
    asked = "#!/bin/sh\n#SBATCH --time 1-0\n"
    from_header = await desk.submit(asked, "--begin=now+1hour")
    assert from_header["time_limit"] == 24 * 3600
    from_line = await desk.submit(asked, "--begin=now+1hour", "-t", "2:00:00")
    assert from_line["time_limit"] == 7200
    assert (await desk.submit("#!/bin/sh\n", "--begin=now+1hour"))["time_limit"] is None


async def test_record_follows_its_schema_before_and_after(desk):
    job = await desk.submit("print(1)", "--job-name", "n", label="mine")
    path = Path(job["folder"], "job.json")
    jsonschema.validate(json.loads(path.read_text()), SCHEMA)
    await desk.finished(job["key"])
    # The stream ends with the job's own marker; the record is written after it.
    await desk.until(job["key"], lambda _: json.loads(path.read_text())["end"])
    record = json.loads(path.read_text())
    jsonschema.validate(record, SCHEMA)
    assert (record["job"]["id"], record["end"]["state"], record["label"]) == (job["id"], "COMPLETED", "mine")
    assert oct(path.stat().st_mode & 0o777) == "0o600"
    assert oct(path.parent.stat().st_mode & 0o777) == "0o700"
    # Over SSH two more files identify the execution of sbatch, and record its end.
    assert len(os.listdir(path.parent)) <= (11 if desk.way.is_remote else 9)


async def test_unknown_fields_of_a_record_are_kept(cluster, open_desk, tmp_path):
    async with open_desk(cluster, tmp_path) as desk:
        job = await desk.submit("#!/bin/sh\nsleep 2\n")
    path = Path(job["folder"], "job.json")
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "of_a_later_version": {"x": 1}}))
    async with open_desk(cluster, tmp_path) as later:
        await later.finished(job["key"])
    assert json.loads(path.read_text())["of_a_later_version"] == {"x": 1}


async def test_same_key_is_the_same_job(desk):
    asked = desk.asked("#!/bin/sh\ntrue\n", "--hold")
    first = await desk.core.cluster(desk.id).submit(asked)
    second = await desk.core.cluster(desk.id).submit(asked)
    assert first["id"] == second["id"]
    assert slurm(desk, "squeue", "--me", "-h", "-o", "%o").split().count(first["script_path"]) == 1
    await desk.core.cluster(desk.id).actions.cancel(first["id"])


@pytest.mark.here_only("nothing of it travels")
async def test_one_key_is_worked_on_once_at_a_time_also_by_those_who_come_later(desk, monkeypatch):
    intake = desk.core.cluster(desk.id).submitter
    at_work, most, go = 0, 0, asyncio.Event()

    async def work(asked):
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await go.wait()
        await asyncio.sleep(0.05)
        at_work -= 1
        return {}

    monkeypatch.setattr(intake, "_submit", work)
    asked = desk.asked("#!/bin/sh\n")
    early = [asyncio.create_task(intake.submit(asked)) for _ in range(2)]
    go.set()
    await early[0]
    late = asyncio.create_task(intake.submit(asked))  # while the second request, which waited, is running
    await asyncio.gather(*early, late)
    assert most == 1
    assert not intake._locks


async def test_show_submits_nothing_and_says_what_would_be(desk):
    before = slurm(desk, "squeue", "-h", "-t", "all", "-o", "%i")
    shown = await desk.submit("#!/bin/sh\ntrue\n", "-p", "arandu", "--gpus", "2", args=["x"], dry_run=True)
    assert shown["argv"][:2] == ["sbatch", "--parsable"]
    assert shown["argv"][-4:-2] == ["--gpus", "2"]
    assert shown["argv"][-1] == "x"
    assert shown["script"] == "#!/bin/sh\ntrue\n"
    assert slurm(desk, "squeue", "-h", "-t", "all", "-o", "%i") == before
    assert not Path(shown["argv"][-2]).parent.exists()


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        (["--gpu-per-node", "1"], OptionError, "--gpu-per-node"),
        (["--wrap", "hostname"], OptionError, "wrap"),
        (["--test-only"], OptionError, "could start"),
        (["--time"], OptionError, "value"),
        (["-J", "a\0b"], UsageError, "NUL"),
        (["-p", "no-such"], SubmitRefused, "no-such"),
        (["--gres", "gpu:h100:1"], SubmitRefused, "gres|generic|configuration"),
        (["--time", "soon"], SubmitRefused, "time"),
        # Messages of a silent controller, but in the user's own words:
        (["-p", "Connection refused"], SubmitRefused, "partition"),
        (["-p", "x\nsbatch: error: Batch job submission failed: Socket timed out"], SubmitRefused, "partition"),
        (["-N", "Connection refused"], SubmitRefused, "node count"),
    ],
)
async def test_bad_input_is_refused_and_leaves_nothing(desk, options, error, said):
    with pytest.raises(error, match=f"(?i){said}") as caught:
        await desk.submit("#!/bin/sh\ntrue\n", *options)
    assert caught.value.hint or caught.value.details
    root = Path(desk.root)
    assert [name for name in os.listdir(root) if name[:8].isdigit()] == [] if root.exists() else True


def test_a_login_node_without_munge_is_named_as_such():
    said = b'sbatch: error: Munge encode failed: Failed to access "/run/munge": No such file or directory\n'
    said += b"sbatch: error: Batch job submission failed: Protocol authentication error\n"
    assert "MUNGE" in refusal(SbatchAnswer(1, b"", said, None), ["sbatch"]).hint


async def test_waiting_sbatch_in_the_header_is_refused_and_in_the_environment_left_out(desk):
    with pytest.raises(OptionError, match="wait"):
        await desk.submit("#!/bin/sh\n#SBATCH -W\ntrue\n")
    job = await desk.submit("#!/bin/sh\nsleep 60\n", context={"env": {**desk.env, "SBATCH_WAIT": "1"}})
    assert job["id"] is not None
    await desk.core.cluster(desk.id).actions.cancel(job["key"])


async def test_a_folder_of_chdir_that_is_not_there_is_told(desk):
    """Slurm accepts the job, which then runs in /tmp."""
    told = await desk.submit("#!/bin/sh\ntrue\n", "-D", "/no/such/folder", dry_run=True)
    assert told["warnings"] == [
        "The directory /no/such/folder does not exist where sbatch runs. On a node without it, the job runs in /tmp."
    ]
    assert (await desk.submit("#!/bin/sh\ntrue\n", "--chdir=/", dry_run=True))["warnings"] == []


async def test_a_folder_of_an_output_that_is_not_there_is_told(cluster, desk):
    """Slurm creates no folder, and the job fails before its first line; 24.11 creates it."""
    is_created = cluster.installation.version >= (24, 11)
    for options, header, option, folder in (
        (["-o", "/no/such/%j.log"], "", "output", "/no/such"),
        ([], "#SBATCH -e none/x.log\n", "error", f"{desk.folder}/none"),
    ):
        told = await desk.submit(f"#!/bin/sh\n{header}true\n", *options, dry_run=True)
        text = f"The directory {folder} of --{option} does not exist where sbatch runs. On a node without it, the job fails "
        assert told["warnings"] == ([] if is_created else [f"{text}before it starts."])
    for path in ("x.log", "./x.log", "%x/x.log", "/dev/null"):
        assert (await desk.submit("#!/bin/sh\ntrue\n", "-o", path, dry_run=True))["warnings"] == []


async def test_sbatch_that_cannot_be_started_leaves_nothing(desk):
    with pytest.raises(TransportError, match="working directory"):
        await desk.submit("#!/bin/sh\ntrue\n", context={"cwd": f"{desk.folder}/gone"})
    assert [job for job in await desk.core.cluster(desk.id).jobs.list_jobs(active=True) if job["key"]] == []


def _named(root: Path) -> list[str]:
    return sorted(name for name in os.listdir(root) if not name.startswith("."))


@pytest.mark.here_only("the limit is one of this process; a full disk far away is in tests/transport")
async def test_disk_that_fills_up_leaves_no_half_folder(desk):
    """A write that fails in the middle, as on a full disk (simulated by the limit on a file's size)."""
    first = await desk.submit("#!/bin/sh\ntrue\n", "--hold")
    root = Path(first["folder"]).parent
    before = _named(root)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, hard))
    try:
        with pytest.raises(TransportError, match="Cannot create the directory"):
            await desk.submit("#!/bin/sh\n" + "# much\n" * 20_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert _named(root) == before
    assert not [path for path in root.glob(".*/*") if path.stat().st_size]  # empty folders for the next job exist
    assert [job["key"] for job in await desk.core.cluster(desk.id).jobs.list_jobs(active=True) if job["key"]] == [
        first["key"]
    ]
    await desk.core.cluster(desk.id).actions.cancel(first["key"])


async def test_context_of_the_cell_travels_and_secrets_do_not(desk):
    here = Path(desk.folder, "here with blanks")
    here.mkdir()
    env = {
        **desk.env,
        "MINE": "a b\nc",
        "JUPYTERHUB_API_TOKEN": "t0ken",
        "JPY_API_TOKEN": "t0ken",
        "JUPYTER_SLURM_RESUME_DIR": "t0ken",
    }
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1
    script = '#!/bin/bash\npwd; umask; ulimit -S -n; echo "$MINE"; env | grep -c t0ken\n'
    job = await desk.submit(script, context={"cwd": str(here), "env": env, "umask": 0o027, "limits": {"n": str(soft)}})
    await desk.finished(job["key"])
    assert (await desk.text(job["key"])).splitlines() == [str(here), "0027", str(soft), "a b", "c", "0"]


async def test_what_slurm_set_for_an_enclosing_job_does_not_reach_the_next(desk):
    env = {
        **desk.env,
        "SLURM_JOB_ID": "1",
        "SLURM_NTASKS": "3",
        "SLURM_CPUS_PER_TASK": "7",
        "SBATCH_PARTITION": "arandu",
        "CUDA_VISIBLE_DEVICES": "6",
        "SLURM_MEM_PER_NODE": "99",
    }
    script = '#!/bin/sh\necho "$SLURM_JOB_ID $SLURM_JOB_PARTITION ${CUDA_VISIBLE_DEVICES-none} ${SLURM_NTASKS-none}"\n'
    job = await desk.submit(script, context={"env": env})
    await desk.finished(job["key"])
    assert await desk.text(job["key"]) == f"{job['id']} arandu none none\n"


async def test_output_goes_where_the_person_says(desk):
    out = Path(desk.folder, "logs")
    out.mkdir()
    job = await desk.submit("#!/bin/sh\necho here; echo there >&2\n", "-o", f"{out}/%x-%j.txt", "-J", "named")
    ended = await desk.finished(job["key"])
    assert Path(out, f"named-{job['id']}.txt").read_text() == "here\nthere\n"
    assert await desk.text(job["key"]) == "here\nthere\n"
    assert ended["exit_code"] == 0


OUTPUTS = [
    (["-D", "sub", "-o", "rel.txt"], "", {}, "sub/rel.txt"),
    (["-o", "head.txt"], "-D sub", {}, "sub/head.txt"),
    (["-o", "%x.log"], "-J head", {}, "head.log"),
    (["-o", "%x.log"], "-J head", {"SBATCH_JOB_NAME": "env"}, "env.log"),
    (["-o", "%x.log", "-J", "50%j"], "", {"SBATCH_JOB_NAME": "env"}, "50%j.log"),
    (["-o", "first%j.log", ":", "-n1", "-o", "second%j.log"], "", {}, "first{id}.log"),
    ([], "-o head%j.log\n#SBATCH hetjob\n#SBATCH -o second%j.log", {}, "head{id}.log"),
    (["-o", "b\\%j.log"], "", {}, "b%j.log"),
    (["-a", "3", "-o", "all.log"], "", {}, "all.log"),
]


async def test_output_is_found_where_slurm_puts_it(desk):
    Path(desk.folder, "sub").mkdir()

    async def check(options, header, env, where):
        script = f"#!/bin/sh\n#SBATCH {header}\necho here\n"
        job = await desk.submit(script, "-n1", *options, context={"env": {**desk.env, **env}})
        ended = await desk.finished(job["key"])
        assert ended["stdout"] == f"{desk.folder}/{where.format(id=job['id'])}"
        assert Path(ended["stdout"]).read_text() == await desk.text(job["key"]) == "here\n"

    await asyncio.gather(*(check(*case) for case in OUTPUTS))


async def test_tasks_of_an_array_have_files_of_their_own(desk):
    script = "#!/bin/sh\necho task $SLURM_ARRAY_TASK_ID\n"
    job = await desk.submit(script, "-n1", "-a", "1-2", "-o", "a%A_%a-%j.txt")
    ended = await desk.finished(job["key"])
    assert (ended["stdout"], ended["stderr"]) == (None, None)
    with pytest.raises(JobOutputMissing):
        await desk.text(job["key"])
    for task in (1, 2):
        assert await desk.text(f"{job['id']}_{task}") == f"task {task}\n"
        path = (await desk.job(f"{job['id']}_{task}"))["stdout"]
        assert path.startswith(f"{desk.folder}/a{job['id']}_{task}-")
        assert Path(path).read_text() == f"task {task}\n"


async def test_tasks_of_an_array_of_somebody_else_too(desk):
    argv = ["sbatch", "--parsable", "-W", "-n1", "-J", "50%a", "-a", "1-2", "-o", f"{desk.folder}/%x_%a.txt"]
    done = await asyncio.to_thread(slurm, desk, *argv, "--wrap", "echo task $SLURM_ARRAY_TASK_ID")
    number = done.split()[0]
    assert (await desk.job(number))["stdout"] is None
    for task in (1, 2):
        assert (await desk.job(f"{number}_{task}"))["stdout"] == f"{desk.folder}/50%a_{task}.txt"
        assert await desk.text(f"{number}_{task}") == f"task {task}\n"


async def test_folder_with_a_percent_sign(cluster, open_desk, tmp_path):
    folder = tmp_path / "100%j é"
    folder.mkdir()
    async with open_desk(cluster, folder) as desk:
        job = await desk.submit("#!/bin/sh\necho fine\n")
        await desk.finished(job["key"])
        assert await desk.text(job["key"]) == "fine\n"


async def test_array_is_one_job_with_counts_and_outputs_by_task(desk):
    job = await desk.submit("#!/bin/sh\necho task $SLURM_ARRAY_TASK_ID\n[ $SLURM_ARRAY_TASK_ID != 2 ]\n", "--array=1-3")
    ended = await desk.finished(job["key"])
    assert ended["tasks"] == {"COMPLETED": 2, "FAILED": 1}
    assert ended["state"] == "FAILED"
    assert await desk.text(f"{job['id']}_3") == "task 3\n"
    states = [(await desk.job(f"{job['id']}_{task}"))["state"] for task in (1, 2, 3)]
    assert states == ["COMPLETED", "FAILED", "COMPLETED"]


async def test_remarks_of_sbatch_are_kept(desk):
    job = await desk.submit("#!/bin/sh\ntrue\n", "--hold", "-v")
    assert any("sbatch" in line for line in job["warnings"])
    await desk.core.cluster(desk.id).actions.cancel(job["key"])


async def test_job_name_is_that_of_the_file(desk):
    job = await desk.submit("#!/bin/sh\ntrue\n", "--hold", script_name="train.sh")
    assert "JobName=train.sh" in slurm(desk, "scontrol", "show", "job", job["id"])
    await desk.core.cluster(desk.id).actions.cancel(job["key"])
