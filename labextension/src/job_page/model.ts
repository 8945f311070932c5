/** One job: what becomes of it and what it prints, by one stream while somebody looks. No DOM, no requests of its own. */
import type { IJob, IProblem, IServerEvent } from "../common/api/objects";
import { toProblem } from "../common/api/problem";
import { isJob } from "../common/api/records";
import { isFinished, stateKind } from "../common/job_states";
import type { IJobsModel } from "../common/jobs_model";
import { newKey } from "../common/launch_request";
import { Model } from "../common/observable_model";
import { defaultSleep } from "../jobs/model";
import { STREAMS, type IJobApi, type Stream } from "./api";
import { Log } from "./log_model";

/** Waits between attempts to follow a job, in milliseconds. */
const SHORTEST_RETRY = 2_000;
const LONGEST_RETRY = 60_000;

/** Which job: its key, its id, or that of a task (`12_3`). */
export interface IJobPlace {
  readonly cluster: string;
  readonly job: string;
}

/** A state that was seen, or why it lasted. Seconds since the epoch. */
export interface ISeen {
  readonly state: string;
  readonly reason: string;
  readonly time: number;
}

/** Return which job arguments of a command, or of a saved layout, name; null: none. */
export function jobPlaceOf(args: {
  readonly cluster?: unknown;
  readonly job?: unknown;
}): IJobPlace | null {
  const { cluster, job } = args;
  const name = typeof job === "number" ? String(job) : job;
  return typeof cluster === "string" && typeof name === "string" && cluster !== "" && name !== ""
    ? { cluster, job: name }
    : null;
}

