/** Lines of text, of which only those in sight are drawn. */
import * as React from "react";

import { spansOf, type ILine } from "../common/terminal_text";

/** Pixels: that of the style sheet. */
const LINE_HEIGHT = 18;
/** Lines that are drawn above and below those in sight. */
const BEYOND = 30;
/** Places that are marked in a line: one letter may stand in it two thousand times. */
const MOST_MARKS = 100;
/** Pixels from the end of what there is at which somebody looks at that end. */
const NEAR = 2 * LINE_HEIGHT;

interface ILinesProps {
  readonly label: string;
  readonly lines: readonly ILine[];
  /** The number of the first line: what is in sight stays there when lines come before it. */
  readonly first: number;
  /** Whether the end is to stay in sight. */
  readonly follows: boolean;
  /** The number of a line that is to be brought in sight. */
  readonly found: number | null;
  /** What is marked in the lines, in either case. */
  readonly marked: string;
  /** Somebody has scrolled, to the end or away from it. */
  readonly scrolled: (isAtEnd: boolean) => void;
  /** The beginning is in sight. */
  readonly reached: () => void;
}

/** A text with what is looked for marked in it. */
function Marked({ text, marked }: { text: string; marked: string }): React.ReactElement {
  const parts: React.ReactNode[] = [];
  const [low, wanted] = [text.toLowerCase(), marked.toLowerCase()];
  let at = 0;
  // Of some letters the small form is longer: then nothing is marked, rather than the wrong place.
  const isSame = low.length === text.length && wanted !== "";
  const find = (): number =>
    isSame && parts.length < 2 * MOST_MARKS ? low.indexOf(wanted, at) : -1;
  for (let next = find(); next >= 0; next = find()) {
    parts.push(text.slice(at, next));
    at = next + wanted.length;
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
        spansOf(line).map(({ text, classes, color, background }, index) => (
          <span key={index} className={classes || undefined} style={{ color, background }}>
            {text}
          </span>
        ))
      )}
    </div>
  );
});

export function Lines(props: ILinesProps): React.ReactElement {
  const { label, lines, first, follows, found, marked, scrolled, reached } = props;
  const box = React.useRef<HTMLDivElement>(null);
  const before = React.useRef(first);
  const view = React.useRef({ top: 0, height: 0 });
  const [, draw] = React.useReducer((count: number) => count + 1, 0);
  // Only what has changed is a reason to draw again: React would take any other for a loop.
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
      node.scrollTop = node.scrollHeight;
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
  const from = Math.max(0, Math.floor(view.current.top / LINE_HEIGHT) - BEYOND);
  const to = Math.min(
    lines.length,
    Math.ceil((view.current.top + Math.max(view.current.height, LINE_HEIGHT)) / LINE_HEIGHT) +
      BEYOND,
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
        look();
        scrolled(node.scrollTop + node.clientHeight >= node.scrollHeight - NEAR);
        if (node.scrollTop < NEAR) {
          reached();
        }
      }}
    >
      <div className="jp-Slurm-allLines" style={{ height: lines.length * LINE_HEIGHT }}>
        <div className="jp-Slurm-drawn" style={{ top: from * LINE_HEIGHT }}>
          {lines.slice(from, to).map((line, index) => (
            <Line
              key={first + from + index}
              line={line}
              marked={marked}
              isFound={first + from + index === found}
            />
          ))}
        </div>
      </div>
    </div>
  );
}
