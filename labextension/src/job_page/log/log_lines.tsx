/** Lines of text, of which only the visible ones are drawn. */
import * as React from "react";

import { parseSpans, type ILine } from "../../common/terminal_text";

/** Height of a line in pixels, as in the style sheet. */
const LINE_HEIGHT = 18;
/** Lines that are drawn above and below the visible ones. */
const OVERSCAN_LINES = 30;
/** Largest number of marks in a line: one letter may occur two thousand times. */
const MAX_MARKS = 100;
/** Largest number of wrapped lines. */
const MAX_WRAPPED_LINES = 2_000;
/** Distance from the end, in pixels, at which the view counts as at the end. */
const NEAR = 2 * LINE_HEIGHT;

interface ILinesProps {
  readonly label: string;
  readonly lines: readonly ILine[];
  /** The number of the first line: the visible lines stay in place when earlier ones are added. */
  readonly first: number;
  /** Whether the end stays visible. */
  readonly follows: boolean;
  /** The number of a line to scroll to. */
  readonly found: number | null;
  /** The text that is marked in the lines, in either case. */
  readonly marked: string;
  /** Called when the user has scrolled, to the end or away from it. */
  readonly scrolled: (isAtEnd: boolean) => void;
  /** Called when the beginning becomes visible. */
  readonly reached: () => void;
}

/** A text with the matches marked. */
function Marked({ text, marked }: { text: string; marked: string }): React.ReactElement {
  const parts: React.ReactNode[] = [];
  const [low, search] = [text.toLowerCase(), marked.toLowerCase()];
  let at = 0;
  // Some letters have a longer lower-case form: then nothing is marked, rather than the wrong part.
  const isSame = low.length === text.length && search !== "";
  const find = (): number =>
    isSame && parts.length < 2 * MAX_MARKS ? low.indexOf(search, at) : -1;
  for (let next = find(); next >= 0; next = find()) {
    parts.push(text.slice(at, next));
    at = next + search.length;
    parts.push(<mark key={next}>{text.slice(next, at)}</mark>);
  }
  parts.push(text.slice(at));
  return <>{parts}</>;
}

const Line = React.memo(function Line({
  line,
  marked,
  isFound,
}: {
  line: ILine;
  marked: string;
  isFound: boolean;
}): React.ReactElement {
  const isMarked = marked !== "" && line.text.toLowerCase().includes(marked.toLowerCase());
  return (
    <div className="jp-Slurm-line" data-found={isFound || undefined}>
      {isMarked ? (
        <Marked text={line.text} marked={marked} />
      ) : (
        parseSpans(line).map(({ text, classes, color, background }, index) => (
          <span key={index} className={classes || undefined} style={{ color, background }}>
            {text}
          </span>
        ))
      )}
    </div>
  );
});

interface IDrawnLinesProps extends Pick<ILinesProps, "lines" | "first" | "found" | "marked"> {
  readonly from: number;
  readonly to: number;
}

/** The lines of a part of the log. */
function DrawnLines(props: IDrawnLinesProps): React.ReactElement {
  const { lines, first, found, marked, from, to } = props;
  return (
    <>
      {lines.slice(from, to).map((line, index) => (
        <Line
          key={first + from + index}
          line={line}
          marked={marked}
          isFound={first + from + index === found}
        />
      ))}
    </>
  );
}

/** Whether the end of a box is visible, or nearly. */
function isAtEnd(node: HTMLElement): boolean {
  return node.scrollTop + node.clientHeight >= node.scrollHeight - NEAR;
}

/**
 * Show the end after a redraw, unless the user has just scrolled up: the event of that comes later.
 *
 * `known` is where the box was scrolled to when that was last known.
 */
function showEnd(node: HTMLElement, known: React.MutableRefObject<number>): void {
  if (node.scrollTop >= known.current - NEAR || isAtEnd(node)) {
    node.scrollTop = node.scrollHeight;
    known.current = node.scrollTop;
  }
}

