/** Form of a job, checked while it is filled in: for sessions, kernels and scripts. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import type { ICluster } from "../common/api/objects";
import { isTypedElsewhere } from "../common/jupyterlab/focus";
import { problemText } from "../common/labels";
import type { ILaunchForm, LaunchField } from "../common/launch_request";
import { costText } from "../resources/labels";
import type { IResources } from "../resources/model";
import {
  useChoices,
  useFormRequests,
  useResources,
  type IFormFeedback,
  type IFormUse,
} from "./form_requests";
import {
  formProblems,
  isAboutValues,
  reasonTexts,
  refusalTexts,
  type FieldTexts,
} from "./form_values";
import { typedValues, type FormDraft } from "./form_drafts";
import { LaunchFields } from "./launch_fields";
import type { ISessionsModel } from "./model";

/** The words of the button. */
export interface IFormWords {
  readonly launch: string;
  readonly launching: string;
  /** For a form that the agent knows a reason against. */
  readonly anyway: string;
}

export interface IRequestFormProps<Job> {
  readonly model: ISessionsModel;
  readonly trans: TranslationBundle;
  readonly cluster: ICluster;
  readonly title: string;
  readonly words: IFormWords;
  readonly use: IFormUse<Job>;
  /** The values of the form without what the user has typed. */
  readonly initial: ILaunchForm;
  /** What the user has typed in an earlier form, in addition to the initial values. */
  readonly first?: ILaunchForm | undefined;
  /** The storage of what is typed; absent: nothing is stored. */
  readonly draft?: FormDraft | undefined;
  /** The values of a script, which apply where the form has no other; a session has none. */
  readonly script?: Partial<ILaunchForm> | undefined;
  /** Texts at fields, instead of the help. */
  readonly hints?: FieldTexts | undefined;
  readonly launched: (job: Job) => void;
  /** Other uses of the values. */
  readonly others?: ((form: ILaunchForm, isWrong: boolean) => React.ReactElement) | undefined;
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

/** The price, and the estimated start: a line beside the button. */
function Outlook(props: {
  readonly trans: TranslationBundle;
  readonly resources: IResources | null;
  readonly form: ILaunchForm;
  readonly estimate: string;
}): React.ReactElement {
  const { trans, resources, form, estimate } = props;
  const facts = [estimate, costText(trans, resources, form)];
  return (
    <span className="jp-Slurm-outlook jp-Slurm-aside" aria-live="polite">
      {facts.filter((fact) => fact !== "").join(" ")}
    </span>
  );
}

/** The form; Enter submits. A known reason against it holds the first try back; the second one is Slurm's to judge. */
export function RequestForm<Job>(props: IRequestFormProps<Job>): React.ReactElement {
  const { model, trans, cluster, title, words, use, initial, draft, script, hints, others } = props;
  const [form, setForm] = React.useState(props.first ?? initial);
  const [held, setHeld] = React.useState<ILaunchForm | null>(null);
  const node = React.useRef<HTMLFormElement>(null);
  // This request comes first: a browser has six connections to a server, and names may wait in all of them.
  const known = useResources(model.resources, cluster.id, cluster.poll.error !== null);
  const choices = useChoices(model, cluster.id, form.partition);
  const own = formProblems(trans, form, script);
  const isWrong = Object.keys(own).length > 0;
  const launched = (job: Job): void => {
    draft?.forget();
    props.launched(job);
  };
  const { feedback, isBusy, launch, ask } = useFormRequests(use, trans, form, isWrong, launched);
  const texts = feedbackTexts(trans, feedback, form);
  const isHeld = held === form && feedback.reasons.length > 0;
  React.useEffect(() => {
    if (!isTypedElsewhere(node.current)) {
      node.current?.querySelector("select")?.focus();
    }
  }, []);
  const focusProblem = (): void => {
    node.current?.querySelector<HTMLElement>("[aria-invalid=true]")?.focus();
  };
  React.useEffect(focusProblem, [held]);
  const change = (changed: ILaunchForm): void => {
    setForm(changed);
    draft?.keep(changed, initial);
  };
  const isTyped = Object.keys(typedValues(form, initial)).length > 0;
  const set = (field: LaunchField, typed: string): void => {
    const isChoice = ["partition", "account", "qos"].includes(field);
    const value = typed === "" && isChoice ? (script?.[field] ?? "") : typed; // the empty choice
    // Another partition has other GPUs.
    change({ ...form, [field]: value, ...(field === "partition" ? { gpuType: "" } : {}) });
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
  return (
    <form ref={node} noValidate aria-label={title} onSubmit={submit}>
      <div className="jp-Slurm-fields">
        <LaunchFields
          {...{ trans, cluster, form, choices, model, known, set, script, hints }}
          problems={{ ...texts.at, ...own }}
        />
      </div>
      <Feedback {...texts} />
      <div className="jp-Slurm-actions">
        <button type="submit" className="jp-mod-styled jp-mod-accept" aria-disabled={isBusy}>
          {isBusy ? words.launching : isHeld ? words.anyway : words.launch}
        </button>
        <button
          type="button"
          className="jp-Slurm-link"
          disabled={isBusy || isWrong}
          onClick={() => void ask()}
        >
          {trans.__("When would it start?")}
        </button>
        <button
          type="button"
          className="jp-Slurm-link"
          aria-disabled={!isTyped || isBusy}
          title={trans.__("Discard what you have typed")}
          onClick={() => {
            if (isTyped && !isBusy) {
              change(initial);
            }
          }}
        >
          {trans.__("Reset")}
        </button>
        <Outlook {...{ trans, form }} resources={known.resources} estimate={feedback.estimate} />
      </div>
      {others?.(form, isWrong)}
    </form>
  );
}
