/** Values of a form that were typed but not submitted: they return when the form is opened again. No DOM. */
import type { ILaunchForm, LaunchField } from "../common/launch_request";
import type { IMemory } from "./model";

/** Return the values of a form that differ from the initial ones. */
export function typedValues(form: ILaunchForm, initial: ILaunchForm): Partial<ILaunchForm> {
  const fields = Object.keys(initial) as LaunchField[];
  const typed = fields.filter((field) => form[field] !== initial[field]);
  return Object.fromEntries(typed.map((field) => [field, form[field]]));
}

/** The draft of one form. Only what was typed is stored: other values stay those of the script, or of the last launch. */
export class FormDraft {
  /**
   * @param _name - What the form is of: a cluster, or a script on a cluster.
   */
  constructor(
    private readonly _memory: IMemory,
    private readonly _name: string,
  ) {}

  /** Return the values with which a form begins. */
  async restore(initial: ILaunchForm): Promise<ILaunchForm> {
    const saved = await this._memory.loadDraft(this._name).catch(() => null);
    const known = typeof saved === "object" && saved !== null ? Object.entries(saved) : [];
    const typed = known.filter(
      ([field, value]) => Object.hasOwn(initial, field) && typeof value === "string",
    );
    return { ...initial, ...(Object.fromEntries(typed) as Partial<ILaunchForm>) };
  }

  /** Store what was typed; without storage it holds as long as the form. */
  keep(form: ILaunchForm, initial: ILaunchForm): void {
    void this._memory.saveDraft(this._name, typedValues(form, initial)).catch(() => undefined);
  }

  /** Forget what was typed, since it was submitted. */
  forget(): void {
    void this._memory.saveDraft(this._name, {}).catch(() => undefined);
  }
}
