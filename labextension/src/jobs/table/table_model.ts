/** A table of jobs as a person has it before them: what is shown, chosen, marked and unfolded. No DOM. */
import type { IJob, IProblem } from "../../common/api/objects";
import { toProblem } from "../../common/api/problem";
import { hasParts, identity, isReached } from "../../common/api/records";
import { isKind, stateKind, type StateKind } from "../../common/job_states";
import type { IJobsModel } from "../../common/jobs_model";
import { Model } from "../../common/observable_model";
import type { Everybody } from "../all_jobs";
import { COLUMNS, isColumn, type ColumnId } from "./columns";
import { Rows, type ICriteria, type ISort } from "./row_order";

/** A line of the table. */
export interface IRow {
  readonly job: IJob;
  /** The array, or the allocation, of which it is a part. */
  readonly parent: IJob | null;
}

/** The parts of a job that is unfolded. */
interface IUnfolded {
  /** The job as it was when they were asked for. */
  readonly of: IJob | null;
  readonly jobs: readonly IJob[];
  readonly problem: IProblem | null;
}

/** What is remembered of a table. */
export interface IRemembered {
  readonly columns: readonly ColumnId[];
  readonly sort: ISort | null;
  readonly kinds: readonly StateKind[];
}

/** Remembers what a person has chosen. */
export interface ITableMemory {
  load(): Promise<unknown>;
  save(remembered: IRemembered): Promise<void>;
}

export class JobsTable extends Model {
  private readonly _rows = new Rows();
  private _criteria: ICriteria = { text: "", kinds: new Set(), sort: null };
  private _columns: readonly ColumnId[];
  private _isEverybodys = false;
  private _marked = new Set<string>();
  private _unfolded = new Map<string, IUnfolded>();
  /** Whose parts are asked for now. */
  private readonly _loading = new Set<string>();
  /** Where the keyboard is, and where a range begins. */
  private _active: string | null = null;
  private _anchor: string | null = null;
  private _at = -1;
  private _wanted: { cluster: string; job: string } | null = null;
  private _lines: readonly IRow[] = [];
  private _shown: readonly IJob[] | null = null;
  private _counted: readonly IJob[] | null = null;
  private _counts = new Map<StateKind, number>();

  constructor(
    readonly model: IJobsModel,
    columns: readonly ColumnId[] = COLUMNS.slice(0, 7),
    private readonly _memory: ITableMemory | null = null,
    readonly everybody: Everybody | null = null,
  ) {
    super();
    this._columns = columns;
    model.changed.connect(this._follow);
    everybody?.changed.connect(this._follow);
    void this._memory?.load().then(this._recall, () => undefined);
  }

  override dispose(): void {
    super.dispose();
    this.model.changed.disconnect(this._follow);
    this.everybody?.changed.disconnect(this._follow);
  }

  get criteria(): ICriteria {
    return this._criteria;
  }

  /** Those that are shown. */
  get columns(): readonly ColumnId[] {
    const [first, ...others] = this._columns;
    if (!this._isEverybodys || !first) {
      return this._columns;
    }
    // Names of others are not told: where those stand first, in a narrow bar, nothing would be seen.
    return first === "name" ? ["user", ...others, first] : [first, "user", ...others];
  }

  /** Those that a person has chosen, in their order. */
  get chosen(): readonly ColumnId[] {
    return this._columns;
  }

  /** Whether those of others are shown, too. */
  get isEverybodys(): boolean {
    return this._isEverybodys;
  }

  get jobs(): readonly IJob[] {
    const { jobs } = this.model;
    return this._isEverybodys ? (this.everybody?.with(jobs) ?? jobs) : jobs;
  }

  showEverybodys(isEverybodys: boolean): void {
    this._isEverybodys = isEverybodys;
    if (this._criteria.sort?.column === "user" && !isEverybodys) {
      this._criteria = { ...this._criteria, sort: null };
    }
    this.look();
    this._changed.emit();
  }

  /** Ask for the jobs of others, where they are shown. */
  look(): void {
    if (this._isEverybodys) {
      void this.everybody?.look(this.model.clusters.filter(isReached).map(({ id }) => id));
    }
  }

  /** How many jobs there are of each kind of state. */
  get counts(): ReadonlyMap<StateKind, number> {
    const { jobs } = this;
    if (jobs !== this._counted) {
      this._counted = jobs;
      this._counts = new Map();
      for (const { state } of jobs) {
        const kind = stateKind(state);
        this._counts.set(kind, (this._counts.get(kind) ?? 0) + 1);
      }
    }
    return this._counts;
  }

  /** The lines that are shown; the same array as long as nothing has changed. */
  get lines(): readonly IRow[] {
    const shown = this._rows.shown(this.jobs, this._criteria, this.model.now);
    if (shown !== this._shown) {
      this._shown = shown;
      const lines: IRow[] = [];
      for (const job of shown) {
        lines.push({ job, parent: null });
        for (const part of this._unfolded.size > 0 ? this._partsOf(job) : []) {
          lines.push({ job: part, parent: job });
        }
      }
      this._lines = lines;
    }
    return this._lines;
  }

  filter(text: string): void {
    this._choose({ ...this._criteria, text });
  }

  toggleKind(kind: StateKind): void {
    const kinds = new Set(this._criteria.kinds);
    if (!kinds.delete(kind)) {
      kinds.add(kind);
    }
    this._choose({ ...this._criteria, kinds });
    this._remember();
  }

  /** Sort by a column; once more, the other way round; a third time, as at first. */
  sortBy(column: ColumnId): void {
    const { sort } = this._criteria;
    const isOther = sort?.column !== column;
    const next = isOther
      ? { column, isDescending: false }
      : sort.isDescending
        ? null
        : { column, isDescending: true };
    this._choose({ ...this._criteria, sort: next });
    this._remember();
  }

