/** The session that this page belongs to, where JupyterLab itself runs in one. No DOM. */
import { PageConfig } from "@jupyterlab/coreutils";

import type { IJob } from "../common/api/objects";
import { stateKind } from "../common/job_states";
import type { IJobsModel } from "../common/jobs_model";
import { Model } from "../common/observable_model";
import { isNearEnd, isUnlimited, remainingSeconds } from "../common/time_limit";

/** Facts of the session, which its runner writes into its pages: `page_marks.py`. */
export interface ISessionFacts {
  readonly name: string;
  readonly key: string;
  /** The number of its job. */
  readonly job: string;
  readonly node: string;
  /** Start and end of the job as Slurm told them at its start, in seconds since the epoch; null: not known. */
  readonly start: number | null;
  readonly end: number | null;
  /** Whether it starts again after its time limit. */
  readonly resume: boolean;
  /** The colour of its icon. */
  readonly colour: string;
}

/** The option of the page. */
const OPTION = "jupyterSlurmSession";
const COLOUR = /^#[0-9a-f]{6}$/;

/** Return the facts in an option of the page; null: this page belongs to no session. */
export function parseSessionFacts(option: string): ISessionFacts | null {
  try {
    const facts = JSON.parse(option) as Partial<ISessionFacts> | null;
    const { name, key, job, node, start, end, resume, colour } = facts ?? {};
    const time = (value: unknown): number | null => (typeof value === "number" ? value : null);
    return typeof name !== "string" || typeof key !== "string"
      ? null
      : {
          ...{ name, key, job: job ?? "", node: node ?? "", resume: resume === true },
          ...{
            start: time(start),
            end: time(end),
            colour: COLOUR.test(colour ?? "") ? (colour ?? "") : "",
          },
        };
  } catch {
    return null;
  }
}

/** Return the session that this page belongs to; null: none. */
export function ownSession(jobs: IJobsModel): OwnSession | null {
  const facts = parseSessionFacts(PageConfig.getOption(OPTION));
  return facts === null ? null : new OwnSession(facts, jobs);
}

/** Follows the session: by its job where Slurm can be asked, else by the facts of its runner. */
export class OwnSession extends Model {
  private _loss = "";

  constructor(
    readonly facts: ISessionFacts,
    private readonly _jobs: IJobsModel,
  ) {
    super();
    _jobs.changed.connect(this._emit);
  }

  override dispose(): void {
    this._jobs.changed.disconnect(this._emit);
    super.dispose();
  }

  /** The job of the session; null where Slurm cannot be asked. */
  get job(): IJob | null {
    return this._jobs.jobs.find((job) => this.isOwn(job)) ?? null;
  }

  /** Whether this is the job of the session. */
  readonly isOwn = ({ key }: IJob): boolean => key === this.facts.key;

  /** Why the session is not reached from this page; empty: it is. */
  get loss(): string {
    return this._loss;
  }

  set loss(loss: string) {
    if (loss !== this._loss) {
      this._loss = loss;
      this._emit();
    }
  }

  /** Seconds until the end of the session; null: not known, or it has no time limit. */
  get remaining(): number | null {
    const { job, facts } = this;
    if (this._limit === null || isUnlimited(this._limit)) {
      return null;
    }
    const known = job === null ? null : remainingSeconds(job, this._jobs.now);
    const told = facts.end === null ? null : facts.end - this._jobs.now;
    const isKnown = job !== null && job.known && stateKind(job.state) === "running";
    return known ?? (isKnown || told === null || told < 0 ? null : told);
  }

  /** The time at which the session ends, in seconds since the epoch, on the clock of this page. */
  get end(): number | null {
    const { remaining } = this;
    return remaining === null ? null : Date.now() / 1000 + remaining;
  }

  /** Whether the end is near: at most so many minutes, and at most a quarter of the time limit, remain. */
  isNearEnd(minutes?: number): boolean {
    const { remaining } = this;
    return remaining !== null && isNearEnd(remaining, this._limit ?? 0, minutes);
  }

  /** The time limit in seconds; null: not known. */
  private get _limit(): number | null {
    const { start, end } = this.facts;
    return this.job?.time_limit ?? (start === null || end === null ? null : end - start);
  }

  private readonly _emit = (): void => {
    this._changed.emit();
  };
}
