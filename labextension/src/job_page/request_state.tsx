/** Requests that are made when a tab is shown, and not before: each one costs the cluster some work. */
import type { TranslationBundle } from "@jupyterlab/translation";
import { refreshIcon } from "@jupyterlab/ui-components";
import * as React from "react";

import type { IProblem } from "../common/api/objects";
import { toProblem } from "../common/api/problem";
import { ToolbarButton } from "../common/jupyterlab/toolbar_button";
import { problemText } from "../common/labels";
import type { Fact } from "./labels";

/** The result of a request, or its problem. */
export interface IRequestState<T> {
  readonly value: T | null;
  readonly problem: IProblem | null;
  readonly isLoading: boolean;
  readonly reload: () => void;
}

/**
 * Make a request once, and again on `reload`.
 *
 * @param reason - Repeat the request when it changes.
 */
export function useRequest<T>(ask: () => Promise<T>, reason: string): IRequestState<T> {
  const [state, setState] = React.useState<Omit<IRequestState<T>, "reload">>({
    value: null,
    problem: null,
    isLoading: true,
  });
  const [count, reload] = React.useReducer((turn: number) => turn + 1, 0);
  const before = React.useRef(Promise.resolve());
  React.useEffect(() => {
    let isCurrent = true;
    const take = (value: T | null, problem: IProblem | null): void => {
      setState({ value, problem, isLoading: !isCurrent });
    };
    const load = (): Promise<void> =>
      ask().then(
        (value) => {
          take(value, null);
        },
        (error: unknown) => {
          take(null, toProblem(error, ""));
        },
      );
    setState((known) => ({ ...known, isLoading: true }));
    // One request at a time: a large array changes faster than its tasks are sent.
    before.current = before.current.then(() => (isCurrent ? load() : undefined));
    return () => {
      isCurrent = false;
    };
  }, [count, reason]);
  return { ...state, reload };
}

interface IResultProps<T> {
  readonly trans: TranslationBundle;
  readonly request: IRequestState<T>;
  readonly children: (value: T) => React.ReactNode;
}

/** Show the result of a request, its problem, or that it is under way. */
export function RequestResult<T>({
  trans,
  request,
  children,
}: IResultProps<T>): React.ReactElement {
  if (request.problem !== null) {
    return <p className="jp-Slurm-problem">{problemText(trans, request.problem)}</p>;
  }
  return request.value === null ? (
    <p role="status" className="jp-Slurm-aside">
      {trans.__("Loading…")}
    </p>
  ) : (
    <>{children(request.value)}</>
  );
}

/** The same with a button that repeats the request. */
export function RefreshableResult<T>(
  props: IResultProps<T> & { readonly label: string },
): React.ReactElement {
  const { request, label } = props;
  return (
    <>
      <RequestResult {...props} />
      <ToolbarButton
        icon={refreshIcon}
        label={label}
        isNamed
        isOff={request.isLoading}
        act={request.reload}
      />
    </>
  );
}

/** A list of names and values. */
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
