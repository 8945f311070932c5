/** What hosts ask the person, until it is answered, here or elsewhere. No DOM, no requests of its own. */
import type { IProblem, IPrompt } from "../common/api/objects";
import { RequestError, toProblem } from "../common/api/problem";

/** The request that the queue makes to the agent. */
export interface IPromptsApi {
  /** Answer a prompt, one text for each question; null declines. */
  answer(prompt: string, answers: readonly string[] | null): Promise<void>;
}

interface IAskedOptions {
  readonly api: IPromptsApi;
  readonly changed: () => void;
  /** Is told of a prompt that waits for no answer any more. */
  readonly settled: (prompt: IPrompt) => void;
}

export class Asked {
  private _prompts = new Map<string, IPrompt>();
  /** Prompts that were answered here, until the agent says that they are settled. */
  private readonly _answered = new Map<string, IPrompt>();

  constructor(private readonly _options: IAskedOptions) {}

  get prompts(): readonly IPrompt[] {
    return [...this._prompts.values()];
  }

  /** Take in all that is asked. */
  know(prompts: readonly IPrompt[]): void {
    this._prompts = new Map(prompts.map((prompt) => [prompt.id, prompt]));
    this._options.changed();
  }

  /** Take in an event. */
  hear(prompt: IPrompt): void {
    if (prompt.settled) {
      const asked = this._prompts.get(prompt.id) ?? this._answered.get(prompt.id);
      this._prompts.delete(prompt.id);
      this._answered.delete(prompt.id);
      if (asked !== undefined) {
        this._options.settled(asked);
      }
    } else {
      this._prompts.set(prompt.id, prompt);
    }
    this._options.changed();
  }

  /** Answer a prompt; null declines. Return what went wrong. */
  async answer(prompt: IPrompt, answers: readonly string[] | null): Promise<IProblem | null> {
    this._prompts.delete(prompt.id);
    this._answered.set(prompt.id, prompt);
    this._options.changed();
    try {
      await this._options.api.answer(prompt.id, answers);
      return null;
    } catch (error) {
      if (error instanceof RequestError && error.problem.type?.endsWith(":prompt-gone")) {
        return null; // somebody else was quicker
      }
      if (answers !== null && !(error instanceof RequestError)) {
        this._prompts.set(prompt.id, prompt); // it did not arrive; what was refused would be refused again
      }
      return toProblem(error, "An answer can be given anew as long as it is waited for.");
    }
  }
}
