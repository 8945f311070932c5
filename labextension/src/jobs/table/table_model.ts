/** Model of the table of jobs: the filter, the columns, the selection and the unfolded jobs. No DOM. */
import type { IJob, IProblem } from "../../common/api/objects";
import { identity, isReached } from "../../common/api/records";
import { isOfKind, type StateKind } from "../../common/job_states";
import type { IJobsModel } from "../../common/jobs_model";
import { jobCluster } from "../../common/labels";
import type { AllJobs } from "../all_jobs";
import { INITIAL_COLUMNS, type ChosenWidths, type ColumnId } from "./columns";
import { changedFilters, columnTest, type ColumnFilter } from "./filters/column_filters";
import { PeriodFilter, savedPeriod, type PastJobs, type Period } from "./filters/period";
import { countKinds, nextSort, NO_FILTERS, RowOrder, type ICriteria } from "./row_order";
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
import { SelectableLines, type IRow } from "./selectable_lines";
import { UnfoldedParts } from "./unfolded_parts";

/** Number of arrays that a filter unfolds: for each one the agent is asked. */
const MAX_UNFOLDED = 20;
const FAILED: ReadonlySet<StateKind> = new Set(["failed"]);

export class JobsTable extends SelectableLines {
  private readonly _rows = new RowOrder();
  private _criteria: ICriteria = { ...NO_FILTERS, sort: null };
  private _period: Period = null;
  private readonly _periodFilter = new PeriodFilter();
  private _initial: readonly ColumnId[];
  private _columns: readonly ColumnId[] | null = null;
  private _isCompact = false;
  private _widths: ChosenWidths = {};
  private _showsAllUsers = false;
  private readonly _parts: UnfoldedParts;
  private _unfoldedByFilter: ReadonlySet<string> = new Set();
  private _sought: { cluster: string; job: string } | null = null;
  private readonly _restored: Promise<void>;
  private _lines: readonly IRow[] = [];
  private _shown: readonly IJob[] | null = null;
  private _counted: readonly IJob[] | null = null;
  private _counts: ReadonlyMap<StateKind, number> = new Map();

  constructor(
    readonly model: IJobsModel,
    columns: readonly ColumnId[] = INITIAL_COLUMNS,
    private readonly _memory: ITableMemory | null = null,
    readonly allJobs: AllJobs | null = null,
    readonly pastJobs: PastJobs | null = null,
  ) {
    super();
    this._initial = columns;
    this._parts = new UnfoldedParts(model, () => {
      this._redraw();
    });
    model.changed.connect(this._update);
    allJobs?.changed.connect(this._update);
    pastJobs?.changed.connect(this._update);
    this._restored = this._memory?.load().then(this._restore, () => undefined) ?? Promise.resolve();
  }

  override dispose(): void {
    super.dispose();
    this.model.changed.disconnect(this._update);
    this.allJobs?.changed.disconnect(this._update);
    this.pastJobs?.changed.disconnect(this._update);
  }

  get criteria(): ICriteria {
    return this._criteria;
  }

  /** The columns that are shown. */
  get columns(): readonly ColumnId[] {
    return shownColumns(this.chosen, this.model.clusters.length > 1, this._showsAllUsers);
  }

  /** The columns that the user has chosen, or the initial ones, in their order. */
  get chosen(): readonly ColumnId[] {
    return this._columns ?? this._initial;
  }

  /** Whether the rows are as low as the text allows. */
  get isCompact(): boolean {
    return this._isCompact;
  }

  /** Apply the settings of the user; null: the initial columns stay. */
  configure(isCompact: boolean, columns: readonly ColumnId[] | null): void {
    this._isCompact = isCompact;
    this._initial = columns ?? this._initial;
    this._changed.emit();
  }

  /** Whether the jobs of other users are shown too. */
  get showsAllUsers(): boolean {
    return this._showsAllUsers;
  }

  get jobs(): readonly IJob[] {
    const { jobs, now } = this.model;
    const past = this._period === null ? jobs : (this.pastJobs?.withPast(jobs) ?? jobs);
    const own = this._periodFilter.within(past, this._period, now);
    return this._showsAllUsers ? (this.allJobs?.withOthers(own) ?? own) : own;
  }

