/** Form that launches a session. */
import type { TranslationBundle } from "@jupyterlab/translation";
import { addIcon, saveIcon } from "@jupyterlab/ui-components";
import * as React from "react";

import type { ICluster } from "../common/api/objects";
import { toProblem } from "../common/api/problem";
import { ToolbarButton } from "../common/jupyterlab/toolbar_button";
import type { ILaunchForm } from "../common/launch_request";
import { FormDraft } from "./form_drafts";
import type { IFormUse } from "./form_requests";
import { initialForm } from "./form_values";
import { launchTitle } from "./labels";
import type { ISessionsModel, SessionJob } from "./model";
import { RequestForm, type IRequestFormProps } from "./request_form";

export interface IFormProps {
  readonly model: ISessionsModel;
  readonly trans: TranslationBundle;
  readonly cluster: ICluster;
  readonly launched: (job: SessionJob) => void;
  /** Save the form as a file; absent where that is not possible. */
  readonly save?: ((cluster: ICluster, form: ILaunchForm) => void) | undefined;
  /** Add the form as a kernel of notebooks; absent where that is not possible. */
  readonly addKernel?: ((cluster: ICluster, form: ILaunchForm) => void) | undefined;
  /** Initial values from a template, instead of those of the last launch. */
  readonly template?: ILaunchForm | undefined;
}

/** Other uses of the values: a file, a kernel. */
function OtherUses(props: IFormProps & { readonly form: ILaunchForm; readonly isWrong: boolean }) {
  const { trans, cluster, save, addKernel, form, isWrong } = props;
  const uses = [
    {
      label: trans.__("Save as template…"),
      icon: saveIcon,
      act: save,
      title: trans.__("Save these values"),
      isOff: false,
    },
    {
      label: trans.__("Add as kernel…"),
      icon: addIcon,
      act: addKernel,
      title:
        form.app === ""
          ? trans.__("Add a kernel with these values to the launcher")
          : trans.__("Kernels cannot run an app"),
      isOff: form.app !== "",
    },
  ];
  return (
    <div className="jp-Slurm-secondary">
      {uses.map(
        ({ label, icon, act, title, isOff }) =>
          act !== undefined && (
            <ToolbarButton
              key={label}
              {...{ label, icon, title }}
              isNamed
              isOff={isWrong || isOff}
              act={() => {
                act(cluster, form);
              }}
            />
          ),
      )}
    </div>
  );
}

type IStartValues = Pick<IRequestFormProps<SessionJob>, "initial" | "first" | "draft">;

/** The form with what was typed and not submitted, else the values of a template, else of the last launch, the settings, and the profile. */
export function LaunchForm(props: IFormProps): React.ReactElement | null {
  const { model, trans, cluster, template, launched } = props;
  const [values, setValues] = React.useState<IStartValues | null>(null);
  const defaults = cluster.launch;
  React.useEffect(() => {
    let isCurrent = true;
    const load = async (): Promise<void> => {
      const last = template ?? (await model.memory.load(cluster.id).catch(() => null));
      const settings = await model.startValues();
      const initial = initialForm(last, defaults, cluster.gpus !== false, settings);
      const draft = template ? undefined : new FormDraft(model.memory, cluster.id);
      const first = await draft?.restore(initial);
      if (isCurrent) {
        setValues({ initial, first, draft });
      }
    };
    void load();
    return () => {
      isCurrent = false;
    };
  }, [model, cluster.id, template]);
  const use = React.useMemo(
    (): IFormUse<SessionJob> => ({
      check: (form, estimate) => model.check(cluster.id, form, estimate),
      launch: (form, key) => model.launch(cluster.id, form, key),
      problemOf: (error) =>
        toProblem(error, trans.__("Launch again. Only one session will be started.")),
    }),
    [model, trans, cluster.id],
  );
  const words = {
    launch: trans.__("Launch"),
    launching: trans.__("Launching…"),
    anyway: trans.__("Launch anyway"),
  };
  return values === null ? null : (
    <RequestForm
      {...{ model, trans, cluster, words, use, launched, ...values }}
      title={launchTitle(trans, cluster)}
      others={(form, isWrong) => <OtherUses {...props} {...{ form, isWrong }} />}
    />
  );
}
