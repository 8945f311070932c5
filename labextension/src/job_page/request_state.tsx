/** What is asked for when somebody looks, and not before: each such question costs the cluster something. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import type { IProblem } from "../common/api/objects";
import { toProblem } from "../common/api/problem";
import { problemText } from "../common/labels";
import type { Fact } from "./labels";

/** An answer, or why there is none. */
export interface IAsked<T> {
  readonly value: T | null;
  readonly problem: IProblem | null;
  readonly isAsking: boolean;
  readonly again: () => void;
}

/**
 * Ask once, and again when told to.
 *
 * @param reason - Ask anew when it changes.
 */
export function useAsked<T>(ask: () => Promise<T>, reason: string): IAsked<T> {
  const [told, setTold] = React.useState<Omit<IAsked<T>, "again">>({
    value: null,
    problem: null,
    isAsking: true,
  });
  const [count, again] = React.useReducer((turn: number) => turn + 1, 0);
  const before = React.useRef(Promise.resolve());
  React.useEffect(() => {
    let isCurrent = true;
    const take = (value: T | null, problem: IProblem | null): void => {
      setTold({ value, problem, isAsking: !isCurrent });
    };
    const asked = (): Promise<void> =>
      ask().then(
        (value) => {
          take(value, null);
        },
        (error: unknown) => {
          take(null, toProblem(error, ""));
        },
      );
    setTold((known) => ({ ...known, isAsking: true }));
    // One question at a time: a large array changes faster than its tasks are told.
    before.current = before.current.then(() => (isCurrent ? asked() : undefined));
    return () => {
      isCurrent = false;
    };
  }, [count, reason]);
  return { ...told, again };
}

interface IAnswerProps<T> {
  readonly trans: TranslationBundle;
  readonly asked: IAsked<T>;
  readonly children: (value: T) => React.ReactNode;
}

/** What there is to see of a question: its answer, or why there is none, or that it is under way. */
export function Answer<T>({ trans, asked, children }: IAnswerProps<T>): React.ReactElement {
  if (asked.problem !== null) {
    return <p className="jp-Slurm-problem">{problemText(trans, asked.problem)}</p>;
  }
  return asked.value === null ? (
    <p role="status" className="jp-Slurm-aside">
      {trans.__("Asking…")}
    </p>
  ) : (
    <>{children(asked.value)}</>
  );
}

/** The same, with a button that asks again. */
export function RenewedAnswer<T>(
  props: IAnswerProps<T> & { readonly label: string },
): React.ReactElement {
  const { asked, label } = props;
  return (
    <>
      <Answer {...props} />
      <button
        type="button"
        className="jp-mod-styled jp-mod-minimal"
        disabled={asked.isAsking}
        onClick={asked.again}
      >
        {label}
      </button>
    </>
  );
}

/** Names, and what there is to say of each. */
export function Facts({ facts }: { readonly facts: readonly Fact[] }): React.ReactElement {
  return (
    <dl className="jp-Slurm-facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
