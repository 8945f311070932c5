/** One field of the form that launches a session: its label, its input, its choices, and its problem. */
import * as React from "react";

import type { ILaunchForm, LaunchField } from "../common/launch_request";
import type { IChoice } from "./model";

interface IFieldProps {
  readonly field: LaunchField;
  readonly label: string;
  readonly form: ILaunchForm;
  readonly set: (field: LaunchField, value: string) => void;
  /** The problem of the value. */
  readonly problem?: string | undefined;
  /** The meaning of the field, and the value that applies when it is empty. */
  readonly hint?: string | undefined;
  /** Whether there is nothing to choose; the field keeps its place. */
  readonly isDisabled?: boolean;
}

interface IProps extends IFieldProps {
  readonly children: (described: React.AriaAttributes & { id: string }) => React.ReactElement;
}

function Labelled({ field, label, problem, hint, children }: IProps): React.ReactElement {
  const id = `${React.useId()}${field}`;
  const isWrong = problem !== undefined;
  const description = problem ?? hint;
  return (
    <div className="jp-Slurm-field" data-field={field}>
      <label htmlFor={id}>{label}</label>
      {children({
        id,
        "aria-invalid": isWrong,
        ...(description === undefined ? {} : { "aria-describedby": `${id}-said` }),
      })}
      <div
        id={`${id}-said`}
        className={isWrong ? "jp-Slurm-problem" : "jp-Slurm-aside"}
        {...(isWrong ? { role: "alert" } : {})}
      >
        {description}
      </div>
    </div>
  );
}

/** A text field with suggestions. */
export function TextField(
  props: IFieldProps & { readonly choices?: readonly IChoice[]; readonly numeric?: boolean },
): React.ReactElement {
  const { field, form, set, choices = [], numeric = false } = props;
  const list = `${React.useId()}list`;
  return (
    <Labelled {...props}>
      {(described) => (
        <>
          <input
            {...described}
            className="jp-mod-styled"
            type="text"
            inputMode={numeric ? "numeric" : "text"}
            autoComplete="off"
            autoCapitalize="off"
            spellCheck={false}
            list={choices.length > 0 ? list : undefined}
            value={form[field]}
            onChange={(event) => {
              set(field, event.target.value);
            }}
          />
          {choices.length > 0 && (
            <datalist id={list}>
              {choices.map(({ name, about }) => (
                <option key={name} value={name} label={about === "" ? name : about} />
              ))}
            </datalist>
          )}
        </>
      )}
    </Labelled>
  );
}

/** A choice. A chosen value that no longer exists stays among the choices, with its problem. */
export function ChoiceField(
  props: IFieldProps & {
    readonly choices: readonly IChoice[];
    /** The label of the empty choice. */
    readonly none: string;
    /** The value that means the same as the empty choice. */
    readonly same?: string;
  },
): React.ReactElement {
  const { field, form, set, choices, none, same = "", isDisabled = false } = props;
  const value = form[field] === same ? "" : form[field];
  const isKnown = value === "" || choices.some(({ name }) => name === value);
  return (
    <Labelled {...props}>
      {(described) => (
        <select
          {...described}
          className="jp-mod-styled"
          disabled={isDisabled && value === ""}
          value={value}
          onChange={(event) => {
            set(field, event.target.value);
          }}
        >
          <option value="">{none}</option>
          {!isKnown && <option value={value}>{value}</option>}
          {choices.map(({ name, about }) => (
            <option key={name} value={name}>
              {about === "" ? name : `${name} (${about})`}
            </option>
          ))}
        </select>
      )}
    </Labelled>
  );
}
