/** Labels of a session, in the language of the user. All values are text, never markup. */
import type { TranslationBundle } from "@jupyterlab/translation";

import { formatClock, formatDuration, formatMinute } from "../common/format";
import { stateKind } from "../common/job_states";
import type { ICluster } from "../common/api/objects";
import { clusterName, jobName, nextEndText } from "../common/labels";
import { reasonText } from "../common/reason_texts";
import { durationWords, isUnlimited, presentTime } from "../common/time_limit";
import { isOver, isSshHost, type SessionJob } from "./model";

/** A step of a session: its label, its time, and the time since the step before. */
export interface IStep {
  readonly state: string;
  readonly label: string;
  /** Seconds since the epoch; null: not yet. */
  readonly time: number | null;
  readonly took: string;
}

const STEP_STATES = ["submitted", "pending", "starting", "ready"] as const;

/** Return the title of the form that launches a session, which names GPUs only where the cluster has some. */
export function launchTitle(trans: TranslationBundle, cluster: ICluster): string {
  const name = clusterName(cluster);
  return cluster.gpus ? trans.__("GPU notebook on %1", name) : trans.__("Jupyter on %1", name);
}

/** Return the label of the palette's command that opens this form. */
export function newSessionTitle(trans: TranslationBundle, cluster: ICluster): string {
  const name = clusterName(cluster);
  return cluster.gpus
    ? trans.__("New GPU Notebook on %1", name)
    : trans.__("New Jupyter on %1", name);
}

/** The proper names of apps. */
const APP_TITLES: Readonly<Record<string, string>> = {
  "code-server": "code-server",
  jupyter: "Jupyter",
  marimo: "marimo",
  mlflow: "MLflow",
  rstudio: "RStudio",
  ssh: "VS Code / SSH",
  tensorboard: "TensorBoard",
};

/** The apps of the form; without one a session is a Jupyter. */
export const APPS = ["code-server", "marimo", "mlflow", "rstudio", "tensorboard"].map((name) => ({
  ...{ name, about: "", label: APP_TITLES[name] ?? name },
}));

/** Return the name of the app of a session; empty of Jupyter and other commands. */
export function appTitle({ session }: SessionJob): string {
  return session.app ? (APP_TITLES[session.app] ?? session.app) : "";
}

/** Return the state of a session, in a word or two; of an ended one the state of Slurm, which says how it ended. */
export function sessionState(trans: TranslationBundle, job: SessionJob): string {
  switch (job.session.state) {
    case "submitted":
      return trans.__("being submitted");
    case "pending":
      return trans.__("waiting for a node");
    case "starting":
      return trans.__("starting");
    case "ready":
      return trans.__("ready");
    case "reconnecting":
      return trans.__("connection lost, reconnecting");
    case "unreachable":
      return trans.__("ready, but not reachable from this computer");
    case "ending":
      return trans.__("ending");
    case "ended":
      return job.state === "CANCELLED" ? trans.__("stopped") : trans.__("ended (%1)", job.state);
    default:
      return job.session.state;
  }
}

/** Return the kind of the state, by which a session is coloured. */
export function sessionKind(job: SessionJob): string {
  switch (job.session.state) {
    case "ready":
      return "running";
    case "unreachable":
      return "failed";
    case "ended":
      return job.state === "CANCELLED" ? "done" : stateKind(job.state);
    default:
      return "pending";
  }
}

function stepName(trans: TranslationBundle, state: string): string {
  const names: Readonly<Record<string, string>> = {
    submitted: trans.__("Submitted"),
    pending: trans.__("In the queue"),
    starting: trans.__("Started"),
    ready: trans.__("Ready"),
    ended: trans.__("Ended"),
  };
  return names[state] ?? state;
}

/** Whether a session is past the queue: one that never waited has no such step. */
function hasLeftQueue({ session }: SessionJob): boolean {
  return !["submitted", "pending"].includes(session.state);
}

