/** The form that launches a session, with what speaks against it while it is filled in. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import { firstForm, formProblems, newKey, type Field, type IForm } from "../form";
import { toProblem } from "../problem";
import { isRefused, type Choices, type ISessionsModel, type SessionJob } from "../sessions";
import type { ICluster, IProblem } from "../tokens";
import { clusterName, problemText } from "../words";
import { ChoiceField, TextField } from "./fields";

/** How long nothing must have been typed before the agent is asked what it thinks, in milliseconds. */
const PAUSE = 500;
const NONE: Choices = {
  partition: [],
  account: [],
  qos: [],
  environment: [],
  "gpu-of-node": [],
  "time-limit": [],
};

/** What is known against a form, or for it. */
interface ISaid {
  readonly doubts: readonly string[];
  readonly problem: IProblem | null;
  readonly estimate: string;
}
const NOTHING: ISaid = { doubts: [], problem: null, estimate: "" };

export interface IFormProps {
  readonly model: ISessionsModel;
  readonly trans: TranslationBundle;
  readonly cluster: ICluster;
  readonly launched: (job: SessionJob) => void;
}

/** The partition of whoever names none. */
function defaultPartition({ partition }: Choices): string {
  return partition.find(({ about }) => about.startsWith("default"))?.name ?? "";
}

/** What there is to choose from in a partition; asked anew when another one is chosen. */
function useChoices(model: ISessionsModel, cluster: string, chosen: string): Choices {
  const [choices, setChoices] = React.useState(NONE);
  const partition = chosen || defaultPartition(choices);
  React.useEffect(() => {
    let isCurrent = true;
    model.choices(cluster, partition).then(
      (told) => {
        if (isCurrent) {
          setChoices(told);
        }
      },
      () => undefined, // names can be typed; whoever does not answer is told of when it counts
    );
    return () => {
      isCurrent = false;
    };
  }, [model, cluster, partition]);
  return choices;
}

/** What the agent thinks of a form, when nothing has been typed for a moment. */
function useCheck(
  { model, cluster: { id } }: IFormProps,
  form: IForm,
  isWrong: boolean,
): [ISaid, (said: ISaid) => void] {
  const [said, setSaid] = React.useState(NOTHING);
  const turn = React.useRef(0);
  const say = React.useCallback((told: ISaid): void => {
    turn.current += 1; // what was asked before is not news any more
    setSaid(told);
  }, []);
  React.useEffect(() => {
    const mine = (turn.current += 1);
    const take = (told: ISaid): void => {
      if (turn.current === mine) {
        setSaid(told);
      }
    };
    const timer = setTimeout(() => {
      if (isWrong || turn.current !== mine) {
        take(NOTHING);
        return;
      }
      model.check(id, form, false).then(
        ({ doubts = [], warnings = [] }) => {
          take({ ...NOTHING, doubts: [...doubts, ...warnings] });
        },
        (error: unknown) => {
          take({ ...NOTHING, problem: toProblem(error, "") });
        },
      );
    }, PAUSE);
    return () => {
      clearTimeout(timer);
    };
  }, [model, id, form, isWrong]);
  return [said, say];
}

/** The fields, in the order in which one decides. */
function Fields(props: {
  readonly trans: TranslationBundle;
  readonly form: IForm;
  readonly choices: Choices;
  readonly set: (field: Field, value: string) => void;
  readonly problems: Partial<Record<Field, string>>;
}): React.ReactElement {
  const { trans, form, choices, set, problems } = props;
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
      <TextField
        {...of("dir", trans.__("Folder"), trans.__("On the cluster. Empty: where it begins."))}
      />
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

/** The form; Enter launches. */
function Form(props: IFormProps & { readonly first: IForm }): React.ReactElement {
  const { model, trans, cluster, launched, first } = props;
  const [form, setForm] = React.useState(first);
  const [isBusy, setBusy] = React.useState(false);
  const key = React.useRef(newKey());
  const node = React.useRef<HTMLFormElement>(null);
  const choices = useChoices(model, cluster.id, form.partition);
  const problems = formProblems(trans, form);
  const isWrong = Object.keys(problems).length > 0;
  const [said, say] = useCheck(props, form, isWrong);
  React.useEffect(() => {
    node.current?.querySelector("select")?.focus();
  }, []);
  const set = (field: Field, value: string): void => {
    // Another partition has other GPUs.
    setForm({ ...form, [field]: value, ...(field === "partition" ? { gpuType: "" } : {}) });
  };
  const failed = (error: unknown, hint: string): void => {
    const problem = toProblem(error, hint);
    say({ ...NOTHING, problem });
    if (isRefused(problem)) {
      key.current = newKey(); // else it may be there: with the same key it is not launched twice
    }
  };
  const launch = async (): Promise<void> => {
    if (isWrong || isBusy) {
      node.current?.querySelector<HTMLElement>("[aria-invalid=true]")?.focus();
      return;
    }
    setBusy(true);
    say(NOTHING);
    try {
      launched(await model.launch(cluster.id, form, key.current));
    } catch (error) {
      failed(error, trans.__("Launch again: it is not launched twice."));
      setBusy(false);
    }
  };
  const ask = async (): Promise<void> => {
    try {
      const { estimate, doubts = [] } = await model.check(cluster.id, form, true);
      const start = estimate?.start ? new Date(estimate.start * 1000).toLocaleString() : null;
      const told = start === null ? (estimate?.said ?? "") : trans.__("Earliest start: %1.", start);
      say({ ...NOTHING, doubts, estimate: told });
    } catch (error) {
      say({ ...NOTHING, problem: toProblem(error, "") });
    }
  };
  return (
    <form
      ref={node}
      noValidate
      aria-label={trans.__("GPU notebook on %1", clusterName(cluster))}
      onSubmit={(event) => {
        event.preventDefault();
        void launch();
      }}
    >
      <div className="jp-Slurm-fields">
        <Fields {...{ trans, form, choices, set, problems }} />
      </div>
      {said.problem !== null && (
        <p role="alert" className="jp-Slurm-problem">
          {problemText(trans, said.problem)}
        </p>
      )}
      <div role="status" className="jp-Slurm-doubts">
        {said.doubts.map((doubt) => (
          <p key={doubt}>{doubt}</p>
        ))}
        {said.estimate !== "" && <p className="jp-Slurm-aside">{said.estimate}</p>}
      </div>
      <div className="jp-Slurm-actions">
        <button type="submit" className="jp-mod-styled jp-mod-accept" disabled={isBusy}>
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
