/** Card of a session, and the list of the active sessions. */
import { Clipboard } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";
import { notebookIcon, stopIcon, terminalIcon } from "@jupyterlab/ui-components";
import * as React from "react";

import { formatClock } from "../common/format";
import { stateKind } from "../common/job_states";
import { jobCluster, jobName, problemText } from "../common/labels";
import { ToolbarButton } from "../common/jupyterlab/toolbar_button";
import { usePeriodicRedraw } from "../common/jupyterlab/periodic_redraw";
import {
  appTitle,
  isolationText,
  plainText,
  sessionFacts,
  sessionKind,
  sessionReason,
  sessionState,
  sessionSteps,
} from "./labels";
import { isOpen, isOver, isSshHost, sshHost, type ISessionsModel, type SessionJob } from "./model";

interface ISessionProps {
  readonly model: ISessionsModel;
  readonly trans: TranslationBundle;
  readonly job: SessionJob;
  readonly stop: (job: SessionJob) => void;
  /** Open a terminal in the job of a session; missing where the Jupyter server allows no terminals. */
  readonly openTerminal?: ((job: SessionJob) => void) | undefined;
}

/** Create a notebook in a session, and open it in a tab. */
async function openNotebook(model: ISessionsModel, job: SessionJob): Promise<void> {
  const tab = window.open("", "_blank"); // later than in the click, browsers block it
  const address = await model.newNotebook(job);
  if (tab === null) {
    return;
  }
  if (address === null) {
    tab.close();
    return;
  }
  tab.opener = null;
  tab.location.replace(address);
}

/** The button that leads from the session to a running kernel with one click. */
function NewNotebook({
  model,
  trans,
  job,
}: Omit<ISessionProps, "stop">): React.ReactElement | null {
  const isLab = job.session.server?.startsWith("jupyterlab") === true;
  return isLab && isOpen(job) && model.address(job) !== null ? (
    <ToolbarButton
      icon={notebookIcon}
      label={trans.__("New notebook")}
      fullLabel={trans.__("Open a new notebook in session %1", jobName(job))}
      isNamed
      isOff={model.isStopping(job)}
      act={() => {
        void openNotebook(model, job);
      }}
    />
  ) : null;
}

/** Actions on a session: open it in a tab of its own, connect to it, stop it. */
function Actions(props: React.PropsWithChildren<ISessionProps>): React.ReactElement {
  const { model, trans, job, stop, openTerminal, children } = props;
  const name = jobName(job);
  const address = model.address(job);
  const isStopping = model.isStopping(job);
  return (
    <>
      {isSshHost(job) && !isOver(job) && (
        <button
          type="button"
          className="jp-mod-styled"
          title={trans.__("For Remote-SSH of an editor, and for ssh")}
          aria-label={trans.__("Copy the SSH host %1", sshHost(job))}
          onClick={() => {
            Clipboard.copyToSystem(sshHost(job));
          }}
        >
          {trans.__("Copy SSH host")}
        </button>
      )}
      {isOpen(job) && address !== null && !isSshHost(job) && (
        <a
          className="jp-Slurm-open"
          aria-disabled={isStopping}
          href={isStopping ? undefined : address}
          target="_blank"
          rel="noopener"
          aria-label={trans.__("Open session %1 in a new tab", name)}
        >
          {trans.__("Open")}
        </a>
      )}
      {children}
      {openTerminal !== undefined && stateKind(job.state) === "running" && (
        <ToolbarButton
          icon={terminalIcon}
          label={trans.__("Terminal")}
          fullLabel={trans.__("Open a terminal in session %1", name)}
          isNamed={children !== undefined}
          isOff={isStopping}
          act={() => {
            openTerminal(job);
          }}
        />
      )}
      {job.session.state === "unreachable" && (
        <ToolbarButton
          label={trans.__("Connect")}
          fullLabel={trans.__("Connect to session %1", name)}
          act={() => void model.reconnect(job)}
        />
      )}
      {!isOver(job) && (
        <ToolbarButton
          icon={stopIcon}
          label={isStopping ? trans.__("Stopping…") : trans.__("Stop")}
          fullLabel={trans.__("Stop session %1", name)}
          isNamed
          isOff={isStopping}
          act={() => {
            stop(job);
          }}
        />
      )}
    </>
  );
}

/** The last log lines of the Jupyter server; of a failed session they are loaded at once. */
function Log({ model, trans, job }: Omit<ISessionProps, "stop">): React.ReactElement {
  const hasFailed = isOver(job) && !["CANCELLED", "COMPLETED"].includes(job.state);
  const [chosen, setChosen] = React.useState<boolean | null>(null);
  const [text, setText] = React.useState<string | null>(null);
  const end = React.useRef<HTMLPreElement>(null);
  const wanted = chosen ?? hasFailed;
  const { state, message } = job.session;
  React.useEffect(() => {
    let isCurrent = true;
    const take = (loaded: string): void => {
      if (isCurrent) {
        setText(loaded);
      }
    };
    if (wanted) {
      model
        .log(job)
        .then(plainText, (error: unknown) => (error instanceof Error ? error.message : ""))
        .then(take, () => undefined);
    }
    return () => {
      isCurrent = false;
    };
  }, [wanted, model, job.key, state, message]);
  React.useEffect(() => {
    if (end.current !== null) {
      end.current.scrollTop = end.current.scrollHeight;
    }
  }, [text]);
  return (
    <>
      <ToolbarButton
        label={trans.__("Log")}
        isExpanded={wanted}
        act={() => {
          setChosen(!wanted);
        }}
      />
      {wanted && (
        <pre ref={end} className="jp-Slurm-log" tabIndex={0} aria-label={trans.__("Log")}>
          {text === "" ? trans.__("No output yet.") : text}
        </pre>
      )}
    </>
  );
}

