/** Model of the table of jobs: the filter, the columns, the selection and the unfolded jobs. No DOM. */
import type { IJob, IProblem } from "../../common/api/objects";
import { identity, isReached } from "../../common/api/records";
import { isOfKind, type StateKind } from "../../common/job_states";
import type { IJobsModel } from "../../common/jobs_model";
import { Model } from "../../common/observable_model";
import type { AllJobs } from "../all_jobs";
import { COLUMNS, type ChosenWidths, type ColumnId } from "./columns";
import { countKinds, nextSort, RowOrder, type ICriteria } from "./row_order";
import {
  movedColumns,
  resizedColumns,
  savedColumns,
  savedCriteria,
  savedWidths,
  shownColumns,
  toggledColumns,
  type ISavedTable,
  type ITableMemory,
} from "./saved_table";
import { UnfoldedParts } from "./unfolded_parts";

/** A line of the table. */
export interface IRow {
  readonly job: IJob;
  /** The array or the allocation that the job is a part of. */
  readonly parent: IJob | null;
}

/** Number of arrays that a filter unfolds: for each one the agent is asked. */
const MAX_UNFOLDED = 20;
const FAILED: ReadonlySet<StateKind> = new Set(["failed"]);
/** Number of selections in all tables so far. */
let uses = 0;

export class JobsTable extends Model {
  private readonly _rows = new RowOrder();
  private _criteria: ICriteria = { text: "", kinds: new Set(), sort: null };
  private _columns: readonly ColumnId[];
  private _widths: ChosenWidths = {};
  private _showsAllUsers = false;
  private _marked = new Set<string>();
  private readonly _parts: UnfoldedParts;
  private _unfoldedByFilter: ReadonlySet<string> = new Set();
  /** The active line, and the first line of a range. */
  private _active: string | null = null;
  private _anchor: string | null = null;
  private _at = -1;
  private _lastUse = 0;
  private _sought: { cluster: string; job: string } | null = null;
  private _lines: readonly IRow[] = [];
  private _shown: readonly IJob[] | null = null;
  private _counted: readonly IJob[] | null = null;
  private _counts: ReadonlyMap<StateKind, number> = new Map();

  constructor(
    readonly model: IJobsModel,
    columns: readonly ColumnId[] = COLUMNS.slice(0, 7),
    private readonly _memory: ITableMemory | null = null,
    readonly allJobs: AllJobs | null = null,
  ) {
    super();
    this._columns = columns;
    this._parts = new UnfoldedParts(model, () => {
      this._redraw();
    });
    model.changed.connect(this._update);
    allJobs?.changed.connect(this._update);
    void this._memory?.load().then(this._restore, () => undefined);
  }

  override dispose(): void {
    super.dispose();
    this.model.changed.disconnect(this._update);
    this.allJobs?.changed.disconnect(this._update);
  }

  get criteria(): ICriteria {
    return this._criteria;
  }

  /** The columns that are shown. */
  get columns(): readonly ColumnId[] {
    return shownColumns(this._columns, this.model.clusters.length > 1, this._showsAllUsers);
  }

  /** The columns that the user has chosen, in their order. */
  get chosen(): readonly ColumnId[] {
    return this._columns;
  }

  /** Whether the jobs of other users are shown too. */
  get showsAllUsers(): boolean {
    return this._showsAllUsers;
  }

  get jobs(): readonly IJob[] {
    const { jobs } = this.model;
    return this._showsAllUsers ? (this.allJobs?.withOthers(jobs) ?? jobs) : jobs;
  }

  setAllUsers(isEverybodys: boolean): void {
    this._showsAllUsers = isEverybodys;
    if (this._criteria.sort?.column === "user" && !isEverybodys) {
      this._criteria = { ...this._criteria, sort: null };
    }
    this.loadAllJobs();
    this._changed.emit();
  }

  /** Load the jobs of other users, where they are shown. */
  loadAllJobs(): void {
    if (this._showsAllUsers) {
      void this.allJobs?.load(this.model.clusters.filter(isReached).map(({ id }) => id));
    }
  }

  /** The number of jobs of each kind of state: the number of rows that the filter for it shows. */
  get counts(): ReadonlyMap<StateKind, number> {
    const { jobs } = this;
    if (jobs !== this._counted) {
      this._counted = jobs;
      this._counts = countKinds(jobs);
    }
    return this._counts;
  }

  /** The lines that are shown; the same array as long as nothing has changed. */
  get lines(): readonly IRow[] {
    const shown = this._rows.shown(this.jobs, this._criteria, this.model.now);
    if (shown !== this._shown) {
      this._shown = shown;
      const { kinds } = this._criteria;
      const lines: IRow[] = [];
      for (const job of shown) {
        lines.push({ job, parent: null });
        for (const part of this._parts.partsOf(job)) {
          if (job.tasks === null || kinds.size === 0 || isOfKind(part, kinds)) {
            lines.push({ job: part, parent: job });
          }
        }
      }
      this._lines = lines;
    }
    return this._lines;
  }

