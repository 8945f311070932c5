/** Requests of the form of a session to the agent. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import type { IProblem } from "../common/api/objects";
import { isLocalProblem, isRefused, toProblem } from "../common/api/problem";
import { formatMinute } from "../common/format";
import { newRequestKey, type ILaunchForm } from "../common/launch_request";
import type { IResourcesModel, IResourcesState } from "../resources/model";
import { isAboutValues, type IOptionProblem } from "./form_values";
import type { Choices, IPreview, ISessionsModel } from "./model";

/** Time after the last key before the agent checks the form, in milliseconds. */
const TYPING_PAUSE_MS = 500;
/** Interval and number of further requests where the controller was too slow to list the partitions. */
const RETRY_MS = 1_000;
const MAX_ATTEMPTS = 5;
/** Time after a launch before the same form can launch again, in milliseconds: the second click of a double click. */
const LAUNCHED_PAUSE_MS = 1_000;
const NONE: Choices = {
  partition: [],
  account: [],
  qos: [],
  "gpu-of-node": [],
  "time-limit": [],
};

/** What a form is for: a session, or the job of a script. It keeps its identity while the form is shown. */
export interface IFormUse<Job> {
  /** Check the values; `estimate`: also ask Slurm for the start time. */
  readonly check: (form: ILaunchForm, estimate: boolean) => Promise<IPreview>;
  /** Submit the job of the form, once for one key. */
  readonly launch: (form: ILaunchForm, key: string) => Promise<Job>;
  /** Return the problem of such a request, with a hint where its effect is unknown. */
  readonly problemOf: (error: unknown) => IProblem;
}

/** The result of a check of the form. */
export interface IFormFeedback {
  /** The checked form; null: none yet. */
  readonly form: ILaunchForm | null;
  /** The known reasons of the agent against the form; with the folder that is missing. */
  readonly reasons: readonly IOptionProblem[];
  /** Other warnings. */
  readonly doubts: readonly string[];
  readonly problem: IProblem | null;
  readonly estimate: string;
  /** Whether the problem is that of a launch, not of a check. */
  readonly isOfLaunch?: boolean;
}

const NOTHING: IFormFeedback = { form: null, reasons: [], doubts: [], problem: null, estimate: "" };

/** Return the result of a check by the agent. */
function feedbackOf(form: ILaunchForm, answer: IPreview): IFormFeedback {
  const { doubts = [], warnings = [], problems } = answer;
  // An older agent has the reasons as one text.
  return {
    ...NOTHING,
    ...{ form, reasons: problems ?? [], doubts: [...(problems ? [] : doubts), ...warnings] },
  };
}

function failedCheck(form: ILaunchForm, error: unknown): IFormFeedback {
  return { ...NOTHING, form, problem: toProblem(error, "") };
}

/** Whether the agent has a reason against the checked form. A check that failed for another reason holds nothing back. */
function isHeldBack({ reasons, problem }: IFormFeedback): boolean {
  return reasons.length > 0 || (problem !== null && isAboutValues(problem));
}

/** Return the default partition. */
export function defaultPartition({ partition }: Choices): string {
  return partition.find(({ about }) => about.startsWith("default"))?.name ?? "";
}

/** Return the choices for a partition; loaded again when another one is chosen. */
export function useChoices(model: ISessionsModel, cluster: string, chosen: string): Choices {
  const [choices, setChoices] = React.useState(NONE);
  const partition = chosen || defaultPartition(choices);
  React.useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isCurrent = true;
    const ask = (remaining: number): void => {
      model.choices(cluster, partition).then(
        (loaded) => {
          if (!isCurrent) {
            return;
          }
          setChoices(loaded);
          if (loaded.partition.length === 0 && remaining > 0) {
            timer = setTimeout(ask, RETRY_MS, remaining - 1);
          }
        },
        () => undefined, // names can be typed; the check reports an agent that does not answer
      );
    };
    ask(MAX_ATTEMPTS);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [model, cluster, partition]);
  return choices;
}

const UNKNOWN: IResourcesState = { resources: null, problem: null, isLoading: false };

/** Return the resources of a cluster, loaded when a form is shown, and when the controller answers again. */
export function useResources(
  model: IResourcesModel | null,
  cluster: string,
  isSilent: boolean,
): IResourcesState {
  const [known, setKnown] = React.useState(UNKNOWN);
  const wasSilent = React.useRef(isSilent);
  React.useEffect(() => {
    const take = (): void => {
      setKnown(model?.stateOf(cluster) ?? UNKNOWN);
    };
    model?.changed.connect(take);
    take();
    return () => {
      model?.changed.disconnect(take);
    };
  }, [model, cluster]);
  React.useEffect(() => {
    void model?.load(cluster, { newer: wasSilent.current && !isSilent });
    wasSilent.current = isSilent;
  }, [model, cluster, isSilent]);
  return known;
}

