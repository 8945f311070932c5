import { describe, expect, it, vi } from "vitest";

import { lastDrawn, MAX_LINE_CHARS, parseLines, parseSpans } from "../../src/common/terminal_text";
import { findLine, Log, MAX_KEPT_LINES, PIECE_BYTES } from "../../src/job_page/log/log_model";

const encode = (text: string): Uint8Array => new TextEncoder().encode(text);

/** A file, read as the agent reads it. */
function file(content: Uint8Array): { log: Log; read: ReturnType<typeof vi.fn> } {
  const read = vi.fn((offset: number, limit: number) => {
    const start = offset < 0 ? Math.max(0, content.length + offset) : offset;
    return Promise.resolve({
      data: content.slice(start, start + limit),
      size: content.length,
    });
  });
  return { log: new Log(read), read };
}

const texts = (log: Log): string[] => log.lines.map(({ text }) => text);

describe("a line of a log", () => {
  it("shows what was drawn last", () => {
    expect(lastDrawn("10 %\r50 %\r100 %")).toBe("100 %");
    expect(lastDrawn("100 %\r")).toBe("100 %");
  });

  it("keeps colours, drops other codes, and leaves markup as it is", () => {
    const { lines } = parseLines(
      "\u001b[2K\u001b[31;1m<b>no</b>\u001b[0m yes\u0007\u001b]0;title\u0007",
      "",
    );
    expect(lines[0]?.text).toBe("<b>no</b> yes");
    const [red, plain] = parseSpans(lines[0]!);
    expect(red).toMatchObject({ text: "<b>no</b>", classes: "jp-Slurm-ansi-red jp-Slurm-bold" });
    expect(plain).toMatchObject({ text: " yes", classes: "" });
  });

  it("has the colour that was on in the line before", () => {
    const { lines, after } = parseLines("\u001b[32mone\ntwo\nthree\u001b[0m\nfour", "");
    expect(lines.map((line) => parseSpans(line)[0]?.classes)).toEqual([
      ...Array<string>(3).fill("jp-Slurm-ansi-green"),
      "",
    ]);
    expect(after).toBe("");
  });

  it("has any colour of a palette, and those of 24 bits, only as numbers", () => {
    const { lines } = parseLines("\u001b[38;5;196ma\u001b[48;5;244mb\u001b[38;2;1;2;3mc", "");
    const [a, b, c] = parseSpans(lines[0]!);
    expect(a?.color).toBe("rgb(255, 0, 0)");
    expect(b?.background).toBe("rgb(128, 128, 128)");
    expect(c?.color).toBe("rgb(1, 2, 3)");
  });

  it("goes on in the next one where it is too long to be drawn", () => {
    const { lines } = parseLines("x".repeat(MAX_LINE_CHARS + 1), "");
    expect(lines.map(({ text }) => text.length)).toEqual([MAX_LINE_CHARS, 1]);
  });
});

describe("a log", () => {
  it("opens a large file at its end with one question, and reads earlier pieces on request", async () => {
    const count = 200_000;
    const content = encode(Array.from({ length: count }, (_, n) => `line ${n}\n`).join(""));
    const { log, read } = file(content);
    await log.open();
    expect(read.mock.calls).toEqual([[-PIECE_BYTES, PIECE_BYTES]]);
    expect(texts(log).at(-1)).toBe(`line ${count - 1}`);
    expect(log.size).toBe(content.length);
    const first = texts(log)[0];
    expect(first).toMatch(/^line \d+$/); // none is cut
    const known = log.lines.length;
    await log.earlier();
    expect(log.first).toBe(known - log.lines.length);
    const before = Number(first?.slice(5)) - 1;
    expect(texts(log)[-log.first - 1]).toBe(`line ${before}`);
    while (log.before > 0) {
      await log.earlier();
    }
    expect(texts(log)).toEqual(Array.from({ length: count }, (_, n) => `line ${n}`));
  });

  it("takes in what comes, cut anywhere", () => {
    const { log } = file(encode(""));
    const bytes = encode("zwölf\n10 %\r20 %\rdone\nlast €");
    for (let at = 0; at < bytes.length; at += 1) {
      log.take(at, bytes.subarray(at, at + 1), bytes.length);
    }
    expect(texts(log)).toEqual(["zwölf", "done", "last €"]);
  });

  it("begins anew where the file was written anew, as by a requeued job", () => {
    const { log } = file(encode(""));
    log.take(0, encode("first run\n"), 10);
    log.take(0, encode("second"), 6);
    expect(texts(log)).toEqual(["second"]);
  });

  it("catches up with a little, and takes the end alone of much", async () => {
    let content = encode("one\n");
    const read = vi.fn((offset: number, limit: number) => {
      const start = offset < 0 ? Math.max(0, content.length + offset) : offset;
      return Promise.resolve({
        data: content.slice(start, start + limit),
        size: content.length,
      });
    });
    const log = new Log(read);
    await log.catchUp();
    content = encode("one\ntwo\n");
    await log.catchUp();
    expect(texts(log)).toEqual(["one", "two"]);
    expect(read).toHaveBeenLastCalledWith(4, expect.any(Number));
    content = encode("x".repeat(79).concat("\n").repeat(1_000_000));
    await log.catchUp();
    expect(read).toHaveBeenLastCalledWith(-PIECE_BYTES, PIECE_BYTES);
    expect(log.lines.length).toBeLessThan(10_000);
  });

  it("takes the same part once where two reads of it overlap", async () => {
    const content = encode("one\ntwo\n");
    const { log } = file(content);
    log.take(0, content.subarray(0, 4), 4);
    await Promise.all([log.catchUp(), log.catchUp()]);
    expect(texts(log)).toEqual(["one", "two"]);
    expect(log.end).toBe(8);
    const opened = log.open();
    log.take(8, encode("three\n"), 14); // the stream is ahead of that read
    await opened;
    expect(texts(log)).toEqual(["one", "two", "three"]);
  });

  it("lets go of the oldest lines where there are too many", () => {
    const piece = encode("a\n".repeat(50_000));
    const { log } = file(piece);
    for (let at = 0; at < 12; at += 1) {
      log.take(at * piece.length, piece, (at + 1) * piece.length);
    }
    expect(log.lines.length).toBeLessThanOrEqual(MAX_KEPT_LINES);
    expect(log.first).toBe(600_000 - log.lines.length);
    expect(log.before).toBe(2 * log.first);
  });

  it("keeps no more lines than can be drawn of much that comes at once", async () => {
    let content = encode("one\n");
    const log = new Log((offset, limit) =>
      Promise.resolve({
        data: content.slice(Math.max(0, offset), Math.max(0, offset) + limit),
        size: content.length,
      }),
    );
    await log.catchUp();
    content = encode(`one\n${"\n".repeat(8 * PIECE_BYTES)}`);
    await log.catchUp();
    expect(log.end).toBe(content.length);
    expect(log.lines.length).toBeLessThanOrEqual(MAX_KEPT_LINES);
  });

  it("is searched in both directions, in either case", () => {
    const { lines } = parseLines("one\nError two\nthree\nERROR four", "");
    expect(findLine(lines, "error", 3, -1)).toBe(3);
    expect(findLine(lines, "error", 2, -1)).toBe(1);
    expect(findLine(lines, "error", 0, -1)).toBe(-1);
    expect(findLine(lines, "error", 2, 1)).toBe(3);
  });
});
