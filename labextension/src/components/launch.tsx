/** The form that launches a session, with what speaks against it while it is filled in. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import { firstForm, formProblems, type Field, type IForm } from "../form";
import type { Choices, ISessionsModel, SessionJob } from "../sessions";
import type { ICluster } from "../tokens";
import { clusterName, problemText } from "../words";
import { defaultPartition, useAsking, useChoices, type ISaid } from "./asking";
import { ChoiceField, TextField } from "./fields";

export interface IFormProps {
  readonly model: ISessionsModel;
  readonly trans: TranslationBundle;
  readonly cluster: ICluster;
  readonly launched: (job: SessionJob) => void;
}

/** The fields, in the order in which one decides. */
function Fields(props: {
  readonly trans: TranslationBundle;
  readonly cluster: ICluster;
  readonly form: IForm;
  readonly choices: Choices;
  readonly set: (field: Field, value: string) => void;
  readonly problems: Partial<Record<Field, string>>;
}): React.ReactElement {
  const { trans, cluster, form, choices, set, problems } = props;
  const of = (
    field: Field,
    label: string,
    hint?: string,
  ): React.ComponentProps<typeof TextField> => ({
    ...{ field, label, form, set, hint },
    problem: problems[field],
  });
  const types = choices["gpu-of-node"].filter(({ name }) => /^[^\d:][^:]*$/.test(name));
  const byDefault = defaultPartition(choices);
  const ofSlurm = trans.__("as Slurm chooses");
  const folder = cluster.connection
    ? trans.__("On the cluster. Empty: your home folder there.")
    : trans.__("Empty: that of this Jupyter server.");
  return (
    <>
      <ChoiceField
        {...of("partition", trans.__("Partition"))}
        choices={choices.partition}
        none={byDefault ? trans.__("the default (%1)", byDefault) : ofSlurm}
      />
      <TextField {...of("gpus", trans.__("GPUs"))} numeric />
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
          {...of("account", trans.__("Account"))}
          choices={choices.account}
          none={ofSlurm}
        />
      )}
      {choices.qos.length > 0 && (
        <ChoiceField {...of("qos", trans.__("QOS"))} choices={choices.qos} none={ofSlurm} />
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
function Said({ trans, said }: { trans: TranslationBundle; said: ISaid }): React.ReactElement {
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
          <p key={doubt}>{doubt}</p>
        ))}
        {estimate !== "" && <p className="jp-Slurm-aside">{estimate}</p>}
      </div>
    </>
  );
}

/** The form; Enter launches. */
function Form(props: IFormProps & { readonly first: IForm }): React.ReactElement {
  const { model, trans, cluster, launched, first } = props;
  const [form, setForm] = React.useState(first);
  const node = React.useRef<HTMLFormElement>(null);
  const choices = useChoices(model, cluster.id, form.partition);
  const problems = formProblems(trans, form);
  const isWrong = Object.keys(problems).length > 0;
  const asked = { model, trans, id: cluster.id };
  const { said, isBusy, launch, ask } = useAsking(asked, form, isWrong, launched);
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
        <Fields {...{ trans, cluster, form, choices, set, problems }} />
      </div>
      <Said {...{ trans, said }} />
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
          {trans.__("When would it start?")}
        </button>
      </div>
    </form>
  );
}

/** The form, filled with what was launched last. */
export function LaunchForm(props: IFormProps): React.ReactElement | null {
  const { model, cluster } = props;
  const [first, setFirst] = React.useState<IForm | null>(null);
  React.useEffect(() => {
    let isCurrent = true;
    const take = (last: unknown): void => {
      if (isCurrent) {
        setFirst(firstForm(last));
      }
    };
    model.memory.load(cluster.id).then(take, () => {
      take(null);
    });
    return () => {
      isCurrent = false;
    };
  }, [model, cluster.id]);
  return first === null ? null : <Form {...props} first={first} />;
}
