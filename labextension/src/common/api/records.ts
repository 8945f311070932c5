/** Records of the agent: checks of their type, their identity and their order. */
import type { IActProgress, ICluster, IJob, IPrompt, ITaskRows } from "./objects";

const identities = new WeakMap<IJob, string>();

/** Return the identity of a job on this page: the IDs of Slurm wrap, keys do not. */
export function identity(job: IJob): string {
  let known = identities.get(job);
  if (known === undefined) {
    known = JSON.stringify([job.cluster, job.key ?? [job.id, job.submit_time]]);
    identities.set(job, known);
  }
  return known;
}

/** Give a job the identity of its earlier state: Slurm sends a new time of submission for a requeued job. */
export function inheritIdentity(job: IJob, before: IJob): void {
  if (!identities.has(job)) {
    identities.set(job, identity(before));
  }
}

/** Whether a job is in the same state of the same run: a requeued job comes back to the states that it had. */
export function isSameState(before: IJob, job: IJob): boolean {
  return before.state === job.state && (before.restarts ?? 0) === (job.restarts ?? 0);
}

/** Return the reference of a job in a request; null as long as it has none. */
export function referenceOf(job: IJob): string | null {
  return job.key ?? job.id;
}

/** Return the number of a job, for a task that of its array. */
export function numberOf({ id }: IJob): number {
  return Number.parseInt(id ?? "", 10) || 0;
}

/** Compare jobs by their time of submission. A job without a time is being submitted. Slurm sends whole seconds. */
export function newestFirst(a: IJob, b: IJob): number {
  const time = (job: IJob): number => Math.floor(job.submit_time ?? Number.MAX_SAFE_INTEGER);
  return time(b) - time(a) || numberOf(b) - numberOf(a);
}

/** Whether a job has parts of its own: an array has tasks, an allocation has steps. */
export function hasParts({ id, tasks, kind, isForeign }: IJob): boolean {
  return id !== null && !isForeign && (tasks !== null || kind === "allocation");
}

/** Return the tasks of an array as jobs of their own. */
export function taskJobs(array: IJob, { columns, rows }: ITaskRows): IJob[] {
  return rows.map((row): IJob => {
    const values = Object.fromEntries(columns.map((name, index) => [name, row[index]]));
    const time = (name: string): number | null =>
      typeof values[name] === "number" ? values[name] : null;
    const text = (name: string): string => (typeof values[name] === "string" ? values[name] : "");
    return {
      ...array,
      key: null, // the key belongs to the array
      id: `${array.id ?? ""}_${String(values["task"])}`,
      tasks: null,
      state: text("state"),
      reason: text("reason"),
      reason_text: text("reason_text"),
      next_step: "",
      nodes: text("nodes") || null,
      start_time: time("start_time"),
      end_time: time("end_time"),
      exit_code: time("exit_code"),
    };
  });
}

export function isJob(data: unknown): data is IJob {
  return typeof data === "object" && data !== null && "cluster" in data && "state" in data;
}

export function isCluster(data: unknown): data is ICluster {
  return typeof data === "object" && data !== null && "id" in data && "poll" in data;
}

export function isActProgress(data: unknown): data is IActProgress {
  return typeof data === "object" && data !== null && "act" in data && "total" in data;
}

export function isPrompt(data: unknown): data is IPrompt {
  return typeof data === "object" && data !== null && "id" in data && "questions" in data;
}

/** Whether a cluster can be reached: it needs no login, or there is one and the connection works. */
export function isReached({ connection }: ICluster): boolean {
  return !connection || connection.state === "connected";
}

/** Whether a cluster has no login, so that nothing is known of it. */
export function isUnknown({ connection }: ICluster): boolean {
  return connection?.state === "disconnected" || connection?.state === "connecting";
}
