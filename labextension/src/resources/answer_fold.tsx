/** A fold of the resources of a cluster, whose content is loaded while it is open. */
import type { TranslationBundle } from "@jupyterlab/translation";
import { UseSignal } from "@jupyterlab/ui-components";
import * as React from "react";

import { Fold } from "../common/jupyterlab/fold";
import { problemText } from "../common/labels";
import type { IAnswers } from "./answers";
import { checkedText, type IAnswerAge } from "./labels";

/** Milliseconds between two looks at the age of the answer. */
const LOOK_MS = 5_000;

interface IProps<T> {
  readonly answers: IAnswers<T>;
  readonly trans: TranslationBundle;
  readonly cluster: string;
  /** How often the agent asks, as a tooltip. */
  readonly pace: string;
  readonly children: (answer: T) => React.ReactElement;
}

function Answer<T extends IAnswerAge>(props: IProps<T>): React.ReactElement {
  const { answers, trans, cluster, pace, children } = props;
  React.useEffect(() => {
    const look = (): void => {
      if (!document.hidden) {
        void answers.keepRecent(cluster);
      }
    };
    look();
    const timer = setInterval(look, LOOK_MS);
    return () => {
      clearInterval(timer);
    };
  }, [answers, cluster]);
  return (
    <UseSignal signal={answers.changed}>
      {() => {
        const { answer, problem, isLoading } = answers.stateOf(cluster);
        const said = answer === null && isLoading ? trans.__("Loading…") : "";
        return (
          <div className="jp-Slurm-answer">
            <p className="jp-Slurm-age jp-Slurm-aside">
              {/* Only what is not expected is read aloud, not each new time. */}
              <span aria-live="polite" data-problem={problem !== null}>
                {problem === null ? said : problemText(trans, problem)}
              </span>{" "}
              {answer !== null && <span>{checkedText(trans, answer)}</span>}{" "}
              <button
                type="button"
                className="jp-Slurm-link"
                title={pace}
                aria-disabled={isLoading}
                onClick={() => void answers.load(cluster)}
              >
                {trans.__("Refresh")}
              </button>
            </p>
            {answer !== null && children(answer)}
          </div>
        );
      }}
    </UseSignal>
  );
}

export function AnswerFold<T extends IAnswerAge>(
  props: IProps<T> & { readonly title: string; readonly name: string },
): React.ReactElement {
  const { title, name, cluster } = props;
  return (
    <Fold className="jp-Slurm-loaded" name={`${name} of ${cluster}`} title={title}>
      <Answer {...props} />
    </Fold>
  );
}