/** Return the steps of a session, those to come at the end. */
export function sessionSteps(trans: TranslationBundle, job: SessionJob): IStep[] {
  const reached = new Map(job.session.steps.map(({ state, time }) => [state, time]));
  const way = isOver(job)
    ? [...STEP_STATES.filter((state) => reached.has(state)), "ended"]
    : STEP_STATES.filter(
        (state) => state !== "pending" || reached.has(state) || !hasLeftQueue(job),
      );
  let before: number | null = null;
  return way.map((state) => {
    const time = reached.get(state) ?? null;
    const took = time !== null && before !== null ? formatDuration(time - before) : "";
    before = time ?? before;
    return { state, label: stepName(trans, state), time, took };
  });
}

/** Return the reason of the state of a session, and the next step: a line each. */
export function sessionReason(trans: TranslationBundle, job: SessionJob, now: number): string[] {
  const { session, error } = job;
  const lines: string[] = [];
  if (session.state === "pending") {
    if (job.estimated_start && job.estimated_start > presentTime(job, now)) {
      const start = formatMinute(job.estimated_start);
      lines.push(trans.__("Earliest start, by Slurm's estimate: %1.", start));
    }
    const reason = reasonText(trans, job);
    lines.push(`${reason} ${nextEndText(trans, job)}`.trim(), job.next_step);
  } else if (isOver(job) && error) {
    lines.push(error.detail ?? error.title ?? "", error.hint ?? "");
  } else if (isOver(job) && job.state !== "CANCELLED") {
    lines.push(reasonText(trans, job), job.next_step);
  }
  lines.push(session.message);
  if (session.ends) {
    const remaining = formatDuration(session.ends - presentTime(job, now));
    lines.unshift(
      session.resume
        ? trans.__("It starts again in %1. The memory of its kernels will be lost.", remaining)
        : trans.__("It ends in %1, with all its kernels.", remaining),
    );
  }
  if (!job.known && job.unknown_since !== null) {
    const since = formatClock(job.unknown_since);
    lines.unshift(trans.__("State unknown since %1.", since));
  }
  return lines.filter((line) => line && line !== "None");
}

/** Return the resources of a session and their end: node, GPUs, Jupyter, time limit and idle time. */
export function sessionFacts(trans: TranslationBundle, job: SessionJob, now: number): string[] {
  const facts: string[] = [];
  if (job.nodes) {
    facts.push(trans.__("on %1", job.nodes));
  }
  if (job.session.on) {
    facts.push(trans.__("in job %1", job.session.on));
  }
  if (job.gpus) {
    facts.push(trans._n("%1 GPU", "%1 GPUs", job.gpus));
  }
  if (isSshHost(job)) {
    facts.push(appTitle(job));
  } else if (job.session.server) {
    facts.push(job.session.server);
  }
  if (isOver(job)) {
    return facts;
  }
  if (job.time_limit && !isUnlimited(job.time_limit) && job.start_time !== null) {
    const remaining = formatDuration(job.start_time + job.time_limit - presentTime(job, now));
    facts.push(trans.__("%1 left", remaining));
  }
  facts.push(trans.__("stops after %1 without use", durationWords(job.session.idle)));
  return facts;
}

/** Return what the page of a session may do in this browser. */
export function isolationText(trans: TranslationBundle, isIsolated: boolean): string {
  return isIsolated
    ? trans.__("Its page opens in a sandbox: it cannot act as you on this Jupyter server.")
    : trans.__(
        "Its page shares the address of this Jupyter server: software on the node can act as you on this server.",
      );
}

/** Return the question before a session is stopped. */
export function stopTitle(trans: TranslationBundle, job: SessionJob): string {
  return trans.__("Stop session %1?", jobName(job));
}

/** Return the consequence of stopping a session. */
export function stopBody(trans: TranslationBundle, job: SessionJob): string {
  return job.session.state === "pending" || job.session.state === "submitted"
    ? trans.__("The job is removed from the queue.")
    : trans.__("Its kernels end with it, and unsaved work is lost. Its GPUs are released.");
}

/** Return a log as plain text, without colours and other control codes. */
export function plainText(text: string): string {
  // eslint-disable-next-line no-control-regex
  const signs = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;
  // eslint-disable-next-line no-control-regex
  return text.replace(signs, "").replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, "");
}
