/** Notebooks on their way to a kernel on a node, or to its follow-up allocation. The Jupyter server moves them. No DOM. */
import { Signal, type ISignal } from "@lumino/signaling";

import { RequestError, toProblem } from "../common/api/problem";
import { Model } from "../common/observable_model";

/** One of them, as the server tells it. */
export interface IMove {
  readonly id: string;
  /** Its path, below the root of the server. */
  readonly notebook: string;
  /** The name of the kernel that it goes to. */
  readonly kernel: string;
  /** `waiting`, `moving`, `done`, `failed`, `cancelled`. */
  readonly state: string;
  /** How far it is, or what came of it: a line. */
  readonly text: string;
  /** The variables that come along. */
  readonly in: readonly string[];
}

/** What is asked for. */
export interface IMoveRequest {
  readonly notebook: string;
  /** Absent: the kernel that it has, in another allocation. */
  readonly kernel?: string;
  readonly in: readonly string[];
}

/** What is needed of the server for moves. */
export interface IMovesApi {
  beginMove(request: IMoveRequest): Promise<IMove>;
  /** Those under way, and some that are over. */
  moves(): Promise<IMove[]>;
  move(id: string): Promise<IMove>;
  /** Have the notebook stay where it is; tells what has become of it. */
  giveUpMove(id: string): Promise<IMove>;
}

/** How often it is asked how far a notebook is, in milliseconds: this server answers, Slurm is not asked. */
const INTERVAL = 1_000;
/** How often those are looked for that were begun elsewhere, at most. */
const SELDOM = 5_000;

/** Whether nothing more happens. */
export function isOver({ state }: IMove): boolean {
  return state !== "waiting" && state !== "moving";
}

/** Return the variables that a person has named, each once. */
export function namesOf(text: string): string[] {
  return [...new Set(text.split(/[\s,]+/).filter((name) => name !== ""))];
}

/** Follows what moves, from the first word of it until it is over. */
export class Moves extends Model {
  private readonly _told = new Signal<this, IMove>(this);
  private readonly _going = new Map<string, IMove>();
  /** Ids of those that are over: an answer that comes late does not take them up again. */
  private readonly _ended = new Set<string>();
  private readonly _named = new Map<string, readonly string[]>();
  private _looked = -Infinity;

  constructor(
    private readonly _api: IMovesApi,
    private readonly _sleep: (milliseconds: number) => Promise<void> = defaultSleep,
    private readonly _clock: () => number = Date.now,
  ) {
    super();
  }

  /** How far one is: each change once, the end last. */
  get told(): ISignal<this, IMove> {
    return this._told;
  }

  /** The move of a notebook that is under way. */
  of(notebook: string): IMove | null {
    return [...this._going.values()].find((move) => move.notebook === notebook) ?? null;
  }

  /** The variables that were to come along the last time: who is refused one takes the others. */
  namedLast(notebook: string): readonly string[] {
    return this._named.get(notebook) ?? [];
  }

  /** Have a notebook moved; throws what is refused. */
  async begin(request: IMoveRequest): Promise<void> {
    this._named.set(request.notebook, request.in);
    this._take(await this._api.beginMove(request));
  }

  /** Have it stay where it is; throws what is refused. */
  async giveUp({ id }: IMove): Promise<void> {
    this._take(await this._api.giveUpMove(id));
  }

  /** Look for what was begun elsewhere: by a cell, a terminal, another tab. Not at once again. */
  async look(): Promise<void> {
    const now = this._clock();
    if (now - this._looked < SELDOM) {
      return;
    }
    this._looked = now;
    const moves = await this._api.moves().catch((): IMove[] => []); // of an older server there are none
    for (const move of moves.filter((each) => !isOver(each))) {
      this._take(move);
    }
  }

  /** Take in how far one is. */
  private _take(move: IMove): void {
    const { id, state, text } = move;
    if (this.isDisposed || this._ended.has(id)) {
      return;
    }
    const before = this._going.get(id);
    if (isOver(move)) {
      this._going.delete(id);
      this._ended.add(id);
    } else {
      this._going.set(id, move);
    }
    if (before?.state !== state || before.text !== text) {
      this._told.emit(move);
      this._changed.emit();
    }
    if (before === undefined && !isOver(move)) {
      void this._follow(id);
    }
  }

  private async _follow(id: string): Promise<void> {
    while (this._going.has(id) && !this.isDisposed) {
      await this._sleep(INTERVAL);
      await this._ask(id);
    }
  }

  private async _ask(id: string): Promise<void> {
    const known = this._going.get(id);
    if (known === undefined) {
      return;
    }
    try {
      this._take(await this._api.move(id));
    } catch (error) {
      if (error instanceof RequestError && error.problem.status === 404) {
        // The server has begun anew: its kernels go on, the move does not.
        this._take({ ...known, state: "failed", text: toProblem(error, "").detail ?? known.text });
      }
    }
  }
}

function defaultSleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
