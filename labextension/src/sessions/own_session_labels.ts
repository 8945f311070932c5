/** Labels of the session that JupyterLab itself runs in. All values are text, never markup. */
import type { TranslationBundle } from "@jupyterlab/translation";

import { formatDuration, formatMinute } from "../common/format";
import { withoutControls } from "../common/labels";
import type { Answerer } from "./lost_server";
import type { OwnSession } from "./own_session";

/** Return the text of the item in the status bar. */
export function ownSessionText(trans: TranslationBundle, own: OwnSession): string {
  const { facts, remaining } = own;
  const where = trans.__("%1 on %2", withoutControls(facts.name), withoutControls(facts.node));
  const left = remaining === null ? "" : trans.__("%1 left", formatDuration(remaining));
  return [where, left].filter(Boolean).join(" · ");
}

/** Return the tooltip: what this is, and when it ends; a line each. */
export function ownSessionAbout(trans: TranslationBundle, own: OwnSession): string {
  const { end, facts } = own;
  const node = withoutControls(facts.node);
  return [
    own.loss,
    trans.__("This JupyterLab runs in a Slurm job: job %1 on %2.", facts.job, node),
    end === null ? "" : endText(trans, own, end),
    trans.__("Show its job"),
  ]
    .filter(Boolean)
    .join("\n");
}

/** Return the sentence on the end of the session. */
function endText(trans: TranslationBundle, { facts }: OwnSession, end: number): string {
  const time = formatMinute(end);
  return facts.resume
    ? trans.__("This session starts again after %1.", time)
    : trans.__("This session ends at %1.", time);
}

/** Return the state of the connection to the session, where the server between does not answer; empty: it does. */
export function lossOfServer(
  trans: TranslationBundle,
  { facts }: OwnSession,
  answerer: Answerer,
  hasHub: boolean,
): string {
  const [name, node] = [withoutControls(facts.name), withoutControls(facts.node)];
  switch (answerer) {
    case "session":
      return "";
    case "unknown-page":
      return trans.__("Reload this page to connect it to session %1 again.", name);
    case "ended":
      return trans.__("Session %1 has ended.", name);
    default:
      return [
        answerer === "other" && hasHub
          ? trans.__("JupyterHub has stopped your server.")
          : trans.__("Your Jupyter server does not answer."),
        trans.__("Session %1 continues on %2.", name, node),
      ].join(" ");
  }
}

/** Return the warning before the end of the session, and what can be done; JupyterLab shows 140 characters. */
export function endWarning(trans: TranslationBundle, own: OwnSession, end: number): string {
  return [
    endText(trans, own, end),
    trans.__("Save your work: the memory of its kernels is lost."),
    own.facts.resume ? "" : trans.__("To continue, launch another where you launched this one."),
  ]
    .filter(Boolean)
    .join(" ");
}
