/** A notebook as JupyterLab has it, and a server at the border of the process that moves it. */
import { Signal } from "@lumino/signaling";

import { RequestError } from "../../src/common/api/problem";
import type { IContext } from "../../src/kernels/kernel_watch";
import {
  Moves,
  type IMove,
  type IMoveRequest,
  type IMovesApi,
  type ISurvey,
  type IVariable,
} from "../../src/kernels/move_model";

/** A variable that can be sent. */
export function variable(name: string, more: Partial<IVariable> = {}): IVariable {
  return { name, type: "list", size: 2_048, why: "", ...more };
}

/** A notebook with a kernel. */
export class Notebook {
  readonly kernelChanged = new Signal<this, unknown>(this);
  readonly statusChanged = new Signal<this, string>(this);
  session: { kernel: { id: string; name: string } | null; path: string; type: string };
  readonly context = this as unknown as IContext;

  constructor(path = "work/a.ipynb") {
    this.session = { kernel: null, path, type: "notebook" };
  }

  choose(id: string, name: string): void {
    this.session = { ...this.session, kernel: { id, name } };
    this.kernelChanged.emit(null);
  }
}

/** The server, and the model of it, which asks when the test says so. */
export class Mover implements IMovesApi {
  readonly asked: IMoveRequest[] = [];
  readonly givenUp: string[] = [];
  failure: Error | null = null;
  /** What the kernel has; null: a cell runs. */
  survey: ISurvey | null = {
    variables: [variable("x"), variable("modelo")],
    left: 0,
    trouble: "",
    allocations: [],
  };
  readonly model: Moves;
  private readonly _known = new Map<string, IMove>();
  private readonly _waiting: (() => void)[] = [];
  private _now = 0;

  constructor() {
    const sleep = (): Promise<void> => new Promise((resolve) => this._waiting.push(resolve));
    this.model = new Moves(this, sleep, () => this._now);
  }

  dispose(): void {
    this.model.dispose();
  }

  /** So much later that it is looked for moves again. */
  later(): void {
    this._now += 60_000;
  }

  /** One is under way that this page knows nothing of. */
  going(notebook: string, more: Partial<IMove> = {}): IMove {
    const id = `move-${this._known.size}`;
    const move = { id, notebook, kernel: "slurm-a", state: "waiting", text: "", in: [], ...more };
    this._known.set(id, move);
    return move;
  }

  /** It has come so far, which the model is told when it asks next. */
  become(move: IMove): void {
    this._known.set(move.id, move);
    this.tick();
  }

  forget({ id }: IMove): void {
    this._known.delete(id);
    this.tick();
  }

  tick(): void {
    for (const proceed of this._waiting.splice(0)) {
      proceed();
    }
  }

  beginMove(request: IMoveRequest): Promise<IMove> {
    this.asked.push(request);
    const { notebook, kernel = "slurm-a" } = request;
    return this._answer(() => this.going(notebook, { kernel, in: request.in, text: "Pending." }));
  }

  variables(): Promise<ISurvey | null> {
    return Promise.resolve(this.survey);
  }

  moves(): Promise<IMove[]> {
    return this._answer(() => [...this._known.values()]);
  }

  giveUpMove(id: string): Promise<IMove> {
    this.givenUp.push(id);
    return this._answer(() => {
      const move = { ...this._found(id), state: "cancelled", text: "Given up." };
      this._known.set(id, move);
      return move;
    });
  }

  move(id: string): Promise<IMove> {
    return this._answer(() => this._found(id));
  }

  private _found(id: string): IMove {
    const move = this._known.get(id);
    if (move === undefined) {
      throw new RequestError({ status: 404, detail: "There is no such move." });
    }
    return move;
  }

  private _answer<T>(make: () => T): Promise<T> {
    return this.failure === null
      ? new Promise((resolve) => {
          resolve(make());
        })
      : Promise.reject(this.failure);
  }
}
