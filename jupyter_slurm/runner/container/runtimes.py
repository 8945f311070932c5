"""The command lines of container runtimes, each a function of what is to run and of what the node knows, and what they
print when they fetch an image.

Sources: docker-run(1), podman-run(1), apptainer-exec(1), ch-run(1). Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re

LABEL = "jupyter_slurm"
_GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
_PASSED_VARIABLES = re.compile(
    r"SLURM(D|_(?!JWT))\w*|JUPYTER_SLURM_\w+|MASTER_(ADDR|PORT)|TZ|OMP_NUM_THREADS|ZE_AFFINITY_MASK|(?i:(https?|ftp|no|all)_proxy)"
)
_RUNTIME_VARIABLES = re.compile(r"(APPTAINER|SINGULARITY|CH)_\w+|TERM")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Not bound by themselves, where a job happens to begin there.
_SYSTEM = ("/", "/bin", "/dev", "/etc", "/lib", "/proc", "/run", "/sbin", "/sys", "/tmp", "/usr", "/var")  # noqa: S108

# What begins in the container. Words: umask, what the image is called, what a Python tells its version by (empty: it
# need be none), a pipe that is closed with the job (empty: there is none), the command. What is no Python may end well
# whatever it is told to do: the cell would seem to have run.
_ENTRY = """umask "$1"; image=$2; version=$3; hold=$4; shift 4
refuse() {
    hint="${version:+; python=PATH names another one in it}"
    printf 'container: the image %s has no %s%s\\n' "$image" "$1" "$hint" >&2
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
# With Docker stdin is the pipe; a daemon that hangs does not close it, so that there is another one, of the node's own.
# The readers are nobody's children, and no programs: an image may have no cat.
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
# What runtimes and registries say, in lower case; the first one that fits.
_FAILURE_PATTERNS = (
    (r"no space|quota|enospc", "room"),
    (r"manifest unknown|name unknown|not found|\b404\b|no such image|does not exist in", "name"),
    (r"denied|unauthorized|authenticat|\b40[13]\b", "login"),
    (r"no such host|lookup|refused|time-?out|timed out|unreachable|resolv|retries|x509|certificate|network", "network"),
)


class RuntimeRefused(Exception):
    """There can be no container; says why."""


@dataclasses.dataclass
class RuntimeFacts:
    """What the node knows, and no command line can say before.

    ``gpus`` are ids as Docker takes them; ``memory`` and ``shm`` are bytes, 0 where nobody has said; ``env`` is what
    the container gets; ``holder`` tells this process from all others of the node.
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
    """What is to run: ``image`` is a path, or its name in Docker's store; ``folders`` are bound where they are.

    ``is_python`` says that the command has to be one; ``hold`` is the path of a pipe with whose end the container ends.
    """

    image: str
    binds: list[str]
    folders: list[str]
    argv: list[str]
    is_python: bool = False
    hold: str = ""


def mounts(wish: ContainerRequest, facts: RuntimeFacts) -> list[tuple[str, str, bool]]:
    """Return source, place in the container, and whether it may only be read; nothing twice, the outer one first."""
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


def _entry(wish: ContainerRequest, facts: RuntimeFacts, text: str = "") -> list[str]:
    words = [f"{facts.umask:04o}", wish.image, _VERSION if wish.is_python else "", wish.hold, *wish.argv]
    return ["-c", f'{_ENTRY}{text}exec "$@"', facts.name, *words]


def docker(wish: ContainerRequest, facts: RuntimeFacts) -> tuple[list[str], dict[str, str]]:
    """Return the command line of Docker, and what is added to its environment: values are not in command lines."""
    env = {**facts.env, **_renumbered(facts), "NVIDIA_VISIBLE_DEVICES": ",".join(facts.gpus) or "void"}
    # The last of them: an image may say `all`, and where Docker always has its GPUs at hand, that would be believed.
    argv = ["docker", "run", "--rm", "--init", "--interactive", f"--name={facts.name}", "--network=host"]
    argv += [f"--user={facts.uid}:{facts.gid}", *(f"--group-add={group}" for group in facts.groups)]
    argv += ["--security-opt=no-new-privileges", "--log-driver=none"]
    argv += [f"--label={LABEL}.user={facts.uid}", f"--label={LABEL}.holder={facts.holder}"]
    argv += [f"--label={LABEL}.job={facts.env.get('SLURM_JOB_ID', '')}"]
    argv += [f"--cpuset-cpus={ranges(facts.cpus)}"] if facts.cpus else []
    argv += [f"--memory={facts.memory}"] if facts.memory else []
    argv += [f"--shm-size={facts.shm}"] if facts.shm else []
    argv += ["--gpus", '"device={}"'.format(",".join(facts.gpus))] if facts.gpus else []
    argv += _container(wish, facts, env)
    return argv, env


def podman(wish: ContainerRequest, facts: RuntimeFacts) -> tuple[list[str], dict[str, str]]:
    """Return the command line of Podman, which stays in the control group of the job, and the same limits with it."""
    env = {**facts.env, **_renumbered(facts)}
    argv = ["podman", "run", "--rm", "--init", "--interactive", f"--name={facts.name}", "--network=host"]
    argv += ["--cgroups=disabled", "--userns=keep-id", "--group-add=keep-groups", "--log-driver=none"]
    argv += ["--security-opt=no-new-privileges", "--security-opt=label=disable"]
    argv += [f"--label={LABEL}.user={facts.uid}", f"--label={LABEL}.holder={facts.holder}"]
    argv += [f"--label={LABEL}.job={facts.env.get('SLURM_JOB_ID', '')}"]
    argv += [f"--shm-size={facts.shm}"] if facts.shm else []
    argv += [f"--device=nvidia.com/gpu={gpu}" for gpu in facts.gpus]
    argv += _container(wish, facts, env)
    return argv, env


def _container(wish: ContainerRequest, facts: RuntimeFacts, env: dict[str, str]) -> list[str]:
    """Return what Docker and Podman are told alike: variables, folders, image, command."""
    words = [f"--env={name}" for name in sorted(env)]
    for source, target, is_read_only in mounts(wish, facts):
        fields = ["type=bind", f"src={source}", f"dst={target}", *(["readonly"] if is_read_only else [])]
        words.append("--mount=" + _csv(*fields))
    words += [f"--workdir={facts.work_dir}", "--entrypoint=/bin/sh", wish.image, *_entry(wish, facts, _END_WITH_PIPE)]
    return _text(words, env)


def _renumbered(facts: RuntimeFacts) -> dict[str, str]:
    """Return which GPUs programs are to see: of those that a container has, numbers begin with 0."""
    told = facts.env.get("CUDA_VISIBLE_DEVICES", "")
    if not facts.gpus or not all(word.isdigit() for word in told.split(",")):
        return {}
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(len(facts.gpus))))}


def apptainer(
    wish: ContainerRequest, facts: RuntimeFacts, program: str = "apptainer"
) -> tuple[list[str], dict[str, str]]:
    """Return the command line of Apptainer or Singularity, and its whole environment, which the container gets."""
    argv = [program, "exec", *(["--nv"] if facts.gpus else [])]
    for source, target, is_read_only in mounts(wish, facts):
        _refuse(program, source + target, ",:")
        argv.append(f"--bind={source}:{target}" + (":ro" if is_read_only else ""))
    argv += [f"--pwd={facts.work_dir}", wish.image, "/bin/sh"]
    return _text(argv + _entry(wish, facts), facts.env), {**_settings(), **facts.env}


def singularity(wish: ContainerRequest, facts: RuntimeFacts) -> tuple[list[str], dict[str, str]]:
    """Return the same for what is called singularity."""
    return apptainer(wish, facts, "singularity")


def charliecloud(wish: ContainerRequest, facts: RuntimeFacts) -> tuple[list[str], dict[str, str]]:
    """Return the command line of ch-run, and its whole environment, which the container gets."""
    argv = ["ch-run", f"--cd={facts.work_dir}"]
    for source, target, is_read_only in mounts(wish, facts):
        _refuse("ch-run", source + target, ":")
        if is_read_only:
            raise RuntimeRefused(f"Charliecloud binds no folder for reading only: {source}")
        if source == target and (target + "/").startswith("/tmp/"):  # noqa: S108
            continue  # it brings that of the node
        is_home = source == target == facts.home == f"/home/{facts.env.get('USER')}"
        argv.append("--home" if is_home else f"--bind={source}:{target}")  # it can be where an image has no such folder
    if os.path.exists(os.path.join(wish.image, "ch", "environment")):
        argv.append("--set-env")
    env = {**_settings(), **facts.env, "PATH": _PATH}
    return [*argv, wish.image, "--", "/bin/sh", *_entry(wish, facts)], env


def _text(words: list[str], env: dict[str, str]) -> list[str]:
    """Return the words if all is UTF-8: in JSON, by which these runtimes pass it on, the rest becomes another text."""
    for word in [*words, *env.values()]:
        try:
            word.encode()
        except UnicodeError:
            raise RuntimeRefused(f"a container gets UTF-8 alone, and not {os.fsencode(word)!r}") from None
    return words


def _refuse(program: str, path: str, signs: str) -> None:
    if set(path) & set(signs):
        raise RuntimeRefused(f"{program} takes no folder with one of {' '.join(signs)} in its name: {path}")


def _settings() -> dict[str, str]:
    """Return what a person, a site or its modules have set for the runtime itself."""
    kept = {name: value for name, value in os.environ.items() if _RUNTIME_VARIABLES.fullmatch(name)}
    return {**kept, "PATH": os.environ.get("PATH", _PATH)}


def ranges(numbers: list[int]) -> str:
    """Write numbers as the kernel writes sets of CPUs: ``0-3,8``."""
    words: list[list[int]] = []
    for number in sorted(numbers):
        if words and number == words[-1][-1] + 1:
            words[-1] = [words[-1][0], number]
        else:
            words.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in words)


def gpus_of(env: dict[str, str], variable: str, listed: list[tuple[str, str]]) -> list[str]:
    """Return the GPUs of the job as Docker takes them: never one that Slurm has not given.

    Parameters
    ----------
    env : dict
        Of the job.
    variable : str
        Which one tells the GPUs.
    listed : list of (str, str)
        Index and UUID of the GPUs that the job can see, as nvidia-smi tells them.
    """
    told = [word for word in (part.strip() for part in env.get(variable, "").split(",")) if word]
    if not told or not all(re.fullmatch(r"[0-9]+|(GPU|MIG)-[\w/-]+", word) for word in told):
        return []  # NoDevFiles, void
    if not all(word.isdigit() for word in told):
        return told
    # A job that cannot see the others' GPUs counts its own from 0; Docker's daemon counts all.
    if len(listed) == len(told):
        return [uuid for _, uuid in listed]
    known = dict(listed)
    if all(word in known for word in told):
        return [known[word] for word in told]
    everywhere = env.get("SLURM_STEP_GPUS") or env.get("SLURM_JOB_GPUS") or ""
    return everywhere.split(",") if re.fullmatch(r"[0-9]+(,[0-9]+)*", everywhere) else told


def memory_of(env: dict[str, str]) -> int:
    """Return the bytes of memory that the job has on this node, as sbatch(1) tells them; 0: all, or nobody says it."""
    with contextlib.suppress(KeyError, ValueError):
        return int(env["SLURM_MEM_PER_NODE"]) << 20
    with contextlib.suppress(KeyError, ValueError):
        return int(env["SLURM_MEM_PER_CPU"]) * int(env["SLURM_CPUS_ON_NODE"]) << 20
    return 0


def variables(env: dict[str, str], named: list[str]) -> dict[str, str]:
    """Return what of the job's environment a container gets: Slurm's, ours, and what was described for it."""
    kept = {name: value for name, value in env.items() if name in named or _PASSED_VARIABLES.fullmatch(name)}
    kept.update({name: env[name] for name in _GPU_VARIABLES if name in env})
    if folder := env.get("JUPYTER_SLURM_RESUME_DIR"):
        kept["PYTHONPATH"] = os.path.join(folder, "python")
    user = env.get("USER") or env.get("LOGNAME") or str(os.getuid())
    return {**kept, "HOME": os.path.expanduser("~"), "USER": user, "LOGNAME": user}


MAKERS = {
    "docker": docker,
    "podman": podman,
    "apptainer": apptainer,
    "singularity": singularity,
    "charliecloud": charliecloud,
}


class Progress:
    """How far one is that fetches an image, from what it prints."""

    def __init__(self) -> None:
        self._layers: dict[str, bool] = {}

    def read(self, line: str) -> str:
        """Return how far it is after this line; nothing where the line says nothing of it."""
        layer = re.fullmatch(r"([0-9a-f]{12}): (Pulling fs layer|Already exists|Pull complete)", line)
        if layer:
            self._layers[layer[1]] = layer[2] != "Pulling fs layer"
            return f"{sum(self._layers.values())} of {len(self._layers)} layers"
        numbered = re.match(r"layer (\d+)/(\d+): [0-9a-f]+: downloading: .*?(\d+)%", line)
        if numbered:
            return f"{int(numbered[1]) - (numbered[3] != '100')} of {numbered[2]} layers"
        info = re.fullmatch(r"(?:\x1b\[\d+m)*INFO:(?:\x1b\[\d+m|\s)+([A-Z][\w ]{3,60}?)\.*", line)
        return info[1][0].lower() + info[1][1:] if info else ""


def why_not(runtime: str, image: str, lines: list[str]) -> str:
    """Return in a sentence why an image could not be fetched, and what to do."""
    text = "\n".join(lines).lower()
    sign = next((name for pattern, name in _FAILURE_PATTERNS if re.search(pattern, text)), "")
    last = re.sub(r"^(?:\x1b\[\d+m)*(fatal|error)[^:]*:(?:\x1b\[\d+m)*\s*", "", lines[-1] if lines else "", flags=re.I)
    then = {
        "room": "image_dir in [container] of the cluster's profile names a place with room",
        "name": "look at its name and its tag",
        "login": f"look at its name, or `{_LOGIN_COMMANDS[runtime]}` where you are on such a node",
        "network": "fetch it where the registry can be reached, or name a proxy in `variables`",
    }.get(sign, "the lines before this one may say more")
    return f"the image {image} is not on this node, and {runtime} could not get it ({last[:300]}); {then}"
