/** Output of a job: as it arrives, in its colours, with a search. */
import type { TranslationBundle } from "@jupyterlab/translation";
import { caretDownEmptyThinIcon, caretUpEmptyThinIcon } from "@jupyterlab/ui-components";
import * as React from "react";

import { toProblem } from "../../common/api/problem";
import { formatSize } from "../../common/format";
import { isFinished, stateKind } from "../../common/job_states";
import { ToolbarButton } from "../../common/jupyterlab/toolbar_button";
import { problemText } from "../../common/labels";
import type { Stream } from "../api";
import { streamName } from "../labels";
import { LogActions } from "./log_actions";
import { Lines, WrappedLines } from "./log_lines";
import { findLine, type Log } from "./log_model";
import type { JobPage } from "../model";

/** Largest number of earlier pieces that one search reads before it asks. */
const MAX_SEARCHED_PIECES = 16;

interface ILogProps {
  readonly page: JobPage;
  readonly trans: TranslationBundle;
}

/** The text of the search, the line found last, and a message. */
interface ISearch {
  readonly text: string;
  /** The number of a line, counted as `first` of the log; null: none. */
  readonly line: number | null;
  readonly message: string;
}

const NO_SEARCH: ISearch = { text: "", line: null, message: "" };

/** Search from the line found last, or from the end; earlier parts that are not loaded are searched too. */
function useSearch(
  log: Log,
  trans: TranslationBundle,
): [ISearch, (text: string) => void, (step: 1 | -1) => void] {
  const [search, setSearch] = React.useState(NO_SEARCH);
  const current = React.useRef(0);
  React.useEffect(() => {
    setSearch(({ text }) => ({ ...NO_SEARCH, text }));
    return () => {
      current.current += 1;
    };
  }, [log]);
  const look = async (text: string, line: number | null, step: 1 | -1): Promise<void> => {
    const turn = (current.current += 1);
    const start = line === null ? log.lines.length - (step < 0 ? 1 : 0) : line - log.first + step;
    let found = findLine(log.lines, text, start, step);
    let isStuck = false; // the file was overwritten
    for (
      let piece = 0;
      found < 0 && step < 0 && piece < MAX_SEARCHED_PIECES && !isStuck;
      piece += 1
    ) {
      const { before, first } = log;
      if (before === 0 || log.isFull) {
        break;
      }
      setSearch({ text, line, message: trans.__("Searching earlier output…") });
      const problem = await log.earlier().then(
        () => null,
        (error: unknown) => toProblem(error, "Press Enter to search again."),
      );
      if (turn !== current.current) {
        return;
      }
      if (problem !== null) {
        setSearch({ text, line, message: problemText(trans, problem).replaceAll("\n", " ") });
        return;
      }
      isStuck = log.before === before;
      found = findLine(log.lines, text, first - log.first - 1, -1);
    }
    const above = log.before > 0 && !log.isFull && !isStuck;
    const nothing =
      step > 0
        ? trans.__("Not found below.")
        : above
          ? trans.__(
              "Not found in %1. Press Enter to search earlier output.",
              formatSize(log.end - log.before),
            )
          : trans.__("Not found above.");
    setSearch(
      found < 0 ? { text, line, message: nothing } : { text, line: log.first + found, message: "" },
    );
  };
  return [
    search,
    (text) => {
      current.current += 1;
      setSearch({ ...NO_SEARCH, text });
      if (text !== "") {
        const found = findLine(log.lines, text, log.lines.length - 1, -1);
        const message =
          found < 0
            ? trans.__("Not found in this part. Press Enter to search earlier output.")
            : "";
        setSearch({ text, line: found < 0 ? null : log.first + found, message });
      }
    },
    (step) => {
      if (search.text !== "") {
        void look(search.text, search.line, step);
      }
    },
  ];
}

interface ISearchBoxProps {
  readonly trans: TranslationBundle;
  readonly search: ISearch;
  readonly type: (text: string) => void;
  readonly go: (step: 1 | -1) => void;
}

/** Enter continues upward from the end, where reading of a log begins; Shift+Enter downward. */
function SearchBox({ trans, search, type, go }: ISearchBoxProps): React.ReactElement {
  return (
    <span className="jp-Slurm-search" role="search">
      <input
        type="search"
        className="jp-mod-styled"
        aria-label={trans.__("Search the log")}
        placeholder={trans.__("Search")}
        value={search.text}
        onChange={({ target }) => {
          type(target.value);
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter") {
            go(event.shiftKey ? 1 : -1);
          }
        }}
      />
      <ToolbarButton
        icon={caretUpEmptyThinIcon}
        label={trans.__("Previous match")}
        act={() => {
          go(-1);
        }}
      />
      <ToolbarButton
        icon={caretDownEmptyThinIcon}
        label={trans.__("Next match")}
        act={() => {
          go(1);
        }}
      />
      <span role="status" className="jp-Slurm-aside">
        {search.message}
      </span>
    </span>
  );
}

