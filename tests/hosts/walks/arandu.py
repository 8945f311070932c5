"""Walk through the guide of Arandu."""

from walks.walk import Step, Walk

_WHERE = "#!/bin/sh\necho on $SLURMD_NODENAME in $SLURM_JOB_PARTITION\n"
_INSIDE = "#!/bin/sh\necho inside as $(id -u):$(id -g)\nls /.dockerenv\n"
_SHOWN = r"inside as [1-9]\d*:[1-9]\d*\n/\.dockerenv"

WALK = Walk(
    rows=31,
    # The notebook of the cluster builds lab/hello:1 on the same node.
    words={"PROJECT": "project", "code arandu": "code arandu noopen", "lab/hello:1": "lab/greeting:1"},
    files={
        "project/main.py": "print('staged')\n",
        "background_job/code/main.py": "print('trained')\n",
        "myjob": f"{_WHERE}#SBATCH -p devwork\n".replace("echo", "#SBATCH -t 5\necho", 1),
        "train_model": "#!/bin/sh\n#SBATCH -p devwork -t 5\necho trained on $SLURMD_NODENAME\n",
        "Dockerfile": 'FROM nvcr.io/nvidia/pytorch:22.11-py3\nENTRYPOINT ["echo", "Hello world"]\n',
    },
    remote={"/home/$USER/notes.txt": "1\n"},
    outside={"the VPN": "belongs to your computer"},
    after=("jupyter slurm stop training",),
    steps=(
        Step("jupyter slurm shell arandu", r"^at c4aiscm1$", "echo at $(hostname)"),
        Step("jupyter slurm code arandu -p devwork --gres=gpu:1 /home/ana/PROJECT", r"arandu-code"),
        Step("%slurm room", r"/home"),
        Step("%slurm ls /home/ana", r"notes\.txt"),
        Step("%salloc -p devwork as=node", r"RUNNING", more="--time 10:00"),
        Step("jupyter slurm shell 12 --cluster arandu", r"^inside devwork$", "echo inside $SLURM_JOB_PARTITION"),
        Step("%%remote on=node", r"^kept 3$", "kept = 3\nprint('kept', kept)"),
        Step("%srun on=node hostname", r"^c4aiscw\d$"),
        Step("%squeue --me", r"devwork"),
        Step("jupyter slurm show 12 --cluster arandu", r"devwork"),
        Step("%salloc release on=node", r"being released"),
        Step("%salloc --gres=gpu:1 as=gpu", r"RUNNING", more="-w c4aiscw2 --time 10:00"),
        Step("%salloc -p arandu as=dgx", r"RUNNING", more="--time 10:00"),
        Step("%sinfo -s", r"^arandu "),
        Step("%slurm man sbatch", r"Submit a batch script"),
        Step(
            "%%sbatch -n 8 -N 1 --gres=gpu:1 -p arandu as=train",
            r"^8 in arandu$",
            "#!/bin/sh\necho $SLURM_NTASKS in $SLURM_JOB_PARTITION\n",
            "--time 5:00",
        ),
        Step("%%sbatch -p devwork --output=slurm_out_%j.txt as=train", r"in devwork", _WHERE, "--time 5:00"),
        Step(
            "%%sbatch -p devwork -c 8 --gres=gpu:1 env=pytorch stage=PROJECT as=train",
            _SHOWN,
            _INSIDE,
            "-w c4aiscw1 --time 5:00",
        ),
        Step("%%sbatch -p devwork stage=PROJECT as=train", r"^staged$", "#!/bin/sh\npython3 main.py\n", "--time 5:00"),
        Step("%sbatch myjob", r"in devwork"),
        Step("%%sbatch -p arandu env=docker://nvcr.io/nvidia/pytorch:22.11-py3 wait", _SHOWN, _INSIDE, "--time 5:00"),
        Step(
            "%%sbatch -p arandu -c 8 --gres=gpu:1 env=pytorch as=train",
            r"inside as .*\n/\.dockerenv\n1 GPU$",
            _INSIDE + "set -- /dev/nvidia[0-9]*\n[ -e $1 ] && echo $# GPU\n",
            "--time 5:00",
        ),
        Step("%slurm image build lab/hello:1 Dockerfile -p arandu wait", r"lab/greeting:1", more="--time 10:00"),
        Step("%slurm image list", r"lab/greeting:1"),
        Step(
            "%%sbatch -p arandu env=docker://lab/hello:1 wait",
            r"^Hello world$",
            '#!/bin/sh\n"$JUPYTER_SLURM_ENTRYPOINT"\n',
            "--time 5:00",
        ),
        Step(
            "%%sbatch -p arandu env=pytorch stage=PROJECT wait",
            r"^staged$",
            "#!/bin/sh\npython3 main.py\n",
            "--time 5:00",
        ),
        Step(
            "jupyter slurm launch arandu -p arandu --gres=gpu:1 env=pytorch name=training",
            r"http://\S+:[89]\d{3}/",
            more="noopen --time 10:00",
        ),
        Step("jupyter slurm open training", r"http://\S+:[89]\d{3}/"),
        Step(
            "%%sbatch -p devwork -c 8 --gres=gpu:1 env=pytorch stage=background_job as=train",
            r"^trained$",
            "#!/bin/sh\npython3 code/main.py\n",
            "-w c4aiscw1 --time 5:00",
        ),
        Step("%sbatch train_model", r"^trained on c4aiscw\d$"),
    ),
)
