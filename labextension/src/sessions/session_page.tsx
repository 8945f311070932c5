/** The page of a session in the main area: its form, and once it is launched its card. */
import type { TranslationBundle } from "@jupyterlab/translation";
import { ReactWidget, UseSignal } from "@jupyterlab/ui-components";
import { UUID, type ReadonlyPartialJSONObject } from "@lumino/coreutils";
import { Signal, type ISignal } from "@lumino/signaling";
import * as React from "react";

import type { ICluster } from "../common/api/objects";
import { clusterName, connectionState, connectionText } from "../common/labels";
import type { IForm } from "../common/launch_request";
import { LaunchForm } from "./launch_form";
import type { ISessionsModel, SessionJob } from "./model";
import { SessionCard } from "./session_card";

/** What a person can do here beside launching. */
export interface ILaunchActs {
  readonly connect: (cluster: ICluster) => void;
  readonly stop: (job: SessionJob) => void;
  /** Keep a form as a file. */
  readonly save?: (cluster: ICluster, form: IForm) => void;
  /** Add it to the kernels that can be chosen for a notebook. */
  readonly addKernel?: (cluster: ICluster, form: IForm) => void;
}

interface IPageProps {
  readonly model: ISessionsModel;
  readonly trans: TranslationBundle;
  readonly acts: ILaunchActs;
  readonly cluster: string;
  readonly session: string | null;
  readonly choose: (session: string | null) => void;
  readonly template?: IForm;
}

/** A session by its key; the agent is asked for one that is not among the jobs. */
function Launched(props: IPageProps & { readonly session: string }): React.ReactElement {
  const { model, trans, acts, cluster, session, choose } = props;
  const [isGone, setGone] = React.useState(false);
  const job = model.find(cluster, session);
  const isLive = model.jobs.connection === "live";
  React.useEffect(() => {
    if (isLive) {
      model.look(cluster, session).then(
        (found) => {
          setGone(!found);
        },
        () => undefined, // it is looked for again when the link is back
      );
    }
  }, [model, cluster, session, isLive]);
  const again = (): void => {
    choose(null);
  };
  if (job !== null) {
    return <SessionCard {...{ model, trans, job, again }} stop={acts.stop} />;
  }
  return isGone ? (
    <>
      <p>{trans.__("Nothing is known of this session any more.")}</p>
      <button type="button" className="jp-mod-styled jp-mod-accept" onClick={again}>
        {trans.__("Launch another")}
      </button>
    </>
  ) : (
    <p role="status">{connectionText(trans, model.jobs)}</p>
  );
}

/** The log-in where one is needed, else the form, or what was launched. */
export function LaunchPage(props: IPageProps): React.ReactElement {
  const { model, trans, acts, cluster: id, session, choose, template } = props;
  const cluster = model.jobs.clusters.find((each) => each.id === id);
  if (cluster === undefined) {
    return <p role="status">{connectionText(trans, model.jobs)}</p>;
  }
  const { connection } = cluster;
  if (connection && ["disconnected", "connecting"].includes(connection.state)) {
    return (
      <>
        <h2>{trans.__("GPU notebook on %1", clusterName(cluster))}</h2>
        <p role="status">{connectionState(trans, connection)}</p>
        {connection.message !== "" && <p className="jp-Slurm-aside">{connection.message}</p>}
        {connection.state === "disconnected" && (
          <button
            type="button"
            className="jp-mod-styled jp-mod-accept"
            onClick={() => {
              acts.connect(cluster);
            }}
          >
            {trans.__("Connect")}
          </button>
        )}
      </>
    );
  }
  if (session !== null) {
    return <Launched {...props} session={session} />;
  }
  const launched = ({ key }: SessionJob): void => {
    choose(key);
  };
  return (
    <>
      <h2>{trans.__("GPU notebook on %1", clusterName(cluster))}</h2>
      <LaunchForm
        {...{ model, trans, cluster, launched, template }}
        save={acts.save}
        addKernel={acts.addKernel}
      />
    </>
  );
}

/** What a page shows, as the argument of the command that opens it. */
export interface IPlace {
  readonly cluster: string;
  /** The key of a session; null: the form. */
  readonly session: string | null;
  /** Of the page, for life: the layout knows it by this, whatever it shows. */
  readonly page: string;
}

/** Return what the arguments of a command mean. */
export function placeOf({ cluster, session, page }: ReadonlyPartialJSONObject): IPlace {
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
    private _place: IPlace,
  ) {
    super();
    this.addClass("jp-Slurm-panel");
    this.addClass("jp-Slurm-launch");
  }

  /** Another session is shown, or the form. */
  get chosen(): ISignal<this, void> {
    return this._chosen;
  }

  get place(): IPlace {
    return this._place;
  }

  override dispose(): void {
    super.dispose();
    Signal.clearData(this);
  }

  protected override render(): React.ReactElement {
    const choose = (session: string | null): void => {
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
