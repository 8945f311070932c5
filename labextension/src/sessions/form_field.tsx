/** One field of the form that launches a session: its label, its input, what there is to choose from, what is wrong. */
import * as React from "react";

import type { Field, IForm } from "../common/launch_request";
import type { IChoice } from "./model";

interface IFieldProps {
  readonly field: Field;
  readonly label: string;
  readonly form: IForm;
  readonly set: (field: Field, value: string) => void;
  /** What is wrong with it. */
  readonly problem?: string | undefined;
  /** What it means, and what stands there when nothing is typed. */
  readonly hint?: string | undefined;
  /** What speaks against it, by what is known of the cluster. */
  readonly doubt?: string | undefined;
}

interface IProps extends IFieldProps {
  readonly children: (described: React.AriaAttributes & { id: string }) => React.ReactElement;
}

function Labelled({ field, label, problem, hint, doubt, children }: IProps): React.ReactElement {
  const id = `${React.useId()}${field}`;
  const isWrong = problem !== undefined;
  const said = problem ?? hint;
  const about = [said === undefined ? "" : `${id}-said`, doubt === undefined ? "" : `${id}-doubt`];
  const described = about.filter((each) => each !== "").join(" ");
  return (
    <div className="jp-Slurm-field" data-field={field}>
      <label htmlFor={id}>{label}</label>
      {children({
        id,
        "aria-invalid": isWrong,
        ...(described === "" ? {} : { "aria-describedby": described }),
      })}
      {said !== undefined && (
        <div
          id={`${id}-said`}
          className={isWrong ? "jp-Slurm-problem" : "jp-Slurm-aside"}
          {...(isWrong ? { role: "alert" } : {})}
        >
          {said}
        </div>
      )}
      {doubt !== undefined && (
        <div id={`${id}-doubt`} className="jp-Slurm-doubt">
          {doubt}
        </div>
      )}
    </div>
  );
}

/** What is typed, with suggestions. */
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

/** One of what there is. What was chosen stays among it, also where it has gone: what is wrong then is said. */
export function ChoiceField(
  props: IFieldProps & {
    readonly choices: readonly IChoice[];
    /** What it is called to choose none. */
    readonly none: string;
  },
): React.ReactElement {
  const { field, form, set, choices, none } = props;
  const value = form[field];
  const isKnown = value === "" || choices.some(({ name }) => name === value);
  return (
    <Labelled {...props}>
      {(described) => (
        <select
          {...described}
          className="jp-mod-styled"
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
