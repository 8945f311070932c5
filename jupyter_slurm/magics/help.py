"""Help that ``?`` shows for a magic."""

from __future__ import annotations

import re

from jupyter_slurm.domain.options.option_parser import Arity, OptionSpec, OptionTable

__all__ = ["help_for", "keyword_help"]

_SBATCH = """\
Run this cell as a Slurm job:  %%sbatch [options of sbatch] [words] [-- arguments]
Submit a script file:          %sbatch [words] [options of sbatch] job.sh [arguments]

A cell whose first line begins with #! is a batch script, taken as sbatch takes it. Any other cell is Python: it is
compiled first, and then runs on the node with this kernel's Python. #SBATCH lines count in both. The job gets the
cell's working directory and environment. The cell does not wait; its output appears below it while other cells run.

Words (ours have no dashes, Slurm's have):
    as=NAME       bind the job to a Python variable
    wait          wait until the job is over; an error if it did not end well
    show          show the exact command line and script, submit nothing
    in=x,f        send variables, functions and classes along with a Python cell
    out=y         bring variables back, with `wait` or job.wait(); job.result() and job.outputs give them, too
    resume        begin a cell or a script anew after preemption, time limit, node failure, at most 20 times (resume=50:
                  50); in it, interrupted() and checkpoint_dir() of the module jupyter_slurm_job; a script gets SIGUSR1
                  where it has a trap for it, and has $JUPYTER_SLURM_CHECKPOINT_DIR, $JUPYTER_SLURM_INTERRUPTED
    launcher=srun run a Python cell once for each task (-N 2 --ntasks-per-node 4) with RANK, WORLD_SIZE, LOCAL_RANK,
                  MASTER_ADDR, MASTER_PORT … set; `[RANK] ` begins each line. launcher=torchrun: torchrun on each
                  node, a process for each of its tasks, or GPUs. launcher=mpi: srun with the cluster's support of MPI.
                  launcher=ray: once, beside a Ray cluster on all nodes of the job, to which ray.init() connects
    python=PATH   the Python of the node that runs a Python cell
    env=NAME      the environment of the job: a name of the profile ([env.NAME]), the folder of a venv or of conda, or a
                  container: env=docker://NAME:TAG, a SIF file, the folder of an unpacked image
    sweep=lr:1e-4,1e-3;gamma:0.9,1
                  one array with a task for each combination; lr, gamma and task_index are variables of a Python cell,
                  and environment variables of a script. `zip` beside it: the first with the first, and so on.
                  sweep=NAME takes a list of dicts, a DataFrame, or a dict of lists. --array=0-9%2 runs only these rows
    after=a,b[3]  start when these jobs have ended well: variables, tasks of arrays, ids; also afterany= (ended in any
                  way), afternotok= (ended otherwise), aftercorr= (task by task). Not beside --dependency
    stage=DIR     send this folder along, by rsync: the job runs in its copy where the nodes see it (stage=DIR:DEST,
                  else below `shared` of the profile), and what is new or changed there comes back when it is over,
                  however it ended. Several: stage=code,data:/scratch/me/data. .rsync-filter in it leaves files out
    sync=checksum,delete
                  of stage=: compare what is in files, not size and time; take away there what is gone here

Tasks of an array (--array, sweep=): job[3], len(job), for task in job, job.table(), job.failed(),
job.failed().resubmit(); task_index is the number of the task in a Python cell. Each task has its own output and
values: job[3].stdout, job[3].result(). More tasks than the cluster takes in one array are
several arrays for Slurm, and one job here. SLURM_ARRAY_TASK_ID then begins anew in each; in scripts
${task_index:-$SLURM_ARRAY_TASK_ID} is the number of the task.

Python values: {name}, {job.id}, {runs[0]}, $name. Where Python has no such name, $NAME, ${NAME} and a leading ~ are
what a shell makes of them here: -o $HOME/%j.txt, -o ~/%j.txt. What nobody knows stays as typed; so does everything in
single quotes and in the text of a script or of --wrap.

Examples:
    %%sbatch -p arandu --gpus 1 --time 2:00:00 as=job
    #!/bin/bash
    nvidia-smi

    %%sbatch -c 4 --mem 8G wait -- --epochs 10
    import sys
    print(sys.argv[1:])

    %sbatch --array 1-{count} job.sh data.csv
    %sbatch after=job next.sh
    %sbatch --wrap "hostname; date"
    %sbatch --test-only job.sh          when and where could it start? submits nothing; %%sbatch --test-only the same

Tab offers options, words, partitions, accounts, QOS, GPUs, features, nodes, jobs. Why a job cannot run, as far as that
is known of the cluster, is said with its submission; sbatch decides.

The value is a Job: job.state, job.reason_text, job.stdout, job.stderr, job.exit_code, job.script, job.source (the
Python cell), job.tail(20), job.wait(), job.cancel(), await job. job.report(): CPU, memory, GPUs used of what
it had; job.record: options, versions, commit; job.resubmit(time="4:00:00") submits the same again.
jupyter_slurm.job(12345) takes any job of yours, jupyter_slurm.jobs() lists them.
"""

