/** The form that launches a session, with what speaks against it while it is filled in. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import type { ICluster } from "../common/api/objects";
import { clusterName, problemText } from "../common/labels";
import type { Field, IForm } from "../common/launch_request";
import { costText, limitsText, partitionText, typeText, waitText } from "../resources/labels";
import { partitionOf, type IKnown } from "../resources/model";
import { Age } from "../resources/view";
import { ChoiceField, TextField } from "./form_field";
import { defaultPartition, useAsking, useChoices, useKnown, type ISaid } from "./form_requests";
import { doubtsByField, firstForm, formProblems } from "./form_values";
import type { Choices, IChoice, ISessionsModel, SessionJob } from "./model";

export interface IFormProps {
  readonly model: ISessionsModel;
  readonly trans: TranslationBundle;
  readonly cluster: ICluster;
  readonly launched: (job: SessionJob) => void;
  /** Keep what stands in the form as a file; absent where it cannot be. */
  readonly save?: ((cluster: ICluster, form: IForm) => void) | undefined;
  /** Add what stands in the form to the kernels of notebooks; absent where it cannot be. */
  readonly addKernel?: ((cluster: ICluster, form: IForm) => void) | undefined;
  /** What stands in it at first, where that is not what was launched last. */
  readonly template?: IForm | undefined;
}

/** What there is to choose from, with what is free of it; without that where it is not known. */
function withFree(
  trans: TranslationBundle,
  choices: Choices,
  { resources }: IKnown,
  form: IForm,
): { partitions: readonly IChoice[]; types: readonly IChoice[] } {
  const told = (resources?.partitions ?? []).map((one) => ({
    name: one.name,
    about: partitionText(trans, one),
  }));
  const gpus = partitionOf(resources, form.partition)?.gpus ?? [];
  const typed = gpus.filter(({ type }) => type !== "");
  const named = choices["gpu-of-node"].filter(({ name }) => /^[^\d:][^:]*$/.test(name));
  return {
    partitions: told.length > 0 ? told : choices.partition,
    types:
      typed.length > 0
        ? typed.map((one) => ({ name: one.type, about: typeText(trans, one) }))
        : named,
  };
}

/** The fields, in the order in which one decides. */
function Fields(props: {
  readonly trans: TranslationBundle;
  readonly cluster: ICluster;
  readonly form: IForm;
  readonly choices: Choices;
  readonly model: ISessionsModel;
  readonly known: IKnown;
  readonly set: (field: Field, value: string) => void;
  readonly problems: Partial<Record<Field, string>>;
  readonly doubts: Partial<Record<Field, string>>;
}): React.ReactElement {
  const { trans, cluster, form, choices, model, known, set, problems, doubts } = props;
  const { resources } = known;
  const of = (
    field: Field,
    label: string,
    hint?: string,
  ): React.ComponentProps<typeof TextField> => ({
    ...{ field, label, form, set, hint },
    problem: problems[field],
    doubt: doubts[field],
  });
  const { partitions, types } = withFree(trans, choices, known, form);
  const byDefault = defaultPartition(choices);
  const ofSlurm = trans.__("as Slurm chooses");
  const folder = cluster.connection
    ? trans.__("On the cluster. Empty: your home folder there.")
    : trans.__("Empty: that of this Jupyter server.");
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
          {...of("gpuType", trans.__("Type of GPU"))}
          choices={types}
          none={trans.__("any")}
        />
      )}
      <TextField {...of("cpus", trans.__("CPUs"))} numeric />
      <TextField {...of("memory", trans.__("Memory"))} />
      <TextField
        {...of("time", trans.__("Time limit"), trans.__("Hours, minutes and seconds, as 4:00:00."))}
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
          trans.__("A name, the folder of a venv, or docker://NAME:TAG. Empty: the usual Python."),
        )}
        choices={choices.environment}
      />
      <TextField {...of("dir", trans.__("Folder"), folder)} />
      <TextField
        {...of("name", trans.__("Name"), trans.__("Empty: jupyter-1, jupyter-2 and so on."))}
      />
      <TextField
        {...of("idle", trans.__("Idle minutes"), trans.__("It ends when nobody uses it so long."))}
        numeric
      />
    </>
  );
}

/** What speaks against the form, and what came of it. */
function Said(props: {
  readonly trans: TranslationBundle;
  readonly said: ISaid;
  /** What it costs, told with the estimate. */
  readonly cost: string;
  /** What stands at its field is read aloud from here, where news is. */
  readonly placed: Partial<Record<Field, string>>;
}): React.ReactElement {
  const { trans, said, cost, placed } = props;
  const atFields = Object.values(placed);
  const { doubts, problem, estimate } = said;
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
function Form(props: IFormProps & { readonly first: IForm }): React.ReactElement {
  const { model, trans, cluster, launched, save, addKernel, first } = props;
  const [form, setForm] = React.useState(first);
  const node = React.useRef<HTMLFormElement>(null);
  // First: a browser has six connections to a server, and names may wait in all of them.
  const known = useKnown(model.resources, cluster.id, cluster.poll.error !== null);
  const choices = useChoices(model, cluster.id, form.partition);
  const problems = formProblems(trans, form);
  const isWrong = Object.keys(problems).length > 0;
  const asked = { model, trans, id: cluster.id };
  const { said, isBusy, launch, ask } = useAsking(asked, form, isWrong, launched);
  const placed = doubtsByField(said.doubts, (field) =>
    field === "account" || field === "qos" ? choices[field].length > 0 : true,
  );
  React.useEffect(() => {
    node.current?.querySelector("select")?.focus();
  }, []);
  const set = (field: Field, value: string): void => {
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
  const title = trans.__("GPU notebook on %1", clusterName(cluster));
  return (
    <form ref={node} noValidate aria-label={title} onSubmit={submit}>
      <div className="jp-Slurm-fields">
        <Fields
          {...{ trans, cluster, form, choices, model, known, set, problems }}
          doubts={placed}
        />
      </div>
      <Said {...{ trans, said, placed }} cost={costText(trans, known.resources, form)} />
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
            title={trans.__("A kernel of notebooks here, which runs on such a node")}
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

/** The form, filled from a template, else with what was launched last, else as the profile says. */
export function LaunchForm(props: IFormProps): React.ReactElement | null {
  const { model, cluster, template } = props;
  const [first, setFirst] = React.useState<IForm | null>(null);
  const usual = cluster.launch;
  React.useEffect(() => {
    let isCurrent = true;
    const take = (last: unknown): void => {
      if (isCurrent) {
        setFirst(firstForm(last, usual));
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
