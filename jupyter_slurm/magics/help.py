"""Help that ``?`` shows for a magic."""

from __future__ import annotations

import re

from jupyter_slurm.documentation import page_url
from jupyter_slurm.domain.options.option_parser import Arity, OptionSpec, OptionTable
from jupyter_slurm.magics.environments.help_texts import COPY_HELP, ENVIRONMENT_HELP, IMAGE_HELP

__all__ = ["help_for", "keyword_help", "subcommand_help"]

_SBATCH = """\
Run this cell as a Slurm job:  %%sbatch [options of sbatch] [keywords] [-- arguments]
Submit a script file:          %sbatch [keywords] [options of sbatch] job.sh [arguments]
One that lies on the cluster:  %sbatch [keywords] [options of sbatch] CLUSTER:job.sh [arguments]

If the first line of the cell begins with #!, the cell is a batch script and sbatch receives it unchanged. Any other
cell is Python. The notebook does not wait: the output appears below the cell while other cells run. #SBATCH lines
count in both.

On a login node, a Python cell runs with the Python of this notebook, and the job inherits its working directory and
environment. Over SSH, only the text of the cell is sent: the job starts in your home directory on the cluster, with
the environment of your login shell and its python3. Use env=, in= and stage= to choose more.

Keywords (they have no dashes; options of Slurm have):
    as=NAME       assign the job to a Python variable
    wait          wait until the job has finished; raise an error if it failed
    show          print the command line and the script; submit nothing
    in=x,f        send variables, functions and classes to a Python cell
    out=y         return variables with `wait` or job.wait(); also in job.result() and job.outputs
    resume        restart after preemption, time limit and node failure, at most 20 times (resume=50 allows 50).
                  A Python cell calls interrupted() and checkpoint_dir() of the module jupyter_slurm_job. A script
                  receives SIGUSR1 if it traps it, and has $JUPYTER_SLURM_CHECKPOINT_DIR, $JUPYTER_SLURM_INTERRUPTED
    launcher=srun run a Python cell once in each task, with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT.
                  torchrun runs torchrun on each node, mpi runs srun with the MPI of the cluster, ray runs the cell once
                  beside a Ray cluster on all nodes of the job
    python=PATH   run a Python cell with this Python of the node
    env=NAME      choose the environment of the job: a name in the profile, the folder of a venv or of conda, modules
                  (env=module:python/3.11), or a container image (env=docker://NAME:TAG, a SIF file, an unpacked image)
    image=IMAGE   run the job in a container image: NAME:TAG of a registry, a SIF file, an unpacked image
    modules=A,B   load these modules first, as `module load` does; with or without env=
    sweep=lr:1e-4,1e-3;gamma:0.9,1
                  submit one array with a task for each combination. A Python cell has the variables lr, gamma and
                  task_index; a script has environment variables. sweep=NAME takes a list of dicts, a DataFrame, or a
                  dict of lists. --array=0-9%2 selects rows
    zip           with sweep=: combine the first values, then the second values, and so on
    after=a,b[3]  start when these jobs have succeeded: variables, tasks of arrays, job IDs. Not with --dependency
    afterany=a    start when these jobs have finished, in any state
    afternotok=a  start when these jobs have failed
    aftercorr=a   start each task when the same task of this array has succeeded
    stage=DIR     copy this folder to the cluster, run the job in the copy, and copy results back at the end of the job.
                  stage=DIR:DEST names the destination; stage=code,data:/scratch/me/data copies several folders. A file
                  .rsync-filter in the folder excludes files
    sync=checksum,delete
                  with stage=: compare contents of files, not size and time; delete files that the source does not have

Tasks of an array (--array, sweep=): job[3], len(job), for task in job, job.table(), job.failed(),
job.failed().resubmit(). Each task has its own output and values: job[3].stdout, job[3].result(). If the cluster limits
the size of an array, jupyter_slurm submits several arrays as one job; then use task_index in Python cells, and
${task_index:-$SLURM_ARRAY_TASK_ID} in scripts.

Python values: {name}, {job.id}, {runs[0]}, {n + 1} and $name are replaced in the line. If Python has no such name,
$NAME, ${NAME} and a leading ~ expand as in a shell: -o $HOME/%j.txt. Unknown names, text in single quotes, scripts and
--wrap stay unchanged.

Examples:
    %%sbatch -p gpu --gpus 1 --time 2:00:00 as=job
    #!/bin/bash
    nvidia-smi

    %%sbatch -c 4 --mem 8G wait -- --epochs 10
    import sys
    print(sys.argv[1:])

    %sbatch --array 1-{count} job.sh data.csv
    %sbatch after=job next.sh
    %sbatch --wrap "hostname; date"
    %sbatch --test-only job.sh          print the earliest start; submit nothing

Press Tab to complete options, keywords, partitions, accounts, QOS, GPUs, features, nodes and jobs. A warning appears
if the known facts of the cluster speak against the job; sbatch decides.

The value is a Job: job.state, job.reason_text, job.stdout, job.stderr, job.exit_code, job.script, job.source,
job.tail(20), job.wait(), job.cancel(), await job. job.report() shows used CPU, memory and GPUs, job.record the
submission, and job.resubmit(time="4:00:00") submits the job again with changes.
jupyter_slurm.job(12345) returns any job of yours, jupyter_slurm.jobs() lists them.
"""