_SALLOC = """\
Ask for an allocation that stays open:   %salloc [options of sbatch] [words]
Show one that is there:                  %salloc on=NAME
Give one back, with all that runs in it: %salloc release [on=NAME]

The cell does not wait: below it stands why the allocation pends and when it could start, then nodes, GPUs and the time
left. %srun and %%srun run commands and cells in it. It is a batch job of yours that holds it (so the options are those
of sbatch); it outlives a lost connection, and ends with the kernel that asked for it, at its time limit, with
`release`, or after half an hour (c.JupyterSlurm.allocation_lease) without a step in it and a kernel that uses it;
without `keep`, also five minutes after that kernel was killed, if nobody uses it by then and no step runs.

Words (ours have no dashes, Slurm's have):
    as=NAME       its name, and a Python variable for it
    keep          do not give it back when this kernel ends
    lease=TIME    end after so long without use, written as for --time; at least a minute
    wait          wait until it is there
    python=PATH   the Python of the node that holds it (3.8 or newer)

Examples:
    %salloc --test-only -p arandu --gpus 1      when and where could it start? asks for nothing
    %salloc -p arandu --gpus 1 --time 1:00:00 as=gpu
    %salloc -N 2 --ntasks-per-node 4 --time 30:00 keep wait
    %salloc release on=gpu

The value is an Allocation: gpu.state, gpu.gpus, gpu.time_left, gpu.lease, gpu.keep, gpu.steps, gpu.wait_granted(),
gpu.release(). jupyter_slurm.allocations() is a table of those that are open, also those of other kernels.
"""

_SRUN = """\
Run a command as a step of an allocation:  %srun [words] [options of srun] COMMAND [arguments]
Run this cell as one:                      %%srun [options of srun] [words] [-- arguments]

A cell is a script (its first line begins with #!) or Python, as with %%sbatch. It runs in the allocation named by
on=NAME, else in the latest that this kernel asked for, else in the only one that is open; which one is said. A step has
the tasks that the allocation was asked with, unless its own options say less. Several run at once and share what
there is, unless you say --exact. Without an allocation it gets one of its own, as with srun: then the line has
options like -p and --gpus.

The cell does not wait; its output appears below it while other cells run. An interrupted `wait`, and step.interrupt(),
interrupt the step as Ctrl-C does; an interrupt on top ends it. The allocation goes on.

Words (ours have no dashes, Slurm's have; in %srun they come first):
    on=NAME       which allocation: a variable, the name given by as=, or a job id
    as=NAME       bind the step to a Python variable
    wait          wait until the step is over; an error if it did not end well
    in=x,f  out=y  python=PATH     for Python cells, as with %%sbatch

Examples:
    %srun nvidia-smi
    %srun on=gpu wait -n 1 python train.py --epochs {epochs}

    %%srun on=gpu wait out=loss
    loss = 0.1

The value is a Step, which has all that a Job has. Of several tasks all print, and the first one shows figures; there
is no launcher= here, since a step runs once in each task anyway (-l labels what they print).
"""

