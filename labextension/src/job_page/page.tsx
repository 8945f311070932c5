/** Page of one job in the main area. */
import type { TranslationBundle } from "@jupyterlab/translation";
import { ReactWidget, UseSignal } from "@jupyterlab/ui-components";
import type { Message } from "@lumino/messaging";
import * as React from "react";

import type { IJob } from "../common/api/objects";
import { problemText } from "../common/labels";
import { Header, type IJobActs } from "./header";
import { LogView } from "./log/log_view";
import type { JobPage } from "./model";
import { Script, Submission } from "./submission";
import { Steps, Tasks } from "./tasks_and_steps";
import { Usage } from "./usage";

interface IPageProps {
  readonly page: JobPage;
  readonly trans: TranslationBundle;
  readonly acts: IJobActs;
}

interface ITab {
  readonly id: string;
  readonly label: string;
  readonly panel: () => React.ReactElement;
}

/** Return the tabs of the page of a job. */
function tabsOf({ page, trans, acts }: IPageProps, job: IJob): ITab[] {
  const all = { page, job, trans };
  const log = { id: "log", label: trans.__("Log"), panel: () => <LogView {...all} /> };
  const tasks = {
    id: "tasks",
    label: trans.__("Tasks"),
    panel: () => <Tasks {...all} open={acts.open} />,
  };
  const steps = {
    id: "steps",
    label: trans.__("Steps"),
    panel: () => <Steps {...all} open={acts.open} />,
  };
  const isArray = typeof job.array === "string";
  return [
    ...(isArray && page.streams.length === 0 ? [tasks, log] : isArray ? [log, tasks] : [log]),
    ...(job.kind === "allocation" ? [steps] : []),
    { id: "use", label: trans.__("Resources"), panel: () => <Usage {...all} /> },
    { id: "script", label: trans.__("Script"), panel: () => <Script {...all} /> },
    { id: "submission", label: trans.__("Submission"), panel: () => <Submission {...all} /> },
  ];
}

/** A row of tabs (WAI-ARIA): arrow keys move between them, Tab moves into the panel. */
function Tabs({ tabs, label }: { tabs: readonly ITab[]; label: string }): React.ReactElement {
  const [chosen, setChosen] = React.useState<string | null>(null);
  const prefix = React.useId();
  const at = Math.max(
    0,
    tabs.findIndex(({ id }) => id === chosen),
  );
  const row = React.useRef<HTMLDivElement>(null);
  const go = (index: number): void => {
    const next = tabs[(index + tabs.length) % tabs.length];
    setChosen(next?.id ?? null);
    row.current?.querySelector<HTMLElement>(`[data-tab="${next?.id ?? ""}"]`)?.focus();
  };
  const steps: Readonly<Record<string, number>> = { ArrowRight: at + 1, ArrowLeft: at - 1 };
  const ends: Readonly<Record<string, number>> = { Home: 0, End: tabs.length - 1 };
  const tab = tabs[at];
  return (
    <>
      <div ref={row} className="jp-Slurm-tabs" role="tablist" aria-label={label}>
        {tabs.map(({ id, label: name }, index) => (
          <button
            key={id}
            type="button"
            role="tab"
            id={`${prefix}${id}`}
            data-tab={id}
            aria-selected={index === at}
            aria-controls={`${prefix}panel`}
            tabIndex={index === at ? 0 : -1}
            onClick={() => {
              setChosen(id);
            }}
            onKeyDown={({ key }) => {
              const next = { ...steps, ...ends }[key];
              if (next !== undefined) {
                go(next);
              }
            }}
          >
            {name}
          </button>
        ))}
      </div>
      <div
        className="jp-Slurm-tabPanel"
        role="tabpanel"
        id={`${prefix}panel`}
        aria-labelledby={`${prefix}${tab?.id ?? ""}`}
        data-tab={tab?.id}
        tabIndex={-1}
      >
        {tab?.panel()}
      </div>
    </>
  );
}

function Page(props: IPageProps): React.ReactElement {
  const { page, trans, acts } = props;
  const { job, problem } = page;
  if (job === null) {
    return problem === null ? (
      <p role="status" className="jp-Slurm-aside">
        {trans.__("Loading…")}
      </p>
    ) : (
      <p role="alert" className="jp-Slurm-problem">
        {problemText(trans, problem)}
      </p>
    );
  }
  return (
    <>
      <Header {...{ page, job, trans, acts }} />
      <Tabs tabs={tabsOf(props, job)} label={trans.__("Parts of the page")} />
    </>
  );
}

export class JobPanel extends ReactWidget {
  constructor(
    readonly page: JobPage,
    private readonly _trans: TranslationBundle,
    private readonly _acts: IJobActs,
    /** The name by which JupyterLab restores the page after a reload. */
    readonly name: string,
  ) {
    super();
    this.addClass("jp-Slurm-panel");
    this.addClass("jp-Slurm-job");
    document.addEventListener("visibilitychange", this._look);
  }

  override dispose(): void {
    document.removeEventListener("visibilitychange", this._look);
    this.page.dispose();
    super.dispose();
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this._look();
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this._look();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this._look();
  }

  protected override onBeforeDetach(message: Message): void {
    this.page.setVisible(false);
    super.onBeforeDetach(message);
  }

  protected override render(): React.ReactElement {
    return (
      <UseSignal signal={this.page.changed}>
        {() => <Page page={this.page} trans={this._trans} acts={this._acts} />}
      </UseSignal>
    );
  }

  private readonly _look = (): void => {
    this.page.setVisible(this.isVisible && !document.hidden);
  };
}