  filter(text: string): void {
    this._choose({ ...this._criteria, text });
  }

  /** Show all jobs again. */
  clearFilters(): void {
    this._choose({ ...this._criteria, text: "", kinds: new Set() });
    this._save();
  }

  toggleKind(kind: StateKind): void {
    const kinds = new Set(this._criteria.kinds);
    if (!kinds.delete(kind)) {
      kinds.add(kind);
    }
    if (kind === "failed") {
      this._unfoldFailed(kinds.has(kind));
    }
    this._choose({ ...this._criteria, kinds });
    this._save();
  }

  /** Unfold the arrays with failed tasks while only what failed is shown; the filter leaves those tasks only. */
  private _unfoldFailed(isOn: boolean): void {
    const arrays = isOn
      ? this.jobs.filter(
          (job) => job.tasks !== null && !this.isUnfolded(job) && isOfKind(job, FAILED),
        )
      : this.jobs.filter((job) => this._unfoldedByFilter.has(identity(job)));
    const some = arrays.slice(0, MAX_UNFOLDED);
    for (const job of some) {
      this._parts.fold(job, isOn);
    }
    this._unfoldedByFilter = new Set(isOn ? some.map(identity) : []);
    this._shown = null;
  }

  /** Sort by a column; the second time in the opposite order; the third time return to the initial order. */
  sortBy(column: ColumnId): void {
    this._choose({ ...this._criteria, sort: nextSort(this._criteria.sort, column) });
    this._save();
  }

  /** Show or hide a column; the last column stays. */
  toggleColumn(column: ColumnId): void {
    this._setColumns(toggledColumns(this._columns, column));
  }

  /** Move a column towards the beginning (-1) or the end (1). */
  moveColumn(column: ColumnId, by: -1 | 1): void {
    this._setColumns(movedColumns(this._columns, column, by));
  }

  /** The widths that the user has chosen. */
  get widths(): ChosenWidths {
    return this._widths;
  }

  /** Give a column a width in pixels; null: the initial one. */
  resize(column: ColumnId, width: number | null): void {
    this._widths = resizedColumns(this._widths, column, width);
    this._save();
    this._changed.emit();
  }

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

  /** Select a job, by key or ID, as soon as it is listed. */
  find(cluster: string, job: string): void {
    this._sought = { cluster, job };
    this._seek();
  }

  /** Position of the last selection among those of all tables of the page: commands are for the latest one. */
  get lastUse(): number {
    return this._lastUse;
  }

  private _noteUse(): void {
    uses += 1;
    this._lastUse = uses;
  }

  isUnfolded(job: IJob): boolean {
    return this._parts.isUnfolded(job);
  }

  /** Return the reason why the parts of a job are missing. */
  partsProblem(job: IJob): IProblem | null {
    return this._parts.problem(job);
  }

  fold(job: IJob, isUnfolded: boolean): void {
    this._parts.fold(job, isUnfolded);
    this._redraw();
  }

  // -- updates

  private readonly _update = (): void => {
    if (!this._parts.isEmpty) {
      this._parts.update(this.jobs);
    }
    this._seek();
    this._changed.emit();
  };

  private _redraw(): void {
    this._shown = null;
    this._changed.emit();
  }

  private _setColumns(columns: readonly ColumnId[]): void {
    if (columns !== this._columns) {
      this._columns = columns;
      this._save();
      this._changed.emit();
    }
  }

  private _choose(criteria: ICriteria): void {
    this._criteria = criteria;
    this._changed.emit();
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

  private _seek(): void {
    const wanted = this._sought;
    const found =
      wanted &&
      this.model.jobs.find(
        ({ cluster, id, key }) =>
          cluster === wanted.cluster && (id === wanted.job || key === wanted.job),
      );
    if (found) {
      this._sought = null;
      this._criteria = { ...this._criteria, text: "", kinds: new Set() };
      this._active = identity(found);
      this._marked = new Set([this._active]);
      this._changed.emit();
    }
  }

  private _save(): void {
    const { sort, kinds } = this._criteria;
    void this._memory
      ?.save({ columns: this._columns, sort, kinds: [...kinds], widths: this._widths })
      .catch(() => undefined); // without storage the choice holds as long as the page
  }

  private readonly _restore = (told: unknown): void => {
    if (typeof told !== "object" || told === null) {
      return;
    }
    const { columns, sort, kinds, widths } = told as Partial<ISavedTable>;
    this._columns = savedColumns(columns, this._columns);
    this._widths = savedWidths(widths);
    this._choose({ ...this._criteria, ...savedCriteria(sort, kinds) });
  };
}
