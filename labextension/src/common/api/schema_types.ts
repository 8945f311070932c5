/**
 * Types of the objects of the API of the agent. Generated from jupyter_slurm/agent/openapi.yaml by `npm run api-types`:
 * changes by hand are lost.
 */
export interface components {
    schemas: {
        readonly Examination: {
            readonly findings: readonly components["schemas"]["Finding"][];
            /** @description Whether one of them failed */
            readonly failed: boolean;
            /** @description Hosts on the way that take keys, and took none of the person's */
            readonly keyless: readonly {
                readonly host: string;
                /** @description File of the public key that can be let in */
                readonly public: string;
            }[];
        };
        readonly Finding: {
            /** @enum {unknown} */
            readonly status: "ok" | "warning" | "failed";
            readonly about: string;
            /** @description May have several lines */
            readonly said: string;
            /** @description What the person can do */
            readonly todo: string;
        };
        /** @description RFC 9457 */
        readonly Problem: {
            readonly type: string;
            readonly title: string;
            readonly status: number;
            readonly detail: string;
            /** @description What to do next */
            readonly hint: string;
            /** @description Facts about the case */
            readonly details: Record<string, unknown>;
        };
        readonly Agent: {
            /** @constant */
            readonly name: "jupyter-slurm";
            readonly version: string;
            readonly api: {
                readonly major: number;
                readonly minor: number;
            };
            readonly capabilities: readonly string[];
            readonly pid: number;
            /** @enum {unknown} */
            readonly host: "daemon" | "server" | "inprocess";
            readonly started: number;
            /** @description What keeps it from leaving, by kind */
            readonly holds: {
                readonly [key: string]: number;
            };
            /** @description Path of its log */
            readonly log?: string | null;
            /** @description What is wrong with this computer, in sentences; the agent works all the same */
            readonly warnings?: readonly string[];
        };
        readonly TunnelWanted: {
            /** @description Key or Slurm id of a running job; null is a host on the way */
            readonly job?: string | null;
            /** @description Of the program on the node */
            readonly port: number;
            /** @description Which of the job's nodes (null is the first), or which host on the way (null is the login node) */
            readonly node?: string | null;
            /** @description On 127.0.0.1; null takes the first that is free among those of the profile */
            readonly local_port?: number | null;
            /**
             * @description A Unix socket instead of a port
             * @default false
             */
            readonly socket?: boolean;
        };
        readonly Tunnel: {
            readonly id: string;
            readonly cluster: string;
            /** @description Its Slurm id (its key as long as that was not asked for); null is a host on the way */
            readonly job: string | null;
            readonly node: string | null;
            readonly port: number;
            readonly local_port: number | null;
            /** @description Path of the Unix socket */
            readonly socket: string | null;
            readonly url: string | null;
            /**
             * @description How the port is reached: on the login node itself, on a host on the way, by ssh to the node, by ssh from the login node, by a step of the job, or from the login node
             * @enum {unknown}
             */
            readonly way: "login" | "hop" | "ssh" | "nested" | "step" | "direct" | null;
            /** @description The ways that do not work here and why */
            readonly failed: {
                readonly [key: string]: string;
            };
            /** @description The node said that the port belongs to this user */
            readonly proven: boolean;
            /**
             * @description preparing: nothing is known of the port yet
             * @enum {unknown}
             */
            readonly state: "open" | "preparing" | "broken" | "closed";
            /** @description Why it is broken: nobody of this user's answers there, the way is gone, or the local port is taken */
            readonly message: string;
            readonly since: number;
            readonly connections: number;
        };
        readonly TransferWanted: {
            /**
             * @description put: from this computer; get: to this computer; copy: between clusters, or within one; stage: as stage= of a job sends a folder, or of the cluster itself if to_cluster is this cluster
             * @enum {unknown}
             */
            readonly kind: "put" | "get" | "copy" | "stage";
            /** @description Paths of this computer are absolute; those of a cluster may begin in the home, and have its variables */
            readonly sources: readonly string[];
            /** @description An existing directory, or the new name of the only source; / at its end makes a directory. Empty for stage is its own directory */
            readonly dest: string;
            /** @description Cluster of the destination of a copy; null is the cluster of the sources. Of stage: the cluster, if it has the folder itself; null is a folder of this computer */
            readonly to_cluster?: string | null;
            /**
             * @description Replace files that differ
             * @default false
             */
            readonly overwrite?: boolean;
            /**
             * @description Of stage: remove files of the copy that the folder does not have any more
             * @default false
             */
            readonly delete?: boolean;
            /** @description A job copies within the cluster, with the options of the profile and these. Null: the login node copies */
            readonly job?: {
                /** @description Options of sbatch(1), one token each */
                readonly options?: readonly components["schemas"]["Argument"][];
                /** @description As of a submission */
                readonly origin?: {
                    readonly folder?: components["schemas"]["OptionalPath"];
                    /** @description File name */
                    readonly notebook?: string | null;
                } | null;
                readonly context?: components["schemas"]["Context"];
            } | null;
        };
        readonly Transfer: {
            readonly id: string;
            readonly cluster: string;
            readonly kind: string;
            readonly sources: readonly string[];
            readonly dest: string;
            readonly to_cluster: string | null;
            /** @description running, finished, failed or stopped */
            readonly state: string;
            readonly bytes: number;
            /** @description Bytes to copy; null is not known yet */
            readonly total: number | null;
            /** @description Files to copy */
            readonly files: number | null;
            /** @description Files that are the same on both sides */
            readonly unchanged: number;
            /** @description Bytes a second */
            readonly rate: number | null;
            /** @description ID of the job that copies */
            readonly job: string | null;
            /** @description Why its job does not run yet or why it waits for another transfer */
            readonly waits: string | null;
            readonly warnings: readonly string[];
            readonly error: components["schemas"]["Problem"] | null;
            readonly started: number;
            readonly ended: number | null;
        };
        readonly ClusterAddress: {
            readonly slurm_conf?: components["schemas"]["OptionalPath"];
            /** @description PATH on which the Slurm commands are looked for */
            readonly path?: string | null;
            /** @description Name of a site profile; instead of the rest. Where a cluster is comes from the profile only */
            readonly profile?: string | null;
        };
        readonly Prompt: {
            readonly id: string;
            readonly cluster: string;
            /** @description Who asks */
            readonly host: string;
            /** @description password, passphrase, keyboard-interactive, host-key; others may come */
            readonly kind: string;
            readonly title: string;
            readonly instruction: string;
            readonly questions: readonly {
                readonly text: string;
                /** @description What is typed may be seen */
                readonly echo: boolean;
            }[];
            readonly asked: number;
            /** @description Among the events only; nothing is asked any more */
            readonly settled?: boolean;
        };
        readonly Connection: {
            /** @enum {unknown} */
            readonly state: "disconnected" | "connecting" | "connected" | "lost";
            /** @description The way, the login node last */
            readonly hosts: readonly string[];
            readonly since: number;
            /** @description What happened last */
            readonly message: string;
            /** @description Of a login: what has changed in the profile since, and what to do */
            readonly notice?: string;
        };
        readonly Client: {
            /** @description kernel, terminal; others may come */
            readonly kind: string;
            /** @description File of a notebook, or a command */
            readonly name: string;
        };
        readonly User: {
            readonly kind: string;
            readonly name: string;
            /** @description Process id; null where the system does not tell */
            readonly pid: number | null;
            readonly since: number;
        };
        readonly Cluster: {
            /** @description Who uses the log-in, the first one first */
            readonly users?: readonly components["schemas"]["User"][];
            readonly profile?: string | null;
            /** @description Of a cluster that is reached over SSH */
            readonly connection?: components["schemas"]["Connection"] | null;
            readonly id: string;
            /** @description ClusterName of slurm.conf; the id as long as the controller has not answered */
            readonly name: string;
            readonly slurm_conf: string | null;
            /** @description Over SSH: what runs Python cells there where nothing else is said */
            readonly python?: string;
            /** @description Folder of the job directories */
            readonly folder?: string;
            /** @description Home directory of the user on the cluster; absent without a login */
            readonly home?: string;
            /** @description Name of the user on the cluster; absent without a login */
            readonly user?: string;
            /** @description Jobs that are not over */
            readonly active?: number;
            /** @description Whether the cluster has GPUs, by its profile or Slurm's GresTypes; absent while that is unknown */
            readonly gpus?: boolean;
            /** @description Start values of a form that launches a session, of the profile, else the same for all clusters; absent before the login */
            readonly launch?: {
                /** @description Seconds without use after which a session ends where nothing else is said */
                readonly idle: number;
                readonly partition?: string;
                readonly gpus?: number;
                readonly gpu_type?: string;
                readonly cpus?: number;
                readonly memory?: string;
                readonly time?: string;
                readonly account?: string;
                readonly qos?: string;
                readonly env?: string;
                readonly dir?: string;
            };
            readonly poll: {
                /** @description Since the queue was last asked; null before the first time */
                readonly seconds_since: number | null;
                /** @description Since how many seconds it cannot be read; null when it can */
                readonly failing_for?: number | null;
                /** @description Seconds until it is looked at again */
                readonly interval: number | null;
                readonly error: components["schemas"]["Problem"] | null;
            };
        };
        readonly OptionalPath: string | null;
        readonly Argv: readonly components["schemas"]["Argument"][];
        readonly Argument: string;
        /** @description The circumstances of the person who asks, so that the agent's own do not matter */
        readonly Context: {
            readonly cwd?: components["schemas"]["OptionalPath"];
            readonly env?: {
                readonly [key: string]: string;
            } | null;
            readonly umask?: number | null;
            /** @description Soft limits by their letter in ulimit */
            readonly limits?: {
                readonly [key: string]: string;
            } | null;
        };
        readonly Submission: {
            /** @description Date, time (UTC) and random digits, chosen anew by the client for each submission; it makes the request safe to repeat */
            readonly key: string;
            /** @description As of connectCluster; where nobody is logged in, nothing is submitted, and that is the answer */
            readonly client?: components["schemas"]["Client"];
            /** @enum {unknown} */
            readonly kind: "script" | "python" | "allocation";
            /** @description The cell */
            readonly text: string;
            /** @description Options of sbatch(1), one token each */
            readonly options?: readonly components["schemas"]["Argument"][];
            /** @description Arguments of the script */
            readonly args?: readonly components["schemas"]["Argument"][];
            /** @description The interpreter on the node for a Python cell: its path, or a name to be found on the job's PATH */
            readonly python?: string | null;
            /** @description The environment of the job: its name in the profile or the settings, the folder of a venv or of conda, modules (module:gcc/12,python/3.11), or an image: docker://NAME:TAG, a SIF file, the folder of an unpacked one */
            readonly env?: string | null;
            /** @description The Python of a cell if neither `python` nor the environment names one. For an image, the Python that starts the container on the node */
            readonly default_python?: string | null;
            readonly label?: string | null;
            /** @description What the script is called; Slurm names the job after it */
            readonly script_name?: string | null;
            /** @description What tracebacks call a Python cell */
            readonly filename?: string | null;
            /** @description Have a cell or a script begin anew, so often at most, after preemption, time limit and node failure */
            readonly resume?: number | null;
            /** @description Of a Python cell: run it once for each task of the job, started in this way; ray: once, beside a cluster of Ray on its nodes */
            readonly launcher?: ("srun" | "torchrun" | "mpi" | "ray") | null;
            readonly values?: components["schemas"]["Variables"];
            /** @description Needed for an allocation: it ends after this time without use, if no step runs */
            readonly lease?: {
                readonly seconds: number;
                /** @description It ends with its first step */
                readonly once?: boolean;
                /** @description It outlives the kernel that asked for it */
                readonly keep?: boolean;
            };
            /** @description A table of parameters: the job is an array, and each of its tasks gets a row of it */
            readonly sweep?: components["schemas"]["Sweep"] | null;
            readonly stage?: components["schemas"]["Stage"];
            /** @description Where the person is, on the machine of the agent; it is recorded with the job */
            readonly origin?: {
                readonly folder?: components["schemas"]["OptionalPath"];
                /** @description File name */
                readonly notebook?: string | null;
            } | null;
            /** @description Key of the job that this one repeats */
            readonly again?: string | null;
            /** @description Of an allocation that a kernel of a notebook asks for */
            readonly kernel?: components["schemas"]["Kernel"];
            readonly dry_run?: boolean;
            /** @description Only ask Slurm when and where it could start, as sbatch --test-only does */
            readonly test_only?: boolean;
            readonly context?: components["schemas"]["Context"];
        };
        /** @description What travels with a Python cell, and comes back */
        readonly Variables: {
            /** @description Names of variables */
            readonly in: readonly string[];
            /** @description Names of variables */
            readonly out: readonly string[];
            /** @description Most bytes of a value that comes back */
            readonly limit: number;
            /** @description Where the values are: a file of this machine that only this user can read; it is copied. Without one, those of the job in `again` */
            readonly file?: string | null;
        } | null;
        /** @description Folders that travel with a job, by rsync; it runs in the first one, and what is new or changed there comes back when it is over */
        readonly Stage: {
            readonly folders: readonly {
                /** @description On the machine of the agent */
                readonly source: string;
                /** @description On the cluster: a path, ~/…, $NAME/…; by default a folder of its own below `shared` of the profile */
                readonly dest?: string | null;
            }[];
            /** @description Compare what is in files, instead of size and time */
            readonly checksum?: boolean;
            /** @description Take away on the cluster what is gone here */
            readonly delete?: boolean;
        } | null;
        /** @description A letter, then letters, digits, dots, dashes and underscores */
        readonly SessionName: string;
        /** @description As in a registry, NAME:TAG; also of one that is made here */
        readonly ImageName: string;
        readonly ImageWanted: {
            /** @description As of a submission */
            readonly key: string;
            /** @enum {unknown} */
            readonly act: "pull" | "build";
            readonly image: components["schemas"]["ImageName"];
            /** @description What is to run it; by default that of the profile, else what is on the node */
            readonly runtime?: ("docker" | "podman" | "apptainer" | "singularity" | "charliecloud") | null;
            /** @description Of pull: not a registry, but this daemon of the node, or a file that the nodes see: of `docker save`, for Charliecloud of `docker export` */
            readonly from?: string | null;
            /** @description Also where there is one of this name */
            readonly replace?: boolean;
            /** @description Of an environment: the image that it begins with */
            readonly base?: string | null;
            /** @description Of build: a Dockerfile or a definition file, and what it takes along: of the folder of the nodes, or of the context, a folder of the agent's machine, which travels with the job */
            readonly file?: {
                readonly name: string;
                readonly text: string;
                readonly folder?: string | null;
                readonly context?: string | null;
            } | null;
            /** @description Of build: the packages of a Python */
            readonly environment?: {
                /** @description Its version, 3.11 */
                readonly python: string;
                /** @description Lines of requirements */
                readonly pip: readonly components["schemas"]["Package"][];
                /** @description Of an environment of conda */
                readonly conda?: {
                    readonly channels: readonly components["schemas"]["Package"][];
                    readonly packages: readonly components["schemas"]["Package"][];
                } | null;
            } | null;
            /** @description Options of sbatch(1), one token each; those of the profile (build_options) come before */
            readonly options?: readonly components["schemas"]["Argument"][];
            /** @description As of a submission */
            readonly origin?: {
                readonly folder?: components["schemas"]["OptionalPath"];
                /** @description File name */
                readonly notebook?: string | null;
            } | null;
            readonly context?: components["schemas"]["Context"];
            /** @description Only say what would be submitted */
            readonly dry_run?: boolean;
        };
        readonly Package: string;
        readonly Images: {
            /** @description Where they are kept */
            readonly folder: string;
            readonly images: readonly {
                readonly image: string;
                /** @description Null: in the store of a node */
                readonly path: string | null;
                /** @description Whose store has it, as the job told that got it there */
                readonly node: string | null;
                readonly runtime: string | null;
                /** @description Bytes */
                readonly size: number | null;
                /** @description Seconds since the epoch */
                readonly made: number | null;
                /** @description docker:// (a registry), the name of a file, or environment */
                readonly source: string | null;
                readonly user: string | null;
                readonly job: string | null;
                /** @description It lies in a folder of the site */
                readonly shared: boolean;
                /** @description Environments of the profile that name it */
                readonly environments: readonly string[];
            }[];
        };
        readonly EnvironmentName: string;
        readonly EnvironmentWanted: {
            /** @description As of a submission */
            readonly key: string;
            readonly name: components["schemas"]["EnvironmentName"];
            /** @enum {unknown} */
            readonly kind: "requirements" | "uv.lock" | "conda";
            /** @description Where the packages come from, for people: a file name, or this */
            readonly source: string;
            /** @description requirements.txt; or pyproject.toml and uv.lock; or environment.yml */
            readonly files: {
                readonly [key: string]: string;
            };
            /** @description Its version, 3.12; null: that of the cluster */
            readonly python?: string | null;
            /** @description By default uv where the cluster has it, else pip; for conda micromamba, mamba or conda */
            readonly tool?: ("uv" | "pip" | "micromamba" | "mamba" | "conda") | null;
            /** @description Also where there is one of this request */
            readonly replace?: boolean;
            /** @description Also where the drivers of the nodes do not run the CUDA of the packages */
            readonly force?: boolean;
            /**
             * @description Whether a job makes it (the default), or a command on the login node
             * @enum {unknown}
             */
            readonly where?: "job" | "login";
            /** @description Options of sbatch(1), one token each */
            readonly options?: readonly components["schemas"]["Argument"][];
            /** @description As of a submission */
            readonly origin?: {
                readonly folder?: components["schemas"]["OptionalPath"];
                /** @description File name */
                readonly notebook?: string | null;
            } | null;
            readonly context?: components["schemas"]["Context"];
            /** @description Only say what would be submitted */
            readonly dry_run?: boolean;
        };
        readonly MadeEnvironment: {
            readonly name: string;
            readonly path: string;
            readonly tool: string | null;
            /** @description Its version */
            readonly python: string | null;
            readonly source: string | null;
            /** @description Seconds since the epoch */
            readonly made: number | null;
            /** @description How many */
            readonly packages: number | null;
            /** @description Which made it */
            readonly job: string | null;
            /** @description Major version of CUDA that its packages are built for */
            readonly cuda: number | null;
            /** @description Modules that could not be imported when it was made, each with the message */
            readonly failed_imports: readonly string[];
        };
        readonly Environments: {
            /** @description Where they are kept */
            readonly folder: string;
            readonly environments: readonly components["schemas"]["MadeEnvironment"][];
        };
        readonly Launch: {
            /** @description As of a submission */
            readonly key: string;
            /** @description As of renameSession; no other session that goes on has it. null, the first of jupyter-1, jupyter-2 … that is free */
            readonly name?: string | null;
            /** @description Have it begin anew in the same job, so often at most, after preemption, time limit and node failure: under the same address, with the same token */
            readonly resume?: number | null;
            /** @description Seconds without a request or a kernel at work, or of a command without a connection, after which it ends */
            readonly idle: number;
            /** @description The folder that it shows, or begins in; by default the job's working directory */
            readonly dir?: string | null;
            /**
             * @description install: where its Python has no Jupyter, a JupyterLab is put beside it by pip, for this Python of this image; without, or null, the session ends and says so
             * @enum {unknown}
             */
            readonly jupyter?: "install" | null;
            /**
             * @description What serves instead of Jupyter, word by word. {port}, which it must have, becomes a free port of the node, {host} 127.0.0.1 ({socket}, instead of
             *     both, the path of a Unix socket that only this user can open), {base_url} the
             *     path of the session (without the slash at its end); without {base_url} it serves at /. Who is on the node sees the words.
             */
            readonly command?: readonly components["schemas"]["Argument"][] | null;
            /**
             * @description A server by name, instead of `command`; null, or jupyter: Jupyter
             * @enum {unknown}
             */
            readonly app?: "jupyter" | "code-server" | "marimo" | "mlflow" | "rstudio" | "tensorboard" | null;
            /** @description Keywords of the app: logdir of tensorboard, store of mlflow, notebook of marimo */
            readonly app_values?: {
                readonly logdir?: string;
                readonly notebook?: string;
                readonly store?: string;
            };
            /** @description The server is sshd, for an editor, and lets in this public key alone; `command` is then what it is called */
            readonly ssh?: string | null;
            /** @description With `ssh`: the host in the ssh configuration of the computer that launches the session */
            readonly ssh_host?: string | null;
            /** @description Here; by default the first that is free */
            readonly port?: number | null;
            /** @description A running job of the user, or an open allocation, by its Slurm id or key: the server runs in it as a step. It ends with that job, and the job goes on when it ends. There are then no options, no resume and no stage */
            readonly on?: string | null;
            /** @description base_url of the Jupyter server through which a browser may reach it, too; by default /. What is launched through one has its own */
            readonly prefix?: string | null;
            /** @description Options of sbatch(1), one token each */
            readonly options?: readonly components["schemas"]["Argument"][];
            /** @description The interpreter whose Jupyter it is: its path on the node, or a name to be found on the job's PATH */
            readonly python?: string | null;
            /** @description With `env`, where neither `python` nor the environment says it */
            readonly default_python?: string | null;
            /** @description As of a submission */
            readonly env?: string | null;
            /** @description As of a submission */
            readonly origin?: {
                readonly folder?: components["schemas"]["OptionalPath"];
                /** @description File name */
                readonly notebook?: string | null;
            } | null;
            readonly stage?: components["schemas"]["Stage"];
            readonly context?: components["schemas"]["Context"];
            /** @description Only say what would be submitted, and what speaks against it */
            readonly dry_run?: boolean;
            /** @description As of a submission */
            readonly test_only?: boolean;
        };
        readonly Session: {
            /** @enum {unknown} */
            readonly state: "submitted" | "pending" | "starting" | "ready" | "reconnecting" | "unreachable" | "ending" | "ended";
            /** @description Why it is not reached, where it is not; while it starts, how far it is, where that is known */
            readonly message: string;
            /** @description Here, without its token: POST …/open logs in */
            readonly url: string | null;
            /** @description The same for a browser: under a host name that no other program has, KEY.localhost, so that no cookies are shared. As url where the server takes no such name */
            readonly browser_url?: string | null;
            /** @description Its path for life, also on the Jupyter server for whose base_url it was launched: that shows it to who is logged in there */
            readonly path: string;
            /** @description What serves, where it is no Jupyter */
            readonly command: readonly string[] | null;
            /** @description The name of what serves: as of a launch, or ssh where it is sshd; null of Jupyter or another command */
            readonly app?: string | null;
            /** @description Of sshd: the host in the ssh configuration of the computer that launched the session */
            readonly ssh_host?: string | null;
            /** @description How often it begins anew at most */
            readonly resume?: number | null;
            /** @description Which Jupyter it is, with its version, or the command's name */
            readonly server?: string | null;
            /** @description On the node */
            readonly port?: number | null;
            readonly local_port?: number | null;
            /** @description As of a tunnel */
            readonly way?: string | null;
            readonly ready_time?: number | null;
            /** @description When its time limit ends this run of it, once that is near; seconds since the epoch, by Slurm's clock */
            readonly ends?: number | null;
            /** @description How far it has come in this run of its job; seconds since the epoch, by the clocks of the agent, of Slurm and of the node */
            readonly steps: readonly {
                /** @enum {unknown} */
                readonly state: "submitted" | "pending" | "starting" | "ready" | "ended";
                readonly time: number;
            }[];
            /** @description Seconds without a request or a kernel at work, or of a command without a connection, after which it ends */
            readonly idle: number;
            readonly dir?: string | null;
            /** @description The job in which it runs as a step; null: it has a job of its own */
            readonly on?: string | null;
        };
        readonly SessionWay: {
            /** @description On 127.0.0.1 of this machine: the tunnel */
            readonly port: number;
            /** @description As of a session */
            readonly path: string;
            /** @description Under which path it serves: `path`, or / where it knows of none */
            readonly base_url: string;
            /** @description null of what knows no token */
            readonly token: string | null;
            /**
             * @description Of the token in the header Authorization; without: token, as Jupyter has it
             * @enum {string}
             */
            readonly scheme?: "Bearer";
            /** @description Of sshd alone: the public key of its host, for known_hosts */
            readonly host_key?: string;
        };
        readonly Step: {
            /** @description As that of a submission */
            readonly key: string;
            /**
             * @description process: one Python for many cells; an allocation has one at a time. kernel: of a notebook
             * @enum {unknown}
             */
            readonly kind: "script" | "python" | "command" | "process" | "kernel";
            /** @description Of a Python cell that runs in a process, or in an ipykernel, after those that were asked for before: the key of that step */
            readonly process?: string;
            /** @description The cell; a command has none */
            readonly text?: string;
            /** @description Options of srun(1), one token each */
            readonly options?: readonly components["schemas"]["Argument"][];
            /** @description Arguments of the script; the whole command line of a command */
            readonly args?: readonly components["schemas"]["Argument"][];
            /** @description Of a command, where its arguments have variables that only the node has, such as $SLURM_JOB_NODELIST: argument, and character; the task puts their values there */
            readonly node_variables?: readonly (readonly number[])[];
            /** @description The interpreter on the node for a Python cell: its path, or a name to be found on the PATH there */
            readonly python?: string | null;
            /** @description What tracebacks call a Python cell */
            readonly filename?: string | null;
            /** @description Its environment, as of a submission; without it, that of the allocation */
            readonly env?: string | null;
            /** @description What runs it where neither `python` nor an environment says it */
            readonly default_python?: string | null;
            readonly kernel?: components["schemas"]["KernelStep"];
            readonly values?: components["schemas"]["Variables"];
            readonly context?: components["schemas"]["Context"];
        };
        /** @description Whose kernel it is, and which one */
        readonly Kernel: {
            /** @description A hash that tells one notebook from another; null: nobody looks for it again */
            readonly owner?: string | null;
            /** @description Of its kernelspec */
            readonly name?: string | null;
            readonly display_name?: string | null;
        };
        readonly KernelStep: {
            readonly owner?: string | null;
            readonly name?: string | null;
            readonly display_name?: string | null;
            /** @description Which kernelspec of the far side; by default python3 */
            readonly kernel?: string | null;
            /** @description The command of the kernel instead; {connection_file} in it is replaced */
            readonly argv?: readonly components["schemas"]["Argument"][] | null;
            /** @description By which both ends of the link know each other */
            readonly secret: string;
            /** @description Seconds without activity after which it ends; 0: never */
            readonly idle: number;
            /** @description Seconds without anybody connected after which it ends */
            readonly lease: number;
            /** @description The folder that it begins in */
            readonly dir?: string | null;
            /**
             * @description Its sockets: in a folder of this user, as by default, or ports of the node's loopback
             * @enum {string}
             */
            readonly transport?: "ipc" | "tcp";
        };
        readonly KernelPlace: {
            /** @description Of the step */
            readonly state: string;
            readonly finished: boolean;
            readonly node: string | null;
            /** @description null while it does not listen */
            readonly port: number | null;
            /** @description How far the image of its container is */
            readonly stage: string | null;
            /** @description Of a finished kernel that its keeper ended because nobody used it: idle_over or lease_over */
            readonly unused?: string | null;
        };
        readonly Sweep: {
            /** @description Of variables */
            readonly names: readonly string[];
            /** @description The values of each task, as literals of Python */
            readonly rows: readonly (readonly string[])[];
        };
        readonly Preview: {
            readonly argv: readonly string[];
            readonly script: string;
            /** @description The options in force, by long name: of the line, the environment and the #SBATCH lines. Of a heterogeneous job, those of the part that runs the script */
            readonly options?: {
                readonly [key: string]: string | null;
            };
            readonly warnings?: readonly string[];
            /** @description Why it would be refused or never run, from what is known of the cluster */
            readonly doubts?: readonly string[];
            /** @description The same one by one, for a form that shows each beside its field, and a folder that the login node does not have */
            readonly problems?: readonly components["schemas"]["OptionProblem"][];
            readonly estimate?: components["schemas"]["Estimate"];
        };
        /** @description Why a value would be refused or never run. Also in the details of a refusal, as problems */
        readonly OptionProblem: {
            /** @description Long name of an option of sbatch, or a keyword (dir, env); empty, where it is about several */
            readonly option: string;
            /** @description Whose limit it exceeds: partition, node, qos. Of a folder: missing, or file. Else empty */
            readonly scope: string;
            /** @description That limit as sbatch takes it */
            readonly limit: string;
            readonly text: string;
        };
        /** @description Where nothing but what sbatch said is known, the rest is null */
        readonly Estimate: {
            /** @description In seconds since the epoch */
            readonly start: number | null;
            /** @description Seconds by which the clock of the cluster, which the start is of, is ahead of the agent's */
            readonly clock_offset?: number;
            readonly cpus: number | null;
            readonly nodes: string | null;
            readonly partition: string | null;
            /** @description The words of sbatch */
            readonly said: string;
        };
        readonly Job: {
            /** @description null for a job that was not submitted here */
            readonly key: string | null;
            readonly cluster: string;
            /** @description null until Slurm has given one */
            readonly id: string | null;
            /** @description As Slurm names it */
            readonly state: string;
            readonly reason?: string | null;
            /** @description The reason in words */
            readonly reason_text?: string | null;
            readonly next_step?: string | null;
            readonly submit_time?: number | null;
            readonly start_time?: number | null;
            readonly end_time?: number | null;
            /** @description Seconds by which the clock of the cluster, which these times are of, is ahead of the agent's */
            readonly clock_offset?: number;
            /** @description Of what ended by itself; null where a signal ended it, or Slurm did */
            readonly exit_code?: number | null;
            /** @description The signal that ended it */
            readonly signal?: number | null;
            readonly partition?: string | null;
            readonly nodes?: string | null;
            readonly name?: string | null;
            /** @description Seconds */
            readonly time_limit?: number | null;
            /** @description How often it was requeued and began anew */
            readonly restarts?: number;
            /** @description Of a Python cell that runs once for each task of its job: srun, torchrun, mpi. Its output is labelled: `[RANK] ` begins each line. ray: it runs once, beside a cluster of Ray, without labels */
            readonly launcher?: string | null;
            /** @description Of a cell with a launcher that failed: which rank failed first, how many others failed too, how many were ended with it */
            readonly ranks?: {
                readonly first?: {
                    readonly rank?: number;
                    readonly node?: string;
                    readonly exit_code?: number;
                };
                readonly also?: number;
                readonly ended?: number;
            } | null;
            /** @description Path */
            readonly stdout?: string | null;
            /** @description Path */
            readonly stderr?: string | null;
            readonly script_path?: string | null;
            readonly work_dir?: string | null;
            /** @description script, python, allocation, session; of a step: script, python, command, process, kernel */
            readonly kind?: string | null;
            /** @description Of a step: the key of its allocation */
            readonly allocation?: string | null;
            /** @description Of an allocation that is a running job which was joined: the ID of the job */
            readonly joined?: string | null;
            /** @description Of a cell that runs in a process, or in a kernel: the key of the step that this is */
            readonly process?: string | null;
            /** @description Of a kernel of a notebook, of the allocation that it asked for, and of a cell that another notebook runs in it */
            readonly kernel?: components["schemas"]["Kernel"] | null;
            /** @description Of an allocation, or a session, that has begun */
            readonly gpus?: number | null;
            /** @description Of a process that cells run in, asked for alone: bytes of its memory on its node (resident), and the most there were so far */
            readonly memory?: {
                readonly now: number;
                readonly most: number;
            };
            /** @description Of an allocation: seconds without use after which it ends; null: it ends with its first step */
            readonly lease?: number | null;
            /** @description Whether an allocation outlives the kernel that asked for it; null for what is none */
            readonly keep?: boolean | null;
            /** @description Of an allocation that is kept: the path of the notebook whose next kernel it is for */
            readonly kept_for?: string | null;
            /**
             * @description Of an allocation that was given back: by whom it belongs to, or because its kernel was killed
             * @enum {string|null}
             */
            readonly released?: "asked" | "forgotten" | null;
            /** @description Of a session: how far it is, and where. Its name is the label */
            readonly session?: components["schemas"]["Session"] | null;
            readonly label?: string | null;
            /** @description While what it takes along travels to a cluster behind SSH: bytes that have arrived, and of how many. Cancelled meanwhile, it is not submitted */
            readonly sending?: {
                readonly done: number;
                readonly total: number;
            } | null;
            readonly state_since?: number | null;
            readonly finished?: boolean;
            /** @description false: the controller does not answer; the state is the last one known */
            readonly known: boolean;
            readonly unknown_since?: number | null;
            readonly estimated_start?: number | null;
            /** @description Of a job that waits and that a user looks at: the running job that has what it waits for and reaches its time limit first */
            readonly next_end?: {
                readonly id: string;
                /** @description Empty for a job of another user */
                readonly name: string;
                /** @description Whether it is a job of this user */
                readonly own: boolean;
                /** @description Seconds since the epoch */
                readonly time: number;
            } | null;
            readonly account?: string | null;
            readonly qos?: string | null;
            /** @description Job directory */
            readonly folder?: string | null;
            /** @description How sbatch was run */
            readonly argv?: readonly string[] | null;
            /** @description Over SSH, with the first Python cell on a cluster that names no environment: those on the cluster */
            readonly environment_offer?: string | null;
            readonly warnings?: readonly string[];
            /** @description Of a job that was just submitted, why it may never run, from what is known of the cluster */
            readonly doubts?: readonly string[];
            /** @description Tasks of an array by state */
            readonly tasks?: {
                readonly [key: string]: number;
            } | null;
            /** @description Of an array, its first task that has failed; null where none is known */
            readonly failed_task?: {
                /** @description Its index, as in --array */
                readonly task: number;
                readonly state: string;
                readonly exit_code: number | null;
                readonly signal: number | null;
            } | null;
            /** @description Of a heterogeneous job, in their order; null for any other */
            readonly components?: readonly {
                readonly id: string;
                readonly state: string;
                readonly nodes: string;
                readonly partition: string;
            }[] | null;
            /** @description Tasks of an array as --array takes them, empty where that is not known; null for a job that is none */
            readonly array?: string | null;
            /** @description Of a task of an array: its index, which differs from that in `id` in an array in parts */
            readonly task?: number | null;
            /** @description Of an array that was submitted in parts, since it has more tasks than Slurm takes: the arrays that Slurm knows, each with the index that is its index 0 */
            readonly parts?: readonly {
                readonly offset: number;
                readonly id: string | null;
                readonly state: string;
            }[] | null;
            /** @description Names of the parameters of its tasks */
            readonly sweep?: readonly string[] | null;
            /** @description Folders that travel with it. state: there (it is not over), coming (results are on their way back), back, elsewhere (they come back to the machine that it was submitted from) */
            readonly stage?: {
                readonly folders: readonly {
                    readonly source: string;
                    readonly dest: string;
                }[];
                /** @description On the node's own disk */
                readonly local: string | null;
                /** @enum {unknown} */
                readonly state: "there" | "coming" | "back" | "elsewhere";
                /** @description Bytes */
                readonly done: number;
                /** @description Bytes */
                readonly total: number;
                /** @description That came back */
                readonly files: number | null;
                /** @description Of these files */
                readonly bytes: number | null;
                /** @description Changed here, too, and therefore left on the cluster: the first twenty */
                readonly left: readonly string[];
                /** @description Left on the cluster because programs of this computer run them by themselves: the first twenty. bringResults with `also` copies them */
                readonly held?: readonly string[];
                /** @description Never copied back, such as links that lead out of the folder: the first twenty */
                readonly refused?: readonly string[];
                readonly error: string | null;
                /** @description Not all came back, also not after several tries: bringResults tries again */
                readonly given_up: boolean;
            } | null;
            readonly error?: components["schemas"]["Problem"] | null;
        };
        readonly Act: {
            readonly id: string;
            readonly cluster: string;
            /** @enum {unknown} */
            readonly act: "cancel" | "hold" | "release" | "requeue" | "requeuehold" | "suspend" | "resume" | "limit";
            /** @enum {unknown} */
            readonly state: "running" | "stopping" | "stopped" | "finished";
            /** @description Number of jobs */
            readonly total: number;
            /** @description Number of jobs that were handled */
            readonly done: number;
            /** @description Number of jobs among them that Slurm left as they were */
            readonly failed: number;
            /** @description The first of those failures */
            readonly error: components["schemas"]["Problem"] | null;
            /** @description Whether it has ended, and its client did not wait for the result */
            readonly unread: boolean;
        };
        readonly Tasks: {
            /** @description task, state, exit_code, signal, start_time, end_time, nodes, reason, reason_text; others may come */
            readonly columns: readonly string[];
            /** @description A row a task, in the order of the tasks; null for what is not known */
            readonly rows: readonly (readonly unknown[])[];
            /** @description Of the parameters; empty where they were not asked for */
            readonly names: readonly string[];
            /** @description Literals of Python; a row a task, as above */
            readonly parameters: readonly (readonly string[])[];
        };
        readonly Values: {
            /** @description Task and file (base64); null is one that is too large for this, and is read as output */
            readonly values: readonly (readonly unknown[])[];
            /** @description Ask again from here */
            readonly next: number | null;
        };
        readonly Report: {
            readonly id: string;
            readonly state: string;
            /**
             * @description Who told: accounting, the nodes of a running job, or what ran the cell
             * @enum {string|null}
             */
            readonly source: "sacct" | "sstat" | "runner" | null;
            /** @description Seconds */
            readonly elapsed?: number | null;
            /** @description Seconds */
            readonly time_limit?: number | null;
            readonly cpus?: number | null;
            /** @description Seconds */
            readonly cpu_time?: number | null;
            /** @description 0 to 1 */
            readonly cpu_efficiency?: number | null;
            /** @description Bytes */
            readonly memory_peak?: number | null;
            /** @description Bytes */
            readonly memory_asked?: number | null;
            /** @description 0 to 1 */
            readonly memory_efficiency?: number | null;
            readonly gpus_asked?: number | null;
            readonly gpus: readonly {
                readonly name?: string;
                /** @description 0 to 1 */
                readonly utilization?: number | null;
                /** @description Bytes */
                readonly memory_used?: number | null;
                /** @description Bytes */
                readonly memory_total?: number | null;
            }[];
            /** @description What could not be told, and why */
            readonly notes: readonly string[];
        };
        readonly Usage: {
            readonly node: string | null;
            /** @description That the job has there */
            readonly cpus: number | null;
            /** @description Bytes that the job has there */
            readonly memory: number | null;
            /** @description That the job has there */
            readonly gpus: number;
            readonly points: readonly {
                /** @description Seconds since the epoch, by the clock of the node */
                readonly time: number;
                /** @description How many were busy since the point before */
                readonly cpus: number;
                /** @description Bytes */
                readonly memory: number;
                /** @description How busy its GPUs were, 0 to 1 */
                readonly gpu: number | null;
                /** @description Bytes */
                readonly gpu_memory: number | null;
            }[];
            /** @description What is not measured, and why; empty: nothing is missing */
            readonly note: string;
        };
        readonly ForeignSubmission: {
            /** @description The batch script */
            readonly script: string;
            /** @description Options of sbatch, each a word: `--partition=gpu` */
            readonly options: readonly string[];
        };
        readonly Record: {
            readonly key: string;
            readonly id: string | null;
            /** @enum {unknown} */
            readonly kind: "script" | "python";
            readonly created: number;
            readonly label?: string | null;
            readonly name?: string | null;
            /** @description What the script is called */
            readonly script: string;
            /** @description What tracebacks call a Python cell */
            readonly filename?: string | null;
            /** @description How sbatch was run */
            readonly argv: readonly string[];
            /** @description Of sbatch as typed; null where an older version submitted it */
            readonly options?: readonly string[] | null;
            readonly args?: readonly string[] | null;
            /** @description Where sbatch was run */
            readonly cwd?: string | null;
            readonly work_dir?: string | null;
            readonly values?: {
                readonly in?: readonly string[];
                readonly out?: readonly string[];
                readonly limit?: number;
            } | null;
            /** @description Name or path of the environment as typed */
            readonly env?: string | null;
            /** @description What that was when the job was submitted */
            readonly environment?: Record<string, unknown> | null;
            /** @description As asked for */
            readonly python?: string | null;
            /** @description Of a script: a runner starts it, so that its batch script is another one */
            readonly watched?: boolean | null;
            readonly default_python?: string | null;
            readonly stage?: components["schemas"]["Stage"];
            /** @description What a Python cell found on its node */
            readonly used?: Record<string, unknown> | null;
            readonly versions: {
                readonly jupyter_slurm?: string | null;
                readonly slurm?: string | null;
                readonly python?: string | null;
                readonly ipython?: string | null;
            };
            readonly notebook?: string | null;
            /** @description Of a job that gets or makes an image: which, and from what */
            readonly image?: Record<string, unknown> | null;
            /** @description Names of the parameters of an array, and how many rows there are */
            readonly sweep?: Record<string, unknown> | null;
            /** @description Of an array in parts: all tasks that were asked for, indices of a part, the parts that there are, and which one this is */
            readonly part?: Record<string, unknown> | null;
            readonly git?: {
                readonly commit?: string;
                readonly branch?: string | null;
                readonly dirty?: boolean | null;
            } | null;
            /** @description How often it begins anew at most */
            readonly resume?: number | null;
            /** @description How a cell that runs once for each task was started */
            readonly launcher?: string | null;
            /** @description Key of the job that this one repeats */
            readonly resubmitted_from?: string | null;
        };
        /** @description How a command on the login node ended */
        readonly LoginCommandEnd: {
            /** @description 128 and the number of a signal if one ended it */
            readonly exit_code: number;
            /** @description Why a limit ended it; empty if none did */
            readonly reason: string;
        };
        /** @description Absolute, or relative to the home directory (also with ~/); bytes that are not UTF-8 are U+DC80-DCFF */
        readonly FilePath: string;
        /** @description A file or directory of the cluster */
        readonly FileEntry: {
            /** @description Its last part */
            readonly name: string;
            /**
             * @description Of the target of a link; other if that does not exist
             * @enum {string}
             */
            readonly type: "file" | "directory" | "other";
            readonly is_link: boolean;
            readonly size: number;
            /** @description Seconds since the epoch */
            readonly modified: number;
            /** @description Changes with the content */
            readonly version: string;
        };
        readonly FileList: {
            /** @description The absolute path */
            readonly path: string;
            readonly entries: readonly components["schemas"]["FileEntry"][];
            /** @description False: the directory has more entries than are listed */
            readonly is_whole: boolean;
        };
        readonly FileChange: {
            readonly entry: components["schemas"]["FileEntry"] | null;
        };
        readonly FilePart: {
            readonly path: components["schemas"]["FilePath"];
            /** @description Random; the same for all parts of a file */
            readonly draft: string;
            /** @description Bytes in the parts before */
            readonly offset: number;
            readonly is_last: boolean;
            /** @description At most 8 MiB before the encoding */
            readonly data: string;
            /** @description The file must have this version (empty: must not exist); without it, it is overwritten */
            readonly version?: string;
        };
        /** @description A shell of the user that is kept on the login node */
        readonly Terminal: {
            readonly id: string;
            /** @description The job in which the shell runs; null: the login node */
            readonly job: string | null;
            /** @description Name of the job, session, kernel or allocation, if it has one */
            readonly name: string | null;
            /** @description Node of the shell in a job, if it is known */
            readonly node: string | null;
            /** @description The host that keeps it */
            readonly host: string;
            /** @description Seconds since the epoch, by the clock of the host */
            readonly started: number;
        };
        readonly TerminalSocket: {
            /** @description Path of a Unix socket of this computer */
            readonly socket: string;
            /** @description Whether the socket, asked by a frame `f` as the first one, answers with two file descriptors */
            readonly has_files?: boolean;
        };
        readonly CommandResult: {
            readonly exit_code: number;
            readonly stdout: string;
            readonly stderr: string;
            /** @description What can be done about a failure */
            readonly hint?: string;
            readonly table: {
                /** @description What stands above it */
                readonly title?: string;
                readonly columns: readonly string[];
                readonly rows: readonly (readonly string[])[];
            } | null;
        };
        readonly Options: {
            readonly command?: string;
            /** @description Of Slurm: major, minor; empty when unknown */
            readonly version: readonly number[];
            readonly options: readonly {
                readonly name: string;
                readonly short: string | null;
                /** @description All its long names */
                readonly names?: readonly string[];
                /** @enum {unknown} */
                readonly takes_value: "yes" | "no" | "optional";
                readonly help: string | null;
            }[];
        };
        readonly Names: {
            /** @description When it was learnt, in seconds since the epoch; null: not yet */
            readonly taken: number | null;
            readonly names: readonly {
                readonly name: string;
                /** @description A few words: state, limit, number of nodes */
                readonly about: string;
            }[];
        };
        readonly AccountedUsage: {
            /** @description Why there are no jobs; empty if there are some */
            readonly note?: string;
            /** @description When accounting was asked */
            readonly asked_at: number;
            readonly start: number;
            readonly end: number;
            /** @description Whose jobs are meant; null: those of accounts */
            readonly user: string | null;
            /** @description Whose jobs are meant, the one that was asked for first */
            readonly accounts: readonly string[];
            readonly sums: readonly {
                readonly user: string;
                readonly account: string;
                readonly partition: string;
                readonly qos: string;
                /** @description Empty: without a type, or no GPUs */
                readonly gpu_type: string;
                readonly jobs: number;
                readonly cpu_seconds: number;
                readonly gpu_seconds: number;
            }[];
            readonly jobs: readonly {
                readonly id: string;
                readonly user: string;
                readonly account: string;
                readonly partition: string;
                readonly qos: string;
                readonly state: string;
                readonly name: string;
                /** @description Within the period */
                readonly seconds: number;
                readonly cpus: number;
                readonly gpus: number;
                readonly gpu_type: string;
                /** @description Within the period, as accounting shortens it */
                readonly start: number | null;
                readonly end: number | null;
            }[];
            /** @description Jobs that are not told one by one, the earliest */
            readonly left_out: number;
            /** @description What the site takes, as the profile says it */
            readonly cost: Record<string, unknown> | null;
        };
        readonly Queue: {
            /** @description When Slurm was asked */
            readonly asked_at: number;
            /** @description Since when it does not answer; null where it does */
            readonly unknown_since: number | null;
            /** @description Why not, where it does not */
            readonly said: string;
            /** @description Seconds between two questions at least */
            readonly interval: number;
            /** @description The person's name on the cluster, whose own jobs are left out */
            readonly user: string;
            /** @description Seconds by which the clock of the cluster, which the times of the rows are of, is ahead of the agent's */
            readonly clock_offset?: number;
            /** @description The site shows a person their own jobs only (PrivateData=jobs), and perhaps those of accounts that they coordinate */
            readonly is_private: boolean;
            /** @description id, tasks, user, state, reason, partition, account, qos, nodes, submit_time, start_time, time_limit; others may come */
            readonly columns: readonly string[];
            /** @description A job each, or the tasks of an array that still wait: `tasks` is how many, null for any other job. Times are seconds since the epoch */
            readonly rows: readonly (readonly unknown[])[];
            /** @description The reasons of the rows, each with a sentence that explains it */
            readonly reasons?: {
                readonly [key: string]: string;
            };
        };
        readonly RunningUse: {
            /** @description Time of the query to Slurm */
            readonly asked_at: number;
            /** @description Time since which Slurm does not answer; null if it answers */
            readonly unknown_since: number | null;
            /** @description Error of Slurm, if it does not answer */
            readonly said: string;
            /** @description The user's name on the cluster */
            readonly user: string;
            /** @description The site shows only your jobs (PrivateData=jobs) */
            readonly is_private: boolean;
            /** @description The sums with the most GPUs and then CPUs come first */
            readonly sums: readonly {
                readonly user: string;
                readonly account: string;
                readonly partition: string;
                /** @description Number of running jobs and array tasks */
                readonly jobs: number;
                readonly cpus: number;
                /** @description Number by type; the key is empty if Slurm does not say the type */
                readonly gpus: {
                    readonly [key: string]: number;
                };
            }[];
        };
        readonly Room: {
            /** @description Time of the query */
            readonly asked_at: number;
            /** @description Time since which the cluster does not answer; null if it answers */
            readonly unknown_since: number | null;
            /** @description Error of the cluster, if it does not answer */
            readonly said: string;
            /** @description Disks and quotas in the order of the directories; a disk or quota of several directories is listed for the first one */
            readonly spaces: readonly components["schemas"]["RoomSpace"][];
            /** @description Reports of the site that the profile names */
            readonly reports: readonly components["schemas"]["RoomReport"][];
            /** @description Directories of jupyter_slurm */
            readonly kept: readonly components["schemas"]["RoomKept"][];
        };
        readonly RoomSpace: {
            /** @description Directory on the cluster; null for a quota of another file system */
            readonly folder: string | null;
            readonly file_system: string;
            /** @description disk, quota, Lustre, XFS, BeeGFS or GPFS; others may come */
            readonly tool: string;
            /** @description Owner of a quota: user ana, group lab, project 7; empty for a disk, which all users share */
            readonly owner: string;
            /** @description Bytes; null if unknown */
            readonly used: number | null;
            /** @description Bytes; null if there is none */
            readonly limit: number | null;
            /** @description Bytes that may still be written; null if there is no limit */
            readonly free: number | null;
            /** @description Number of files; null if unknown */
            readonly files: number | null;
            /** @description Maximum number of files; null if there is none */
            readonly files_limit: number | null;
        };
        readonly RoomReport: {
            /** @description File or command */
            readonly name: string;
            /** @description Beginning of its text */
            readonly text: string;
        };
        readonly RoomKept: {
            /** @description jobs (job directories and staged files) or images; others may come */
            readonly kind: string;
            readonly folder: string;
            /** @description Bytes; null if unknown */
            readonly used: number | null;
        };
        readonly Resources: {
            /** @description When Slurm was asked */
            readonly asked_at: number;
            /** @description Since when it does not answer; null where it does */
            readonly unknown_since: number | null;
            /** @description Why not, where it does not */
            readonly said: string;
            /** @description Of all nodes */
            readonly gpus: readonly components["schemas"]["Gpus"][];
            /** @description Of all nodes */
            readonly gres?: readonly components["schemas"]["OtherGres"][];
            readonly partitions: readonly {
                readonly name: string;
                readonly is_default: boolean;
                /** @description UP, DOWN, DRAIN, INACTIVE; may be some minutes old */
                readonly state: string;
                /** @description Seconds; null is no limit */
                readonly time_limit: number | null;
                readonly default_time: number | null;
                /** @description How many by state: IDLE, MIXED, ALLOCATED, DRAIN, DOWN … */
                readonly nodes: {
                    readonly [key: string]: number;
                };
                readonly cpus: number;
                readonly cpus_free: number;
                readonly gpus: readonly components["schemas"]["Gpus"][];
                readonly gres?: readonly components["schemas"]["OtherGres"][];
            }[];
            readonly nodes: readonly {
                readonly name: string;
                /** @description Base state of Slurm */
                readonly state: string;
                readonly flags: readonly string[];
                /** @description Whether jobs can start on it */
                readonly is_up: boolean;
                readonly partitions: readonly string[];
                readonly cpus: number;
                /** @description Allocated */
                readonly cpus_used: number;
                /** @description MiB */
                readonly memory: number;
                /** @description Allocated, in MiB */
                readonly memory_used: number;
                /** @description Processes that run or want to, averaged over a minute */
                readonly load: number | null;
                readonly gpus: readonly {
                    /** @description Empty where it has none */
                    readonly type: string;
                    readonly total: number;
                    /** @description Allocated */
                    readonly used: number;
                }[];
                readonly gres?: readonly components["schemas"]["NodeGres"][];
                readonly features: readonly string[];
                /** @description Why it is down or drained, in an administrator's words */
                readonly reason: string;
            }[];
            /** @description Resources of your running jobs: jobs, in which an array is one; tasks, Slurm's count, in which each array task is a job; and trackable resources by Slurm's names (mem in bytes). Null: not known */
            readonly use: {
                readonly [key: string]: number;
            } | null;
            /** @description Those that are enforced and bear upon this person */
            readonly limits: readonly {
                /**
                 * @description Whose use counts
                 * @enum {unknown}
                 */
                readonly scope: "user" | "account" | "qos" | "qos-user";
                /** @description Of the account, or the QOS */
                readonly name: string;
                /** @enum {unknown} */
                readonly kind: "in-use" | "job" | "minutes" | "jobs" | "submitted";
                /** @description As Slurm names it (gres/gpu:a100); empty for jobs */
                readonly resource: string;
                /** @description mem in bytes */
                readonly most: number;
                readonly used: number | null;
                /** @description Empty: any */
                readonly partition: string;
            }[] | null;
            /** @description What the site profile says: unit, cpu_hour, gpu_hour (a number or one for each type), and how many times that by partition */
            readonly cost: {
                readonly unit: string;
                readonly cpu_hour?: number;
                readonly gpu_hour?: number | {
                    readonly [key: string]: number;
                };
                readonly partitions?: {
                    readonly [key: string]: number;
                };
            } | null;
        };
        readonly Gpus: {
            /** @description Empty where it has none */
            readonly type: string;
            readonly total: number;
            /** @description Allocated */
            readonly used: number;
            /** @description Not allocated, on nodes where a job could start now */
            readonly free: number;
            /** @description On one node */
            readonly most: number;
            /** @description Not allocated, free within seconds: Slurm cleans up an ended job on their nodes (COMPLETING) */
            readonly soon?: number;
        };
        readonly NodeGres: {
            /** @description As in --gres=NAME:TYPE:COUNT */
            readonly name: string;
            /** @description Empty where it has none */
            readonly type: string;
            readonly total: number;
            /** @description Allocated */
            readonly used: number;
        };
        /** @description A generic resource that is not a GPU or a part of one, such as npu or tpu */
        readonly OtherGres: {
            /** @description As in --gres=NAME:TYPE:COUNT */
            readonly name: string;
            /** @description Empty where it has none */
            readonly type: string;
            readonly total: number;
            /** @description Allocated */
            readonly used: number;
            /** @description Not allocated, on nodes where a job could start now */
            readonly free: number;
            /** @description On one node */
            readonly most: number;
            /** @description Not allocated, free within seconds: Slurm cleans up an ended job on their nodes (COMPLETING) */
            readonly soon?: number;
        };
        readonly Cleaned: {
            readonly removed: readonly string[];
            readonly kept: number;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
