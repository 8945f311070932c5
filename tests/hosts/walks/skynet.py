"""Walk through the guide of SkyNet."""

from walks.walk import Step, Walk

_WHERE = "#!/bin/sh\necho on $SLURMD_NODENAME in $SLURM_JOB_PARTITION of $SLURM_JOB_ACCOUNT\n"
_LAB = "/srv/hoffman-lab/flash9/$USER"

WALK = Walk(
    rows=31,
    job="gpu",
    words={
        "-N 2 --ntasks-per-node 4": "-N 2 --ntasks-per-node 2",
        "docker://python:3.12-slim": "docker://lab/train:1",
        "code skynet": "code skynet noopen",
        "LAB": "hoffman-lab",
        "-- tensorboard": "noopen -- tensorboard",
    },
    files={
        "job.sh": "#!/bin/sh\n#SBATCH -p short -t 5\necho on $SLURMD_NODENAME\n",
        "project/main.py": "print('staged')\n",
    },
    remote={
        f"{_LAB}/project/main.py": "import os\nprint('ran on', os.environ['SLURMD_NODENAME'])\n",
        "/nethome/$USER/project/runs/loss.txt": "1\n",
        "/nethome/$USER/project/job.sh": "#!/bin/sh\n#SBATCH -p short -t 5\necho on $SLURMD_NODENAME in $PWD\n",
    },
    before=(
        "python3 -m venv --without-pip /srv/hoffman-lab/flash9/ana/envs/torch",
        # Until it has a session of its own, it would end with the command.
        "setsid --fork bash -c 'exec -a vscode-server sleep 900' >/dev/null 2>&1; "
        "until ps x -o cmd | grep -q '^vscode-server'; do sleep 0.1; done",
    ),
    after=("jupyter slurm stop board",),
    steps=(
        Step("jupyter slurm shell skynet", r"^at sky1$", "echo at $(hostname)"),
        Step("jupyter slurm code skynet --gpus a40:1 --cpus-per-task 15 -p debug", r"skynet-code"),
        Step("%slurm sh mkdir -p /srv/hoffman-lab/flash9/ana", "", makes="/srv/hoffman-lab/flash9/$USER"),
        Step("%slurm sh ln -s /srv/hoffman-lab/flash9/ana ~/flash", "", makes="/nethome/$USER/flash"),
        Step("%slurm room", r"/nethome"),
        Step("%slurm ls /srv", r"hoffman-lab"),
        Step("%slurm sh ps x -o pid,cmd | grep vscode-server", r"^ *\d+ vscode-server 900$"),
        Step("jupyter slurm put project skynet:", "", makes="/nethome/$USER/project/main.py"),
        Step("jupyter slurm get skynet:project/runs .", "", makes="runs/loss.txt"),
        Step('%sinfo -o "%f %N"', r"^rtx_6000 +gerty"),
        Step("%salloc -p debug --gpus a40:1 -c 15 as=gpu", r"RUNNING", more="--time 10:00"),
        Step("%salloc -p overcap -A overcap --gpus 1 -c 6 as=gpu", r"RUNNING", more="--time 10:00"),
        Step("%salloc --gpus rtx_6000:1 -c 6 as=gpu", r"RUNNING", more="--time 10:00"),
        Step("%salloc --gres gpu:1 -p debug -J test -c 6 as=gpu", r"RUNNING", more="--time 10:00"),
        Step("%%remote on=gpu", r"^kept 3$", "kept = 3\nprint('kept', kept)"),
        Step("%srun on=gpu --chdir=/srv/LAB/flash9/ana/project python main.py", r"^ran on (vicki|clippy|gerty)$"),
        Step("%srun on=12 --chdir=/srv/LAB/flash9/ana/project python main.py", r"^ran on (vicki|clippy|gerty)$"),
        Step('%squeue --me -o "%.7i %.9P %.8j %.8u %.2t %.10M %.6D %C"', r" debug +test .* 6$"),
        Step("%slurm who", r"Checked"),
        Step("%slurm who account=LAB", r"Checked"),
        # The queue may have been read before the walk, while a job of another test was in it.
        Step("%slurm who by=account", r"^(cvmlp-lab|overcap) +\d+ +\d+ +\d+ "),
        Step("jupyter slurm resources --cluster skynet", r"a40"),
        Step("%sbatch job.sh", r"^on \w+$"),
        Step("%sbatch skynet:project/job.sh", r"^on \w+ in \S*/project$"),
        Step(
            "jupyter slurm launch skynet -p debug --gpus 1 name=board -- tensorboard --logdir runs --port {port}",
            r"http://\S+:\d+/",
        ),
        Step(
            "%%sbatch -p short --gpus 1 --chdir=/srv/hoffman-lab/flash9/ana/project "
            "env=/srv/hoffman-lab/flash9/ana/envs/torch",
            r"^in /srv/\S+/project with /srv/\S+/envs/torch$",
            "#!/bin/sh\necho in $PWD with $VIRTUAL_ENV\n",
            "--time 5:00",
        ),
        Step(
            '%%sbatch -p hoffman-lab -A hoffman-lab --qos=short --exclude=clippy --gpus-per-node="rtx_6000:1" '
            "--cpus-per-task=7 --mem-per-gpu=40G as=train",
            r"^on gerty in hoffman-lab of hoffman-lab$",
            _WHERE,
            "--time 5:00",
        ),
        Step(
            "%%sbatch -p short --gpus 1 -c 6 sweep=lr:1e-4,1e-3;gamma:0.9,1 as=fit",
            r"lr 0\.001 gamma 1",
            "print('lr', lr, 'gamma', gamma)",
            "--time 5:00",
            "[task.stdout for task in {}]",
        ),
        Step(
            "%%sbatch -p overcap -A overcap --gpus 1 -c 6 resume as=long",
            r"^on \w+ in overcap of overcap$",
            _WHERE,
            "--time 5:00",
        ),
        Step(
            "%%sbatch -p short -N 2 --ntasks-per-node 4 --gpus-per-task 1 -c 6 launcher=srun as=train",
            r"rank 3 of 4",
            "import os\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])",
            "--time 5:00",
        ),
        Step(
            '%%sbatch -p short --constraint="2080_ti|rtx_6000" --gpus-per-node=2 -c 12 as=either',
            r"^on (clippy|gerty) in short",
            _WHERE,
            "--time 5:00",
        ),
        Step(
            "%%sbatch -p short --gpus 1 -c 6 env=docker://python:3.12-slim as=inside",
            r"^/\.dockerenv$",
            "#!/bin/sh\nls /.dockerenv\n",
            "-w vicki --time 5:00",
        ),
        Step(
            "%%sbatch -p short --gpus 1 stage=project as=train",
            r"^staged$",
            "#!/bin/sh\npython3 main.py\n",
            "--time 5:00",
        ),
        Step(
            "%%sbatch -p short --constraint=a40 --gpus 1 -c 15 as=train", r"^on vicki in short", _WHERE, "--time 5:00"
        ),
        Step(
            "%%sbatch -p short --gpus 1 -c 6 as=train",
            r"^1 GPU$",
            "import os\nprint(len(os.environ['CUDA_VISIBLE_DEVICES'].split(',')), 'GPU')",
            "--time 5:00",
        ),
        Step("%%sbatch -p short --output=out.txt --error=err.txt as=train", r"in short", _WHERE, "--time 5:00"),
        Step("%%sbatch -p short -c 6 wait", r"in short", _WHERE, "--time 5:00"),
    ),
)
