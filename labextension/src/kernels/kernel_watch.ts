/** Where the kernel of the notebook in front has its GPUs. No DOM. */
import type { ISessionContext } from "@jupyterlab/apputils";
import type { Kernel } from "@jupyterlab/services";

import type { IJob } from "../common/api/objects";
import type { IJobsModel } from "../common/jobs_model";
import { clusterName } from "../common/labels";
import { Model } from "../common/observable_model";
import { standingOf, type IKernelApi, type IKernelPlace } from "./model";
import type { IMove, Moves } from "./move_model";

/** What of a notebook or a console is needed here. */
export type IContext = Pick<ISessionContext, "kernelChanged" | "session" | "statusChanged">;

/** A kernel of ours, and its allocation as far as that is known. */
export interface IShown {
  /** What people call it. */
  readonly cluster: string;
  readonly job: IJob | null;
}

/** Return the path of the notebook in front, below the root of the server; null: it is none, or has no kernel. */
export function notebookOf(context: IContext | null): string | null {
  const session = context?.session;
  return session?.type === "notebook" && session.kernel ? session.path : null;
}

/** States of a kernel after which it may be elsewhere. */
const MOVED: readonly Kernel.Status[] = ["starting", "restarting", "autorestarting", "dead"];

/** Follows one notebook or console at a time, and tells when its kernel has another place, or the place another state. */
export class KernelWatch extends Model {
  private _context: IContext | null = null;
  private _kernel: string | null = null;
  private _place: IKernelPlace | null = null;
  /** Counts what was asked: only the last answer counts. */
  private _asked = 0;

  /**
   * @param isOurs - Whether kernels of this name start through us.
   */
  constructor(
    private readonly _api: Pick<IKernelApi, "kernelPlace">,
    private readonly _jobs: IJobsModel,
    private readonly _isOurs: (name: string) => boolean,
    private readonly _moves: Pick<Moves, "changed" | "look" | "of">,
  ) {
    super();
    _jobs.changed.connect(this._tell);
    _moves.changed.connect(this._tell);
  }

  override dispose(): void {
    this.follow(null);
    this._jobs.changed.disconnect(this._tell);
    this._moves.changed.disconnect(this._tell);
    super.dispose();
  }

  /** How far what is in front is on its way to another kernel; null: it stays where it is. */
  get move(): IMove | null {
    const path = notebookOf(this._context);
    return path === null ? null : this._moves.of(path);
  }

  /** What there is to show; null: the kernel in front is none of ours. */
  get shown(): IShown | null {
    const place = this._place;
    if (this._kernel === null || place === null) {
      return null;
    }
    const { cluster, allocation } = place;
    const isMeant = (job: IJob): boolean => job.cluster === cluster && job.key === allocation;
    const there = this._jobs.clusters.find(({ id }) => id === cluster);
    return {
      cluster: there === undefined ? cluster : clusterName(there),
      job: allocation === null ? null : (this._jobs.jobs.find(isMeant) ?? null),
    };
  }

  /** Follow what is in front now; null: it has no kernel. */
  follow(context: IContext | null): void {
    if (context === this._context) {
      return;
    }
    this._context?.kernelChanged.disconnect(this._changedKernel);
    this._context?.statusChanged.disconnect(this._changedStatus);
    this._context = context;
    context?.kernelChanged.connect(this._changedKernel);
    context?.statusChanged.connect(this._changedStatus);
    this.again();
    void this._moves.look();
  }

  /** Look anew at the kernel in front: what it is called may be known only now. */
  readonly again = (): void => {
    this._changedKernel();
    this._tell();
  };

  /** Ask again for a place that is not known yet, or not any more: nothing tells of it. */
  readonly tick = (): void => {
    const standing = standingOf(this.shown?.job ?? null, this._jobs.now);
    if (this._kernel !== null && (standing === "starting" || standing === "ended")) {
      void this._ask(this._kernel);
    }
  };

  private readonly _changedKernel = (): void => {
    const kernel = this._context?.session?.kernel ?? null;
    const id = kernel !== null && this._isOurs(kernel.name) ? kernel.id : null;
    if (id !== this._kernel) {
      this._kernel = id;
      this._place = null;
      this._tell();
    }
    if (id !== null) {
      void this._ask(id);
    }
  };

  private readonly _changedStatus = (_: unknown, status: Kernel.Status): void => {
    if (status === "idle") {
      void this._moves.look(); // a cell may have asked for one
    }
    if (this._kernel !== null && MOVED.includes(status)) {
      void this._ask(this._kernel);
    }
  };

  private async _ask(id: string): Promise<void> {
    const asked = ++this._asked;
    const place = await this._api.kernelPlace(id).catch(() => undefined);
    // Who does not answer says nothing new.
    if (asked === this._asked && id === this._kernel && place !== undefined) {
      this._place = place;
      this._tell();
    }
  }

  private readonly _tell = (): void => {
    this._changed.emit();
  };
}
