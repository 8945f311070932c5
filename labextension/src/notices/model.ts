/** Of which changes of the jobs the person is told: what has changed since the page was loaded, each once. No DOM. */
import type { IDisposable } from "@lumino/disposable";

import type { IJob, IPrompt } from "../common/api/objects";
import { identity } from "../common/api/records";
import { isFinished, isReleased, stateKind } from "../common/job_states";
import type { IJobsModel } from "../common/jobs_model";
import { isNearLimit, NEAR_LIMIT_MINUTES } from "../common/time_limit";

/** A change that is worth a notice. */
export type NoticeKind = "started" | "ended" | "failed" | "near-limit" | "log-in";

/** One of them. */
export interface INotice {
  /** The same for the same change in every tab. */
  readonly key: string;
  readonly kind: NoticeKind;
  /** Whose; null of a log-in. */
  readonly job: IJob | null;
  readonly prompt: IPrompt | null;
}

/** What the person wants to be told. */
export interface IWishes {
  readonly started: boolean;
  readonly ended: boolean;
  readonly failed: boolean;
  readonly nearLimit: boolean;
  readonly nearLimitMinutes: number;
  readonly loginWanted: boolean;
}

/** What they want where there are no settings: the same as in the schema. */
export const USUAL: IWishes = {
  started: true,
  ended: true,
  failed: true,
  nearLimit: true,
  nearLimitMinutes: NEAR_LIMIT_MINUTES,
  loginWanted: true,
};

/** What the notices take from their surroundings. */
export interface INoticesOptions {
  readonly wishes: () => IWishes;
  /** Whether nobody sees this tab: a tab that is seen tells first. */
  readonly isHidden: () => boolean;
  /** Of these changes those that no other tab tells: from now on they are this one's. */
  readonly claim: (keys: readonly string[]) => Promise<ReadonlySet<string>>;
  readonly tell: (notices: readonly INotice[]) => void;
  readonly sleep?: (milliseconds: number) => Promise<void>;
}

/** How long changes are gathered, in milliseconds: what comes in a burst is told in one line. */
const GATHER = 1_500;
/** How long a tab that nobody sees leaves it to others to tell. */
const YIELD = 2_000;

/** Of what sbatch has refused, as old versions keep it among the jobs: who submitted it was told. */
const REFUSED = "BadConstraints";
/** By how much the clock of a cluster may be behind, in seconds. */
const SKEW = 60;

/** Remembers the jobs as they were, and tells how they differ. */
export class Notices implements IDisposable {
  private readonly _before = new Map<string, IJob>();
  /** Jobs that have not changed are told by their records being the same: there may be very many of them. */
  private _looked = new WeakSet<IJob>();
  private readonly _near = new Set<string>();
  private readonly _asked = new Set<string>();
  /** When the page first saw the jobs, in seconds; null before that. */
  private _since: number | null = null;
  private _isGathering = false;
  private _isDisposed = false;

  constructor(
    private readonly _model: IJobsModel,
    private readonly _options: INoticesOptions,
  ) {
    _model.changed.connect(this._gather);
    this._gather();
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    this._isDisposed = true;
    this._model.changed.disconnect(this._gather);
  }

  /** Look whether time limits have come near, which no event tells. */
  readonly tick = (): void => {
    if (this._model.connection === "live") {
      void this._tell(this._nearing());
    }
  };

  private readonly _gather = (): void => {
    if (this._model.connection === "live" && this._since === null) {
      this._since = this._model.now;
      this._changes(); // how it was when the page was loaded is no news
    }
    if (!this._isGathering) {
      this._isGathering = true;
      void this._look();
    }
  };

  private async _look(): Promise<void> {
    const { sleep = defaultSleep } = this._options;
    await sleep(GATHER);
    this._isGathering = false;
    if (!this._isDisposed) {
      const changes = this._model.connection === "live" ? this._changes() : [];
      await this._tell([...changes, ...this._logIns()]);
    }
  }

  private async _tell(notices: readonly INotice[]): Promise<void> {
    const wished = notices.filter(({ kind }) => isWished(kind, this._options.wishes()));
    if (wished.length === 0) {
      return;
    }
    if (this._options.isHidden()) {
      await (this._options.sleep ?? defaultSleep)(YIELD);
    }
    const ours = await this._options.claim(wished.map(({ key }) => key));
    const told = wished.filter(({ key }) => ours.has(key));
    if (told.length > 0 && !this._isDisposed) {
      this._options.tell(told);
    }
  }

  private _changes(): INotice[] {
    const notices = [];
    for (const job of this._model.jobs) {
      if (this._looked.has(job) || !job.known) {
        continue; // of a job that is not known now, it is told when it is known again
      }
      this._looked.add(job);
      const key = identity(job);
      const kind = changeOf(this._before.get(key), job, this._since ?? 0);
      this._before.set(key, job);
      if (kind !== null) {
        // Not by its times: Slurm's word for them comes after the first, and to some tabs alone.
        const told = `${key}:${kind === "started" ? kind : "over"}:${job.restarts ?? 0}`;
        notices.push({ key: told, kind, job, prompt: null });
      }
    }
    return notices;
  }

  private _nearing(): INotice[] {
    const { _model: model } = this;
    const { nearLimitMinutes } = this._options.wishes();
    return model.jobs.flatMap((job) => {
      const key = `${identity(job)}:near-limit:${job.start_time ?? ""}:${job.time_limit ?? ""}`;
      if (!isNearLimit(job, model.now, nearLimitMinutes)) {
        return [];
      }
      const isNew = !this._near.has(key);
      this._near.add(key);
      return isNew ? [{ key, kind: "near-limit" as const, job, prompt: null }] : [];
    });
  }

  /** Where the page is seen, a dialog asks. */
  private _logIns(): INotice[] {
    if (!this._options.isHidden()) {
      return [];
    }
    const asking = this._model.prompts.filter(
      ({ id, questions }) => questions.length > 0 && !this._asked.has(id),
    );
    return asking.map((prompt) => {
      this._asked.add(prompt.id);
      return { key: `prompt:${prompt.id}`, kind: "log-in", job: null, prompt };
    });
  }
}

/**
 * Return what has become of a job; null when that is no news: an agent that has just begun learns what was so before.
 *
 * @param before - The job as it was; undefined: nothing was known of it, and only its own times tell what is new.
 * @param since - From when on something is new, in seconds.
 */
export function changeOf(before: IJob | undefined, job: IJob, since: number): NoticeKind | null {
  const kind = stateKind(job.state);
  const isNew = (time: number | null): boolean =>
    before === undefined ? (time ?? 0) > since : time === null || time > since - SKEW;
  if (before === undefined && job.reason === REFUSED) {
    return null;
  }
  if (isFinished(job.state)) {
    const isOver = before !== undefined && isFinished(before.state);
    const hasFailed = kind === "failed" && !isReleased(job);
    return !isOver && isNew(job.end_time) ? (hasFailed ? "failed" : "ended") : null;
  }
  const hasWaited = before === undefined || stateKind(before.state) === "pending";
  return kind === "running" && hasWaited && isNew(job.start_time) ? "started" : null;
}

function isWished(kind: NoticeKind, wishes: IWishes): boolean {
  switch (kind) {
    case "near-limit":
      return wishes.nearLimit;
    case "log-in":
      return wishes.loginWanted;
    default:
      return wishes[kind];
  }
}

function defaultSleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
