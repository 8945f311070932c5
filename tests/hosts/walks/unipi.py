"""Walk through the guide of hpc2019, Pisa."""

from walks.walk import Step, Walk

WALK = Walk(
    rows=14,
    allocation="%salloc --nodes=1 --time 10:00 as=node",
    words={"env=docker://antonio/ray:1": "env=ray", "--nodes=3": "--nodes=2", "--cpus-per-task=5": "--cpus-per-task=2"},
    files={
        "submit.sh": "#!/bin/sh\n#SBATCH --nodes=1\n#SBATCH -t 5\necho on $SLURMD_NODENAME\n",
    },
    environments={
        "base": {
            "image": "~/docker_repo/antonio.base",
            "variables": {"PYTHONPATH": ".:/opt/cannon"},
            "work_dir": "~/docker_repo",
        }
    },
    parsed=("`conda list -e`",),
    steps=(
        Step("jupyter slurm shell unipi", r"^at hpc2019$", "echo at $(hostname)"),
        Step(
            "%%sbatch --nodes=1 env=base as=run",
            r"^task in \S*/docker_repo with \.:/opt/cannon",
            "#!/bin/sh\necho task in $PWD with $PYTHONPATH\n",
            "--time 5:00",
        ),
        Step(
            "%%sbatch --nodes=1 sweep=rate:0.1,0.2;hidden:64,128 out=loss as=search",
            r"^\[6\.4, .*25\.6\]$",
            "loss = rate * hidden",
            "--time 5:00",
            "sorted(task.result() for task in {})",
        ),
        Step(
            "%%sbatch --nodes=1 --job-name=test --output=test.txt as=run",
            r"^test$",
            "#!/bin/sh\necho $SLURM_JOB_NAME\n",
            "--time 5:00",
        ),
        Step("%sbatch submit.sh", r"^on c0\d$"),
        Step("jupyter slurm shell 12 --cluster unipi", r"^inside compute$", "echo inside $SLURM_JOB_PARTITION"),
        Step("%srun on=12 top -b -n 1", r"^top - "),
        Step("jupyter slurm report 12 --cluster unipi", r"[Mm]emory"),
        Step("%squeue", r"JOBID"),
        Step("%%sbatch --nodes=1 env=base wait", r"^\d+ CPUs$", "#!/bin/sh\necho $(nproc) CPUs\n", "--time 5:00"),
    ),
)
