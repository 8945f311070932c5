/** Path of a log, and what can be done with it: copy, download, wrap its lines. */
import { Clipboard } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";
import { copyIcon, downloadIcon, fileIcon } from "@jupyterlab/ui-components";
import * as React from "react";

import { toProblem } from "../../common/api/problem";
import { ToolbarButton } from "../../common/jupyterlab/toolbar_button";
import { problemText } from "../../common/labels";
import type { Stream } from "../api";
import type { Log } from "./log_model";
import type { JobPage } from "../model";

interface IActionsProps {
  readonly page: JobPage;
  readonly trans: TranslationBundle;
  readonly stream: Stream;
  readonly log: Log;
}

/** Save data as a file of the browser. */
function save(data: BlobPart[], name: string): void {
  const url = URL.createObjectURL(new Blob(data, { type: "text/plain" }));
  const link = document.createElement("a");
  Object.assign(link, { href: url, download: name });
  link.click();
  URL.revokeObjectURL(url);
}

/** The path of the file, and its actions. */
export function LogActions({ page, trans, stream, log }: IActionsProps): React.ReactElement {
  const [said, say] = React.useState("");
  const [isLoading, setLoading] = React.useState(false);
  React.useEffect(() => {
    say("");
  }, [stream]);
  const path = (stream === "stderr" ? page.job?.stderr : page.job?.stdout) ?? "";
  const copyText = (): void => {
    Clipboard.copyToSystem(log.lines.map(({ text }) => text).join("\n"));
    say(
      log.before > 0 ? trans.__("Copied the loaded part of the log.") : trans.__("Copied the log."),
    );
  };
  const download = (): void => {
    setLoading(true);
    say(trans.__("Downloading…"));
    page.wholeLog(stream, trans).then(
      (data) => {
        save(data, path.split("/").at(-1) || `${page.place.job}.log`);
        say("");
        setLoading(false);
      },
      (error: unknown) => {
        say(problemText(trans, toProblem(error, "Try again.")));
        setLoading(false);
      },
    );
  };
  const isEmpty = log.lines.length === 0;
  return (
    <p className="jp-Slurm-logFile">
      {path !== "" && (
        <>
          <code title={path}>{path}</code>
          <ToolbarButton
            icon={fileIcon}
            label={trans.__("Copy path")}
            act={() => {
              Clipboard.copyToSystem(path);
              say(trans.__("Copied the path."));
            }}
          />
        </>
      )}
      <ToolbarButton
        label={trans.__("Copy the log")}
        icon={copyIcon}
        act={copyText}
        isOff={isEmpty}
      />
      <ToolbarButton
        label={trans.__("Download the log")}
        icon={downloadIcon}
        act={download}
        isOff={isEmpty || isLoading}
      />
      <span role="status" className="jp-Slurm-aside">
        {said}
      </span>
    </p>
  );
}
