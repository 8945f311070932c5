/** Queue of the prompts of logins, until each is answered in the panel or elsewhere. No DOM, no requests of its own. */
import type { IProblem, IPrompt } from "../common/api/objects";
import { RequestError, toProblem } from "../common/api/problem";

/** The request that the queue makes to the agent. */
export interface IPromptsApi {
  /** Answer a prompt, one text for each question; null declines. */
  answer(prompt: string, answers: readonly string[] | null): Promise<void>;
}

interface IPromptQueueOptions {
  readonly api: IPromptsApi;
  readonly changed: () => void;
  /** Called with a prompt that no longer waits for an answer. */
  readonly settled: (prompt: IPrompt) => void;
}

export class PromptQueue {
  private _prompts = new Map<string, IPrompt>();
  /** Prompts that were answered in the panel, until the agent settles them. */
  private readonly _answered = new Map<string, IPrompt>();

  constructor(private readonly _options: IPromptQueueOptions) {}

  get prompts(): readonly IPrompt[] {
    return [...this._prompts.values()];
  }

  /** Replace all prompts. */
  replaceAll(prompts: readonly IPrompt[]): void {
    this._prompts = new Map(prompts.map((prompt) => [prompt.id, prompt]));
    this._options.changed();
  }

  /** Apply an event. */
  receive(prompt: IPrompt): void {
    if (prompt.settled) {
      const known = this._prompts.get(prompt.id) ?? this._answered.get(prompt.id);
      this._prompts.delete(prompt.id);
      this._answered.delete(prompt.id);
      if (known !== undefined) {
        this._options.settled(known);
      }
    } else {
      this._prompts.set(prompt.id, prompt);
    }
    this._options.changed();
  }

  /** Answer a prompt; null declines. Return the problem of a failure. */
  async answer(prompt: IPrompt, answers: readonly string[] | null): Promise<IProblem | null> {
    this._prompts.delete(prompt.id);
    this._answered.set(prompt.id, prompt);
    this._options.changed();
    try {
      await this._options.api.answer(prompt.id, answers);
      return null;
    } catch (error) {
      if (error instanceof RequestError && error.problem.type?.endsWith(":prompt-gone")) {
        return null; // another client has answered first
      }
      if (answers !== null && !(error instanceof RequestError)) {
        this._prompts.set(prompt.id, prompt); // the answer did not arrive; an answer that was refused would be refused again
      }
      return toProblem(error, "You can answer again while the host waits for the answer.");
    }
  }
}
