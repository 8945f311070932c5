"""What ``?`` shows about a magic."""

from __future__ import annotations

from jupyter_slurm.domain.options import Arity, OptionSpec, OptionTable

__all__ = ["help_for"]

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
    resume        begin a Python cell anew after preemption, time limit, node failure, at most 20 times (resume=50: 50);
                  in it, interrupted() and checkpoint_dir() of the module jupyter_slurm_job
    python=PATH   the Python of the node that runs a Python cell
    env=NAME      the environment of the job: a name of the profile ([env.NAME]), or the folder of a venv or of conda
    sweep=lr:1e-4,1e-3;gamma:0.9,1
                  one array with a task for each combination; lr, gamma and task_index are variables of a Python cell,
                  and environment variables of a script. `zip` beside it: the first with the first, and so on.
                  sweep=NAME takes a list of dicts, a DataFrame, or a dict of lists. --array=0-9%2 runs only these rows
    after=a,b[3]  start when these jobs have ended well: variables, tasks of arrays, ids; also afterany= (ended in any
                  way), afternotok= (ended otherwise), aftercorr= (task by task). Not beside --dependency

Tasks of an array (--array, sweep=): job[3], len(job), for task in job, job.table(), job.failed(),
job.failed().resubmit(); task_index is the number of the task in a Python cell. Each task has its own output and
values: job[3].stdout, job[3].result().

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
    %sbatch --test-only job.sh          when could it start? submits nothing

The value is a Job: job.state, job.reason_text, job.stdout, job.stderr, job.exit_code, job.script, job.source (the
Python cell), job.tail(20), job.wait(), job.cancel(), await job. job.record has options, versions and commit;
job.resubmit(time="4:00:00") submits the same again. jupyter_slurm.job(12345) takes any job of yours,
jupyter_slurm.jobs() lists them.
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


def help_for(magic: str) -> str:
    """Return the help of a magic."""
    if magic == "sbatch":
        options = "\n".join(_line(spec) for spec in OptionTable.for_command("sbatch").specs)
        return f"{_SBATCH}\nOptions of sbatch in all its versions (man sbatch explains them):\n{options}\n"
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


def _line(spec: OptionSpec) -> str:
    names = ", ".join([*(f"--{name}" for name in spec.names), *([f"-{spec.short}"] if spec.short else [])])
    value = {Arity.NONE: "", Arity.REQUIRED: "=…", Arity.OPTIONAL: "[=…]"}[spec.arity]
    return f"    {names}{value}"