_REMOTE = """\
Run this cell in the Python process of an allocation:  %%remote [words] [options of srun]
What does that process do, and how large is it?        %remote [status] [on=NAME]
Interrupt its cell, end it, begin a new one:           %remote interrupt|stop|restart [on=NAME]
Run this cell in the kernel of another notebook:       %%remote kernel[=NAME] [words]

The first %%remote in an allocation starts the process, later ones use it: variables, imports and functions stay. It is
a step with one task, also where the allocation has several, and has the CPUs and GPUs of all of them on its node;
options of srun (-c 4, --gpus 1) and python= are for its start. The cell waits for its end and looks as if it had run
here: text, figures, updates of displays, errors; an interrupt is one in the process, whose variables stay. Cells of
several notebooks run one after the other. Nobody can be asked: input() is an error.

It is the allocation named by on=NAME, else the latest that this kernel asked for, else the only one that is open. The
process outlives the kernel if the allocation does (%salloc … keep), and other notebooks find it. When it ends (exit(),
a crash, memory, %remote stop) its variables are gone: the cell fails and says so, and the next one starts a new
process. An idle process does not keep the allocation: without a cell that runs, its lease counts.

With `kernel` a cell runs in the ipykernel that another notebook has on a node (`jupyter slurm kernel add`), among its
variables and in turn with its cells. Nothing of that appears there; `%remote [status|interrupt] kernel` is about it.

Words (ours have no dashes, Slurm's have):
    on=NAME       which allocation: a variable, the name given by as=, or a job id
    kernel        in a kernel on a node; kernel=NAME says which one: as it is shown, its kernelspec, its allocation
    in=x,f        send variables, functions and classes of this notebook along
    out=y         bring variables back into this notebook
    nowait        do not wait: the cell's output appears below it while other cells run
    as=NAME       bind the cell to a Python variable
    python=PATH   the Python of the node that the process is

Examples:
    %salloc -p arandu --gpus 1 as=gpu

    %%remote
    import torch
    x = torch.ones(3, device="cuda")

    %%remote out=total
    total = float(x.sum())

With `nowait` the value is a RemoteCell, which has all that a Step has; cell.wait(), cell.interrupt(). What ran is also
among gpu.steps, with its output, after a restart of this kernel.
"""

_TEXTS = {
    "squeue": (
        "The queue",
        [
            "%squeue --me",
            "%squeue -p arandu --states PENDING --start",
            "%squeue -j {job}",
            'mine = %squeue --me\nmine["JOBID"]',
        ],
    ),
    "sinfo": ("Partitions and nodes", ["%sinfo", "%sinfo -s", "%sinfo -N -p arandu", "%sinfo -o '%P %G %D %T'"]),
    "sacct": ("Jobs of the past", ["%sacct -S now-2days", "%sacct -j {job} -o JobID,State,Elapsed,MaxRSS"]),
    "scancel": ("Cancel jobs", ["%scancel {job}", "%scancel --me --state PENDING", "%scancel --signal USR1 {job}"]),
    "scontrol": (
        "Look at and change jobs, nodes, partitions",
        [
            "%scontrol show job {job}",
            "%scontrol show partition arandu",
            "%scontrol update JobId={job} TimeLimit=1:00:00",
        ],
    ),
    "sprio": ("Priorities of waiting jobs", ["%sprio", "%sprio -l -j {job}"]),
    "sshare": ("Shares of accounts", ["%sshare", "%sshare -a -l"]),
    "sdiag": ("How the controller does", ["%sdiag"]),
    "sacctmgr": ("Accounts, users, QOS", ["%sacctmgr show associations user=$USER", "%sacctmgr show qos"]),
    "sreport": ("Use of the cluster", ["%sreport cluster utilization", "%sreport user top start=2026-01-01"]),
    "sstat": ("What a running job uses", ["%sstat -a {job}", "%sstat {job}.batch"]),
}