/** Return the stream to show first: of a failed job, standard error. */
function firstStream(page: JobPage): Stream {
  const hasFailed = page.job !== null && stateKind(page.job.state) === "failed";
  const [out, err] = [page.logs.stdout.size, page.logs.stderr.size];
  return page.streams.includes("stderr") && err > 0 && (hasFailed || out === 0)
    ? "stderr"
    : "stdout";
}

/** Return the reason why there are no lines. */
function emptyText({ page, trans }: ILogProps): string {
  const { job } = page;
  if (page.streams.length === 0) {
    return trans.__("Each task of this array has its own output. Select one under Tasks.");
  }
  if (job !== null && isFinished(job.state)) {
    return trans.__("No output.");
  }
  return job !== null && stateKind(job.state) === "pending"
    ? trans.__("Not started yet.")
    : trans.__("No output yet.");
}

/** Note above the lines: how much of the earlier output is loaded. */
function Above({ log, page, trans }: ILogProps & { log: Log }): React.ReactElement | null {
  if (log.before === 0) {
    return null;
  }
  return (
    <p className="jp-Slurm-aside jp-Slurm-above">
      {log.isFull
        ? trans.__("Earlier output is only in the file: %1", page.job?.stdout ?? "")
        : trans.__(
            "Showing the last %1 of %2. Scroll up to load more.",
            formatSize(log.end - log.before),
            formatSize(log.size),
          )}
    </p>
  );
}

export function LogView({ page, trans }: ILogProps): React.ReactElement {
  const [chosen, setChosen] = React.useState<Stream | null>(null);
  const [follows, setFollows] = React.useState(true);
  const [wraps, setWraps] = React.useState(false);
  const first = React.useRef<Stream | null>(null);
  if (page.job !== null && (first.current === null || page.logs[first.current].size === 0)) {
    first.current = firstStream(page);
  }
  const stream = chosen ?? first.current ?? "stdout";
  const log = page.logs[stream];
  const [search, type, go] = useSearch(log, trans);
  const problem = page.logProblem(stream);
  const Shown = wraps ? WrappedLines : Lines;
  const [, draw] = React.useReducer((count: number) => count + 1, 0);
  return (
    <div className="jp-Slurm-logView">
      <div className="jp-Slurm-logBar">
        {page.streams.length > 1 && (
          <span role="group" aria-label={trans.__("Stream")}>
            {page.streams.map((each) => (
              <ToolbarButton
                key={each}
                label={streamName(trans, each)}
                isPressed={each === stream}
                act={() => {
                  setChosen(each);
                }}
              />
            ))}
          </span>
        )}
        <ToolbarButton
          label={trans.__("Follow new output")}
          isPressed={follows}
          act={() => {
            setFollows(!follows);
          }}
        />
        <ToolbarButton
          label={trans.__("Wrap lines")}
          isPressed={wraps}
          act={() => {
            setWraps(!wraps);
          }}
        />
        <SearchBox
          {...{ trans, search, go }}
          type={(text) => {
            setFollows(false);
            type(text);
          }}
        />
      </div>
      {page.streams.length > 0 && <LogActions {...{ page, trans, stream, log }} />}
      {problem !== null && (
        <p role="alert" className="jp-Slurm-problem">
          {problemText(trans, problem)}
        </p>
      )}
      <Above {...{ log, page, trans }} />
      {log.lines.length === 0 ? (
        problem === null && <p className="jp-Slurm-aside">{emptyText({ page, trans })}</p>
      ) : (
        <Shown
          key={`${stream}${wraps ? ":wrapped" : ""}`}
          label={streamName(trans, stream)}
          lines={log.lines}
          first={log.first}
          follows={follows}
          found={search.line}
          marked={search.text}
          scrolled={setFollows}
          reached={() => {
            const { before } = log;
            void log.earlier().then(
              () => {
                if (log.before !== before) {
                  draw();
                }
              },
              () => undefined, // scrolling up tries again
            );
          }}
        />
      )}
    </div>
  );
}
