/** What comes from the agent: whether it is what it should be, what tells one from the other, and their order. */
import type { ICluster, IJob, IPrompt, ITaskRows } from "./objects";

const identities = new WeakMap<IJob, string>();

/** A job's identity on this page: Slurm's ids wrap, keys do not. */
export function identity(job: IJob): string {
  let known = identities.get(job);
  if (known === undefined) {
    known = JSON.stringify([job.cluster, job.key ?? [job.id, job.submit_time]]);
    identities.set(job, known);
  }
  return known;
}

/** What a job is called in a request; null as long as it has no name. */
export function referenceOf(job: IJob): string | null {
  return job.key ?? job.id;
}

/** The number of a job, of an array for its tasks. */
export function numberOf({ id }: IJob): number {
  return Number.parseInt(id ?? "", 10) || 0;
}

/** A job without a time is just being submitted. Slurm tells whole seconds. */
export function newestFirst(a: IJob, b: IJob): number {
  const time = (job: IJob): number => Math.floor(job.submit_time ?? Number.MAX_SAFE_INTEGER);
  return time(b) - time(a) || numberOf(b) - numberOf(a);
}

/** Whether a job has parts of its own: an array has tasks, an allocation has steps. */
export function hasParts({ id, tasks, kind, isForeign }: IJob): boolean {
  return id !== null && !isForeign && (tasks !== null || kind === "allocation");
}

/** The tasks of an array as jobs of their own. */
export function taskJobs(array: IJob, { columns, rows }: ITaskRows): IJob[] {
  return rows.map((row): IJob => {
    const told = Object.fromEntries(columns.map((name, index) => [name, row[index]]));
    const time = (name: string): number | null =>
      typeof told[name] === "number" ? told[name] : null;
    const text = (name: string): string => (typeof told[name] === "string" ? told[name] : "");
    return {
      ...array,
      key: null, // that is the array's
      id: `${array.id ?? ""}_${String(told["task"])}`,
      tasks: null,
      state: text("state"),
      reason: text("reason"),
      reason_text: "",
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

export function isPrompt(data: unknown): data is IPrompt {
  return typeof data === "object" && data !== null && "id" in data && "questions" in data;
}

/** Whether a cluster answers: it needs no log-in, or there is one and the link is up. */
export function isReached({ connection }: ICluster): boolean {
  return !connection || connection.state === "connected";
}

/** Whether nothing is known of a cluster: nobody is logged in there. */
export function isUnknown({ connection }: ICluster): boolean {
  return connection?.state === "disconnected" || connection?.state === "connecting";
}
