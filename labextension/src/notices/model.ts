/** Model of the notifications: the changes of jobs since the page was loaded, each once. No DOM. */
import type { IDisposable } from "@lumino/disposable";

import type { IJob, IPrompt } from "../common/api/objects";
import { identity } from "../common/api/records";
import { isFinished, isReleased, stateKind } from "../common/job_states";
import type { IJobsModel } from "../common/jobs_model";
import { isNearLimit, NEAR_LIMIT_MINUTES, presentTime } from "../common/time_limit";

/** A kind of change that causes a notification. */
export type NoticeKind = "started" | "ready" | "ended" | "failed" | "near-limit" | "log-in";

/** A change that causes a notification. */
export interface INotice {
  /** The key of the change, the same in every tab. */
  readonly key: string;
  readonly kind: NoticeKind;
  /** The job; null for a login. */
  readonly job: IJob | null;
  readonly prompt: IPrompt | null;
}

/** The settings of the user. */
export interface INoticeSettings {
  readonly started: boolean;
  readonly ready: boolean;
  readonly ended: boolean;
  readonly failed: boolean;
  readonly nearLimit: boolean;
  readonly nearLimitMinutes: number;
  readonly loginWanted: boolean;
}

/** The settings where there are none: the same as in the schema. */
export const DEFAULT_SETTINGS: INoticeSettings = {
  started: false,
  ready: true,
  ended: true,
  failed: true,
  nearLimit: true,
  nearLimitMinutes: NEAR_LIMIT_MINUTES,
  loginWanted: true,
};

/** Dependencies of the notifications. */
export interface INoticesOptions {
  readonly settings: () => INoticeSettings;
  /** Whether this tab is hidden: a visible tab notifies first. */
  readonly isHidden: () => boolean;
  /** Whether the user sees the new state of a job already: on its page, or on its card below a cell. */
  readonly isSeen: (job: IJob) => Promise<boolean>;
  /** Whether this page belongs to the session of a job, which warns of its end itself. */
  readonly isOwn?: (job: IJob) => boolean;
  /** Claim changes for this tab: return those that no other tab has claimed. */
  readonly claim: (keys: readonly string[]) => Promise<ReadonlySet<string>>;
  readonly show: (notices: readonly INotice[]) => void;
  readonly sleep?: (milliseconds: number) => Promise<void>;
}

/** Time in which changes are gathered, in milliseconds: a burst becomes one notification. */
const GATHER_MS = 1_500;
/** Time for which a hidden tab leaves a change to the others, in milliseconds. */
const HIDDEN_TAB_DELAY_MS = 2_000;

/** Reason of jobs that sbatch refused, which old versions keep among the jobs: the user knows of the refusal. */
const REFUSED_REASON = "BadConstraints";
/** States of a session that was ready before: one that is not reached for a moment does not become ready again. */
const WAS_READY: ReadonlySet<string> = new Set(["ready", "reconnecting", "unreachable", "ending"]);
/** Largest lag of the clock of a cluster, in seconds. */
const MAX_CLOCK_SKEW_S = 60;

/** Compares the jobs with their earlier states, and notifies of the differences. */
export class Notices implements IDisposable {
  private readonly _before = new Map<string, IJob>();
  /** Processed jobs: an unchanged job is the same object, and there may be very many jobs. */
  private _processed = new WeakSet<IJob>();
  private readonly _near = new Set<string>();
  private readonly _notifiedPrompts = new Set<string>();
  /** The time at which the page first had the jobs, in seconds; null before that. */
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

  /** Check for time limits that have become near, which no event reports. */
  readonly checkTimeLimits = (): void => {
    if (this._model.connection === "live") {
      void this._notify(this._nearLimitNotices());
    }
  };

  private readonly _gather = (): void => {
    if (this._model.connection === "live" && this._since === null) {
      this._since = this._model.now;
      this._changes(); // the state at the load of the page is no change
    }
    if (!this._isGathering) {
      this._isGathering = true;
      void this._notifyChanges();
    }
  };

  private async _notifyChanges(): Promise<void> {
    const { sleep = defaultSleep } = this._options;
    await sleep(GATHER_MS);
    this._isGathering = false;
    if (!this._isDisposed) {
      const changes = this._model.connection === "live" ? this._changes() : [];
      await this._notify([...changes, ...this._loginNotices()]);
    }
  }