_SALLOC = """\
Request an allocation that stays open:  %salloc [options of sbatch] [keywords]
Show an open allocation:                %salloc on=NAME
Release it, with all that runs in it:   %salloc release [on=NAME]

The cell does not wait: below it appear the reason for waiting and the expected start, then nodes, GPUs and the time
left. %srun and %%srun run commands and cells in the allocation. A batch job of yours holds it, so the options are those
of sbatch. The allocation survives a lost connection. It ends

    at its time limit, or with %salloc release;
    at the shutdown of the kernel that requested it, unless `keep` is given. A restart of the kernel keeps it;
    after half an hour without a step and without a kernel that uses it (c.JupyterSlurm.allocation_lease);
    without `keep`, five minutes after the kernel was killed, unless a step runs or another kernel uses it.

Keywords (they have no dashes; options of Slurm have):
    as=NAME       assign the allocation to a Python variable of this name
    keep          keep the allocation when this kernel is shut down
    lease=TIME    release the allocation after this time without use: 30m, 2h or as for --time; at least one minute
    on=NAME       use an open allocation: a variable, the name given by as=, or a job ID. Any running job of yours can
                  be used (on=12345, on=123_4); release then ends what runs in it for jupyter_slurm, not the job
    release       release the allocation
    wait          wait until the allocation has started
    env=NAME      run all steps in an environment: a name of the profile, or its directory (venv, conda)
    image=IMAGE   run all steps in a container image: NAME:TAG of a registry, a SIF file, an unpacked image
    modules=A,B   load these modules first, as `module load` does
    python=PATH   hold the allocation with this Python of the node (3.8 or newer)

Examples:
    %salloc --test-only -p gpu --gpus 1      print the earliest start; request nothing
    %salloc -p gpu --gpus 1 --time 1:00:00 as=gpu
    %salloc -N 2 --ntasks-per-node 4 --time 30:00 keep wait
    %salloc release on=gpu

The value is an Allocation: gpu.state, gpu.gpus, gpu.time_left, gpu.lease, gpu.keep, gpu.steps, gpu.wait_granted(),
gpu.release(). jupyter_slurm.allocations() lists the open allocations, also those of other kernels.
"""

_SRUN = """\
Run a command as a step of an allocation:  %srun [keywords] [options of srun] COMMAND [arguments]
Run this cell as a step:                   %%srun [options of srun] [keywords] [-- arguments]

A cell is a script (its first line begins with #!) or Python, as with %%sbatch. It runs in the allocation named by
on=NAME, else in the latest one that this kernel requested, else in the only open one with `keep`; the output names it.
A step has all tasks of the allocation, unless its options request fewer. Steps that run at the same time share the
resources, unless --exact is given. Without an open allocation, srun requests one for the step: give options such as -p
and --gpus.

The cell does not wait; its output appears below it while other cells run. An interrupt during `wait`, and
step.interrupt(), act as Ctrl-C; a second interrupt ends the step. The allocation stays open.

Keywords (they have no dashes; options of Slurm have; in %srun keywords come first):
    on=NAME       use this allocation: a variable, the name given by as=, or the ID of any running job of yours
    as=NAME       assign the step to a Python variable
    wait          wait until the step has finished; raise an error if it failed
    in=x,f        send variables, functions and classes to a Python cell
    out=y         return variables to this notebook
    env=NAME      run the step in an environment: a name of the profile, or its directory (venv, conda)
    image=IMAGE   run the step in a container image, as for %salloc; image=none or env=none: in none
    modules=A,B   load these modules first, as `module load` does
    python=PATH   run a Python cell with this Python of the node

Examples:
    %srun nvidia-smi
    %srun on=gpu wait -n 1 python train.py --epochs {epochs}

    %%srun on=gpu wait out=loss
    loss = 0.1

The words of %srun may name variables of Slurm that only the node has: $SLURM_JOB_NODELIST, $CUDA_VISIBLE_DEVICES. No
shell reads the line. For |, > and &&, use `%srun sh -c '…'`. A step has no terminal: use `jupyter slurm shell NAME`.

The value is a Step, with the attributes of a Job. All tasks print; the first one shows figures. -l labels the lines.
"""

