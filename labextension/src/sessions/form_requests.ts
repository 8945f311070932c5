/** Requests of the form of a session to the agent. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import type { IProblem } from "../common/api/objects";
import { toProblem } from "../common/api/problem";
import { newRequestKey, type ILaunchForm } from "../common/launch_request";
import type { IResourcesModel, IResourcesState } from "../resources/model";
import { isRefused, type Choices, type ISessionsModel, type SessionJob } from "./model";

/** Time after the last key before the agent checks the form, in milliseconds. */
const TYPING_PAUSE_MS = 500;
/** Interval and number of further requests where the controller was too slow to list the partitions. */
const RETRY_MS = 1_000;
const MAX_ATTEMPTS = 5;
const NONE: Choices = {
  partition: [],
  account: [],
  qos: [],
  environment: [],
  "gpu-of-node": [],
  "time-limit": [],
};

/** The result of a check of the form. */
export interface IFormFeedback {
  readonly doubts: readonly string[];
  readonly problem: IProblem | null;
  readonly estimate: string;
}

const NOTHING: IFormFeedback = { doubts: [], problem: null, estimate: "" };

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
  model: ISessionsModel,
  id: string,
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
    }, TYPING_PAUSE_MS);
    return () => {
      clearTimeout(timer);
    };
  }, [model, id, form, isWrong]);
  return [feedback, say];
}

interface IFormRequests {
  readonly feedback: IFormFeedback;
  readonly isBusy: boolean;
  /** Launch the session of the form. */
  readonly launch: () => Promise<void>;
  /** Ask Slurm for the start time of that session. */
  readonly ask: () => Promise<void>;
}

/** Return the result of the checks of a form, and its requests. */
export function useFormRequests(
  { model, trans, id }: { model: ISessionsModel; trans: TranslationBundle; id: string },
  form: ILaunchForm,
  isWrong: boolean,
  launched: (job: SessionJob) => void,
): IFormRequests {
  const [feedback, setFeedback] = useCheck(model, id, form, isWrong);
  const [isBusy, setBusy] = React.useState(false);
  const key = React.useRef(newRequestKey());
  const latest = React.useRef(form);
  latest.current = form;
  const launch = async (): Promise<void> => {
    setBusy(true);
    setFeedback(NOTHING);
    try {
      launched(await model.launch(id, form, key.current));
    } catch (error) {
      const problem = toProblem(error, trans.__("Launch again. Only one session will be started."));
      if (isRefused(problem)) {
        key.current = newRequestKey(); // else the session may exist: with the same key it is not launched twice
      }
      setFeedback({ ...NOTHING, problem });
      setBusy(false);
    }
  };
  const ask = async (): Promise<void> => {
    const checked = latest.current;
    const result = await model.check(id, checked, true).then(
      ({ estimate, doubts = [] }): IFormFeedback => {
        const start = estimate?.start ? new Date(estimate.start * 1000).toLocaleString() : null;
        const when =
          start === null ? (estimate?.said ?? "") : trans.__("Earliest start: %1.", start);
        return { ...NOTHING, doubts, estimate: when };
      },
      (error: unknown): IFormFeedback => ({ ...NOTHING, problem: toProblem(error, "") }),
    );
    if (latest.current === checked) {
      setFeedback(result);
    } else {
      await ask(); // the form has changed since the request
    }
  };
  return { feedback, isBusy, launch, ask };
}
