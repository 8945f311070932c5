"""Walk through the guide of Santos Dumont."""

from walks.walk import Step, Walk

_WHERE = "echo on $SLURMD_NODENAME in $SLURM_JOB_PARTITION with $LOADEDMODULES"
_SCRIPT = f"#!/bin/bash\n{_WHERE}\n"

_DEEP = "#!/bin/bash\n#SBATCH -p gdl\n#SBATCH --exclusive\n#SBATCH -t 5\n"
_DEEP += 'cd "$SLURM_SUBMIT_DIR" && echo deep in "$PWD"\n'

WALK = Walk(
    rows=28,
    words={"PROJECT": "projeto"},
    files={
        "experiments/train.py": "print('staged')\n",
        "runners/cityscapes.sh": f"#!/bin/bash\n#SBATCH -p nvidia_long\n#SBATCH --exclusive\n#SBATCH -t 5\n{_WHERE}\n",
        "experiment.srm": _DEEP,
    },
    remote={
        "/scratch/projeto/$USER/experiment.py": "import os\nprint('ran on', os.environ['SLURMD_NODENAME'])\n",
        "/scratch/projeto/$USER/teste-gdl/script.py": "import os\nprint('deep on', os.environ['SLURMD_NODENAME'])\n",
        "/scratch/projeto/$USER/teste-gdl/experiment.srm": _DEEP,
        "/scratch/projeto/$USER/logs/epoch.txt": "1\n",
        "/prj/projeto/$USER/experiments/new.py": "",
    },
    outside={"the VPN": "belongs to your computer"},
    steps=(
        Step("jupyter slurm shell sdumont", r"^at login$", "echo at $(hostname)"),
        Step("%slurm room", r"/scratch"),
        Step("%slurm sh rsync -rUv --delete experiments/ $SCRATCH/experiments/", r"^new\.py$"),
        Step("%slurm sh rsync -rUv $SCRATCH/logs logs", r"epoch\.txt$"),
        Step('%sinfo -o "%P %l %D %c %m %G"', r"^nvidia_dev\*? +\S+ +\d+ +24 "),
        Step("%salloc --nodes=1 -p nvidia_dev -J test --exclusive as=node", r"RUNNING", more="--time 10:00"),
        Step("%squeue -j 12", r"nvidia_de"),
        Step("jupyter slurm shell 12 --cluster sdumont", r"^inside nvidia_dev$", "echo inside $SLURM_JOB_PARTITION"),
        Step(
            "%srun on=node modules=gcc/7.4,python/3.9.1,cudnn/8.2_cuda-11.1 python experiment.py",
            r"^ran on sdumont300[12]$",
        ),
        Step("%srun on=node python experiment.py", r"^ran on sdumont300[12]$"),
        Step("%srun on=node nodeset -e $SLURM_JOB_NODELIST", r"^sdumont300[12]$"),
        Step("%%remote on=node", r"^kept 3$", "kept = 3\nprint('kept', kept)"),
        Step("%remote stop on=node", r"variables are lost"),
        Step("%salloc release on=node", r"being released"),
        Step("%sbatch experiment.srm", r"^deep in /"),
        Step("%sbatch sdumont:/scratch/PROJECT/ana/teste-gdl/experiment.srm", r"^deep in /scratch/\S+/teste-gdl$"),
        Step("%salloc --nodes=1 -p gdl -J GDL-teste --exclusive as=deep", r"RUNNING", more="--time 10:00"),
        Step("%srun on=deep --chdir=/scratch/PROJECT/ana/teste-gdl ls", r"^script\.py$"),
        Step(
            "%srun on=deep modules=deepl/deeplearn-py3.7 --chdir=/scratch/PROJECT/ana/teste-gdl python script.py",
            r"^deep on sdumont4000$",
        ),
        Step("%srun on=deep --chdir=/scratch/PROJECT/ana/teste-gdl python script.py", r"^deep on sdumont4000$"),
        Step(
            "%%sbatch -p nvidia_long --exclusive stage=experiments sync=delete as=train",
            r"^staged$",
            "#!/bin/sh\npython3 train.py\n",
            "--time 5:00",
        ),
        Step(
            "%%sbatch -p nvidia_long --exclusive env=tensorflow as=train",
            r"^on sdumont300\d in nvidia_long with gcc/7\.4:python/3\.9\.1",
            _SCRIPT,
            "--time 5:00",
        ),
        Step(
            "%%sbatch -p nvidia_dev --exclusive env=tensorflow wait",
            r"in nvidia_dev with gcc/7\.4.*\npip \d",
            f"{_SCRIPT}python3 -m venv --system-site-packages $SCRATCH/envs/tf && $SCRATCH/envs/tf/bin/pip --version\n",
            "--time 5:00",
        ),
        Step(
            "%%sbatch --nodes=1 --ntasks=1 -p nvidia_long -J ml_train_multi_gpu --exclusive as=train",
            r"in nvidia_long",
            _SCRIPT,
            "--time 5:00",
        ),
        Step(
            "%%sbatch -p nvidia_long --exclusive stage=experiments env=tensorflow as=train",
            r"^staged$",
            "#!/bin/sh\npython3 train.py\n",
            "--time 5:00",
        ),
        Step("%sbatch runners/cityscapes.sh", r"in nvidia_long"),
        Step(
            "%%sbatch -p nvidia_long --exclusive env=tensorflow wait",
            r"^2 GPUs$",
            "import os\nprint(len(os.environ['CUDA_VISIBLE_DEVICES'].split(',')), 'GPUs')\n",
            "--time 5:00",
        ),
        Step("%slurm usage account=PROJECT start=2026-06-01 end=2026-10-13 by=user", r"USER +JOBS"),
        Step(
            "%sreport -t hours cluster AccountUtilizationByUser start=2026-06-01 end=2026-10-13 Accounts=PROJECT",
            r"Cluster/Account/User Utilization",
        ),
        Step("%sacct -S 2026-06-01 -E 2026-10-13 -X -A PROJECT", r"JobID"),
        Step("jupyter slurm usage PROJECT --start 2026-06-01 --jobs --cluster sdumont", r"nvidia_"),
    ),
    last=(Step("%slurm disconnect sdumont", r"Disconnected from sdumont"),),
)