_REMOTE = """\
Run this cell in the Python process of an allocation:  %%remote [keywords] [options of srun]
Show the state and the memory of the process:          %remote [status] [on=NAME]
Interrupt its cell, stop it, or restart it:            %remote interrupt|stop|restart [on=NAME]
Run this cell in the kernel of another notebook:       %%remote kernel[=NAME] [keywords]

The first %%remote in an allocation starts the process, and later ones use it: variables, imports and functions stay.
The process is a step with one task and has the CPUs and GPUs of the allocation on its node. Options of srun
(-c 4, --gpus 1) and python= apply when it starts. The cell waits, and shows text, figures, updated displays and errors
as a cell of this notebook does. An interrupt interrupts the cell and keeps the variables. Cells of several notebooks
run one after the other. input() raises an error.

The cell uses the allocation named by on=NAME, else the latest one that this kernel requested, else the only open one
with `keep`. With %salloc … keep, the process survives the kernel, and other notebooks can use it. If the process ends
(exit(), a crash, memory, %remote stop), its variables are lost, the cell fails, and the next cell starts a new process.
An idle process does not keep the allocation open.

With `kernel`, the cell runs in the kernel that another notebook has on a node, with its variables and in turn with its
cells. Output appears in this notebook only.

Keywords (they have no dashes; options of Slurm have):
    on=NAME       use this allocation: a variable, the name given by as=, or the ID of any running job of yours
    kernel        use a kernel on a node; kernel=NAME names its display name, its kernelspec or its allocation
    in=x,f        send variables, functions and classes of this notebook
    out=y         return variables to this notebook
    nowait        do not wait: the output appears below the cell while other cells run
    as=NAME       assign the cell to a Python variable
    env=NAME      start the process in an environment: a name of the profile, or its directory (venv, conda)
    image=IMAGE   start the process in a container image, as for %salloc; image=none or env=none: in none
    modules=A,B   load these modules first, as `module load` does
    python=PATH   start the process with this Python of the node

Examples:
    %salloc -p gpu --gpus 1 as=gpu

    %%remote
    import torch
    x = torch.ones(3, device="cuda")

    %%remote out=total
    total = float(x.sum())

With `nowait` the value is a RemoteCell, with the attributes of a Step: cell.wait(), cell.interrupt(). After a restart
of this kernel, gpu.steps has the cells with their output.
"""

_TEXTS = {
    "squeue": (
        "The queue",
        [
            "%squeue --me",
            "%squeue -p gpu --states PENDING --start",
            "%squeue -j {job}",
            'mine = %squeue --me\nmine["JOBID"]',
        ],
    ),
    "sinfo": ("Partitions and nodes", ["%sinfo", "%sinfo -s", "%sinfo -N -p gpu", "%sinfo -o '%P %G %D %T'"]),
    "sacct": ("Accounting of jobs", ["%sacct -S now-2days", "%sacct -j {job} -o JobID,State,Elapsed,MaxRSS"]),
    "scancel": ("Cancel jobs", ["%scancel {job}", "%scancel --me --state PENDING", "%scancel --signal USR1 {job}"]),
    "scontrol": (
        "Show and change jobs, nodes and partitions",
        [
            "%scontrol show job {job}",
            "%scontrol show partition gpu",
            "%scontrol update JobId={job} TimeLimit=1:00:00",
        ],
    ),
    "sprio": ("Priorities of waiting jobs", ["%sprio", "%sprio -l -j {job}"]),
    "sshare": ("Shares of accounts", ["%sshare", "%sshare -a -l"]),
    "sdiag": ("Statistics of the controller", ["%sdiag"]),
    "sacctmgr": ("Accounts, users, QOS", ["%sacctmgr show associations user=$USER", "%sacctmgr show qos"]),
    "sreport": ("Reports of cluster usage", ["%sreport cluster utilization", "%sreport user top start=2026-01-01"]),
    "sattach": (
        "Output of a running step, as it is printed; an interrupt ends only sattach",
        ["%sattach {job}.0", "%sattach --label {job}.0"],
    ),
    "sbcast": (
        "Copy a file of the login node to all nodes of a job",
        ["%sbcast --jobid {job} data.tar /tmp/data.tar", "%sbcast --jobid {job} --force data.tar /tmp/data.tar"],
    ),
    "strigger": ("Programs that Slurm runs at an event", ["%strigger --get", "%strigger --clear --id 3"]),
    "sstat": ("Resources that a running job uses", ["%sstat -a {job}", "%sstat {job}.batch"]),
}