  /** The period of the finished jobs. */
  get period(): Period {
    return this._period;
  }

  setPeriod(period: Period): void {
    this._period = period;
    this.loadPastJobs();
    this._save();
    this._changed.emit();
  }

  /** Load the finished jobs of the chosen period again. */
  loadPastJobs(): void {
    if (this._period !== null) {
      void this.pastJobs?.load(this._reached, this._period);
    }
  }

  private get _reached(): readonly string[] {
    return this.model.clusters.filter(isReached).map(({ id }) => id);
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
      void this.allJobs?.load(this._reached);
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
  override get lines(): readonly IRow[] {
    const shown = this._rows.shown(this.jobs, this._criteria, this.model.now, (job) =>
      jobCluster(this.model, job),
    );
    if (shown !== this._shown) {
      this._shown = shown;
      const { kinds, columns } = this._criteria;
      const isInState = columnTest(columns.state ? { state: columns.state } : {}) ?? (() => true);
      const lines: IRow[] = [];
      for (const job of shown) {
        lines.push({ job, parent: null });
        for (const part of this._parts.partsOf(job)) {
          if (
            job.tasks === null ||
            ((kinds.size === 0 || isOfKind(part, kinds)) && isInState(part))
          ) {
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

  /** Filter a column: by words that all occur, or by the values that are shown. */
  filterColumn(column: ColumnId, filter: ColumnFilter): void {
    const columns = changedFilters(this._criteria.columns, column, filter);
    this._choose({ ...this._criteria, columns });
    this._save();
  }

  /** Whether jobs may be hidden. */
  get isFiltered(): boolean {
    const { text, kinds, columns } = this._criteria;
    return text !== "" || kinds.size > 0 || Object.keys(columns).length > 0;
  }

  /** Show all jobs again; the period stays. */
  clearFilters(): void {
    this._choose({ ...this._criteria, ...NO_FILTERS });
    this._save();
  }

  /** Show what has failed, whatever was filtered before. This filter is not saved: it is for one look. */
  async showFailed(): Promise<void> {
    await this._restored; // a new table gets the filters that were used last
    this._unfoldFailed(true);
    this._choose({ ...this._criteria, ...NO_FILTERS, kinds: FAILED });
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
    this._setColumns(toggledColumns(this.chosen, column));
  }

  /** Move a column towards the beginning (-1) or the end (1). */
  moveColumn(column: ColumnId, by: -1 | 1): void {
    this._setColumns(movedColumns(this.chosen, column, by));
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

  /** Select a job, by key or ID, as soon as it is listed. */
  find(cluster: string, job: string): void {
    this._sought = { cluster, job };
    this._seek();
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
    if (this._period !== null) {
      this.pastJobs?.complete(this._reached, this._period);
    }
    this._seek();
    this._changed.emit();
  };

  private _redraw(): void {
    this._shown = null;
    this._changed.emit();
  }

  private _setColumns(columns: readonly ColumnId[]): void {
    if (columns !== this.chosen) {
      const isInitial = columns.join() === this._initial.join();
      this._columns = isInitial ? null : columns;
      this._save();
      this._changed.emit();
    }
  }

  private _choose(criteria: ICriteria): void {
    this._criteria = criteria;
    this._changed.emit();
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
      this._criteria = { ...this._criteria, ...NO_FILTERS };
      this.selectAlone(found);
      this._changed.emit();
    }
  }

  private _save(): void {
    const { sort, kinds, columns: filters } = this._criteria;
    const [columns, widths, period] = [this._columns, this._widths, this._period];
    void this._memory
      ?.save({ columns, sort, kinds: [...kinds], widths, filters, period })
      .catch(() => undefined); // without storage the choice holds as long as the page
  }

  private readonly _restore = (told: unknown): void => {
    if (typeof told !== "object" || told === null) {
      return;
    }
    const { columns, sort, kinds, widths, filters, period } = told as Partial<ISavedTable>;
    this._columns = savedColumns(columns);
    this._widths = savedWidths(widths);
    this._period = savedPeriod(period);
    this._update();
    this._choose({ ...this._criteria, ...savedCriteria(sort, kinds, filters) });
  };
}
