"""Command lines of container runtimes, made from a request and the facts of a node, and parsers of their output.

Sources: docker-run(1), podman-run(1), apptainer-exec(1), ch-run(1). Python 3.8+, standard library only.
"""

from __future__ import annotations

import dataclasses
import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes as long to load as everything else in this module
    from jupyter_slurm.runner.job_document import EnvironmentPart

LABEL = "jupyter_slurm"
_AMD_DEVICE, _RENDER_DEVICES, _NVIDIA_DEVICE = "/dev/kfd", "/dev/dri", "/dev/nvidiactl"
_GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
_PASSED_VARIABLES = re.compile(
    r"SLURM(D|_(?!JWT))\w*|JUPYTER_SLURM_\w+|MASTER_(ADDR|PORT)|TZ|OMP_NUM_THREADS|ZE_AFFINITY_MASK|(?i:(https?|ftp|no|all)_proxy)"
)
_RUNTIME_VARIABLES = re.compile(r"(APPTAINER|SINGULARITY|CH)_\w+|TERM")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Not bound automatically, even if the working directory of a job is one of them.
_SYSTEM = ("/", "/bin", "/dev", "/etc", "/lib", "/proc", "/run", "/sbin", "/sys", "/tmp", "/usr", "/var")  # noqa: S108

# First command in the container. Arguments: umask, name of the image, Python code that prints the version, a pipe that
# closes with the job (empty: none), the command. Without the Python code, the command may be any program. The version
# must be printed, because another program may exit with 0 for any arguments. The cell would then seem to have run.
_ENTRY = """umask "$1"; image=$2; version=$3; hold=$4; shift 4
refuse() {
    hint="${version:+ Choose another one with python=PATH.}"
    printf 'container: The image %s has no %s.%s\\n' "$image" "$1" "$hint" >&2
    exit 125
}
command -v "$1" >/dev/null 2>&1 || refuse "$1"
if [ "$version" ]; then
    case $("$1" -ES -c "$version" 2>/dev/null </dev/null) in *[0-9].[0-9]*) ;;
    *) case $("$1" -c "$version" </dev/null) in *[0-9].[0-9]*) ;;
    *) refuse "Python in $1, or none that works" ;; esac ;; esac
fi
"""
_VERSION = 'import sys; print("%d.%d" % sys.version_info[:2])'
# With Docker stdin is the pipe. A daemon that hangs does not close it, so there is a second pipe on the node. The
# readers are detached from the command, and are no programs: an image may have no cat.
_END_WITH_PIPE = """( { read -r _ <&3; kill -s KILL -- -1; } >/dev/null 2>&1 & ) 3<&0
[ -p "$hold" ] && ( { exec 3<"$hold" && { read -r _ <&3; kill -s KILL -- -1; }; } >/dev/null 2>&1 & )
exec </dev/null
"""

_LOGIN_COMMANDS = {
    "docker": "docker login REGISTRY",
    "podman": "podman login REGISTRY",
    "apptainer": "apptainer registry login docker://REGISTRY",
    "singularity": "singularity remote login docker://REGISTRY",
    "charliecloud": "ch-image --auth pull NAME",
}
# Errors of runtimes and registries, in lower case; the first match counts.
_FAILURE_PATTERNS = (
    (r"no space|quota|enospc", "room"),
    (r"manifest unknown|name unknown|not found|\b404\b|no such image|does not exist in", "name"),
    (r"denied|unauthorized|authenticat|\b40[13]\b", "login"),
    (r"no such host|lookup|refused|time-?out|timed out|unreachable|resolv|retries|x509|certificate|network", "network"),
)


class RuntimeRefused(Exception):
    """The container cannot run; the message says why."""


@dataclasses.dataclass
class RuntimeFacts:
    """Facts of the node that are unknown before the job runs.

    ``gpus`` are ids in Docker's form. ``memory`` and ``shm`` are bytes, 0 if not specified. ``env`` is the environment
    of the container. ``holder`` is a unique label of this process on the node.
    """

    uid: int
    gid: int
    groups: list[int]
    umask: int
    home: str
    work_dir: str
    cpus: list[int]
    memory: int
    shm: int
    gpus: list[str]
    name: str
    holder: str
    env: dict[str, str]


