/** Page of a session in the main area: its form, and after the launch its card. */
import type { TranslationBundle } from "@jupyterlab/translation";
import { ReactWidget, UseSignal } from "@jupyterlab/ui-components";
import { UUID, type ReadonlyPartialJSONObject } from "@lumino/coreutils";
import { Signal, type ISignal } from "@lumino/signaling";
import * as React from "react";

import type { ICluster } from "../common/api/objects";
import { isUnknown } from "../common/api/records";
import type { IJobsModel } from "../common/jobs_model";
import { connectionState, connectionText } from "../common/labels";
import type { ILaunchForm } from "../common/launch_request";
import { launchTitle } from "./labels";
import { LaunchForm } from "./launch_form";
import type { ISessionsModel, SessionJob } from "./model";
import { SessionCard } from "./session_card";

/** Actions of the user besides launching. */
export interface ILaunchActs {
  readonly connect: (cluster: ICluster) => void;
  readonly stop: (job: SessionJob) => void;
  /** Open a terminal in the job of a session. */
  readonly openTerminal?: ((job: SessionJob) => void) | undefined;
  /** Save a form as a file. */
  readonly save?: (cluster: ICluster, form: ILaunchForm) => void;
  /** Add a form as a kernel of notebooks. */
  readonly addKernel?: (cluster: ICluster, form: ILaunchForm) => void;
}

interface IPageProps {
  readonly model: ISessionsModel;
  readonly trans: TranslationBundle;
  readonly acts: ILaunchActs;
  readonly cluster: string;
  readonly session: string | null;
  readonly choose: (session: string | null) => void;
  readonly template?: ILaunchForm;
}

/** A session by its key; one that is not among the jobs is loaded. */
function Launched(props: IPageProps & { readonly session: string }): React.ReactElement {
  const { model, trans, acts, cluster, session, choose } = props;
  const [isGone, setGone] = React.useState(false);
  const job = model.find(cluster, session);
  const isLive = model.jobs.connection === "live";
  React.useEffect(() => {
    if (isLive) {
      model.lookUp(cluster, session).then(
        (found) => {
          setGone(!found);
        },
        () => undefined, // the session is loaded again when the connection is back
      );
    }
  }, [model, cluster, session, isLive]);
  const launchAgain = (): void => {
    choose(null);
  };
  if (job !== null) {
    const { stop, openTerminal } = acts;
    return <SessionCard {...{ model, trans, job, launchAgain, stop, openTerminal }} />;
  }
  return isGone ? (
    <>
      <p>{trans.__("This session is no longer known.")}</p>
      <button type="button" className="jp-mod-styled jp-mod-accept" onClick={launchAgain}>
        {trans.__("Launch another")}
      </button>
    </>
  ) : (
    <p role="status">{connectionText(trans, model.jobs)}</p>
  );
}

/** Return why the form cannot be shown yet, or any more. */
export function waitText(trans: TranslationBundle, jobs: IJobsModel): string {
  const isLoaded = jobs.connection === "live" && jobs.clusters.length > 0;
  return (
    connectionText(trans, jobs) ||
    (isLoaded ? trans.__("This cluster is no longer known.") : trans.__("Loading the clusters…"))
  );
}

type IClusterProps = IPageProps & { readonly shown: ICluster };

/** The login to a cluster. */
function Login({ trans, acts, shown }: IClusterProps): React.ReactElement {
  const { connection } = shown;
  return (
    <>
      {connection && <p role="status">{connectionState(trans, connection)}</p>}
      {connection?.message && <p className="jp-Slurm-aside">{connection.message}</p>}
      {connection?.state === "disconnected" && (
        <button
          type="button"
          className="jp-mod-styled jp-mod-accept"
          onClick={() => {
            acts.connect(shown);
          }}
        >
          {trans.__("Connect")}
        </button>
      )}
    </>
  );
}

/** The form, below the login where one is needed. A hidden form keeps its request: with it, no second session starts. */
function FormPage(props: IClusterProps): React.ReactElement {
  const { model, trans, acts, shown: cluster, choose, template } = props;
  const isLogin = isUnknown(cluster);
  const wasShown = React.useRef(false);
  wasShown.current ||= !isLogin;
  const launched = ({ key }: SessionJob): void => {
    choose(key);
  };
  return (
    <>
      <h2>{launchTitle(trans, cluster)}</h2>
      {isLogin && <Login {...props} />}
      {wasShown.current && (
        <div hidden={isLogin}>
          <LaunchForm
            {...{ model, trans, cluster, launched, template }}
            save={acts.save}
            addKernel={acts.addKernel}
          />
        </div>
      )}
    </>
  );
}

/** The login where one is needed, else the form, or the launched session. */
export function LaunchPage(props: IPageProps): React.ReactElement {
  const { model, trans, cluster, session } = props;
  const shown = model.jobs.clusters.find((each) => each.id === cluster);
  if (shown === undefined) {
    return <p role="status">{waitText(trans, model.jobs)}</p>;
  }
  if (session === null) {
    return <FormPage {...props} shown={shown} />;
  }
  return isUnknown(shown) ? (
    <>
      <h2>{launchTitle(trans, shown)}</h2>
      <Login {...props} shown={shown} />
    </>
  ) : (
    <Launched {...props} session={session} />
  );
}

/** The content of a page, as arguments of the command that opens it. */
export interface ISessionLocation {
  readonly cluster: string;
  /** The key of a session; null: the form. */
  readonly session: string | null;
  /** The permanent ID of the page, by which the layout restores it, whatever it shows. */
  readonly page: string;
}

/** Return the location that the arguments of a command name. */
export function parseSessionLocation({
  cluster,
  session,
  page,
}: ReadonlyPartialJSONObject): ISessionLocation {
  return {
    cluster: typeof cluster === "string" ? cluster : "",
    session: typeof session === "string" ? session : null,
    page: typeof page === "string" ? page : UUID.uuid4(),
  };
}

export class LaunchPanel extends ReactWidget {
  private readonly _chosen = new Signal<this, void>(this);

  constructor(
    private readonly _model: ISessionsModel,
    private readonly _trans: TranslationBundle,
    private readonly _acts: ILaunchActs,
    private _place: ISessionLocation,
  ) {
    super();
    this.addClass("jp-Slurm-panel");
    this.addClass("jp-Slurm-launch");
  }

  /** Emitted when another session is shown, or the form. */
  get chosen(): ISignal<this, void> {
    return this._chosen;
  }

  get place(): ISessionLocation {
    return this._place;
  }

  override dispose(): void {
    super.dispose();
    Signal.clearData(this);
  }

  protected override render(): React.ReactElement {
    const choose = (session: string | null): void => {
      if (this.isDisposed) {
        return; // the page was closed during a launch
      }
      this._place = { ...this._place, session };
      this._chosen.emit();
      this.update();
    };
    const { _model: model, _trans: trans, _acts: acts } = this;
    return (
      <UseSignal signal={model.changed}>
        {() => (
          <LaunchPage
            {...{ model, trans, acts, choose }}
            cluster={this._place.cluster}
            session={this._place.session}
          />
        )}
      </UseSignal>
    );
  }
}
