/** Lines of a log as a terminal would show them: what is drawn over is gone, colours stay. Text stays text. */
import Anser from "anser";

/** A line of a log. */
export interface ILine {
  readonly text: string;
  /** With its colour codes, and before them those that were on already; null where there are none. */
  readonly coded: string | null;
}

/** A piece of a line that looks alike. */
export interface ISpan {
  readonly text: string;
  readonly classes: string;
  readonly color: string | undefined;
  readonly background: string | undefined;
}

/** Characters after which a line goes on in the next one: a browser draws no longer ones at ease. */
export const LONGEST_LINE = 2_000;
/** Characters of codes that are carried on to the next line. */
const MOST_CARRIED = 200;

/* eslint-disable no-control-regex */
const OTHER_CODES =
  /\u001b(?:\[[0-?]*[ -/]*[@-ln-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;
const COLOUR_CODE = /\u001b\[([\d;]*)m/g;
const CONTROL = /[\u0000-\u0008\u000b-\u001a\u001c-\u001f\u007f]/g;
/** What is in no line of plain text. */
const SPECIAL = /[\u0000-\u0008\u000b-\u001f\u007f]/;
/** What is left over of a code that is none. */
const ESCAPE = /\u001b(?!\[[\d;]*m)/g;
/* eslint-enable no-control-regex */

/** Return what is seen of a line that was drawn over from its beginning, as progress bars are. */
export function lastDrawn(line: string): string {
  return line.includes("\r")
    ? (line
        .split("\r")
        .filter((part) => part !== "")
        .at(-1) ?? "")
    : line;
}

/** Return the codes that are on after a line, of those before it and its own. */
function carried(before: string, line: string): string {
  let on = before;
  for (const [code, numbers = ""] of line.matchAll(COLOUR_CODE)) {
    const isReset = /^0*(?:;|$)/.test(numbers);
    on = isReset ? (/[1-9]/.test(numbers) ? code : "") : on + code;
  }
  return on.length > MOST_CARRIED ? "" : on;
}

/**
 * Return text as lines.
 *
 * @param text - Without the end of its last line.
 * @param before - The codes that are on at its beginning.
 * @returns The lines, and the codes that are on after them.
 */
export function linesOf(text: string, before: string): { lines: ILine[]; after: string } {
  const lines: ILine[] = [];
  let on = before;
  const isPlain = !SPECIAL.test(text);
  for (const whole of text.split("\n")) {
    const drawn = isPlain
      ? whole
      : lastDrawn(whole).replace(OTHER_CODES, "").replace(CONTROL, "").replace(ESCAPE, "");
    for (let at = 0; at === 0 || at < drawn.length; at += LONGEST_LINE) {
      const line = drawn.slice(at, at + LONGEST_LINE);
      const isCoded = on !== "" || line.includes("\u001b");
      lines.push({
        text: isCoded ? line.replace(COLOUR_CODE, "") : line,
        coded: isCoded ? on + line : null,
      });
      on = isCoded ? carried(on, line) : on;
    }
  }
  return { lines, after: on };
}

/** Return the pieces of a line, in their colours. */
export function spansOf({ text, coded }: ILine): ISpan[] {
  if (coded === null) {
    return [{ text, classes: "", color: undefined, background: undefined }];
  }
  return Anser.ansiToJson(coded, { json: true, use_classes: true, remove_empty: true }).map(
    ({ content, fg, bg, fg_truecolor, bg_truecolor, decorations }) => {
      const isReversed = decorations.includes("reverse");
      const names = isReversed ? [bg, fg] : [fg, bg];
      const exact = isReversed ? [bg_truecolor, fg_truecolor] : [fg_truecolor, bg_truecolor];
      return {
        text: content,
        classes: [
          ...[fgClass(names[0]), bgClass(names[1])],
          ...decorations.map((name) => `jp-Slurm-${name}`),
        ]
          .filter((name) => name !== "")
          .join(" "),
        color: colourOf(names[0], exact[0]),
        background: colourOf(names[1], exact[1]),
      };
    },
  );
}

function isNamed(name: string | null | undefined): name is string {
  return Boolean(name) && !/palette|truecolor/.test(name ?? "");
}

function fgClass(name: string | null | undefined): string {
  return isNamed(name) ? `jp-Slurm-${name}` : "";
}

function bgClass(name: string | null | undefined): string {
  return isNamed(name) ? `jp-Slurm-${name}-bg` : "";
}

/** Return a colour that has no name, as CSS writes it: one of the 240 beyond the first 16 (xterm's), or any. */
function colourOf(name: string | null | undefined, exact: string | undefined): string | undefined {
  if (name === "ansi-truecolor") {
    return exact ? `rgb(${exact})` : undefined;
  }
  const found = /^ansi-palette-(\d+)$/.exec(name ?? "");
  if (found === null) {
    return undefined;
  }
  const index = Number(found[1]) - 16;
  if (index >= 216) {
    const grey = 8 + (index - 216) * 10;
    return `rgb(${grey}, ${grey}, ${grey})`;
  }
  const level = (step: number): number => (step === 0 ? 0 : 55 + step * 40);
  const [red, green, blue] = [Math.floor(index / 36), Math.floor(index / 6) % 6, index % 6];
  return `rgb(${level(red)}, ${level(green)}, ${level(blue)})`;
}
