/** Moves of notebooks to a remote kernel, or to its follow-up allocation. The Jupyter server makes them. No DOM. */
import { Signal, type ISignal } from "@lumino/signaling";

import { RequestError, toProblem } from "../common/api/problem";
import { Model } from "../common/observable_model";

/** A move, as the server sends it. */
export interface IMove {
  readonly id: string;
  /** The path below the root of the server. */
  readonly notebook: string;
  /** The name of the new kernel. */
  readonly kernel: string;
  /** `waiting`, `moving`, `done`, `failed`, `cancelled`. */
  readonly state: string;
  /** The progress or the result, in a line. */
  readonly text: string;
  /** The variables to move. */
  readonly in: readonly string[];
}

/** The request for a move. */
export interface IMoveRequest {
  readonly notebook: string;
  /** Absent: the same kernel in another allocation. */
  readonly kernel?: string;
  readonly in: readonly string[];
  /** Whether the allocations of the present kernel stay open for the next one. */
  readonly keep: boolean;
}

/** A variable of a kernel. */
export interface IVariable {
  readonly name: string;
  readonly type: string;
  /** Bytes, as it would be sent; null: not known. */
  readonly size: number | null;
  /** Why it cannot be sent; empty: it can. */
  readonly why: string;
}

/** What a move of a notebook can send, and what it ends. */
export interface ISurvey {
  readonly variables: readonly IVariable[];
  /** Number of variables that are not listed. */
  readonly left: number;
  /** Why nothing can be sent; empty otherwise. */
  readonly trouble: string;
  /** Names of the allocations that end with the present kernel. */
  readonly allocations: readonly string[];
}

/** The API of the server extension for moves. */
export interface IMovesApi {
  /** Refused where the variables cannot be sent. */
  beginMove(request: IMoveRequest): Promise<IMove>;
  /** Null: a cell runs. */
  variables(notebook: string, kernel: string | undefined): Promise<ISurvey | null>;
  /** The active moves, and some that have ended. */
  moves(): Promise<IMove[]>;
  move(id: string): Promise<IMove>;
  /** Cancel a move; return its state after that. */
  giveUpMove(id: string): Promise<IMove>;
}

/** Interval of requests for the progress, in milliseconds: this server answers, Slurm is not asked. */
const POLL_INTERVAL_MS = 1_000;
/** Shortest interval of requests for moves that were started elsewhere, in milliseconds. */
const DISCOVERY_INTERVAL_MS = 5_000;

/** Whether a move has ended. */
export function isOver({ state }: IMove): boolean {
  return state !== "waiting" && state !== "moving";
}

/** Follows moves from their start to their end. */
export class Moves extends Model {
  private readonly _progress = new Signal<this, IMove>(this);
  private readonly _active = new Map<string, IMove>();
  /** IDs of ended moves: a late answer does not restart them. */
  private readonly _ended = new Set<string>();
  private readonly _lastVariables = new Map<string, readonly string[]>();
  private _discoveredAt = -Infinity;

  constructor(
    private readonly _api: IMovesApi,
    private readonly _sleep: (milliseconds: number) => Promise<void> = defaultSleep,
    private readonly _clock: () => number = Date.now,
  ) {
    super();
  }

  /** Emits each change of a move once, the end last. */
  get progress(): ISignal<this, IMove> {
    return this._progress;
  }

  /** Return the active move of a notebook. */
  activeMove(notebook: string): IMove | null {
    return [...this._active.values()].find((move) => move.notebook === notebook) ?? null;
  }

  /** Return the variables of the last request: after a refusal the user chooses others. */
  lastVariables(notebook: string): readonly string[] {
    return this._lastVariables.get(notebook) ?? [];
  }

  /** Return the variables that a move to a kernel can send; null while a cell runs. */
  survey(notebook: string, kernel: string | undefined): Promise<ISurvey | null> {
    return this._api.variables(notebook, kernel);
  }

  /** Request a move; throws a refusal. */
  async begin(request: IMoveRequest): Promise<void> {
    this._lastVariables.set(request.notebook, request.in);
    this._apply(await this._api.beginMove(request));
  }

  /** Cancel a move; throws a refusal. */
  async giveUp({ id }: IMove): Promise<void> {
    this._apply(await this._api.giveUpMove(id));
  }

  /** Load moves that were started elsewhere, by a cell, a terminal or another tab; at most once per interval. */
  async discover(): Promise<void> {
    const now = this._clock();
    if (now - this._discoveredAt < DISCOVERY_INTERVAL_MS) {
      return;
    }
    this._discoveredAt = now;
    const moves = await this._api.moves().catch((): IMove[] => []); // an older server has no moves
    for (const move of moves.filter((each) => !isOver(each))) {
      this._apply(move);
    }
  }

  /** Apply the state of a move. */
  private _apply(move: IMove): void {
    const { id, state, text } = move;
    if (this.isDisposed || this._ended.has(id)) {
      return;
    }
    const before = this._active.get(id);
    if (isOver(move)) {
      this._active.delete(id);
      this._ended.add(id);
    } else {
      this._active.set(id, move);
    }
    if (before?.state !== state || before.text !== text) {
      this._progress.emit(move);
      this._changed.emit();
    }
    if (before === undefined && !isOver(move)) {
      void this._follow(id);
    }
  }

  private async _follow(id: string): Promise<void> {
    while (this._active.has(id) && !this.isDisposed) {
      await this._sleep(POLL_INTERVAL_MS);
      await this._poll(id);
    }
  }

  private async _poll(id: string): Promise<void> {
    const known = this._active.get(id);
    if (known === undefined) {
      return;
    }
    try {
      this._apply(await this._api.move(id));
    } catch (error) {
      if (error instanceof RequestError && error.problem.status === 404) {
        // The server was restarted: its kernels continue, the move does not.
        this._apply({ ...known, state: "failed", text: toProblem(error, "").detail ?? known.text });
      }
    }
  }
}

function defaultSleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
