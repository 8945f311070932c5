/**
 * Model of the page of a job: its states and its output, by one stream while visible. No DOM, no requests of its own.
 */
import type { TranslationBundle } from "@jupyterlab/translation";

import type { IJob, IProblem, IServerEvent } from "../common/api/objects";
import { isRefused, RequestError, toProblem } from "../common/api/problem";
import { defaultSleep } from "../common/api/retry";
import { isJob, isSameState } from "../common/api/records";
import { isFinished, stateKind } from "../common/job_states";
import type { IJobsModel } from "../common/jobs_model";
import { newRequestKey } from "../common/launch_request";
import { Model } from "../common/observable_model";
import { presentTime } from "../common/time_limit";
import { STREAMS, type IJobApi, type Stream } from "./api";
import { Log } from "./log/log_model";

/** Shortest and longest time between attempts to follow a job, in milliseconds. */
const MIN_RETRY_MS = 2_000;
const MAX_RETRY_MS = 60_000;
/** Size of the pieces of a download, and the largest log that is downloaded. */
const DOWNLOAD_PIECE_BYTES = 4 * 2 ** 20;
const MAX_DOWNLOAD_BYTES = 256 * 2 ** 20;

/** A job of a cluster, by its key, its ID, or that of a task (`12_3`). */
export interface IJobLocation {
  readonly cluster: string;
  readonly job: string;
}

/** An observed state, and its reason in words. */
export interface IObservedState {
  readonly state: string;
  readonly reason: string;
  /** Seconds since the epoch; null where the state began before the page observed the job. */
  readonly time: number | null;
}

/** Return the job that arguments of a command, or of a saved layout, name; null: none. */
export function parseJobLocation(args: {
  readonly cluster?: unknown;
  readonly job?: unknown;
}): IJobLocation | null {
  const { cluster, job } = args;
  const name = typeof job === "number" ? String(job) : job;
  return typeof cluster === "string" && typeof name === "string" && cluster !== "" && name !== ""
    ? { cluster, job: name }
    : null;
}

