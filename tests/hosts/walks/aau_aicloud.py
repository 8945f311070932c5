"""Walk through the guide of the AI Cloud, Aalborg."""

from walks.walk import Step, Walk

_WHERE = "#!/bin/sh\necho on $SLURMD_NODENAME in $SLURM_JOB_PARTITION by $SLURM_JOB_QOS\n"
_INSIDE = "#!/bin/sh\necho in $SINGULARITY_NAME$APPTAINER_NAME\n"
_KERAS = "~/tensorflow_keras.sif"

WALK = Walk(
    rows=41,
    words={"lab/tensorflow_keras:1": "lab/hello:1"},
    files={
        "example.py": "print('example')\n",
        "project/main.py": "print('staged')\n",
        "jobscript.sh": "#!/bin/sh\n#SBATCH -t 5 --mem=1G\nsrun echo hello from $SLURMD_NODENAME\n",
    },
    remote={"/user/student.aau.dk/$USER/results/loss.txt": "1\n", "/user/student.aau.dk/$USER/mnist-data/one": "1\n"},
    before=("ln -sfn /user/share/singularity/images/tensorflow_20.10-tf2-py3.sif tensorflow_keras.sif",),
    environments={
        "data": {
            "image": "/user/share/singularity/images/tensorflow_20.10-tf2-py3.sif",
            "bind": ["~/mnist-data:/data"],
        }
    },
    parsed=(
        "`srun singularity pull docker://godlovedc",
        "`srun singularity pull docker://nvcr.io",
        "`srun singularity run lolcow_latest.sif`",
    ),
    after=("jupyter slurm stop shell", "jupyter slurm stop keras"),
    steps=(
        Step("jupyter slurm shell aau-aicloud", r"^at ai-pilot$", "echo at $(hostname)"),
        Step("jupyter slurm put example.py aau-aicloud:", "", makes="/user/student.aau.dk/$USER/example.py"),
        Step("jupyter slurm get aau-aicloud:results .", "", makes="results/loss.txt"),
        Step("%salloc --time=20:00 --mem=8G as=node", r"RUNNING"),
        Step(
            "jupyter slurm shell 12 --cluster aau-aicloud",
            r"^inside batch$",
            "echo inside $SLURM_JOB_PARTITION; top -b -n 1 | head -n 1",
        ),
        Step("%%remote on=node", r"^kept 3$", "kept = 3\nprint('kept', kept)"),
        Step("%srun on=12 hostname", r"^nv-ai-0\d"),
        Step(
            "%srun on=node echo hello world from sbatch on node $SLURM_NODELIST",
            r"^hello world from sbatch on node nv-ai-0\d",
        ),
        Step("%srun on=node top -b -n 1", r"^top - "),
        Step("%srun on=node singularity -h", r"singularity|apptainer"),
        Step("%srun on=node df -h /raid", r"Filesystem"),
        Step("%scontrol -d show job 12", r"JobState=RUNNING"),
        Step("%sacct -j 12 --format=User,JobID,Jobname,partition,state%30,time,start,end,elapsed,qos,ReqMem", r"8G"),
        Step("jupyter slurm report 12 --cluster aau-aicloud", r"Memory|memory"),
        Step("jupyter slurm resources --cluster aau-aicloud", r"v100"),
        Step("%salloc release on=node", r"being released"),
        Step("%salloc --time=20:00 --mem=8G --nodelist=nv-ai-03.srv.aau.dk as=node", r"RUNNING"),
        Step("%salloc release on=node", r"being released, on nv-ai-03\.srv\.aau\.dk"),
        Step("%salloc --time=20:00 --mem=8G keep as=node", r"It ends after 30 min"),
        Step("%scancel 12", ""),
        Step("%sinfo -s", r"^batch"),
        Step("%squeue --me", r"JOBID"),
        Step("%scontrol show node", r"NodeName=nv-ai-03"),
        Step("%sprio -l", r"JOBID"),
        Step("%sacctmgr show qos format=name,priority,maxtresperuser%20,MaxWall", r"1gpulong"),
        Step("%sacctmgr show assoc format=account,user%30,qos%40", r"es\.shj"),
        Step('%sreport -tminper cluster utilization --tres="gres/gpu" start=9/01/20', r"Cluster Utilization"),
        Step("%slurm man scontrol", r"view or modify"),
        Step(
            "%%sbatch -p batch --mem=8G stage=project as=train",
            r"^staged$",
            "#!/bin/sh\npython3 main.py\n",
            "--time 5:00",
        ),
        Step(
            "%%sbatch --partition batch --time 24:00:00 --qos=normal as=job", r"in batch by normal", _WHERE, "--mem=1G"
        ),
        Step("%sbatch jobscript.sh", r"^hello from nv-ai"),
        Step("%%sbatch --gres=gpu:1 --mem=64G env=tensorflow as=train", r"in tensorflow", _INSIDE, "--time 5:00"),
        Step(
            "%%sbatch --gres=gpu:1 --mem=64G env=tensorflow wait",
            r"^1 GPU$",
            "import os\nprint(len(os.environ['CUDA_VISIBLE_DEVICES'].split(',')), 'GPU')",
            "--time 5:00",
        ),
        Step(
            "%%sbatch --gres=gpu:1 --mem=64G env=tensorflow stage=. as=train",
            r"^example$",
            "#!/bin/sh\npython3 example.py 10\n",
            "--time 5:00",
        ),
        Step("%salloc --gres=gpu:1 --mem=64G env=tensorflow as=node", r"RUNNING", more="--time 10:00"),
        Step(
            "jupyter slurm shell node --cluster aau-aicloud",
            r"^in tensorflow_20\.10",
            "echo in $SINGULARITY_NAME$APPTAINER_NAME",
        ),
        Step(
            "%%remote on=node",
            r"^in tensorflow_20\.10",
            "import os\nprint('in', os.environ.get('SINGULARITY_NAME') or os.environ['APPTAINER_NAME'])",
        ),
        Step("%srun on=node python3 example.py 10", r"^example$"),
        Step("%salloc release on=node", r"being released"),
        Step("%salloc --gres=gpu:1 --mem=64G env=~/tensorflow_keras.sif as=keras", r"RUNNING", more="--time 10:00"),
        Step("jupyter slurm shell keras --cluster aau-aicloud", r"^in \w", "echo in $SINGULARITY_NAME$APPTAINER_NAME"),
        Step("%%sbatch --mem=8G env=data wait", r"^one$", "#!/bin/sh\nls /data\n", "--time 5:00"),
        Step(
            f"%%sbatch --gres=gpu:1 --mem=64G env={_KERAS} stage=. as=train",
            r"^example$",
            "#!/bin/sh\npython3 example.py 10\n",
            "--time 5:00",
        ),
        Step(
            "%%sbatch --gres=gpu:1 --mem=64G as=job", r"^65536$", "#!/bin/sh\necho $SLURM_MEM_PER_NODE\n", "--time 5:00"
        ),
        Step(
            "jupyter slurm launch aau-aicloud --gres=gpu:1 --mem=64G env=tensorflow",
            r"http://\S+:\d+/",
            more="noopen name=shell --time 10:00",
        ),
        Step(
            f"jupyter slurm launch aau-aicloud --gres=gpu:1 --mem=64G env={_KERAS}",
            r"http://\S+:\d+/",
            more="noopen name=keras --time 10:00",
        ),
    ),
)
