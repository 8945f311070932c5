/** Part of an output file of a job, which grows at its end and, on request, at its beginning. No DOM, no requests. */
import { lastDrawn, MAX_LINE_CHARS, parseLines, type ILine } from "../../common/terminal_text";

/** Bytes of one read. */
export const PIECE_BYTES = 262_144;
const MAX_READ_BYTES = 8 * PIECE_BYTES;
/** Largest part that is kept: the browser has to hold it. */
const MAX_KEPT_BYTES = 32 * 1024 * 1024;
export const MAX_KEPT_LINES = 400_000;
const NEWLINE = 10;

/** Read a file from `offset`, which counts from the end where it is negative. `size` is that of the whole file. */
export type Read = (offset: number, limit: number) => Promise<{ data: Uint8Array; size: number }>;

/** Return the offset of the first whole line; where there is none, of the first whole character (UTF-8). */
function firstLine(data: Uint8Array): number {
  const at = data.indexOf(NEWLINE) + 1;
  if (at > 0 && at < data.length) {
    return at;
  }
  const character = data.findIndex((byte) => (byte & 0xc0) !== 0x80);
  return character < 0 ? data.length : character;
}

export class Log {
  /** First and last offset of the loaded part, and the size of the file. */
  private _start = 0;
  private _end = 0;
  private _size = 0;
  private _lines: ILine[] = [];
  private _first = 0;
  /** The loaded pieces: the offset of each, and its number of lines. */
  private _pieces: { start: number; count: number }[] = [];
  /** The last line, which may continue: its text, its offset, and whether it is among the lines. */
  private _rest = "";
  private _restStart = 0;
  private _restLines = 0;
  private _codes = "";
  private _decoder = new TextDecoder();
  private _reading: Promise<void> | null = null;

  constructor(private readonly _read: Read) {}

  get lines(): readonly ILine[] {
    return this._lines;
  }

  /**
   * The number of the first loaded line: it decreases as earlier lines are loaded, and increases as lines are dropped.
   */
  get first(): number {
    return this._first;
  }

  /** Bytes before the loaded part. */
  get before(): number {
    return this._start;
  }

  get end(): number {
    return this._end;
  }

  get size(): number {
    return this._size;
  }

  /** Whether the loaded part is so large that nothing earlier is read. */
  get isFull(): boolean {
    return this._lines.length >= MAX_KEPT_LINES || this._end - this._start >= MAX_KEPT_BYTES;
  }

  /** Read the end of the file; do nothing where another read was faster. */
  async open(): Promise<void> {
    const from = this._end;
    const { data, size } = await this._read(-PIECE_BYTES, PIECE_BYTES);
    if (from !== this._end) {
      return;
    }
    const start = Math.max(0, size - PIECE_BYTES);
    const skipped = start === 0 ? 0 : firstLine(data);
    this._clear(start + skipped);
    this.take(start + skipped, data.subarray(skipped), size);
  }

  /** Read the new part of the file; its end alone where nothing is loaded, or the new part is large. */
  async catchUp(): Promise<void> {
    const from = this._end;
    if (from === 0) {
      return this.open();
    }
    const { data, size } = await this._read(from, MAX_READ_BYTES);
    if (from !== this._end) {
      return; // another read was faster
    }
    if (size < from || size > from + data.length) {
      return this.open();
    }
    for (let at = 0; at < data.length; at += PIECE_BYTES) {
      this.take(this._end, data.subarray(at, at + PIECE_BYTES), size); // a single piece is kept
    }
    this._size = size;
  }

  /** Read the part before; do nothing where there is none, or the loaded part is too large. */
  earlier(): Promise<void> {
    this._reading ??= this._readEarlier().finally(() => {
      this._reading = null;
    });
    return this._reading;
  }

  /** Append new output, as the stream sends it. */
  take(offset: number, data: Uint8Array, size: number): void {
    if (offset !== this._end) {
      this._clear(offset); // the file was overwritten
    }
    this._size = Math.max(size, offset + data.length);
    if (data.length === 0) {
      return;
    }
    this._end = offset + data.length;
    this._lines.length -= this._restLines;
    const text = this._rest + this._decoder.decode(data, { stream: true });
    const newline = text.lastIndexOf("\n");
    if (newline >= 0) {
      const { lines, after } = parseLines(text.slice(0, newline), this._codes);
      this._pieces.push({ start: this._restStart, count: lines.length });
      this._add(lines);
      this._codes = after;
      this._restStart = offset + data.lastIndexOf(NEWLINE) + 1;
    }
    this._rest = lastKept(text.slice(newline + 1));
    this._restLines = 0;
    if (this._rest !== "") {
      const { lines } = parseLines(this._rest, this._codes);
      this._add(lines);
      this._restLines = lines.length;
    }
    this._forget();
  }

  private _add(lines: readonly ILine[]): void {
    for (const line of lines) {
      this._lines.push(line);
    }
  }

  private _clear(start: number): void {
    this._start = this._end = this._restStart = start;
    this._lines = [];
    this._pieces = [];
    this._rest = this._codes = "";
    this._restLines = 0;
    this._decoder = new TextDecoder();
  }

  /** Drop the oldest lines where there are too many. */
  private _forget(): void {
    let [gone, count] = [0, 0];
    while (
      this._pieces.length - gone > 1 &&
      (this._lines.length - count > MAX_KEPT_LINES || this._end - this._start > MAX_KEPT_BYTES)
    ) {
      count += this._pieces[gone]?.count ?? 0;
      gone += 1;
      this._start = this._pieces[gone]?.start ?? this._start;
    }
    if (gone > 0) {
      this._pieces = this._pieces.slice(gone);
      this._lines = this._lines.slice(count);
      this._first += count;
    }
  }

  private async _readEarlier(): Promise<void> {
    const end = this._start;
    if (end === 0 || this.isFull) {
      return;
    }
    const offset = Math.max(0, end - PIECE_BYTES);
    const { data, size } = await this._read(offset, end - offset);
    if (this._start !== end || size < end || data.length < end - offset) {
      return; // the file was overwritten meanwhile
    }
    const skipped = offset === 0 ? 0 : firstLine(data);
    const text = new TextDecoder().decode(data.subarray(skipped));
    const { lines } = parseLines(text.endsWith("\n") ? text.slice(0, -1) : text, "");
    this._lines = [...lines, ...this._lines];
    this._pieces.unshift({ start: offset + skipped, count: lines.length });
    this._first -= lines.length;
    this._start = offset + skipped;
  }
}

/** Return the part of a line without an end that can still be visible. */
function lastKept(line: string): string {
  const drawn = line.endsWith("\r") ? `${lastDrawn(line)}\r` : lastDrawn(line);
  return drawn.length > 100 * MAX_LINE_CHARS ? drawn.slice(-100 * MAX_LINE_CHARS) : drawn;
}

/**
 * Return the index of the next line that contains a text, in either case; -1: there is none.
 *
 * @param from - The first index.
 * @param step - 1 searches below, -1 above.
 */
export function findLine(
  lines: readonly ILine[],
  wanted: string,
  from: number,
  step: 1 | -1,
): number {
  const text = wanted.toLowerCase();
  for (let at = from; at >= 0 && at < lines.length; at += step) {
    if (lines[at]?.text.toLowerCase().includes(text)) {
      return at;
    }
  }
  return -1;
}
