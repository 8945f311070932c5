/** One field of the form that launches a session: its label, its input, its choices, and its problem. */
import { HTMLSelect } from "@jupyterlab/ui-components";
import * as React from "react";

import type { ILaunchForm, LaunchField } from "../common/launch_request";
import { Combobox, type ITexts } from "./combobox";
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

/**
 * A text field, with suggestions where it has texts for them. Whether there are some does not matter: they may come while a
 * user types, whose field must stay the same one.
 */
export function TextField(
  props: IFieldProps &
    Pick<React.ComponentProps<typeof Combobox>, "choices" | "load" | "isPath"> & {
      readonly numeric?: boolean;
      readonly texts?: ITexts;
    },
): React.ReactElement {
  const { field, form, set, choices = [], load, isPath, texts, numeric = false } = props;
  const change = (value: string): void => {
    set(field, value);
  };
  return (
    <Labelled {...props}>
      {(described) => {
        const input = {
          ...described,
          className: "jp-mod-styled",
          type: "text",
          inputMode: numeric ? ("numeric" as const) : ("text" as const),
          autoComplete: "off",
          autoCapitalize: "off",
          spellCheck: false,
        };
        return texts !== undefined ? (
          <Combobox value={form[field]} {...{ input, change, choices, load, isPath, texts }} />
        ) : (
          <input
            {...input}
            value={form[field]}
            onChange={(event) => {
              change(event.target.value);
            }}
          />
        );
      }}
    </Labelled>
  );
}

/** A choice. A chosen value that no longer exists stays among the choices, with its problem. */
export function ChoiceField(
  props: IFieldProps & {
    readonly choices: readonly (IChoice & { readonly label?: string })[];
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
        <HTMLSelect
          {...described}
          iconProps={{ top: "8px" }}
          disabled={isDisabled && value === ""}
          value={value}
          onChange={(event) => {
            set(field, event.target.value);
          }}
        >
          <option value="">{none}</option>
          {!isKnown && <option value={value}>{value}</option>}
          {choices.map(({ name, about, label = name }) => (
            <option key={name} value={name}>
              {about === "" ? label : `${label} (${about})`}
            </option>
          ))}
        </HTMLSelect>
      )}
    </Labelled>
  );
}