_SLURM = """\
Choose the cluster of this notebook:  %slurm use CLUSTER
End a log-in, for everybody; jobs go on:  %slurm disconnect CLUSTER
Clusters, log-ins, who uses them, tunnels:  %slurm list
A Jupyter in a job, on a local port:  %slurm launch [CLUSTER] [options of sbatch] [words]
Another server, in the same way:  %slurm launch [CLUSTER] [options of sbatch] [words] -- command with a {port}
Images of containers:  %slurm image [CLUSTER] list|build|pull|remove
This notebook on a GPU, its variables too:  %slurm kernel switch KERNEL [in=x,model]

CLUSTER is the name of a site profile (`jupyter slurm init` in a terminal writes one), or `local`: the cluster that the
Slurm commands of this machine reach. What hosts ask during a log-in (a password, a code, whether an unknown key is
theirs) is asked below the cell. Tab offers the clusters, and how it stands with their log-ins.

A session is a job that runs the newest Jupyter (Lab, or notebook) of a Python. The card below the cell goes through its
steps: why it pends and when it could start, then where it is on this machine, on a port from 8000 to 9000, which stays
the same. It listens on the node's loopback only; its token is in files for you alone. It outlives this kernel.
A browser that is not on this machine (JupyterHub, a login node) takes the card's second link: this Jupyter server shows
its sessions itself, to who is logged in to it.
A command gets a free port of the node for {port}, 127.0.0.1 for {host} and its path here for {base_url}; it has to
stay in the foreground and to listen on the loopback only. Others on that node see its words and can connect to it.

Words (of launch; ours have no dashes, Slurm's have):
    name=NAME     its name, and a Python variable for it; by default jupyter-1, jupyter-2 …
    dir=FOLDER    the folder that it shows, or begins in; by default the job's working directory
    image=NAME:TAG
                  the image that it runs in: of a registry, a SIF file, or the folder of an unpacked one
    env=NAME      the environment of the job: a name, or the folder of a venv or of conda; an image, too: docker://NAME:TAG
    python=PATH   the Python whose Jupyter it is; a command is looked for on the job's PATH, then beside this Python
    jupyter=install
                  where that Python has no Jupyter, put a JupyterLab beside it: by pip, once, into the folder of images
    idle=TIME     end when nobody has used it for so long: 30m, 2h, or as for --time; by default a day
    port=PORT     the local port
    resume        go on in the same job after its time limit, preemption, node failure, 20 times at most (resume=3:
                  three times): same name, address and log-in, new kernels
    stage=DIR     send a folder along, in whose copy it is; what is new there comes back at its end. As of %%sbatch, and
    sync=delete   so is sync=
    open          wait until it is ready, and open it in a browser, logged in
    noopen        as without `open` (a terminal opens it unless it is told not to)

Examples:
    %slurm use arandu
    %slurm launch arandu -p arandu --gpus 1 --time 8:00:00 name=training idle=2h
    %slurm launch arandu -p arandu name=board -- tensorboard --logdir runs --port {port}

The value is a Session: training.url, training.state, training.open(), training.log(), training.stop().
jupyter_slurm.sessions() lists those that go on, jupyter_slurm.session("training") takes one.
"""