/** A session from its submission to its end. */
export function SessionCard(
  props: ISessionProps & { readonly launchAgain: () => void },
): React.ReactElement {
  const { model, trans, job, launchAgain } = props;
  usePeriodicRedraw();
  const problem = model.problem(job);
  const address = model.address(job);
  const node = React.useRef<HTMLElement>(null);
  React.useEffect(() => {
    if (document.activeElement === document.body) {
      node.current?.focus(); // the form that had the focus is gone
    }
  }, []);
  return (
    <section
      ref={node}
      tabIndex={-1}
      className="jp-Slurm-session"
      data-session={job.session.state}
      aria-label={jobName(job)}
    >
      <h2>{jobName(job)}</h2>
      <p data-kind={model.isStopping(job) ? "pending" : sessionKind(job)} aria-live="polite">
        <span className="jp-Slurm-badge">
          {model.isStopping(job) ? trans.__("Stopping…") : sessionState(trans, job)}
        </span>{" "}
        <span className="jp-Slurm-aside">
          {[
            jobCluster(model.jobs, job),
            job.id ? trans.__("job %1", job.id) : "",
            ...sessionFacts(trans, job, model.jobs.now),
          ]
            .filter((fact) => fact !== "")
            .map((fact, index) => (
              <React.Fragment key={fact}>
                {index > 0 && " · "}
                <span className="jp-Slurm-fact">{fact}</span>
              </React.Fragment>
            ))}
        </span>
      </p>
      {sessionReason(trans, job, model.jobs.now).map((line, index) => (
        <p key={line} className={index > 0 ? "jp-Slurm-aside" : "jp-Slurm-why"}>
          {line}
        </p>
      ))}
      {(job.warnings ?? []).map((warning) => (
        <p key={warning} className="jp-Slurm-doubt">
          {warning}
        </p>
      ))}
      <ol className="jp-Slurm-steps">
        {sessionSteps(trans, job).map(({ state, label, time, took }) => (
          <li
            key={state}
            data-reached={time !== null}
            data-kind={state === "ended" ? sessionKind(job) : undefined}
          >
            <span>{label}</span>
            <span className="jp-Slurm-aside">
              {time === null ? "" : formatClock(time)}
              {took === "" ? "" : ` (${trans.__("after %1", took)})`}
            </span>
          </li>
        ))}
      </ol>
      {isOpen(job) && address === null && !isSshHost(job) && (
        <p>
          {trans.__(
            "It was launched on another computer. `jupyter slurm open %1` in a terminal opens it.",
            jobName(job),
          )}
        </p>
      )}
      {isOpen(job) && address !== null && !isSshHost(job) && (
        <p className={model.isIsolated() ? "jp-Slurm-aside" : "jp-Slurm-doubt"}>
          {isolationText(trans, model.isIsolated())}
        </p>
      )}
      {problem !== null && (
        <p role="alert" className="jp-Slurm-problem">
          {problemText(trans, problem)}
        </p>
      )}
      <div className="jp-Slurm-actions">
        <Actions {...props}>
          <NewNotebook {...{ model, trans, job }} />
        </Actions>
        {isOver(job) && (
          <button type="button" className="jp-mod-styled jp-mod-accept" onClick={launchAgain}>
            {trans.__("Launch another")}
          </button>
        )}
        <Log {...{ model, trans, job }} />
      </div>
    </section>
  );
}

interface ISessionsProps {
  readonly model: ISessionsModel;
  readonly trans: TranslationBundle;
  readonly stop: (job: SessionJob) => void;
  readonly openTerminal?: ((job: SessionJob) => void) | undefined;
  readonly show: (job: SessionJob) => void;
}

/** The active sessions; nothing where there are none. */
export function Sessions(props: ISessionsProps): React.ReactElement | null {
  const { model, trans, stop, openTerminal, show } = props;
  const { active } = model;
  return active.length === 0 ? null : (
    <ul className="jp-Slurm-sessions" aria-label={trans.__("Sessions")}>
      {active.map((job) => (
        <li key={job.key} data-kind={sessionKind(job)} data-session={job.session.state}>
          <span className="jp-Slurm-badge">
            <button
              type="button"
              className="jp-Slurm-link"
              aria-label={trans.__("Show session %1", jobName(job))}
              onClick={() => {
                show(job);
              }}
            >
              {jobName(job)}
            </button>
          </span>
          <span className="jp-Slurm-connection">
            {[
              appTitle(job),
              model.isStopping(job) ? trans.__("Stopping…") : sessionState(trans, job),
              job.nodes ?? "",
              jobCluster(model.jobs, job),
            ]
              .filter((fact) => fact !== "")
              .join(" · ")}
            {model.problem(job) !== null && (
              <div role="alert" className="jp-Slurm-problem">
                {problemText(trans, model.problem(job) ?? {})}
              </div>
            )}
          </span>
          <Actions {...{ model, trans, job, stop, openTerminal }} />
        </li>
      ))}
    </ul>
  );
}