_SLURM = """\
Choose the cluster of this notebook:         %slurm use CLUSTER
End a login, for all that use it:            %slurm disconnect CLUSTER
List clusters, logins, users and tunnels:    %slurm list
Show the usage of your accounts:             %slurm usage [account=NAME] [start=DATE] [end=DATE] [by=user,partition,gpu]
Show who uses which CPUs and GPUs now:       %slurm who [by=user,account,partition] [account=NAME] [partition=NAME]
Show free space and quotas:                  %slurm room [newer]
Copy files to a cluster:                     %slurm put SOURCE… [CLUSTER:]DEST
Copy files from a cluster:                   %slurm get [CLUSTER:]SOURCE… DEST
Copy files between or within clusters:       %slurm copy [CLUSTER:]SOURCE… [CLUSTER:]DEST [where=job]
Send a folder as stage= does:                %slurm stage [CLUSTER:]FOLDER [[CLUSTER:]DEST]
List transfers, or stop one:                 %slurm transfers [stop ID]
Run a command on the login node:             %slurm sh [out=NAME] COMMAND
Run this cell on the login node:             %%slurm sh [out=NAME]
Show a manual page of the cluster's Slurm:   %slurm man PAGE
List a directory of the cluster:             %slurm ls [all] [[CLUSTER:]PATH]
Start Jupyter in a job, on a local port:     %slurm launch [CLUSTER] [options of sbatch] [keywords]
Start another server in a job:               %slurm launch [CLUSTER] [options of sbatch] [keywords] -- COMMAND {port}
Python environments on the cluster:          %slurm env [CLUSTER] list|create|remove
Container images:                            %slurm image [CLUSTER] list|build|pull|remove
Move this notebook to another kernel:        %slurm kernel switch KERNEL [in=x,model]

CLUSTER is the name of a site profile (`jupyter slurm init` writes one), or `local`: the cluster of the Slurm commands
on this computer. If a host asks during a login (a password, a code, an unknown host key), a prompt appears below the
cell. Jobs continue after a disconnect. Press Tab to complete clusters.

Your shell on the login node runs commands unchanged, as ssh does, without input; Python names are not inserted. Output
appears as it is printed; out=NAME assigns it to a variable, as text. An interrupt ends the command and its children.
All users share the login node: the cluster limits the time of commands. Run long work as a job.

A session is a job that runs Jupyter. The card below the cell shows its steps: the reason for waiting and the expected
start, then its URL on this computer, on a port from 8000 to 9000 that stays the same. The server listens only on the
loopback address of the node, and its token is in files that only you can read. The session survives this kernel.
If your browser runs on another computer (JupyterHub, a login node), use the second link of the card: this Jupyter
server forwards the session.
In a command, {port} is a free port of the node, {host} is 127.0.0.1, and {base_url} is the path of its URL. The command
must stay in the foreground and listen on the loopback address only. Other users on the node can see its words and
connect to it, unless it listens on {socket}, a Unix socket that only you can open.

Keywords of launch (they have no dashes; options of Slurm have):
    app=NAME      run a server by its name: code-server, marimo, mlflow, rstudio, tensorboard (default: jupyter)
    logdir=DIR    with app=tensorboard: the folder of its logs
    store=URI     with app=mlflow: its backend store, a folder or a database
    notebook=FILE
                  with app=marimo: the notebook
    name=NAME     name the session, and assign it to a Python variable (default jupyter-1, jupyter-2, …)
    dir=FOLDER    show this folder (default: the working directory of the job)
    image=NAME:TAG
                  run in this container image: of a registry, a SIF file, or the folder of an unpacked image
    env=NAME      choose the environment of the job, as for %%sbatch
    modules=A,B   load these modules first, as `module load` does
    python=PATH   run the Jupyter of this Python; a command is searched on the job's PATH, then beside this Python
    jupyter=install
                  if this Python has no Jupyter, install JupyterLab once with pip into the folder of images
    idle=TIME     stop the session after this time without use: 30m, 2h, or as for --time (default: a day)
    on=JOB        run in this job of yours or this open allocation, as a step: a variable, the name given by as=, or an
                  ID. The session ends with the job; the job continues when the session ends
    port=PORT     use this local port
    resume        restart in the same job after time limit, preemption and node failure, at most 20 times (resume=3
                  allows 3): same name, URL and login, new kernels
    stage=DIR     copy a folder to the cluster, run the session in the copy, and copy results back at its end
    sync=checksum,delete
                  with stage=, as for %%sbatch
    open          wait until the session is ready, and open it in a browser
    noopen        do not open a browser (a terminal opens one by default)

Examples:
    %slurm use mycluster
    %slurm launch mycluster -p gpu --gpus 1 --time 8:00:00 name=training idle=2h
    %slurm launch mycluster -p gpu name=board -- tensorboard --logdir runs --port {port}
    %slurm usage start=2026-11-01 by=partition
    %slurm sh ls -l results

The value is a Session: training.url, training.state, training.open(), training.log(), training.stop().
jupyter_slurm.sessions() lists active sessions, jupyter_slurm.session("training") returns one.
"""

