/** Lines that are selected by the pointer and the keyboard: the active line, the selection, and ranges. No DOM. */
import type { IJob } from "../../common/api/objects";
import { identity } from "../../common/api/records";
import { Model } from "../../common/observable_model";

/** A line of the table. */
export interface IRow {
  readonly job: IJob;
  /** The array or the allocation that the job is a part of. */
  readonly parent: IJob | null;
}

/** Number of selections in all tables so far. */
let uses = 0;

export abstract class SelectableLines extends Model {
  private _marked = new Set<string>();
  /** The active line, and the first line of a range. */
  private _active: string | null = null;
  private _anchor: string | null = null;
  private _at = -1;
  private _lastUse = 0;

  /** The lines that are shown; the same array as long as nothing has changed. */
  abstract get lines(): readonly IRow[];

  /** The selected jobs that are shown, in their order. */
  get marked(): readonly IJob[] {
    return this._marked.size === 0
      ? []
      : this.lines.map(({ job }) => job).filter((job) => this._marked.has(identity(job)));
  }

  isMarked(job: IJob): boolean {
    return this._marked.has(identity(job));
  }

  /** The index of the active line; -1: none. */
  get active(): number {
    const last = this.lines[this._at];
    if (last === undefined || identity(last.job) !== this._active) {
      this._at = this._index(this._active);
    }
    return this._at;
  }

  /** The job that a command for a single job means: that of the active line; null: it is no longer shown. */
  get target(): IJob | null {
    const job = this._active === null ? this.marked[0] : this.lines[this.active]?.job;
    return job ?? null;
  }

  /** Return the index that a drawn line has now: the lines may have changed since; -1: it is no longer shown. */
  lineOf({ job, parent }: IRow): number {
    const key = identity(job);
    return this.lines.findIndex(
      (line) => identity(line.job) === key && (line.parent === null) === (parent === null),
    );
  }

  /** Select a line as by a click: alone, in addition, or as the end of a range. */
  click(index: number, how: { readonly adds: boolean; readonly extends: boolean }): void {
    const line = this.lines[index];
    if (line === undefined) {
      return;
    }
    this._noteUse();
    const key = identity(line.job);
    this._active = key;
    if (how.extends) {
      this._extend(index, how.adds);
    } else {
      this._anchor = key;
      if (!how.adds) {
        this._marked = new Set([key]);
      } else if (!this._marked.delete(key)) {
        this._marked.add(key);
      }
    }
    this._changed.emit();
  }

  /** Make another line the active one, and select the range up to it where that is wanted. */
  moveTo(index: number, extend: boolean): void {
    const line = this.lines[Math.max(0, Math.min(index, this.lines.length - 1))];
    if (line === undefined) {
      return;
    }
    this._noteUse();
    if (extend) {
      this._anchor ??= this._active ?? identity(line.job);
    } else {
      this._anchor = null;
    }
    this._active = identity(line.job);
    if (extend) {
      this._extend(this.active, false);
    }
    this._changed.emit();
  }

  /** Make a line the target of a menu: a line outside the selection is selected alone. */
  pointAt(index: number): void {
    const line = this.lines[index];
    if (line && !this.isMarked(line.job)) {
      this.click(index, { adds: false, extends: false });
    } else if (line) {
      this._noteUse();
      this._active = identity(line.job);
      this._changed.emit();
    }
  }

  markAll(): void {
    this._noteUse();
    this._marked = new Set(this.lines.map(({ job }) => identity(job)));
    this._changed.emit();
  }

  unmark(): void {
    this._marked = new Set();
    this._changed.emit();
  }

  /** Position of the last selection among those of all tables of the page: commands are for the latest one. */
  get lastUse(): number {
    return this._lastUse;
  }

  private _noteUse(): void {
    uses += 1;
    this._lastUse = uses;
  }

  private _index(key: string | null): number {
    return key === null ? -1 : this.lines.findIndex(({ job }) => identity(job) === key);
  }

  private _extend(index: number, adds: boolean): void {
    const from = this._index(this._anchor ?? this._active);
    const [first, last] = [Math.min(from < 0 ? index : from, index), Math.max(from, index)];
    const range = this.lines.slice(first, last + 1).map(({ job }) => identity(job));
    this._marked = new Set([...(adds ? this._marked : []), ...range]);
  }

  /** Select one job, wherever it is. */
  protected selectAlone(job: IJob): void {
    this._active = identity(job);
    this._marked = new Set([this._active]);
  }
}