  /** Show a column, or hide it; the last one stays. */
  toggleColumn(column: ColumnId): void {
    const others = this._columns.filter((each) => each !== column);
    const isNew = others.length === this._columns.length;
    if (isNew || others.length > 0) {
      this._columns = isNew ? [...others, column] : others;
      this._remember();
      this._changed.emit();
    }
  }

  /** Move a column towards the beginning (-1) or the end (1). */
  moveColumn(column: ColumnId, by: -1 | 1): void {
    const others = this._columns.filter((each) => each !== column);
    const at = this._columns.indexOf(column) + by;
    if (others.length < this._columns.length && at >= 0 && at <= others.length) {
      this._columns = [...others.slice(0, at), column, ...others.slice(at)];
      this._remember();
      this._changed.emit();
    }
  }

  // -- what is marked

  /** The jobs that are marked and shown, in their order. */
  get marked(): readonly IJob[] {
    return this._marked.size === 0
      ? []
      : this.lines.map(({ job }) => job).filter((job) => this._marked.has(identity(job)));
  }

  isMarked(job: IJob): boolean {
    return this._marked.has(identity(job));
  }

  /** Where the keyboard is among the lines; -1: nowhere. */
  get active(): number {
    const last = this.lines[this._at];
    if (last === undefined || identity(last.job) !== this._active) {
      this._at = this._index(this._active);
    }
    return this._at;
  }

  /** Mark a line as a click does: alone, beside others, or all from the last one on. */
  click(index: number, how: { readonly adds: boolean; readonly extends: boolean }): void {
    const line = this.lines[index];
    if (line === undefined) {
      return;
    }
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

  /** Go to another line, and mark what lies between where that is wanted. */
  go(index: number, extend: boolean): void {
    const line = this.lines[Math.max(0, Math.min(index, this.lines.length - 1))];
    if (line === undefined) {
      return;
    }
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

  markAll(): void {
    this._marked = new Set(this.lines.map(({ job }) => identity(job)));
    this._changed.emit();
  }

  unmark(): void {
    this._marked = new Set();
    this._changed.emit();
  }

  /** Go to a job, by key or id, as soon as it is there. */
  find(cluster: string, job: string): void {
    this._wanted = { cluster, job };
    this._seek();
  }

  // -- arrays and allocations

  isUnfolded(job: IJob): boolean {
    return this._unfolded.has(identity(job));
  }

  /** Why the parts of a job are not there. */
  trouble(job: IJob): IProblem | null {
    return this._unfolded.get(identity(job))?.problem ?? null;
  }

  fold(job: IJob, isUnfolded: boolean): void {
    if (isUnfolded && hasParts(job) && !this.isUnfolded(job)) {
      this._unfolded.set(identity(job), { of: null, jobs: [], problem: null });
      void this._load(job);
    } else if (!isUnfolded) {
      this._unfolded.delete(identity(job));
    }
    this._redraw();
  }

  // -- beneath

  private readonly _follow = (): void => {
    for (const job of this._unfolded.size > 0 ? this.jobs : []) {
      const unfolded = this._unfolded.get(identity(job));
      if (unfolded?.of && unfolded.of !== job) {
        void this._load(job);
      }
    }
    this._seek();
    this._changed.emit();
  };

  /**
   * Ask for the parts of a job, one question at a time: a large array changes faster than its ten thousand tasks are told.
   */
  private async _load(job: IJob): Promise<void> {
    const key = identity(job);
    const before = this._unfolded.get(key)?.jobs ?? [];
    this._unfolded.set(key, { of: job, jobs: before, problem: null });
    if (this._loading.has(key)) {
      return;
    }
    this._loading.add(key);
    const told = await this.model.parts(job).then(
      (jobs) => ({ jobs, problem: null }),
      (error: unknown) => ({
        jobs: before,
        problem: toProblem(error, "Fold it and unfold it again."),
      }),
    );
    this._loading.delete(key);
    const now = this._unfolded.get(key)?.of;
    if (now) {
      this._unfolded.set(key, { of: now, ...told });
      this._redraw();
      if (now !== job) {
        void this._load(now); // it has changed meanwhile
      }
    }
  }

  private _partsOf(job: IJob): readonly IJob[] {
    return this._unfolded.get(identity(job))?.jobs ?? [];
  }

  private _redraw(): void {
    this._shown = null;
    this._changed.emit();
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
    const wanted = this._wanted;
    const found =
      wanted &&
      this.model.jobs.find(
        ({ cluster, id, key }) =>
          cluster === wanted.cluster && (id === wanted.job || key === wanted.job),
      );
    if (found) {
      this._wanted = null;
      this._criteria = { ...this._criteria, text: "", kinds: new Set() };
      this._active = identity(found);
      this._marked = new Set([this._active]);
      this._changed.emit();
    }
  }

  private _remember(): void {
    const { sort, kinds } = this._criteria;
    void this._memory
      ?.save({ columns: this._columns, sort, kinds: [...kinds] })
      .catch(() => undefined); // it is as it was chosen, as long as the page is there
  }

  private readonly _recall = (told: unknown): void => {
    if (typeof told !== "object" || told === null) {
      return;
    }
    const { columns, sort, kinds } = told as Partial<IRemembered>;
    const known = Array.isArray(columns) ? columns.filter(isColumn) : [];
    this._columns = known.length > 0 ? [...new Set(known)] : this._columns;
    this._choose({
      ...this._criteria,
      sort: sort && isColumn(sort.column) ? { ...sort } : null,
      kinds: new Set(Array.isArray(kinds) ? kinds.filter(isKind) : []),
    });
  };
}