@dataclasses.dataclass
class ContainerRequest:
    """Request for a container: ``image`` is a path, or a name in Docker's store; ``folders`` keep their paths.

    ``is_python`` says that the command must be a Python. The container ends when the pipe with path ``hold`` closes.
    ``env_file`` is a file with the variables, for a client that cannot inherit them.
    """

    image: str
    binds: list[str]
    folders: list[str]
    argv: list[str]
    is_python: bool = False
    hold: str = ""
    env_file: str = ""


def mounts(wish: ContainerRequest, facts: RuntimeFacts) -> list[tuple[str, str, bool]]:
    """Return source, target and read-only flag of each mount, without duplicates, outer folders first."""
    found: dict[str, tuple[str, str, bool]] = {}
    own = list(wish.folders)
    if facts.work_dir not in _SYSTEM:
        own.append(facts.work_dir)
    for folder in sorted({os.path.normpath(folder) for folder in own}):
        outer = [place for place in found if folder.startswith(place.rstrip("/") + "/")]
        if not outer and folder != "/":
            found[folder] = (folder, folder, False)
    for bind in wish.binds:
        source, _, rest = bind.partition(":")
        target, _, mode = rest.partition(":")
        if source.startswith("~/"):
            source = facts.home + source[1:]
        target = os.path.normpath(target or source)
        found[target] = (source, target, mode == "ro")
    return [found[place] for place in sorted(found)]


def _csv(*fields: str) -> str:
    return ",".join('"{}"'.format(field.replace('"', '""')) if set(field) & set(',"\n') else field for field in fields)


def entry(wish: ContainerRequest, facts: RuntimeFacts, text: str = "") -> list[str]:
    """Return the arguments of /bin/sh that start the command of a container, after the lines of ``text``."""
    words = [f"{facts.umask:04o}", wish.image, _VERSION if wish.is_python else "", wish.hold, *wish.argv]
    return ["-c", f'{_ENTRY}{text}exec "$@"', facts.name, *words]


def maker(facts: RuntimeFacts) -> str:
    """Return the maker of the job's GPUs: ``amd``, ``intel`` or ``nvidia``; empty if the job has none.

    Slurm may set the variables of all makers, so the devices of the node decide.
    """
    if facts.env.get("ROCR_VISIBLE_DEVICES") and os.path.exists(_AMD_DEVICE):
        return "amd"
    is_other = os.path.exists(_NVIDIA_DEVICE) or os.path.exists(_AMD_DEVICE)
    if facts.env.get("ZE_AFFINITY_MASK") and os.path.exists(_RENDER_DEVICES) and not is_other:
        return "intel"
    return "nvidia" if facts.gpus else ""


def _devices(facts: RuntimeFacts) -> list[str]:
    """Return the options of Docker and Podman for GPUs of AMD and Intel: the devices of all of them."""
    devices = {"amd": (_AMD_DEVICE, _RENDER_DEVICES), "intel": (_RENDER_DEVICES,)}
    return [f"--device={path}" for path in devices.get(maker(facts), ())]


def _numbers_on_node(facts: RuntimeFacts) -> dict[str, str]:
    """Return the variable of AMD's or Intel's GPUs for Docker, whose daemon shows all GPUs of the node.

    A job that cannot see the GPUs of others counts its own from 0.
    """
    names = {"amd": "ROCR_VISIBLE_DEVICES", "intel": "ZE_AFFINITY_MASK"}
    name, told = names.get(maker(facts), ""), facts.env.get("SLURM_STEP_GPUS") or facts.env.get("SLURM_JOB_GPUS") or ""
    return {name: told} if name and re.fullmatch(r"[0-9]+(,[0-9]+)*", told) else {}


