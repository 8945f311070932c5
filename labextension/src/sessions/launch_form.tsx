/** Form that launches a session, checked while it is filled in. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import type { ICluster } from "../common/api/objects";
import { problemText } from "../common/labels";
import type { ILaunchForm, LaunchField } from "../common/launch_request";
import { costText, freeText } from "../resources/labels";
import { partitionOf, type IResources } from "../resources/model";
import { useChoices, useFormRequests, useResources, type IFormFeedback } from "./form_requests";
import {
  formProblems,
  initialForm,
  isAboutValues,
  reasonTexts,
  refusalTexts,
  type FieldTexts,
} from "./form_values";
import { launchTitle } from "./labels";
import { LaunchFields } from "./launch_fields";
import type { ISessionsModel, SessionJob } from "./model";

export interface IFormProps {
  readonly model: ISessionsModel;
  readonly trans: TranslationBundle;
  readonly cluster: ICluster;
  readonly launched: (job: SessionJob) => void;
  /** Save the form as a file; absent where that is not possible. */
  readonly save?: ((cluster: ICluster, form: ILaunchForm) => void) | undefined;
  /** Add the form as a kernel of notebooks; absent where that is not possible. */
  readonly addKernel?: ((cluster: ICluster, form: ILaunchForm) => void) | undefined;
  /** Initial values from a template, instead of those of the last launch. */
  readonly template?: ILaunchForm | undefined;
}

/** Texts about a form: those at fields, and those of no field. */
interface IFormTexts {
  readonly at: FieldTexts;
  readonly others: readonly string[];
  /** A refusal, or a request that failed. */
  readonly problem: string;
}

/** Return the texts of a check or a launch. A text about a value that has changed since is left out. */
function feedbackTexts(
  trans: TranslationBundle,
  { form: checked, reasons, doubts, problem }: IFormFeedback,
  form: ILaunchForm,
): IFormTexts {
  const known = reasonTexts(trans, reasons, form);
  const refused =
    problem === null
      ? { at: {}, other: "" }
      : isAboutValues(problem)
        ? refusalTexts(trans, problem, form)
        : { at: {}, other: problemText(trans, problem) };
  const all = Object.entries({ ...known.at, ...refused.at }) as [LaunchField, string][];
  return {
    at: Object.fromEntries(all.filter(([field]) => checked?.[field] === form[field])),
    others: [...known.others, ...doubts],
    problem: refused.other,
  };
}

/** Warnings and problems of no field. */
function Feedback({ others, problem }: IFormTexts): React.ReactElement {
  return (
    <>
      {problem !== "" && (
        <p role="alert" className="jp-Slurm-problem">
          {problem}
        </p>
      )}
      <div role="status" className="jp-Slurm-doubts">
        {others.map((text) => (
          <p key={text}>{text}</p>
        ))}
      </div>
    </>
  );
}

/** What is free, the price, and the estimated start: a line beside the button. */
function Outlook(props: {
  readonly trans: TranslationBundle;
  readonly resources: IResources | null;
  readonly form: ILaunchForm;
  readonly estimate: string;
}): React.ReactElement {
  const { trans, resources, form, estimate } = props;
  const free = freeText(trans, partitionOf(resources, form.partition)?.gpus ?? []);
  const facts = [
    estimate,
    free === "" ? "" : trans.__("%1 free now.", free),
    costText(trans, resources, form),
  ];
  return (
    <span className="jp-Slurm-outlook jp-Slurm-aside" aria-live="polite">
      {facts.filter((fact) => fact !== "").join(" ")}
    </span>
  );
}