/** Wrapped lines have different heights: the last ones are drawn, all of them. */
export function WrappedLines(props: ILinesProps): React.ReactElement {
  const { label, lines, first, follows, found, scrolled, reached } = props;
  const box = React.useRef<HTMLDivElement>(null);
  const known = React.useRef(0);
  const from = Math.max(
    0,
    Math.min(lines.length - MAX_WRAPPED_LINES, found === null ? lines.length : found - first - 50),
  );
  React.useLayoutEffect(() => {
    const node = box.current;
    if (node !== null && follows) {
      showEnd(node, known);
    }
  });
  React.useLayoutEffect(() => {
    box.current?.querySelector("[data-found]")?.scrollIntoView({ block: "center" });
  }, [found]);
  return (
    <div
      ref={box}
      className="jp-Slurm-lines jp-Slurm-wrapped"
      // While the end is followed, the browser does not scroll up to keep a line in place.
      style={{ overflowAnchor: follows ? "none" : undefined }}
      role="region"
      aria-label={label}
      tabIndex={0}
      onScroll={({ currentTarget: node }) => {
        known.current = node.scrollTop;
        scrolled(isAtEnd(node));
        if (node.scrollTop < NEAR && from === 0) {
          reached();
        }
      }}
    >
      <DrawnLines {...props} from={from} to={from + MAX_WRAPPED_LINES} />
    </div>
  );
}

export function Lines(props: ILinesProps): React.ReactElement {
  const { label, lines, first, follows, found, scrolled, reached } = props;
  const box = React.useRef<HTMLDivElement>(null);
  const before = React.useRef(first);
  const view = React.useRef({ top: 0, height: 0 });
  const known = React.useRef(0);
  const [, draw] = React.useReducer((count: number) => count + 1, 0);
  // Redraw only after a change: React would take anything else for a loop.
  const look = React.useCallback((): void => {
    if (box.current !== null) {
      const { scrollTop: top, clientHeight: height } = box.current;
      if (view.current.top !== top || view.current.height !== height) {
        view.current = { top, height };
        draw();
      }
    }
  }, []);
  React.useLayoutEffect(() => {
    const node = box.current;
    if (node === null) {
      return;
    }
    const moved = before.current - first;
    before.current = first;
    if (follows) {
      showEnd(node, known);
    } else if (moved !== 0) {
      node.scrollTop += moved * LINE_HEIGHT;
    }
    look();
  });
  React.useLayoutEffect(() => {
    const node = box.current;
    if (node !== null && found !== null) {
      node.scrollTop = (found - before.current) * LINE_HEIGHT - node.clientHeight / 2;
      look();
    }
  }, [found, look]);
  React.useEffect(() => {
    const node = box.current;
    if (node === null || !("ResizeObserver" in globalThis)) {
      return undefined;
    }
    const observer = new ResizeObserver(look);
    observer.observe(node);
    return () => {
      observer.disconnect();
    };
  }, [look]);
  const from = Math.max(0, Math.floor(view.current.top / LINE_HEIGHT) - OVERSCAN_LINES);
  const to = Math.min(
    lines.length,
    Math.ceil((view.current.top + Math.max(view.current.height, LINE_HEIGHT)) / LINE_HEIGHT) +
      OVERSCAN_LINES,
  );
  return (
    <div
      ref={box}
      className="jp-Slurm-lines"
      role="region"
      aria-label={label}
      tabIndex={0}
      onScroll={(event) => {
        const node = event.currentTarget;
        known.current = node.scrollTop;
        look();
        scrolled(isAtEnd(node));
        if (node.scrollTop < NEAR) {
          reached();
        }
      }}
    >
      <div className="jp-Slurm-allLines" style={{ height: lines.length * LINE_HEIGHT }}>
        <div className="jp-Slurm-drawn" style={{ top: from * LINE_HEIGHT }}>
          <DrawnLines {...props} from={from} to={to} />
        </div>
      </div>
    </div>
  );
}
