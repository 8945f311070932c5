"""Environment variables that are sent with a submission, and those that are not.

Sources: the sections "INPUT ENVIRONMENT VARIABLES" and "OUTPUT ENVIRONMENT VARIABLES" of sbatch(1), salloc(1), srun(1).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = [
    "QUERY_ENV",
    "SBATCH_VARIABLES",
    "SCRUBBED_FORMATS",
    "is_inside_job",
    "is_secret",
    "question_environment",
    "submission_environment",
]

#: Environment of every query: untranslated words, times as seconds since the epoch, and lists of array tasks in full up
#: to 8 KiB (64 bytes otherwise).
QUERY_ENV: Final[Mapping[str, str]] = MappingProxyType(
    {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "8192"}
)

#: Variables that change the content or form of the commands' output. They are removed from the environment of a query.
#: ``SLURM_CONF`` and ``SLURM_CLUSTERS`` stay: they select the cluster, and jobs are submitted under them too.
SCRUBBED_FORMATS: Final[tuple[str, ...]] = (
    "SACCT_FEDERATION",
    "SACCT_FORMAT",
    "SACCT_LOCAL",
    "SCONTROL_ALL",
    "SCONTROL_FEDERATION",
    "SCONTROL_FUTURE",
    "SCONTROL_LOCAL",
    "SCONTROL_SIB",
    "SCONTROL_SIBLING",
    "SINFO_ALL",
    "SINFO_FEDERATION",
    "SINFO_FORMAT",
    "SINFO_FUTURE",
    "SINFO_LOCAL",
    "SINFO_PARTITION",
    "SINFO_SORT",
    "SLURM_DEBUG_FLAGS",
    "SQUEUE_ACCOUNT",
    "SQUEUE_ALL",
    "SQUEUE_ARRAY",
    "SQUEUE_ARRAY_UNIQUE",
    "SQUEUE_FEDERATION",
    "SQUEUE_FORMAT",
    "SQUEUE_FORMAT2",
    "SQUEUE_LICENSES",
    "SQUEUE_LOCAL",
    "SQUEUE_NAMES",
    "SQUEUE_PARTITION",
    "SQUEUE_PRIORITY",
    "SQUEUE_QOS",
    "SQUEUE_SIB",
    "SQUEUE_SIBLING",
    "SQUEUE_SORT",
    "SQUEUE_STATES",
    "SQUEUE_USERS",
)

SBATCH_VARIABLES: Final = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_ARRAY_INX": "array",
    "SBATCH_CONSTRAINT": "constraint",
    "SBATCH_ERROR": "error",
    "SBATCH_GPUS": "gpus",
    "SBATCH_GPUS_PER_NODE": "gpus-per-node",
    "SBATCH_GPUS_PER_TASK": "gpus-per-task",
    "SBATCH_GRES": "gres",
    "SBATCH_JOB_NAME": "job-name",
    "SBATCH_MEM_PER_CPU": "mem-per-cpu",
    "SBATCH_MEM_PER_GPU": "mem-per-gpu",
    "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_OUTPUT": "output",
    "SBATCH_OVERCOMMIT": "overcommit",
    "SBATCH_PARTITION": "partition",
    "SBATCH_QOS": "qos",
    "SBATCH_RESERVATION": "reservation",
    "SBATCH_SIGNAL": "signal",
    "SBATCH_TIMELIMIT": "time",
    "SLURM_CLUSTERS": "clusters",
    "SBATCH_CLUSTERS": "clusters",
}
"""Variables that sbatch reads in place of an option, for the options that jupyter_slurm reads."""

# Variables by which a user selects a Slurm installation. Slurm itself does not put these into a job.
_USER_SLURM_VARIABLES = frozenset(
    {"SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_DEBUG_FLAGS", "SLURM_EXIT_ERROR"}
)

# Variables that Slurm sets for a job outside its own prefix.
_SET_BY_SLURM = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
        "GPU_DEVICE_ORDINAL",
        "HIP_VISIBLE_DEVICES",
        "HYDRA_BOOTSTRAP",
        "HYDRA_LAUNCHER_EXTRA_ARGS",
        "I_MPI_HYDRA_BOOTSTRAP",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS",
        "I_MPI_PMI_FD",
        "MPS_PIPE_DIRECTORY",
        "NEURON_RT_VISIBLE_CORES",
        "OMPI_MCA_plm_slurm_args",
        "PRTE_MCA_plm_slurm_args",
        "ROCR_VISIBLE_DEVICES",
        "SBATCH_CPU_BIND",
        "SBATCH_CPU_BIND_LIST",
        "SBATCH_CPU_BIND_TYPE",
        "SBATCH_CPU_BIND_VERBOSE",
        "SBATCH_MEM_BIND",
        "SBATCH_MEM_BIND_LIST",
        "SBATCH_MEM_BIND_PREFER",
        "SBATCH_MEM_BIND_SORT",
        "SBATCH_MEM_BIND_TYPE",
        "SBATCH_MEM_BIND_VERBOSE",
        "ZE_AFFINITY_MASK",
    }
)
# Prefixes of variables that Slurm, or the MPI that srun started, sets for one job. SRUN_CPUS_PER_TASK of an outer job
# lets no step of an inner job start.
_JOB_PREFIXES = (
    *("SLURM_", "SLURMD_", "SRUN_", "PMI_", "PMI2_", "PMIX_", "PMIXP_", "PALS_", "HYDI_", "MPI_LOCAL"),
    *("OMPI_COMM_WORLD_", "OMPI_UNIVERSE_", "OMPI_MCA_orte_", "OMPI_MCA_ess", "MV2_COMM_WORLD_", "SPINDLE_"),
)
# Variables by which a process of torch.distributed (``env://``) and similar libraries is one of several ranks.
_RANK_VARIABLES = frozenset(
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"}
    | {"GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME"}
)
_LAUNCHER_PREFIXES = ("TORCHELASTIC_", "JUPYTER_SLURM_RAY_")
# Folders that a prolog makes for one job, by the name of the variable; the job's number in the value shows that it did.
_JOB_FOLDER = re.compile(
    r"(?:\w+_)?(?:TMP|TEMP|TMPDIR|TEMPDIR|TMP_DIR|\w*SCRATCH\w*|\w*SHM\w*|XDG_RUNTIME_DIR|JOBDIR|JOB_DIR)"
)

# Variables that jupyter_slurm sets for the cell's own job or Jupyter server. The next job must not get them.
_JOB_VARIABLES = frozenset(
    f"JUPYTER_SLURM_{name}" for name in ("BASE_URL", "CHECKPOINT_DIR", "CONTAINER", "IMAGE_DIR", "RESUME_DIR")
)

_SECRETS = frozenset({"CONFIGPROXY_AUTH_TOKEN", "JUPYTER_TOKEN", "JUPYTERHUB_API_TOKEN", "JUPYTERHUB_COOKIE_SECRET"})
_SECRET_PREFIXES = ("JPY_", "JUPYTERHUB_")


def is_secret(name: str) -> bool:
    """Return whether a variable belongs to the Jupyter server or hub and must not reach a job."""
    return name in _SECRETS or name.startswith(_SECRET_PREFIXES)


def is_inside_job(env: Mapping[str, str]) -> bool:
    """Return whether this environment is that of a job or of a shell inside an allocation."""
    return "SLURM_JOB_ID" in env or "SLURM_JOBID" in env


def submission_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the cell's environment that are sent to ``sbatch``.

    Secrets of Jupyter are left out. Inside a job, variables that Slurm, its prolog, MPI or a launcher of ranks set for
    that job are left out; variables that the user set (``SBATCH_ACCOUNT``, ``SLURM_CONF``) are kept. The matplotlib
    back end that a kernel sets for itself is left out, because a job has no kernel to show figures.
    """
    inside = is_inside_job(env)
    is_rank = inside or any(name.startswith("TORCHELASTIC_") for name in env)
    return {
        name: value
        for name, value in env.items()
        if not is_secret(name)
        and name not in _JOB_VARIABLES
        and not (is_rank and (name in _RANK_VARIABLES or name.startswith(_LAUNCHER_PREFIXES)))
        and name != "SBATCH_WAIT"  # sbatch would wait for the job's end; `wait` does that
        and not (inside and (_from_slurm(name) or _is_folder_of_job(name, value, env)))
        and not (name == "MPLBACKEND" and value.startswith("module://"))
        and "\0" not in name + value
    }


def question_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a query whose answer is parsed: C locale, epoch times, no user formats."""
    kept = {name: value for name, value in env.items() if name not in SCRUBBED_FORMATS and not is_secret(name)}
    if is_inside_job(env):
        kept = {name: value for name, value in kept.items() if not _from_slurm(name)}
    return {**kept, **QUERY_ENV}


def _from_slurm(name: str) -> bool:
    return name not in _USER_SLURM_VARIABLES and (name in _SET_BY_SLURM or name.startswith(_JOB_PREFIXES))


def _is_folder_of_job(name: str, value: str, env: Mapping[str, str]) -> bool:
    """Return whether a variable names a temporary folder of the job itself, which other nodes and later jobs lack."""
    number = env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID") or ""
    if not (number.isdecimal() and _JOB_FOLDER.fullmatch(name) and value.startswith("/")):
        return False
    return re.search(rf"(?<!\d){number}(?!\d)", value) is not None
