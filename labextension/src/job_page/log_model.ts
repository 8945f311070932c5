/** A piece of a file of a job's output, which grows at its end and, on request, at its beginning. No DOM, no requests. */
import { lastDrawn, linesOf, LONGEST_LINE, type ILine } from "../common/terminal_text";

/** Bytes that are read at once. */
export const PIECE = 262_144;
const MOST_AT_ONCE = 8 * PIECE;
/** What is kept at most: a browser has to hold it. */
const MOST_BYTES = 32 * 1024 * 1024;
export const MOST_LINES = 400_000;
const NEWLINE = 10;

/** Bytes of a file from `offset` on; a negative one counts from its end. `size` is that of the whole file. */
export type Read = (offset: number, limit: number) => Promise<{ data: Uint8Array; size: number }>;

/** Return where the first whole line begins; where there is none, the first whole character (UTF-8). */
function firstLine(data: Uint8Array): number {
  const at = data.indexOf(NEWLINE) + 1;
  if (at > 0 && at < data.length) {
    return at;
  }
  const character = data.findIndex((byte) => (byte & 0xc0) !== 0x80);
  return character < 0 ? data.length : character;
}

export class Log {
  /** Bytes of the file: from where to where it is here, and how large it is. */
  private _start = 0;
  private _end = 0;
  private _size = 0;
  private _lines: ILine[] = [];
  private _first = 0;
  /** What was taken in, in pieces: where each begins, and how many lines it has. */
  private _pieces: { start: number; count: number }[] = [];
  /** Of the last line, which may go on: its text, where it begins, and whether it is among the lines. */
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

  /** The number of the first line that is here: it sinks as earlier ones come, and rises as they go. */
  get first(): number {
    return this._first;
  }

  /** Bytes before what is here. */
  get before(): number {
    return this._start;
  }

  get end(): number {
    return this._end;
  }

  get size(): number {
    return this._size;
  }

  /** Whether so much is here that nothing earlier is read. */
  get isFull(): boolean {
    return this._lines.length >= MOST_LINES || this._end - this._start >= MOST_BYTES;
  }

  /** Read the end of the file. */
  async open(): Promise<void> {
    const { data, size } = await this._read(-PIECE, PIECE);
    const start = Math.max(0, size - PIECE);
    const skipped = start === 0 ? 0 : firstLine(data);
    this._clear(start + skipped);
    this.take(start + skipped, data.subarray(skipped), size);
  }

  /** Read what was written since; the end alone where nothing is here yet, or that is much. */
  async catchUp(): Promise<void> {
    if (this._end === 0) {
      return this.open();
    }
    const { data, size } = await this._read(this._end, MOST_AT_ONCE);
    if (size < this._end || size > this._end + data.length) {
      return this.open();
    }
    for (let at = 0; at < data.length; at += PIECE) {
      this.take(this._end, data.subarray(at, at + PIECE), size); // of one piece, nothing is let go
    }
    this._size = size;
  }

  /** Read what stands before; does nothing where there is nothing, or too much is here. */
  earlier(): Promise<void> {
    this._reading ??= this._readEarlier().finally(() => {
      this._reading = null;
    });
    return this._reading;
  }

  /** Take in what was written, as the stream tells it. */
  take(offset: number, data: Uint8Array, size: number): void {
    if (offset !== this._end) {
      this._clear(offset); // the file was written anew
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
      const { lines, after } = linesOf(text.slice(0, newline), this._codes);
      this._pieces.push({ start: this._restStart, count: lines.length });
      this._add(lines);
      this._codes = after;
      this._restStart = offset + data.lastIndexOf(NEWLINE) + 1;
    }
    this._rest = lastKept(text.slice(newline + 1));
    this._restLines = 0;
    if (this._rest !== "") {
      const { lines } = linesOf(this._rest, this._codes);
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

  /** Let go of the oldest lines where there are too many. */
  private _forget(): void {
    let [gone, count] = [0, 0];
    while (
      this._pieces.length - gone > 1 &&
      (this._lines.length - count > MOST_LINES || this._end - this._start > MOST_BYTES)
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
    const offset = Math.max(0, end - PIECE);
    const { data, size } = await this._read(offset, end - offset);
    if (this._start !== end || size < end || data.length < end - offset) {
      return; // it was written anew meanwhile
    }
    const skipped = offset === 0 ? 0 : firstLine(data);
    const text = new TextDecoder().decode(data.subarray(skipped));
    const { lines } = linesOf(text.endsWith("\n") ? text.slice(0, -1) : text, "");
    this._lines = [...lines, ...this._lines];
    this._pieces.unshift({ start: offset + skipped, count: lines.length });
    this._first -= lines.length;
    this._start = offset + skipped;
  }
}

/** Return as much of a line without an end as can still be seen. */
function lastKept(line: string): string {
  const drawn = line.endsWith("\r") ? `${lastDrawn(line)}\r` : lastDrawn(line);
  return drawn.length > 100 * LONGEST_LINE ? drawn.slice(-100 * LONGEST_LINE) : drawn;
}

/**
 * Return the index of the next line with a text in it, in either case; -1: there is none.
 *
 * @param from - Where to begin.
 * @param step - 1 for those below, -1 for those above.
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
