/** Fields of the form that launches a session, in the order of the decisions. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import type { ICluster } from "../common/api/objects";
import { acceleratorName, type ILaunchForm, type LaunchField } from "../common/launch_request";
import { durationEcho, durationWords, parseDuration } from "../common/time_limit";
import {
  freeCpusText,
  freeGpusText,
  limitsText,
  partitionNodesText,
  partitionText,
  typeText,
} from "../resources/labels";
import { acceleratorsOf, partitionOf, type IResourcesState } from "../resources/model";
import { Age } from "../resources/view";
import type { Load } from "./combobox";
import { ChoiceField, TextField } from "./form_field";
import { defaultPartition } from "./form_requests";
import { APP_FIELDS, type FieldTexts } from "./form_values";
import { APPS } from "./labels";
import type { Choices, IChoice, ISessionsModel, PlaceKind } from "./model";

/** Returns the properties of a field. */
type FieldProps = (
  field: LaunchField,
  label: string,
  hint?: string,
) => React.ComponentProps<typeof TextField>;

/** A generic resource with more of them on a node is a size, such as that of a local disk. */
const MAX_DEVICES = 64;

interface IOffer {
  readonly partitions: readonly IChoice[];
  readonly types: readonly (IChoice & { readonly label?: string })[];
  /** The partition of the script, else the default one. */
  readonly byDefault: IChoice | undefined;
}

/** Return the choices, with their free resources where those are known. */
function offered(
  trans: TranslationBundle,
  choices: Choices,
  { resources }: IResourcesState,
  form: ILaunchForm,
  script: Partial<ILaunchForm> | undefined,
): IOffer {
  const described = (resources?.partitions ?? []).map((one) => ({
    name: one.name,
    about: partitionText(trans, { ...one, is_default: false }),
  }));
  const partitions = described.length > 0 ? described : choices.partition;
  const name =
    script?.partition ??
    resources?.partitions.find((one) => one.is_default)?.name ??
    defaultPartition(choices);
  const partition = partitionOf(resources, form.partition);
  const all =
    partition === undefined || script !== undefined
      ? (partition?.gpus ?? [])
      : acceleratorsOf(partition);
  const typed = all.filter(({ type, most }) => type !== "" && most <= MAX_DEVICES);
  const named = choices["gpu-of-node"].filter((one) => /^[^\d:][^:]*$/.test(one.name));
  return {
    partitions: partitions.filter((one) => one.name !== name),
    byDefault: partitions.find((one) => one.name === name),
    types:
      typed.length > 0
        ? typed.map((one) => ({
            name: one.type,
            label: acceleratorName(one.type),
            about: typeText(trans, one),
          }))
        : named,
  };
}

/** Return the label of the default partition: "default (devwork, 4 of 4 GPUs free, no time limit)". */
function defaultText(
  trans: TranslationBundle,
  byDefault: IChoice | undefined,
  isOfScript: boolean,
): string {
  if (byDefault === undefined) {
    return isOfScript ? trans.__("as in the script") : trans.__("default");
  }
  const about = byDefault.about.replace(/^default(, |$)/, "");
  const known = [byDefault.name, about].filter((word) => word !== "").join(", ");
  return isOfScript ? trans.__("as in the script (%1)", known) : trans.__("default (%1)", known);
}

/** Return the meaning of a typed time limit, else the limit that applies without one. */
function timeHint(
  trans: TranslationBundle,
  { resources }: IResourcesState,
  form: ILaunchForm,
): string {
  const partition = partitionOf(resources, form.partition);
  const byDefault = partition?.default_time ?? partition?.time_limit ?? null;
  return (
    durationEcho(trans, form.time) ??
    (byDefault === null
      ? trans.__("For example 4h, 90 min or 1d 12h. Default: that of the partition")
      : trans.__("For example 4h, 90 min or 1d 12h. Default: %1", durationWords(byDefault)))
  );
}

/** Return the value of the script, where the form has another one. */
function scriptHint(
  trans: TranslationBundle,
  form: ILaunchForm,
  script: Partial<ILaunchForm> | undefined,
  field: LaunchField,
): string | undefined {
  const value = script?.[field] ?? "";
  const isChanged = value !== "" && form[field].trim() !== value;
  return isChanged ? trans.__("In the script: %1", value) : undefined;
}

/** Return the consequence of the idle time. */
function idleHint(trans: TranslationBundle, form: ILaunchForm): string | undefined {
  const idle = parseDuration(form.idle);
  return idle === null ? undefined : trans.__("Stops after %1 without use.", durationWords(idle));
}

/** Return the description of a place in the language of the user: "venv, last used". */
function placeText(trans: TranslationBundle, about: string): string {
  const words: Readonly<Record<string, string>> = {
    "last used": trans.__("last used"),
    module: trans.__("module"),
  };
  return about
    .split(", ")
    .map((word) => words[word] ?? word)
    .join(", ");
}

/** Return the function that loads the environments, or the folders below a path. */
function usePlaces(
  model: ISessionsModel,
  trans: TranslationBundle,
  cluster: string,
  kind: PlaceKind,
): Load {
  return React.useCallback(
    async (typed: string) => {
      const start = /^[~/]/.test(typed) ? typed : "";
      const found = await model.places(cluster, kind, kind === "folder" ? start : "");
      return found.map(({ name, about }) => ({ name, about: placeText(trans, about) }));
    },
    [model, trans, cluster, kind],
  );
}