/** Check the form when nothing has been typed for a moment. */
function useCheck(
  { check: ask }: Pick<IFormUse<unknown>, "check">,
  form: ILaunchForm,
  isWrong: boolean,
): [IFormFeedback, (said: IFormFeedback) => void] {
  const [feedback, setFeedback] = React.useState(NOTHING);
  const turn = React.useRef(0);
  const say = React.useCallback((next: IFormFeedback): void => {
    turn.current += 1; // earlier requests are out of date
    setFeedback(next);
  }, []);
  React.useEffect(() => {
    const mine = (turn.current += 1);
    const take = (next: IFormFeedback): void => {
      if (turn.current === mine) {
        setFeedback(next);
      }
    };
    let timer: ReturnType<typeof setTimeout> | undefined;
    const check = (remaining: number): void => {
      if (isWrong || turn.current !== mine) {
        take(NOTHING);
        return;
      }
      ask(form, false).then(
        (answer) => {
          take(feedbackOf(form, answer));
        },
        (error: unknown) => {
          const failed = failedCheck(form, error);
          const isUnanswered = failed.problem !== null && isLocalProblem(failed.problem);
          if (isUnanswered && remaining > 0 && turn.current === mine) {
            timer = setTimeout(check, RETRY_MS, remaining - 1); // the network may have changed
          }
          take(failed);
        },
      );
    };
    timer = setTimeout(check, TYPING_PAUSE_MS, MAX_ATTEMPTS);
    return () => {
      turn.current += 1;
      clearTimeout(timer);
    };
  }, [ask, form, isWrong]);
  return [feedback, say];
}

type Progress = "none" | "busy" | "launched";

/** Return the progress of a launch, which ends by itself a moment after it; most forms disappear before. */
function useProgress(): [Progress, (progress: Progress) => void] {
  const [progress, setProgress] = React.useState<Progress>("none");
  React.useEffect(() => {
    if (progress !== "launched") {
      return undefined;
    }
    const timer = setTimeout(setProgress, LAUNCHED_PAUSE_MS, "none");
    return () => {
      clearTimeout(timer);
    };
  }, [progress]);
  return [progress, setProgress];
}

interface IFormRequests {
  readonly feedback: IFormFeedback;
  readonly isBusy: boolean;
  /**
   * Submit the job of the form, where the agent knows no reason against it.
   *
   * @param isAnyway - Whether Slurm decides, whatever the agent knows.
   * @returns Whether a reason held the launch back.
   */
  readonly launch: (isAnyway: boolean) => Promise<boolean>;
  /** Ask Slurm for the start time of that job. */
  readonly ask: () => Promise<void>;
}

/** Return the result of the checks of a form, and its requests. */
export function useFormRequests<Job>(
  use: IFormUse<Job>,
  trans: TranslationBundle,
  form: ILaunchForm,
  isWrong: boolean,
  launched: (job: Job) => void,
): IFormRequests {
  const [feedback, setFeedback] = useCheck(use, form, isWrong);
  const [progress, setProgress] = useProgress();
  const key = React.useRef(newRequestKey());
  const latest = React.useRef(form);
  latest.current = form;
  const check = (checked: ILaunchForm): Promise<IFormFeedback> =>
    use.check(checked, false).then(
      (answer) => feedbackOf(checked, answer),
      (error: unknown) => failedCheck(checked, error),
    );
  const launch = async (isAnyway: boolean): Promise<boolean> => {
    setProgress("busy");
    if (!isAnyway) {
      const isOld = feedback.form !== form || feedback.isOfLaunch;
      const checked = isOld ? await check(form) : feedback;
      if (isHeldBack(checked)) {
        setFeedback(checked);
        setProgress("none");
        return true;
      }
    }
    setFeedback(NOTHING);
    try {
      launched(await use.launch(form, key.current));
      key.current = newRequestKey(); // the next launch of this form is another job
      setProgress("launched");
    } catch (error) {
      const problem = use.problemOf(error);
      if (isRefused(problem)) {
        key.current = newRequestKey(); // else the job may exist: with the same key it is not submitted twice
      }
      setFeedback({ ...NOTHING, form, problem, isOfLaunch: true });
      setProgress("none");
    }
    return false;
  };
  const ask = async (): Promise<void> => {
    const checked = latest.current;
    const result = await use.check(checked, true).then(
      (answer): IFormFeedback => {
        const { estimate } = answer;
        const start = estimate?.start ? formatMinute(estimate.start) : null;
        const when =
          start === null ? (estimate?.said ?? "") : trans.__("Earliest start: %1.", start);
        return { ...feedbackOf(checked, answer), estimate: when };
      },
      (error: unknown): IFormFeedback => failedCheck(checked, error),
    );
    if (latest.current === checked) {
      setFeedback(result);
    } else {
      await ask(); // the form has changed since the request
    }
  };
  return { feedback, isBusy: progress !== "none", launch, ask };
}