def docker(wish: ContainerRequest, facts: RuntimeFacts) -> tuple[list[str], dict[str, str]]:
    """Return the command line of Docker, and additions to its environment: values must not be in command lines."""
    gpus = facts.gpus if maker(facts) == "nvidia" else []
    env = {**facts.env, **_renumbered(facts), **_numbers_on_node(facts)}
    env["NVIDIA_VISIBLE_DEVICES"] = ",".join(gpus) or "void"
    # The last variable is always set: an image may set it to `all`, which counts where Docker offers GPUs to all
    # containers.
    argv = ["docker", "run", "--rm", "--init", "--interactive", f"--name={facts.name}", "--network=host"]
    argv += [f"--user={facts.uid}:{facts.gid}", *(f"--group-add={group}" for group in facts.groups)]
    argv += ["--security-opt=no-new-privileges", "--log-driver=none"]
    argv += [f"--label={LABEL}.user={facts.uid}", f"--label={LABEL}.holder={facts.holder}"]
    argv += [f"--label={LABEL}.job={facts.env.get('SLURM_JOB_ID', '')}"]
    argv += [f"--cpuset-cpus={ranges(facts.cpus)}"] if facts.cpus else []
    argv += [f"--memory={facts.memory}"] if facts.memory else []
    argv += [f"--shm-size={facts.shm}"] if facts.shm else []
    argv += ["--gpus", '"device={}"'.format(",".join(gpus))] if gpus else _devices(facts)
    argv += _container(wish, facts, env)
    return argv, env


def podman(wish: ContainerRequest, facts: RuntimeFacts) -> tuple[list[str], dict[str, str]]:
    """Return the command line of Podman, which stays in the control group of the job and so within its limits."""
    env = {**facts.env, **_renumbered(facts)}
    argv = ["podman", "run", "--rm", "--init", "--interactive", f"--name={facts.name}", "--network=host"]
    argv += ["--cgroups=disabled", "--userns=keep-id", "--group-add=keep-groups", "--log-driver=none"]
    argv += ["--security-opt=no-new-privileges", "--security-opt=label=disable"]
    argv += [f"--label={LABEL}.user={facts.uid}", f"--label={LABEL}.holder={facts.holder}"]
    argv += [f"--label={LABEL}.job={facts.env.get('SLURM_JOB_ID', '')}"]
    argv += [f"--shm-size={facts.shm}"] if facts.shm else []
    argv += [f"--device=nvidia.com/gpu={gpu}" for gpu in facts.gpus if maker(facts) == "nvidia"] or _devices(facts)
    argv += _container(wish, facts, env)
    return argv, env


def _container(wish: ContainerRequest, facts: RuntimeFacts, env: dict[str, str]) -> list[str]:
    """Return the arguments common to Docker and Podman: variables, folders, image, command."""
    words = [f"--env-file={wish.env_file}"] if wish.env_file else [f"--env={name}" for name in sorted(env)]
    for source, target, is_read_only in mounts(wish, facts):
        fields = ["type=bind", f"src={source}", f"dst={target}", *(["readonly"] if is_read_only else [])]
        words.append("--mount=" + _csv(*fields))
    words += [f"--workdir={facts.work_dir}", "--entrypoint=/bin/sh", wish.image, *entry(wish, facts, _END_WITH_PIPE)]
    return _text(words, env)


def _renumbered(facts: RuntimeFacts) -> dict[str, str]:
    """Return the GPU numbers for programs: in a container, numbers start at 0."""
    told = facts.env.get("CUDA_VISIBLE_DEVICES", "")
    if maker(facts) != "nvidia" or not all(word.isdigit() for word in told.split(",")):
        return {}
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(len(facts.gpus))))}


def apptainer(
    wish: ContainerRequest, facts: RuntimeFacts, program: str = "apptainer"
) -> tuple[list[str], dict[str, str]]:
    """Return the command line of Apptainer or Singularity, and its whole environment, which the container inherits."""
    options = {"amd": ["--rocm"], "nvidia": ["--nv"]}  # those of Intel need no more than the devices of the node
    argv = [program, "exec", *options.get(maker(facts), [])]
    for source, target, is_read_only in mounts(wish, facts):
        refuse(program, source + target, ",:")
        argv.append(f"--bind={source}:{target}" + (":ro" if is_read_only else ""))
    argv += [f"--pwd={facts.work_dir}", wish.image, "/bin/sh"]
    return _text(argv + entry(wish, facts), facts.env), {**_settings(), **facts.env}