/** Return the bytes of a base64 text. */
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
  /** The job as the model of the jobs had it last, which may lag behind the stream. */
  private _lastListed: IJob | undefined;
  private _observedStates: readonly IObservedState[] = [];
  /** The job at the time of the request to cancel it. */
  private _cancelled: IJob | null = null;
  private _isResubmitting = false;
  /** Key of a submission without an answer. */
  private _key: string | null = null;
  private readonly _logProblems = new Map<Stream, IProblem>();
  readonly logs: Readonly<Record<Stream, Log>>;

  constructor(
    readonly api: IJobApi,
    readonly jobs: IJobsModel,
    readonly place: IJobLocation,
    private readonly _sleep: typeof defaultSleep = defaultSleep,
  ) {
    super();
    const { cluster, job } = place;
    this.logs = {
      stdout: new Log(api.reader(cluster, job, "stdout")),
      stderr: new Log(api.reader(cluster, job, "stderr")),
    };
    jobs.changed.connect(this._checkList);
  }

  /** The job; null until it is known. */
  get job(): IJob | null {
    return this._job;
  }

  /** Reason why nothing, or nothing new, is known of the job. */
  get problem(): IProblem | null {
    return this._problem ?? (this._trouble === "" ? null : { detail: this._trouble });
  }

  /** Problem of the last action of the user. */
  get actProblem(): IProblem | null {
    return this._actProblem;
  }

  /** States of the job and their reasons since the page was opened. */
  get observedStates(): readonly IObservedState[] {
    return this._observedStates;
  }

  /** The streams with a file of their own; of an array, each task has them. */
  get streams(): readonly Stream[] {
    const job = this._job;
    if (job === null || (typeof job.array === "string" && !job.stdout)) {
      return [];
    }
    return job.stderr && job.stderr === job.stdout ? ["stdout"] : STREAMS;
  }

  /** Whether there is output to look at, of this job or of its tasks. */
  get hasOutput(): boolean {
    return this.streams.length === 0 || STREAMS.some((stream) => this.logs[stream].size > 0);
  }

  /** Return the reason why a stream cannot be read. */
  logProblem(stream: Stream): IProblem | null {
    return this._logProblems.get(stream) ?? null;
  }

  /**
   * Return the whole output of a stream, in pieces.
   *
   * @throws RequestError - It cannot be read, or it is too large for the browser.
   */
  async wholeLog(stream: Stream, trans: TranslationBundle): Promise<Uint8Array<ArrayBuffer>[]> {
    const { cluster, job } = this.place;
    const read = this.api.reader(cluster, job, stream);
    const pieces: Uint8Array<ArrayBuffer>[] = [];
    for (let offset = 0; ;) {
      const { data, size } = await read(offset, DOWNLOAD_PIECE_BYTES);
      if (size > MAX_DOWNLOAD_BYTES) {
        throw new RequestError({
          detail: trans.__("The log has more than %1 MiB.", MAX_DOWNLOAD_BYTES / 2 ** 20),
          hint: trans.__("Copy its path, and read the file on the cluster."),
        });
      }
      pieces.push(new Uint8Array(data));
      offset += data.length;
      if (data.length === 0 || offset >= size) {
        return pieces;
      }
    }
  }

  get isCancelling(): boolean {
    const [before, job] = [this._cancelled, this._job];
    return before !== null && job !== null && isSameState(before, job);
  }

  /** Whether the job can be submitted again: only a job of jupyter_slurm with a text of its own can. */
  get isRepeatable(): boolean {
    const kind = this._job?.kind;
    return Boolean(this._job?.key) && (kind === "script" || kind === "python");
  }

  /** Whether the job was submitted elsewhere: Slurm may still have its script. */
  get isForeign(): boolean {
    return this._job !== null && this._job.key === null && this._job.id !== null;
  }

  get isResubmitting(): boolean {
    return this._isResubmitting;
  }

  override dispose(): void {
    super.dispose();
    this._ended.abort();
    this._watch?.abort();
    this.jobs.changed.disconnect(this._checkList);
  }

  /** The location under which the job is found later: IDs wrap, keys do not. */
  get permanentLocation(): IJobLocation {
    const { cluster, job } = this.place;
    return { cluster, job: (this._isTask() ? null : this._job?.key) ?? job };
  }

  /** Whether a location is that of this job. */
  isAt({ cluster, job }: IJobLocation): boolean {
    const names = [this.place.job, this.permanentLocation.job, this._job?.id];
    return cluster === this.place.cluster && names.includes(job);
  }

  /** Set whether the page is visible: a hidden page makes no requests and has no stream. */
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

  /** Load everything again, at once. */
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
    this._cancelled = this._job;
    this._act(null);
    try {
      this._update(await this.api.cancel(this.place.cluster, this.place.job));
    } catch (error) {
      this._cancelled = null;
      this._act(
        toProblem(error, "It is not known whether the job was cancelled. Refresh the list."),
      );
    }
    this._changed.emit();
  }

  /** Submit the same job again; null where that was refused. A request without an answer is repeated under its key. */
  async resubmit(): Promise<IJob | null> {
    if (this._isResubmitting) {
      return null;
    }
    const { cluster, job } = this.place;
    this._key ??= newRequestKey();
    this._isResubmitting = true;
    this._act(null);
    try {
      const made = await this.api.resubmit(cluster, job, this._key);
      this._key = null;
      return made;
    } catch (error) {
      const problem = toProblem(error, "Press the button again. Only one job will be submitted.");
      if (isRefused(problem)) {
        this._key = null; // nothing was submitted
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

  /** Follow the job until it is finished or the page is hidden; reconnect after failures, at increasing intervals. */
  private async _run(signal: AbortSignal): Promise<void> {
    for (let failures = 0; !signal.aborted; failures += 1) {
      try {
        if (!(await this._load(signal))) {
          return; // a later run may follow the job
        }
        this._problem = null;
        this._trouble = ""; // a stream repeats what still holds
        this._changed.emit();
        if (this._job !== null && isFinished(this._job.state)) {
          if (!this._hasUnreadLog()) {
            return;
          }
        } else {
          await this._follow(signal, () => {
            failures = -1;
          });
        }
      } catch (error) {
        if (this._watch?.signal === signal) {
          this._problem = toProblem(error, "It is retried automatically.");
          this._changed.emit();
          if (this._problem.status === 404) {
            return;
          }
        }
      }
      const isOver = failures < 0 && this._job !== null && isFinished(this._job.state);
      const wait = Math.min(MAX_RETRY_MS, MIN_RETRY_MS * 2 ** Math.max(0, failures));
      await this._sleep(isOver ? 0 : wait, signal); // its last output may still be read
    }
  }

  /** Load the job and its new output; return false where the page was hidden meanwhile. */
  private async _load(signal: AbortSignal): Promise<boolean> {
    const job = await this.api.job(this.place.cluster, this.place.job);
    if (!signal.aborted) {
      this._update(job);
      await this._readLogs(signal);
    }
    return !signal.aborted;
  }

  /** Read the new output; at first, or where that is much, only its end. */
  private async _readLogs(signal: AbortSignal): Promise<void> {
    for (const stream of this.streams) {
      let problem: IProblem | null = null;
      try {
        await this.logs[stream].catchUp();
      } catch (error) {
        problem = toProblem(error, "It is retried automatically.");
      }
      if (signal.aborted) {
        return;
      }
      if (problem === null) {
        this._logProblems.delete(stream);
      } else {
        this._logProblems.set(stream, problem);
      }
      this._changed.emit();
    }
  }

  /** Whether a log could not be read, but may be read later: a file that does not exist will not come. */
  private _hasUnreadLog(): boolean {
    const problems = this.streams.map((stream) => this.logProblem(stream));
    return problems.some((problem) => problem !== null && problem.status !== 404);
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
      this._receive(event, data);
      this._changed.emit();
    }
  }

  private _receive(event: IServerEvent["event"], data: unknown): void {
    if (event === "job" && isJob(data)) {
      this._update(data);
    } else if (event === "output") {
      const piece = data as { stream: Stream; offset: number; size: number; data: string };
      if (STREAMS.includes(piece.stream)) {
        this.logs[piece.stream].take(piece.offset, bytesOf(piece.data), piece.size);
      }
    } else if (event === "trouble") {
      this._trouble = (data as { detail: string }).detail;
    } else if (event === "error") {
      this._problem = data as IProblem;
    }
  }

  private _update(job: IJob): void {
    const { state, state_since } = job;
    const reason = job.reason_text || job.reason || "";
    const before = this._observedStates.at(-1);
    const isPending = stateKind(state) === "pending";
    // By Slurm's word: the numbers in the explanation change very often.
    const isNewReason = isPending && this._job?.reason !== job.reason;
    if (before?.state !== state || isNewReason) {
      const since = before?.state === state ? null : state_since;
      const seen = presentTime(job, since ?? this.jobs.now); // beside the times of Slurm
      // A job that waited before the page was opened has waited since its submission.
      const isFirst = before === undefined && isPending;
      const time = isFirst ? (job.restarts ? null : job.submit_time) : seen;
      this._observedStates = [...this._observedStates, { state, reason, time }];
    } else if (isPending) {
      this._observedStates = [...this._observedStates.slice(0, -1), { ...before, reason }];
    }
    this._job = job;
    this._changed.emit();
  }

  /** Follow the job again where a finished one was requeued, which the model of the jobs learns first. */
  private readonly _checkList = (): void => {
    const known = this._job;
    if (known === null || this._isTask() || !isFinished(known.state)) {
      this._changed.emit();
      return;
    }
    const isSame = ({ cluster, key, id }: IJob): boolean =>
      cluster === known.cluster && key === known.key && id === known.id;
    const listed = this.jobs.jobs.find(isSame);
    if (listed !== undefined && listed !== this._lastListed && !isFinished(listed.state)) {
      this.refresh();
    }
    this._lastListed = listed;
  };
}
