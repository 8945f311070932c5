/** Form that launches a session, checked while it is filled in. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import type { ICluster } from "../common/api/objects";
import { problemText } from "../common/labels";
import type { ILaunchForm, LaunchField } from "../common/launch_request";
import { costText, limitsText, partitionText, typeText, waitText } from "../resources/labels";
import { partitionOf, type IResourcesState } from "../resources/model";
import { Age } from "../resources/view";
import { ChoiceField, TextField } from "./form_field";
import {
  defaultPartition,
  useChoices,
  useFormRequests,
  useResources,
  type IFormFeedback,
} from "./form_requests";
import { doubtsByField, formProblems, initialForm } from "./form_values";
import { launchTitle } from "./labels";
import type { Choices, IChoice, ISessionsModel, SessionJob } from "./model";

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

/** Return the choices, with their free resources where those are known. */
function withFree(
  trans: TranslationBundle,
  choices: Choices,
  { resources }: IResourcesState,
  form: ILaunchForm,
): { partitions: readonly IChoice[]; types: readonly IChoice[] } {
  const described = (resources?.partitions ?? []).map((one) => ({
    name: one.name,
    about: partitionText(trans, one),
  }));
  const gpus = partitionOf(resources, form.partition)?.gpus ?? [];
  const typed = gpus.filter(({ type }) => type !== "");
  const named = choices["gpu-of-node"].filter(({ name }) => /^[^\d:][^:]*$/.test(name));
  return {
    partitions: described.length > 0 ? described : choices.partition,
    types:
      typed.length > 0
        ? typed.map((one) => ({ name: one.type, about: typeText(trans, one) }))
        : named,
  };
}

/** The fields, in the order of the decisions. */
function Fields(props: {
  readonly trans: TranslationBundle;
  readonly cluster: ICluster;
  readonly form: ILaunchForm;
  readonly choices: Choices;
  readonly model: ISessionsModel;
  readonly known: IResourcesState;
  readonly set: (field: LaunchField, value: string) => void;
  readonly problems: Partial<Record<LaunchField, string>>;
  readonly doubts: Partial<Record<LaunchField, string>>;
}): React.ReactElement {
  const { trans, cluster, form, choices, model, known, set, problems, doubts } = props;
  const { resources } = known;
  const of = (
    field: LaunchField,
    label: string,
    hint?: string,
  ): React.ComponentProps<typeof TextField> => ({
    ...{ field, label, form, set, hint },
    problem: problems[field],
    doubt: doubts[field],
  });
  const { partitions, types } = withFree(trans, choices, known, form);
  const byDefault = defaultPartition(choices);
  const ofSlurm = trans.__("default");
  const folder = cluster.connection
    ? trans.__("On the cluster. Default: your home folder")
    : trans.__("Default: the folder of this server");
  return (
    <>
      <ChoiceField
        {...of("partition", trans.__("Partition"))}
        choices={partitions}
        none={byDefault ? trans.__("the default (%1)", byDefault) : ofSlurm}
      />
      {model.resources !== null && (
        <Age model={model.resources} {...{ trans, known }} cluster={cluster.id} />
      )}
      <TextField {...of("gpus", trans.__("GPUs"), waitText(trans, resources, form))} numeric />
      {types.length > 0 && (
        <ChoiceField
          {...of("gpuType", trans.__("GPU type"))}
          choices={types}
          none={trans.__("any")}
        />
      )}
      <TextField {...of("cpus", trans.__("CPUs"))} numeric />
      <TextField {...of("memory", trans.__("Memory"))} />
      <TextField
        {...of("time", trans.__("Time limit"), trans.__("hh:mm:ss, for example 4:00:00."))}
        choices={choices["time-limit"]}
      />
      {choices.account.length > 0 && (
        <ChoiceField
          {...of(
            "account",
            trans.__("Account"),
            limitsText(trans, resources, ["user", "account"], form.account),
          )}
          choices={choices.account}
          none={ofSlurm}
        />
      )}
      {choices.qos.length > 0 && (
        <ChoiceField
          {...of(
            "qos",
            trans.__("QOS"),
            limitsText(trans, resources, ["qos-user", "qos"], form.qos),
          )}
          choices={choices.qos}
          none={ofSlurm}
        />
      )}
      <TextField
        {...of(
          "env",
          trans.__("Environment or image"),
          trans.__(
            "A name, the folder of a virtual environment, or docker://NAME:TAG. Default: the usual Python",
          ),
        )}
        choices={choices.environment}
      />
      <TextField {...of("dir", trans.__("Folder"), folder)} />
      <TextField {...of("name", trans.__("Name"), trans.__("Default: jupyter-1, jupyter-2 …"))} />
      <TextField
        {...of(
          "idle",
          trans.__("Idle minutes"),
          trans.__("The session ends after this time without use."),
        )}
        numeric
      />
    </>
  );
}