_KERNEL = """
Move an open notebook to a kernel on a node (`jupyter slurm kernel add` in a terminal adds one), or to another kernel:

    %slurm kernel switch KERNEL [in=x,model]   move to KERNEL: a name of `jupyter slurm kernel list`, or a display name
    %slurm kernel                              show the progress
    %slurm kernel cancel                       keep this kernel

The Jupyter server moves the notebook when the other kernel is ready; until then, cells run in this kernel. The
variables of in= are checked first and sent last. Then this kernel ends. Its allocations of %salloc stay open, and the
next kernel of the notebook takes them up with %srun. With the keyword release, they are released. To move on to the
next allocation in time, run `jupyter slurm kernel follow NOTEBOOK [in=x,model]` in a terminal on this computer.
"""

_KEYWORD_TEXTS = {
    "slurm launch": _SLURM,
    "slurm image": IMAGE_HELP,
    "slurm env": ENVIRONMENT_HELP,
    "slurm copy": COPY_HELP,
}

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
        more = f"More: {page_url('reference/magics')}\n\nOptions of {command} in all versions (`%slurm man {command}`):"
        return f"{text}\n{more}\n{options}\n"
    if magic == "slurm":
        return f"{_SLURM}{IMAGE_HELP}{ENVIRONMENT_HELP}{_KERNEL}\nMore: {page_url('reference/magics')}\n"
    title, examples = _TEXTS[magic]
    shown = "\n".join("    " + line for example in examples for line in example.split("\n"))
    return (
        f"{title}: Slurm's {magic}, with any of its options.\n\n"
        f"%{magic} [options]     all options: %{magic} --help, %slurm man {magic}\n\n"
        f"Examples:\n{shown}\n\n"
        "Quotes work as in a shell. {name} and $name insert Python values. If Python has no such name, $NAME and ~\n"
        "expand as in a shell. Unknown names and text in single quotes stay unchanged.\n"
        "Without an output format of your own (-o, --json …) the value is a table: table['COLUMN'], table[0],\n"
        "len(table), table.to_pandas(). With one, it is the text of the command.\n"
        "If the command fails, CommandError has its message.\n"
    )


def subcommand_help(word: str, usage: str) -> str:
    """Return the help of one subcommand of ``%slurm``."""
    whole = {"launch": _SLURM, "image": IMAGE_HELP, "env": ENVIRONMENT_HELP, "kernel": _KERNEL, "copy": COPY_HELP}.get(
        word
    )
    lines = (line for line in _SLURM.splitlines() if re.search(rf"%slurm {word}\b", line))
    text = whole or "\n".join(lines)
    return f"{usage}\n\n{text.strip()}\n\nAll subcommands: %slurm?\nMore: {page_url('reference/magics')}\n"


def keyword_help(magic: str) -> dict[str, str]:
    """Return the keywords' part of a magic's help, one line for each keyword; by default that of ``%%sbatch``."""
    found: dict[str, str] = {}
    for text in (_SBATCH, _KEYWORD_TEXTS.get(magic) or _SUBMITTING[magic][0]):
        keywords = re.split(r"^Keywords\b.*\n", text, maxsplit=1, flags=re.MULTILINE)[-1].partition("\n\n")[0]
        found |= re.findall(r"^ {4}(\w+)(?:=\S+)?(?: +|\n {8,})(?!\w+=)(\S.*)$", keywords, re.MULTILINE)
    return found


def _line(spec: OptionSpec) -> str:
    names = ", ".join([*(f"--{name}" for name in spec.names), *([f"-{spec.short}"] if spec.short else [])])
    value = {Arity.NONE: "", Arity.REQUIRED: "=…", Arity.OPTIONAL: "[=…]"}[spec.arity]
    return f"    {names}{value}"
