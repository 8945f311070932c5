/** What the form of a session asks the agent, and when. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import type { IProblem } from "../common/api/objects";
import { toProblem } from "../common/api/problem";
import { newKey, type IForm } from "../common/launch_request";
import type { IKnown, IResourcesModel } from "../resources/model";
import { isRefused, type Choices, type ISessionsModel, type SessionJob } from "./model";

/** How long nothing must have been typed before the agent is asked what it thinks, in milliseconds. */
const PAUSE = 500;
/** A controller that was too slow to say which partitions there are is waited for again: after so long, so often. */
const AGAIN = 1_000;
const ATTEMPTS = 5;
const NONE: Choices = {
  partition: [],
  account: [],
  qos: [],
  environment: [],
  "gpu-of-node": [],
  "time-limit": [],
};

/** What is known against a form, or for it. */
export interface ISaid {
  readonly doubts: readonly string[];
  readonly problem: IProblem | null;
  readonly estimate: string;
}

const NOTHING: ISaid = { doubts: [], problem: null, estimate: "" };

/** The partition of whoever names none. */
export function defaultPartition({ partition }: Choices): string {
  return partition.find(({ about }) => about.startsWith("default"))?.name ?? "";
}

/** What there is to choose from in a partition; asked anew when another one is chosen. */
export function useChoices(model: ISessionsModel, cluster: string, chosen: string): Choices {
  const [choices, setChoices] = React.useState(NONE);
  const partition = chosen || defaultPartition(choices);
  React.useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isCurrent = true;
    const ask = (left: number): void => {
      model.choices(cluster, partition).then(
        (told) => {
          if (!isCurrent) {
            return;
          }
          setChoices(told);
          if (told.partition.length === 0 && left > 0) {
            timer = setTimeout(ask, AGAIN, left - 1);
          }
        },
        () => undefined, // names can be typed; whoever does not answer is told of when it counts
      );
    };
    ask(ATTEMPTS);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [model, cluster, partition]);
  return choices;
}

const UNKNOWN: IKnown = { resources: null, problem: null, isAsking: false };

/** What is free on a cluster: asked for when a form is shown, and when its controller answers again. */
export function useKnown(
  model: IResourcesModel | null,
  cluster: string,
  isSilent: boolean,
): IKnown {
  const [known, setKnown] = React.useState(UNKNOWN);
  const wasSilent = React.useRef(isSilent);
  React.useEffect(() => {
    const take = (): void => {
      setKnown(model?.known(cluster) ?? UNKNOWN);
    };
    model?.changed.connect(take);
    take();
    return () => {
      model?.changed.disconnect(take);
    };
  }, [model, cluster]);
  React.useEffect(() => {
    void model?.look(cluster, { newer: wasSilent.current && !isSilent });
    wasSilent.current = isSilent;
  }, [model, cluster, isSilent]);
  return known;
}

/** What the agent thinks of a form, when nothing has been typed for a moment. */
function useCheck(
  model: ISessionsModel,
  id: string,
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

interface IAsking {
  readonly said: ISaid;
  readonly isBusy: boolean;
  /** Launch what stands in the form. */
  readonly launch: () => Promise<void>;
  /** Ask Slurm when that would begin. */
  readonly ask: () => Promise<void>;
}

/** What is known of a form, and what can be done with it. */
export function useAsking(
  { model, trans, id }: { model: ISessionsModel; trans: TranslationBundle; id: string },
  form: IForm,
  isWrong: boolean,
  launched: (job: SessionJob) => void,
): IAsking {
  const [said, say] = useCheck(model, id, form, isWrong);
  const [isBusy, setBusy] = React.useState(false);
  const key = React.useRef(newKey());
  const latest = React.useRef(form);
  latest.current = form;
  const launch = async (): Promise<void> => {
    setBusy(true);
    say(NOTHING);
    try {
      launched(await model.launch(id, form, key.current));
    } catch (error) {
      const problem = toProblem(error, trans.__("Launch again: it is not launched twice."));
      if (isRefused(problem)) {
        key.current = newKey(); // else it may be there: with the same key it is not launched twice
      }
      say({ ...NOTHING, problem });
      setBusy(false);
    }
  };
  const ask = async (): Promise<void> => {
    const asked = latest.current;
    const told = await model.check(id, asked, true).then(
      ({ estimate, doubts = [] }): ISaid => {
        const start = estimate?.start ? new Date(estimate.start * 1000).toLocaleString() : null;
        const when =
          start === null ? (estimate?.said ?? "") : trans.__("Earliest start: %1.", start);
        return { ...NOTHING, doubts, estimate: when };
      },
      (error: unknown): ISaid => ({ ...NOTHING, problem: toProblem(error, "") }),
    );
    if (latest.current === asked) {
      say(told);
    } else {
      await ask(); // the answer is to what does not stand there any more
    }
  };
  return { said, isBusy, launch, ask };
}