/** Return the bytes that base64 stands for. */
function bytesOf(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

export class JobPage extends Model {
  private readonly _ended = new AbortController();
  private _watch: AbortController | null = null;
  private _job: IJob | null = null;
  private _problem: IProblem | null = null;
  private _actProblem: IProblem | null = null;
  private _trouble = "";
  /** What the jobs' model had of it last: it may lag behind the stream. */
  private _told: IJob | undefined;
  private _seen: readonly ISeen[] = [];
  private _cancelledIn: string | null = null;
  private _isResubmitting = false;
  /** Of the submission that got no answer. */
  private _key: string | null = null;
  private readonly _logProblems = new Map<Stream, IProblem>();
  readonly logs: Readonly<Record<Stream, Log>>;

  constructor(
    readonly api: IJobApi,
    readonly jobs: IJobsModel,
    readonly place: IJobPlace,
    private readonly _sleep: typeof defaultSleep = defaultSleep,
  ) {
    super();
    const { cluster, job } = place;
    this.logs = {
      stdout: new Log(api.reader(cluster, job, "stdout")),
      stderr: new Log(api.reader(cluster, job, "stderr")),
    };
    jobs.changed.connect(this._look);
  }

  /** Null until it is known. */
  get job(): IJob | null {
    return this._job;
  }

  /** Why nothing is known of the job, or nothing new. */
  get problem(): IProblem | null {
    return this._problem ?? (this._trouble === "" ? null : { detail: this._trouble });
  }

  /** What went wrong with what the person did last. */
  get actProblem(): IProblem | null {
    return this._actProblem;
  }

  /** What the job was in and why, since the page is open. */
  get seen(): readonly ISeen[] {
    return this._seen;
  }

  /** The streams that have a file of their own; of an array, each task has. */
  get streams(): readonly Stream[] {
    const job = this._job;
    if (job === null || (typeof job.array === "string" && !job.stdout)) {
      return [];
    }
    return job.stderr && job.stderr === job.stdout ? ["stdout"] : STREAMS;
  }

  /** Why a stream cannot be read. */
  logProblem(stream: Stream): IProblem | null {
    return this._logProblems.get(stream) ?? null;
  }

  get isCancelling(): boolean {
    return this._cancelledIn !== null && this._cancelledIn === this._job?.state;
  }

  /** Only what was submitted here, and has a text of its own, can be submitted again. */
  get isRepeatable(): boolean {
    const kind = this._job?.kind;
    return Boolean(this._job?.key) && (kind === "script" || kind === "python");
  }

  get isResubmitting(): boolean {
    return this._isResubmitting;
  }

  override dispose(): void {
    super.dispose();
    this._ended.abort();
    this._watch?.abort();
    this.jobs.changed.disconnect(this._look);
  }

  /** Where it is found again later: ids wrap, keys do not. */
  get lasting(): IJobPlace {
    const { cluster, job } = this.place;
    return { cluster, job: (this._isTask() ? null : this._job?.key) ?? job };
  }

  /** Whether a place means this job. */
  isAt({ cluster, job }: IJobPlace): boolean {
    const names = [this.place.job, this.lasting.job, this._job?.id];
    return cluster === this.place.cluster && names.includes(job);
  }

  /** Somebody looks, or nobody does: then nothing is asked, and no stream is open. */
  setVisible(visible: boolean): void {
    if (this.isDisposed || visible === (this._watch !== null)) {
      return;
    }
    this._watch?.abort();
    this._watch = visible ? new AbortController() : null;
    if (this._watch !== null) {
      void this._run(this._watch.signal);
    }
  }

  /** Ask again, at once. */
  refresh(): void {
    if (this._watch !== null) {
      this.setVisible(false);
      this.setVisible(true);
    }
  }

  async cancel(): Promise<void> {
    if (this._job === null || this.isCancelling) {
      return;
    }
    this._cancelledIn = this._job.state;
    this._act(null);
    try {
      this._take(await this.api.cancel(this.place.cluster, this.place.job));
    } catch (error) {
      this._cancelledIn = null;
      this._act(toProblem(error, "Whether the job was cancelled is not known: look again."));
    }
    this._changed.emit();
  }

  /** Submit the same again; null where that was refused. What got no answer is asked again under its key. */
  async resubmit(): Promise<IJob | null> {
    if (this._isResubmitting) {
      return null;
    }
    const { cluster, job } = this.place;
    this._key ??= newKey();
    this._isResubmitting = true;
    this._act(null);
    try {
      const made = await this.api.resubmit(cluster, job, this._key);
      this._key = null;
      return made;
    } catch (error) {
      const problem = toProblem(error, "Press it again: there will be one job, not two.");
      if (problem.type?.startsWith("urn:jupyter-slurm:")) {
        this._key = null; // an answer, not the lack of one
      }
      this._act(problem);
      return null;
    } finally {
      this._isResubmitting = false;
      this._changed.emit();
    }
  }

  private _isTask(): boolean {
    return this.place.job.includes("_");
  }

  private _act(problem: IProblem | null): void {
    this._actProblem = problem;
    this._changed.emit();
  }

  /** Look until it is over, or nobody looks; come back by itself after a failure, ever more rarely while it lasts. */
  private async _run(signal: AbortSignal): Promise<void> {
    for (let failures = 0; !signal.aborted; failures += 1) {
      try {
        this._take(await this.api.job(this.place.cluster, this.place.job));
        await this._readLogs();
        this._problem = null;
        this._changed.emit();
        if (this._job !== null && isFinished(this._job.state)) {
          return;
        }
        await this._follow(signal, () => {
          failures = -1;
        });
      } catch (error) {
        if (this._watch?.signal === signal) {
          this._problem = toProblem(error, "It is tried again by itself.");
          this._changed.emit();
          if (this._problem.status === 404) {
            return;
          }
        }
      }
      const isOver = failures < 0 && this._job !== null && isFinished(this._job.state);
      const wait = Math.min(LONGEST_RETRY, SHORTEST_RETRY * 2 ** Math.max(0, failures));
      await this._sleep(isOver ? 0 : wait, signal); // what it printed last may still be read
    }
  }

  /** Read what was printed since the last look; the end of it at first, or where that is much. */
  private async _readLogs(): Promise<void> {
    for (const stream of this.streams) {
      try {
        await this.logs[stream].catchUp();
        this._logProblems.delete(stream);
      } catch (error) {
        this._logProblems.set(stream, toProblem(error, "It is tried again by itself."));
      }
      this._changed.emit();
    }
  }

  private async _follow(signal: AbortSignal, live: () => void): Promise<void> {
    const { stdout, stderr } = this.logs;
    const offsets = { stdout: stdout.end, stderr: stderr.end };
    const stream = await this.api.follow(this.place.cluster, this.place.job, offsets, signal);
    live();
    for await (const { event, data } of stream) {
      if (signal.aborted) {
        return;
      }
      this._hear(event, data);
      this._changed.emit();
    }
  }

  private _hear(event: IServerEvent["event"], data: unknown): void {
    if (event === "job" && isJob(data)) {
      this._take(data);
    } else if (event === "output") {
      const told = data as { stream: Stream; offset: number; size: number; data: string };
      if (STREAMS.includes(told.stream)) {
        this.logs[told.stream].take(told.offset, bytesOf(told.data), told.size);
      }
    } else if (event === "trouble") {
      this._trouble = (data as { detail: string }).detail;
    } else if (event === "error") {
      this._problem = data as IProblem;
    }
  }

  private _take(job: IJob): void {
    const { state, state_since } = job;
    const reason = job.reason_text || job.reason || "";
    const before = this._seen.at(-1);
    if (before?.state !== state || (before.reason !== reason && stateKind(state) === "pending")) {
      const time = before?.state === state ? this.jobs.now : (state_since ?? this.jobs.now);
      this._seen = [...this._seen, { state, reason, time }];
    }
    this._job = job;
    this._changed.emit();
  }

  /** A job that is over may be requeued: the jobs' model hears of it. */
  private readonly _look = (): void => {
    const known = this._job;
    if (known === null || this._isTask() || !isFinished(known.state)) {
      this._changed.emit();
      return;
    }
    const isSame = ({ cluster, key, id }: IJob): boolean =>
      cluster === known.cluster && key === known.key && id === known.id;
    const told = this.jobs.jobs.find(isSame);
    if (told !== undefined && told !== this._told && !isFinished(told.state)) {
      this.refresh();
    }
    this._told = told;
  };
}