_IMAGE = """
Images of containers are got and made by jobs, on a node and with what the cluster has for it. What the builder says is
in the card of the job, and its last line is how a cell runs in the image: env=docker://NAME.

    %slurm image build NAME FILE         from a Dockerfile (Docker, Charliecloud) or a definition file (Apptainer)
    %slurm image build NAME environment  with the packages of this kernel's Python, from pip and conda
    %slurm image pull NAME:TAG           from a registry
    %slurm image list                    which there are: size, time, where
    %slurm image remove NAME             from the folder of images

Behind those come options of sbatch, and words.

Words (of image build and pull):
    runtime=NAME  docker, podman, apptainer, singularity, charliecloud; by default that of the profile
    replace       make it anew where there is one of that name
    base=NAME:TAG what an image with the packages of a Python begins with; by default python:3.11-slim, of its version
    context=DIR   the folder that a file takes others from; by default the one that it lies in. Over SSH what it takes
                  travels with the job; /… and ~/… are then folders of the cluster
    from=docker   no registry, but Docker of the node; from=/…/image.tar is a file of `docker save`, for Charliecloud of
                  `docker export`
    as=NAME  wait  show   as with %%sbatch

Examples:
    %slurm image build me/train:1 Dockerfile --time 1:00:00
    %slurm image pull pytorch/pytorch:2.3.1-cuda12.1-cudnn8-runtime -p arandu -w dgx01 wait

The value is the Job.
"""

_KERNEL = """
A notebook that is open goes to a kernel on a node (`jupyter slurm kernel add` in a terminal makes one), or back:

    %slurm kernel switch KERNEL [in=x,model]   KERNEL as `jupyter slurm kernel list` has it, or "as it is shown"
    %slurm kernel                              how far it is
    %slurm kernel cancel                       stay here after all

It is the Jupyter server that moves it, and only when the other kernel is there; cells run here meanwhile. What in=
names is looked at before Slurm is asked, and taken again at the end. Then this kernel ends. On a node it is
`jupyter slurm kernel follow NOTEBOOK [in=x,model]` in a terminal here that asks for the next allocation in time.
"""

_KEYWORD_TEXTS = {"slurm launch": _SLURM, "slurm image": _IMAGE}

_SUBMITTING = {
    "sbatch": (_SBATCH, "sbatch"),
    "salloc": (_SALLOC, "sbatch"),
    "srun": (_SRUN, "srun"),
    "remote": (_REMOTE, "srun"),
}


def help_for(magic: str) -> str:
    """Return the help of a magic."""
    if magic in _SUBMITTING:
        text, command = _SUBMITTING[magic]
        options = "\n".join(_line(spec) for spec in OptionTable.for_command(command).specs)
        return f"{text}\nOptions of {command} in all its versions (man {command} explains them):\n{options}\n"
    if magic == "slurm":
        return _SLURM + _IMAGE + _KERNEL
    title, examples = _TEXTS[magic]
    shown = "\n".join("    " + line for example in examples for line in example.split("\n"))
    return (
        f"{title}: Slurm's {magic}, with any of its options.\n\n"
        f"%{magic} [options]     all options: %{magic} --help, man {magic}\n\n"
        f"Examples:\n{shown}\n\n"
        "Quotes are those of a shell; {name} and $name are Python values. Where Python has no such name, $NAME and ~\n"
        "are a shell's; what nobody knows, and what is in single quotes, stays as typed.\n"
        "Without a format of your own (-o, --json …) a table comes back: table['COLUMN'], table[0], len(table),\n"
        "table.to_pandas(). Otherwise it is the command's text.\n"
        "A command that fails raises CommandError with what it said.\n"
    )


def keyword_help(magic: str) -> dict[str, str]:
    """Return the keywords' part of a magic's help, one line for each keyword; by default that of ``%%sbatch``."""
    found: dict[str, str] = {}
    for text in (_SBATCH, _KEYWORD_TEXTS.get(magic) or _SUBMITTING[magic][0]):
        words = text.partition("Words (")[2].partition("\n\n")[0]
        found |= re.findall(r"^ {4}(\w+)(?:=\S+)?(?: +|\n {8,})(?!\w+=)(\S.*)$", words, re.MULTILINE)
        found |= re.findall(r"(after\w+)=\s+\(([^)]*)\)", " ".join(words.split()))
    return found


def _line(spec: OptionSpec) -> str:
    names = ", ".join([*(f"--{name}" for name in spec.names), *([f"-{spec.short}"] if spec.short else [])])
    value = {Arity.NONE: "", Arity.REQUIRED: "=…", Arity.OPTIONAL: "[=…]"}[spec.arity]
    return f"    {names}{value}"
