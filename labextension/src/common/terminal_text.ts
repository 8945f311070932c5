/** Lines of a log as a terminal shows them: overwritten text is dropped, colours stay. Text never becomes markup. */
import Anser from "anser";

/** A line of a log. */
export interface ILine {
  readonly text: string;
  /** The text with its colour codes, after those that were active before; null without any. */
  readonly coded: string | null;
}

/** A piece of a line in one style. */
export interface ISpan {
  readonly text: string;
  readonly classes: string;
  readonly color: string | undefined;
  readonly background: string | undefined;
}

/** Characters of a line before it is broken: browsers draw longer lines slowly. */
export const MAX_LINE_CHARS = 2_000;
/** Characters of colour codes that are carried over to the next line. */
const MAX_CARRIED_CHARS = 200;

/* eslint-disable no-control-regex */
const OTHER_CODES =
  /\u001b(?:\[[0-?]*[ -/]*[@-ln-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;
const COLOUR_CODE = /\u001b\[([\d;]*)m/g;
const CONTROL = /[\u0000-\u0008\u000b-\u001a\u001c-\u001f\u007f]/g;
/** Characters that do not occur in plain text. */
const SPECIAL = /[\u0000-\u0008\u000b-\u001f\u007f]/;
/** Rest of an invalid escape code. */
const ESCAPE = /\u001b(?!\[[\d;]*m)/g;
/* eslint-enable no-control-regex */

/** Return the visible part of a line that was overwritten from its beginning, as by a progress bar. */
export function lastDrawn(line: string): string {
  return line.includes("\r")
    ? (line
        .split("\r")
        .filter((part) => part !== "")
        .at(-1) ?? "")
    : line;
}

/** Return the colour codes that are active after a line, of those before it and its own. */
function activeCodes(before: string, line: string): string {
  let on = before;
  for (const [code, numbers = ""] of line.matchAll(COLOUR_CODE)) {
    const isReset = /^0*(?:;|$)/.test(numbers);
    on = isReset ? (/[1-9]/.test(numbers) ? code : "") : on + code;
  }
  return on.length > MAX_CARRIED_CHARS ? "" : on;
}

/**
 * Return text as lines.
 *
 * @param text - Without the end of its last line.
 * @param before - The codes that are active at its beginning.
 * @returns The lines, and the codes that are active after them.
 */
export function parseLines(text: string, before: string): { lines: ILine[]; after: string } {
  const lines: ILine[] = [];
  let on = before;
  const isPlain = !SPECIAL.test(text);
  for (const whole of text.split("\n")) {
    const drawn = isPlain
      ? whole
      : lastDrawn(whole).replace(OTHER_CODES, "").replace(CONTROL, "").replace(ESCAPE, "");
    for (let at = 0; at === 0 || at < drawn.length; at += MAX_LINE_CHARS) {
      const line = drawn.slice(at, at + MAX_LINE_CHARS);
      const isCoded = on !== "" || line.includes("\u001b");
      lines.push({
        text: isCoded ? line.replace(COLOUR_CODE, "") : line,
        coded: isCoded ? on + line : null,
      });
      on = isCoded ? activeCodes(on, line) : on;
    }
  }
  return { lines, after: on };
}

/** Return the pieces of a line, with their colours. */
export function parseSpans({ text, coded }: ILine): ISpan[] {
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

/** Return a colour without a name in the notation of CSS: one of the 240 beyond the first 16 (xterm), or any other. */
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