/** The doubts and problems of the form. */
function Feedback(props: {
  readonly trans: TranslationBundle;
  readonly feedback: IFormFeedback;
  /** The price, shown with the estimate. */
  readonly cost: string;
  /** Doubts that are shown at their fields; a screen reader reads them from this live region. */
  readonly placed: Partial<Record<LaunchField, string>>;
}): React.ReactElement {
  const { trans, feedback, cost, placed } = props;
  const atFields = Object.values(placed);
  const { doubts, problem, estimate } = feedback;
  return (
    <>
      {problem !== null && (
        <p role="alert" className="jp-Slurm-problem">
          {problemText(trans, problem)}
        </p>
      )}
      <div role="status" className="jp-Slurm-doubts">
        {doubts.map((doubt) => (
          <p key={doubt} className={atFields.includes(doubt) ? "jp-Slurm-unseen" : undefined}>
            {doubt}
          </p>
        ))}
        {estimate !== "" && <p className="jp-Slurm-aside">{`${estimate} ${cost}`.trim()}</p>}
      </div>
    </>
  );
}

/** The form; Enter launches. */
function Form(props: IFormProps & { readonly first: ILaunchForm }): React.ReactElement {
  const { model, trans, cluster, launched, save, addKernel, first } = props;
  const [form, setForm] = React.useState(first);
  const node = React.useRef<HTMLFormElement>(null);
  // This request comes first: a browser has six connections to a server, and names may wait in all of them.
  const known = useResources(model.resources, cluster.id, cluster.poll.error !== null);
  const choices = useChoices(model, cluster.id, form.partition);
  const problems = formProblems(trans, form);
  const isWrong = Object.keys(problems).length > 0;
  const context = { model, trans, id: cluster.id };
  const { feedback, isBusy, launch, ask } = useFormRequests(context, form, isWrong, launched);
  const placed = doubtsByField(feedback.doubts, (field) =>
    field === "account" || field === "qos" ? choices[field].length > 0 : true,
  );
  React.useEffect(() => {
    node.current?.querySelector("select")?.focus();
  }, []);
  const set = (field: LaunchField, value: string): void => {
    // Another partition has other GPUs.
    setForm({ ...form, [field]: value, ...(field === "partition" ? { gpuType: "" } : {}) });
  };
  const submit = (event: React.FormEvent): void => {
    event.preventDefault();
    if (isWrong) {
      node.current?.querySelector<HTMLElement>("[aria-invalid=true]")?.focus();
    } else if (!isBusy) {
      void launch();
    }
  };
  const title = launchTitle(trans, cluster);
  return (
    <form ref={node} noValidate aria-label={title} onSubmit={submit}>
      <div className="jp-Slurm-fields">
        <Fields
          {...{ trans, cluster, form, choices, model, known, set, problems }}
          doubts={placed}
        />
      </div>
      <Feedback {...{ trans, feedback, placed }} cost={costText(trans, known.resources, form)} />
      <div className="jp-Slurm-actions">
        <button type="submit" className="jp-mod-styled jp-mod-accept" aria-disabled={isBusy}>
          {isBusy ? trans.__("Launching…") : trans.__("Launch")}
        </button>
        <button
          type="button"
          className="jp-mod-styled jp-mod-minimal"
          disabled={isBusy || isWrong}
          onClick={() => void ask()}
        >
          {known.resources?.cost
            ? trans.__("When would it start, and what would it cost?")
            : trans.__("When would it start?")}
        </button>
        {save !== undefined && (
          <button
            type="button"
            className="jp-mod-styled jp-mod-minimal"
            disabled={isWrong}
            onClick={() => {
              save(cluster, form);
            }}
          >
            {trans.__("Save as template…")}
          </button>
        )}
        {addKernel !== undefined && (
          <button
            type="button"
            className="jp-mod-styled jp-mod-minimal"
            title={trans.__("Add a kernel that runs on such a node to the launcher")}
            disabled={isWrong}
            onClick={() => {
              addKernel(cluster, form);
            }}
          >
            {trans.__("Add as kernel")}
          </button>
        )}
      </div>
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
        setFirst(initialForm(last, defaults));
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
