/** Watch of the kernel of the notebook in front, and of its allocation. No DOM. */
import type { ISessionContext } from "@jupyterlab/apputils";
import type { Kernel } from "@jupyterlab/services";

import type { IJob } from "../common/api/objects";
import type { IJobsModel } from "../common/jobs_model";
import { nameOfCluster } from "../common/labels";
import { Model } from "../common/observable_model";
import { standingOf, type IKernelApi, type IKernelPlace } from "./model";
import type { IMove, Moves } from "./move_model";

/** The part of a notebook or a console that the watch needs. */
export type IContext = Pick<ISessionContext, "kernelChanged" | "session" | "statusChanged">;

/** A remote kernel, and its allocation as far as that is known. */
export interface IKernelState {
  /** The name of the cluster for the user. */
  readonly cluster: string;
  readonly job: IJob | null;
}

/**
 * Return the path of the notebook in front, below the root of the server; null: it is no notebook, or has no kernel.
 */
export function notebookPath(context: IContext | null): string | null {
  const session = context?.session;
  return session?.type === "notebook" && session.kernel ? session.path : null;
}

/** States of a kernel after which its allocation may be another one. */
const RESTART_STATUSES: readonly Kernel.Status[] = [
  "starting",
  "restarting",
  "autorestarting",
  "dead",
];

/**
 * Follows one notebook or console at a time, and emits when the allocation of its kernel, or the state of that,
 * changes.
 */
export class KernelWatch extends Model {
  private _context: IContext | null = null;
  private _kernel: string | null = null;
  private _place: IKernelPlace | null = null;
  /** Counts the requests: only the last answer counts. */
  private _requestCount = 0;

  /** @param isOurs - Whether kernels of this name are kernels of jupyter_slurm. */
  constructor(
    private readonly _api: Pick<IKernelApi, "kernelPlace">,
    private readonly _jobs: IJobsModel,
    private readonly _isOurs: (name: string) => boolean,
    private readonly _moves: Pick<Moves, "activeMove" | "changed" | "discover">,
  ) {
    super();
    _jobs.changed.connect(this._emit);
    _moves.changed.connect(this._emit);
  }

  override dispose(): void {
    this.follow(null);
    this._jobs.changed.disconnect(this._emit);
    this._moves.changed.disconnect(this._emit);
    super.dispose();
  }

  /** The move of the notebook in front; null: it does not move. */
  get move(): IMove | null {
    const path = notebookPath(this._context);
    return path === null ? null : this._moves.activeMove(path);
  }

  /** The remote kernel in front; null: another kernel, or none. */
  get kernelState(): IKernelState | null {
    const place = this._place;
    if (this._kernel === null || place === null) {
      return null;
    }
    const { cluster, allocation } = place;
    const isMeant = (job: IJob): boolean => job.cluster === cluster && job.key === allocation;
    return {
      cluster: nameOfCluster(this._jobs, cluster),
      job: allocation === null ? null : (this._jobs.jobs.find(isMeant) ?? null),
    };
  }

  /** Follow the notebook or console in front; null: none has a kernel. */
  follow(context: IContext | null): void {
    if (context === this._context) {
      return;
    }
    this._context?.kernelChanged.disconnect(this._changedKernel);
    this._context?.statusChanged.disconnect(this._changedStatus);
    this._context = context;
    context?.kernelChanged.connect(this._changedKernel);
    context?.statusChanged.connect(this._changedStatus);
    this.recheck();
    void this._moves.discover();
  }

  /** Check the kernel in front again: its name may be known only now. */
  readonly recheck = (): void => {
    this._changedKernel();
    this._emit();
  };

  /** Load the allocation again where it is unknown or has ended: no event reports it. */
  readonly poll = (): void => {
    const standing = standingOf(this.kernelState?.job ?? null, this._jobs.now);
    if (this._kernel !== null && (standing === "starting" || standing === "ended")) {
      void this._loadPlace(this._kernel);
    }
  };

  private readonly _changedKernel = (): void => {
    const kernel = this._context?.session?.kernel ?? null;
    const id = kernel !== null && this._isOurs(kernel.name) ? kernel.id : null;
    if (id !== this._kernel) {
      this._kernel = id;
      this._place = null;
      this._emit();
    }
    if (id !== null) {
      void this._loadPlace(id);
    }
  };

  private readonly _changedStatus = (_: unknown, status: Kernel.Status): void => {
    if (status === "idle") {
      void this._moves.discover(); // a cell may have requested a move
    }
    if (this._kernel !== null && RESTART_STATUSES.includes(status)) {
      void this._loadPlace(this._kernel);
    }
  };

  private async _loadPlace(id: string): Promise<void> {
    const count = ++this._requestCount;
    const place = await this._api.kernelPlace(id).catch(() => undefined);
    // A failed request changes nothing.
    if (count === this._requestCount && id === this._kernel && place !== undefined) {
      this._place = place;
      this._emit();
    }
  }

  private readonly _emit = (): void => {
    this._changed.emit();
  };
}