/** Other uses of the values: a file, a kernel. */
function OtherUses(props: IFormProps & { readonly form: ILaunchForm; readonly isWrong: boolean }) {
  const { trans, cluster, save, addKernel, form, isWrong } = props;
  const uses = [
    { label: trans.__("Save as template…"), act: save, title: trans.__("Save these values") },
    {
      label: trans.__("Add as kernel…"),
      act: addKernel,
      title: trans.__("Add a kernel that runs on such a node to the launcher"),
    },
  ];
  return (
    <div className="jp-Slurm-secondary">
      {uses.map(
        ({ label, act, title }) =>
          act !== undefined && (
            <button
              key={label}
              type="button"
              className="jp-mod-styled jp-mod-minimal"
              title={title}
              disabled={isWrong}
              onClick={() => {
                act(cluster, form);
              }}
            >
              {label}
            </button>
          ),
      )}
    </div>
  );
}

/** The form; Enter launches. A known reason against it holds the first try back; the second one is Slurm's to judge. */
function Form(props: IFormProps & { readonly first: ILaunchForm }): React.ReactElement {
  const { model, trans, cluster, launched, first } = props;
  const [form, setForm] = React.useState(first);
  const [held, setHeld] = React.useState<ILaunchForm | null>(null);
  const node = React.useRef<HTMLFormElement>(null);
  // This request comes first: a browser has six connections to a server, and names may wait in all of them.
  const known = useResources(model.resources, cluster.id, cluster.poll.error !== null);
  const choices = useChoices(model, cluster.id, form.partition);
  const own = formProblems(trans, form);
  const isWrong = Object.keys(own).length > 0;
  const context = { model, trans, id: cluster.id };
  const { feedback, isBusy, launch, ask } = useFormRequests(context, form, isWrong, launched);
  const texts = feedbackTexts(trans, feedback, form);
  const isHeld = held === form && feedback.reasons.length > 0;
  React.useEffect(() => {
    node.current?.querySelector("select")?.focus();
  }, []);
  const focusProblem = (): void => {
    node.current?.querySelector<HTMLElement>("[aria-invalid=true]")?.focus();
  };
  React.useEffect(focusProblem, [held]);
  const set = (field: LaunchField, value: string): void => {
    // Another partition has other GPUs.
    setForm({ ...form, [field]: value, ...(field === "partition" ? { gpuType: "" } : {}) });
  };
  const submit = (event: React.FormEvent): void => {
    event.preventDefault();
    if (isWrong) {
      focusProblem();
    } else if (!isBusy) {
      void launch(isHeld).then((isHeldBack) => {
        setHeld(isHeldBack ? form : null);
      });
    }
  };
  const label = isHeld ? trans.__("Launch anyway") : trans.__("Launch");
  return (
    <form ref={node} noValidate aria-label={launchTitle(trans, cluster)} onSubmit={submit}>
      <div className="jp-Slurm-fields">
        <LaunchFields
          {...{ trans, cluster, form, choices, model, known, set }}
          problems={{ ...texts.at, ...own }}
        />
      </div>
      <Feedback {...texts} />
      <div className="jp-Slurm-actions">
        <button type="submit" className="jp-mod-styled jp-mod-accept" aria-disabled={isBusy}>
          {isBusy ? trans.__("Launching…") : label}
        </button>
        <button
          type="button"
          className="jp-Slurm-link"
          disabled={isBusy || isWrong}
          onClick={() => void ask()}
        >
          {trans.__("When would it start?")}
        </button>
        <Outlook {...{ trans, form }} resources={known.resources} estimate={feedback.estimate} />
      </div>
      <OtherUses {...props} {...{ form, isWrong }} />
    </form>
  );
}

/** The form with the values of a template, else of the last launch, else of the profile. */
export function LaunchForm(props: IFormProps): React.ReactElement | null {
  const { model, cluster, template } = props;
  const [first, setFirst] = React.useState<ILaunchForm | null>(null);
  const defaults = cluster.launch;
  React.useEffect(() => {
    let isCurrent = true;
    const take = (last: unknown): void => {
      if (isCurrent) {
        setFirst(initialForm(last, defaults, cluster.gpus !== false));
      }
    };
    const filled = template ? Promise.resolve(template) : model.memory.load(cluster.id);
    filled.then(take, () => {
      take(null);
    });
    return () => {
      isCurrent = false;
    };
  }, [model, cluster.id, template]);
  return first === null ? null : <Form {...props} first={first} />;
}