def singularity(wish: ContainerRequest, facts: RuntimeFacts) -> tuple[list[str], dict[str, str]]:
    """Return the same for the program ``singularity``."""
    return apptainer(wish, facts, "singularity")


def charliecloud(wish: ContainerRequest, facts: RuntimeFacts) -> tuple[list[str], dict[str, str]]:
    """Return the command line of ch-run, and its whole environment, which the container inherits."""
    argv = ["ch-run", f"--cd={facts.work_dir}"]
    for source, target, is_read_only in mounts(wish, facts):
        refuse("ch-run", source + target, ":")
        if is_read_only:
            raise RuntimeRefused(f"Charliecloud cannot bind a folder read-only: {source}.")
        if source == target and (target + "/").startswith("/tmp/"):  # noqa: S108
            continue  # ch-run binds that of the node itself
        is_home = source == target == facts.home == f"/home/{facts.env.get('USER')}"
        # --home also works if an image lacks the folder
        argv.append("--home" if is_home else f"--bind={source}:{target}")
    listed = os.path.join(wish.image, "ch", "environment")
    if os.path.exists(listed):
        # An old ch-run takes the next argument for the file. In a newer one, a `=` in the path makes a variable of it.
        argv.append("--set-env" if "=" in listed else f"--set-env={listed}")
    env = {**_settings(), **facts.env, "PATH": _PATH}
    return [*argv, wish.image, "--", "/bin/sh", *entry(wish, facts)], env


def _text(words: list[str], env: dict[str, str]) -> list[str]:
    """Return the words if all are UTF-8. These runtimes pass them on as JSON, which would change other bytes."""
    for word in [*words, *env.values()]:
        try:
            word.encode()
        except UnicodeError:
            raise RuntimeRefused(f"Only UTF-8 can be passed to a container, not {os.fsencode(word)!r}.") from None
    return words


def refuse(program: str, path: str, signs: str) -> None:
    """Refuse a path with a sign that has a meaning in the options of a runtime."""
    if set(path) & set(signs):
        raise RuntimeRefused(f"{program} cannot bind a folder with one of {' '.join(signs)} in its name: {path}.")


def _settings() -> dict[str, str]:
    """Return the settings of the runtime itself, by the user, the site or its modules."""
    kept = {name: value for name, value in os.environ.items() if _RUNTIME_VARIABLES.fullmatch(name)}
    return {**kept, "PATH": os.environ.get("PATH", _PATH)}


def ranges(numbers: list[int]) -> str:
    """Format numbers as the Linux kernel formats sets of CPUs: ``0-3,8``."""
    words: list[list[int]] = []
    for number in sorted(numbers):
        if words and number == words[-1][-1] + 1:
            words[-1] = [words[-1][0], number]
        else:
            words.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in words)


def gpus_of(env: dict[str, str], variable: str, listed: list[tuple[str, str]]) -> list[str]:
    """Return the GPUs of the job in Docker's form, and never a GPU that Slurm has not granted.

    Parameters
    ----------
    env : dict
        Environment of the job.
    variable : str
        Variable with the GPUs.
    listed : list of (str, str)
        Index and UUID of the GPUs visible to the job, from nvidia-smi.
    """
    told = [word for word in (part.strip() for part in env.get(variable, "").split(",")) if word]
    if not told or not all(re.fullmatch(r"[0-9]+|(GPU|MIG)-[\w/-]+", word) for word in told):
        return []  # NoDevFiles, void
    if not all(word.isdigit() for word in told):
        return told
    # A job that cannot see the GPUs of others counts its own from 0; Docker's daemon counts all.
    if len(listed) == len(told):
        return [uuid for _, uuid in listed]
    known = dict(listed)
    if all(word in known for word in told):
        return [known[word] for word in told]
    everywhere = env.get("SLURM_STEP_GPUS") or env.get("SLURM_JOB_GPUS") or ""
    return everywhere.split(",") if re.fullmatch(r"[0-9]+(,[0-9]+)*", everywhere) else told