/** The app, and its own field where it has one. */
function AppFields(props: {
  readonly trans: TranslationBundle;
  readonly of: FieldProps;
  readonly app: string;
  readonly folders: Pick<React.ComponentProps<typeof TextField>, "load" | "texts" | "isPath">;
}): React.ReactElement {
  const { trans, of, app, folders } = props;
  const isJupyter = app === "";
  const hint = isJupyter ? undefined : trans.__("Must be installed in the environment or image");
  const value = {
    logdir: [trans.__("Log folder"), trans.__("On the cluster, for example runs")],
    notebook: [trans.__("Notebook"), trans.__("Default: list the notebooks in the folder")],
    store: [
      trans.__("Store"),
      trans.__("A folder or a database. Default: mlflow.db in the folder"),
    ],
  } as const;
  const field = APP_FIELDS[app];
  return (
    <>
      <ChoiceField {...of("app", trans.__("App"), hint)} choices={APPS} none="Jupyter" />
      {field !== undefined && (
        <TextField {...of(field, ...value[field])} {...(field === "logdir" ? folders : {})} />
      )}
    </>
  );
}

/** The fields. Each keeps its place, whatever the cluster offers. */
export function LaunchFields(props: {
  readonly trans: TranslationBundle;
  readonly cluster: ICluster;
  readonly form: ILaunchForm;
  readonly choices: Choices;
  readonly model: ISessionsModel;
  readonly known: IResourcesState;
  readonly set: (field: LaunchField, value: string) => void;
  readonly problems: FieldTexts;
  readonly script?: Partial<ILaunchForm> | undefined;
  readonly hints?: FieldTexts | undefined;
}): React.ReactElement {
  const { trans, cluster, form, choices, model, known, problems, script, hints = {} } = props;
  const { resources } = known;
  const of: FieldProps = (field, label, hint) => ({
    ...{ field, label, form },
    set: props.set,
    hint: scriptHint(trans, form, script, field) ?? hints[field] ?? hint,
    problem: problems[field],
  });
  const { partitions, types, byDefault } = offered(trans, choices, known, form, script);
  const none = (field: "account" | "qos"): { none: string; same: string } => ({
    none: script?.[field] ? trans.__("as in the script (%1)", script[field]) : trans.__("default"),
    same: script?.[field] ?? "",
  });
  const [environments, folders] = [
    usePlaces(model, trans, cluster.id, "environment"),
    usePlaces(model, trans, cluster.id, "folder"),
  ];
  const texts = {
    suggestions: trans.__("Suggestions"),
    searching: trans.__("Searching…"),
    none: trans.__("No suggestions"),
  };
  const folder = cluster.connection
    ? trans.__("On the cluster. Default: your home folder")
    : trans.__("Default: the folder of this server");
  return (
    <>
      <ChoiceField
        {...of("partition", trans.__("Partition"), partitionNodesText(trans, resources, form))}
        choices={partitions}
        none={defaultText(trans, byDefault, script?.partition !== undefined)}
        same={byDefault?.name ?? ""}
      />
      {model.resources !== null && (
        <Age model={model.resources} {...{ trans, known }} cluster={cluster.id} />
      )}
      <TextField
        {...of(
          "gpus",
          trans.__("GPUs"),
          freeGpusText(trans, resources, form) ?? trans.__("0: without a GPU"),
        )}
        numeric
      />
      <ChoiceField
        {...of(
          "gpuType",
          trans.__("GPU type"),
          types.length === 0
            ? trans.__("This partition has no GPU types")
            : trans.__("Default: any type"),
        )}
        choices={types}
        none={trans.__("any")}
        isDisabled={types.length === 0}
      />
      <TextField
        {...of(
          "cpus",
          trans.__("CPUs"),
          [freeCpusText(trans, resources, form), trans.__("Default: 1")].filter(Boolean).join(" "),
        )}
        numeric
      />
      <TextField
        {...of(
          "memory",
          trans.__("Memory"),
          trans.__("For example 16G. Default: that of the partition"),
        )}
      />
      <TextField
        {...of("time", trans.__("Time limit"), timeHint(trans, known, form))}
        choices={choices["time-limit"]}
        texts={texts}
      />
      <ChoiceField
        {...of(
          "account",
          trans.__("Account"),
          limitsText(trans, resources, ["user", "account"], form.account),
        )}
        choices={choices.account.filter(({ name }) => name !== script?.account)}
        {...none("account")}
        isDisabled={choices.account.length === 0}
      />
      <ChoiceField
        {...of("qos", trans.__("QOS"), limitsText(trans, resources, ["qos-user", "qos"], form.qos))}
        choices={choices.qos.filter(({ name }) => name !== script?.qos)}
        {...none("qos")}
        isDisabled={choices.qos.length === 0}
      />
      {script === undefined && (
        <AppFields
          {...{ trans, of }}
          app={form.app}
          folders={{ load: folders, texts, isPath: true }}
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
        load={environments}
        texts={texts}
      />
      {script === undefined && (
        <TextField {...of("dir", trans.__("Folder"), folder)} load={folders} texts={texts} isPath />
      )}
      <TextField
        {...of("name", trans.__("Name"), trans.__("Default: %1-1, %1-2 …", form.app || "jupyter"))}
      />
      {script === undefined && (
        <TextField {...of("idle", trans.__("Idle time"), idleHint(trans, form))} />
      )}
    </>
  );
}