  private async _notify(notices: readonly INotice[]): Promise<void> {
    const wished = notices.filter(({ kind }) => isWanted(kind, this._options.settings()));
    if (wished.length === 0) {
      return;
    }
    if (this._options.isHidden()) {
      await (this._options.sleep ?? defaultSleep)(HIDDEN_TAB_DELAY_MS);
    }
    const claimed = await this._options.claim(wished.map(({ key }) => key));
    const shown = await this._unseen(wished.filter(({ key }) => claimed.has(key)));
    if (shown.length > 0 && !this._isDisposed) {
      this._options.show(shown);
    }
  }

  /** Return the notices that tell more than what the user sees in this tab. */
  private async _unseen(notices: readonly INotice[]): Promise<readonly INotice[]> {
    if (this._options.isHidden()) {
      return notices;
    }
    const isSeen = await Promise.all(
      notices.map(async ({ job, kind }) =>
        job === null || kind === "near-limit" ? false : this._options.isSeen(job),
      ),
    );
    return notices.filter((_, at) => !isSeen[at]);
  }

  private _changes(): INotice[] {
    const notices = [];
    for (const job of this._model.jobs) {
      if (this._processed.has(job) || !job.known) {
        continue; // a job in an unknown state is processed when its state is known again
      }
      this._processed.add(job);
      const key = identity(job);
      const kind = changeOf(this._before.get(key), job, presentTime(job, this._since ?? 0));
      this._before.set(key, job);
      if (kind !== null) {
        // The key has no times: Slurm sends the exact ones later, and to some tabs only.
        const change = kind === "started" || kind === "ready" ? kind : "over";
        const changeKey = `${key}:${change}:${job.restarts ?? 0}`;
        notices.push({ key: changeKey, kind, job, prompt: null });
      }
    }
    return notices;
  }

  private _nearLimitNotices(): INotice[] {
    const { _model: model } = this;
    const { nearLimitMinutes } = this._options.settings();
    return model.jobs.flatMap((job) => {
      const key = `${identity(job)}:near-limit:${job.start_time ?? ""}:${job.time_limit ?? ""}`;
      if (!isNearLimit(job, model.now, nearLimitMinutes) || this._options.isOwn?.(job)) {
        return [];
      }
      const isNew = !this._near.has(key);
      this._near.add(key);
      return isNew ? [{ key, kind: "near-limit" as const, job, prompt: null }] : [];
    });
  }

  /** Return notices for logins; in a visible page a dialog asks. */
  private _loginNotices(): INotice[] {
    if (!this._options.isHidden()) {
      return [];
    }
    const asking = this._model.prompts.filter(
      ({ id, questions }) => questions.length > 0 && !this._notifiedPrompts.has(id),
    );
    return asking.map((prompt) => {
      this._notifiedPrompts.add(prompt.id);
      return { key: `prompt:${prompt.id}`, kind: "log-in", job: null, prompt };
    });
  }
}

/**
 * Return the kind of the change of a job; null for none: an agent that has just started learns older states.
 *
 * @param before - The earlier job; undefined: none was known, so that only the times of the job tell what is new.
 * @param since - The time from which a change is new, in seconds of the clock of the cluster.
 */
export function changeOf(before: IJob | undefined, job: IJob, since: number): NoticeKind | null {
  const kind = stateKind(job.state);
  const isNew = (time: number | null): boolean =>
    before === undefined ? (time ?? 0) > since : time === null || time > since - MAX_CLOCK_SKEW_S;
  if (before === undefined && job.reason === REFUSED_REASON) {
    return null;
  }
  if (isFinished(job.state)) {
    const isOver = before !== undefined && isFinished(before.state);
    const hasFailed = kind === "failed" && !isReleased(job);
    return !isOver && isNew(job.end_time) ? (hasFailed ? "failed" : "ended") : null;
  }
  if (job.session) {
    // What one waits for is a session that can be opened, not its start.
    const isFirst = !WAS_READY.has(before?.session?.state ?? "");
    return job.session.state === "ready" && isFirst && isNew(job.session.ready_time ?? null)
      ? "ready"
      : null;
  }
  const hasWaited = before === undefined || stateKind(before.state) === "pending";
  return kind === "running" && hasWaited && isNew(job.start_time) ? "started" : null;
}

function isWanted(kind: NoticeKind, wishes: INoticeSettings): boolean {
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