def variables(env: dict[str, str], named: list[str]) -> dict[str, str]:
    """Return the job's variables for a container: those of Slurm, of jupyter_slurm and of the description."""
    kept = {name: value for name, value in env.items() if name in named or _PASSED_VARIABLES.fullmatch(name)}
    kept.update({name: env[name] for name in _GPU_VARIABLES if name in env})
    if folder := env.get("JUPYTER_SLURM_RESUME_DIR"):
        kept["PYTHONPATH"] = os.path.join(folder, "python")
    user = env.get("USER") or env.get("LOGNAME") or str(os.getuid())
    return {**kept, "HOME": os.path.expanduser("~"), "USER": user, "LOGNAME": user}


def with_mpi(described: EnvironmentPart, runtime: str, env: dict[str, str]) -> EnvironmentPart:
    """Return the description of a container whose MPI finds its rank by PMIx or PMI-2 of srun, outside the container.

    The variables of PMIx and PMI-2 are passed on, and the folder of PMIx is bound. The socket of PMI-2 is inherited.
    """
    if runtime in ("docker", "podman"):
        raise RuntimeRefused(
            f"launcher=mpi does not work with {runtime}, whose containers have no connection to srun. Use Apptainer or "
            "Charliecloud, or launcher=srun."
        )
    names = [name for name in env if name.startswith(("PMIX_", "PMI_", "OMPI_MCA_"))]
    folder = env.get("PMIX_SERVER_TMPDIR", "")
    binds = [f"{folder}:{folder}"] if os.path.isdir(folder) else []
    passed: EnvironmentPart = {
        **described,
        "variables": {**described.get("variables", {}), **dict.fromkeys(names, "")},
        "bind": [*described.get("bind", []), *binds],
    }
    return passed


MAKERS = {
    "docker": docker,
    "podman": podman,
    "apptainer": apptainer,
    "singularity": singularity,
    "charliecloud": charliecloud,
}


class Progress:
    """Progress of fetching an image, from the output of the command."""

    def __init__(self) -> None:
        self._layers: dict[str, bool] = {}

    def read(self, line: str) -> str:
        """Return the progress after this line; empty if the line contains none."""
        layer = re.fullmatch(r"([0-9a-f]{12}): (Pulling fs layer|Already exists|Pull complete)", line)
        if layer:
            self._layers[layer[1]] = layer[2] != "Pulling fs layer"
            return f"{sum(self._layers.values())} of {len(self._layers)} layers"
        numbered = re.match(r"layer (\d+)/(\d+): [0-9a-f]+: downloading: .*?(\d+)%", line)
        if numbered:
            return f"{int(numbered[1]) - (numbered[3] != '100')} of {numbered[2]} layers"
        info = re.fullmatch(r"(?:\x1b\[\d+m)*INFO:(?:\x1b\[\d+m|\s)+([A-Z][\w ]{3,60}?)\.*", line)
        return info[1][0].lower() + info[1][1:] if info else ""


def why_not(runtime: str, image: str, lines: list[str], *, is_root: bool = False) -> str:
    """Explain in a sentence why an image could not be fetched, and name the next step; ``is_root``: by way of sudo."""
    text = "\n".join(lines).lower()
    sign = next((name for pattern, name in _FAILURE_PATTERNS if re.search(pattern, text)), "")
    last = re.sub(r"^(?:\x1b\[\d+m)*(fatal|error)[^:]*:(?:\x1b\[\d+m)*\s*", "", lines[-1] if lines else "", flags=re.I)
    then = {
        "room": "Set image_dir in [container] of the cluster's profile to a folder with free space.",
        "name": "Check its name and tag.",
        "login": f"Check its name, or run `{'sudo ' if is_root else ''}{_LOGIN_COMMANDS[runtime]}` on such a node.",
        "network": "Fetch it on a node that reaches the registry, or set a proxy in `variables` of the environment.",
    }.get(sign, "Read the lines above.")
    return f"The image {image} is not on this node, and {runtime} could not fetch it: {last[:300]}. {then}"
