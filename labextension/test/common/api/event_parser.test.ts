import { describe, expect, it } from "vitest";

import { parseEvents } from "../../../src/common/api/event_parser";
import type { IServerEvent } from "../../../src/common/api/objects";

async function parse(...chunks: string[]): Promise<IServerEvent[]> {
  async function* source(): AsyncGenerator<string> {
    for (const chunk of chunks) {
      yield await Promise.resolve(chunk);
    }
  }
  const found: IServerEvent[] = [];
  for await (const event of parseEvents(source())) {
    found.push(event);
  }
  return found;
}

const TEXT = 'event: job\ndata: {"id": "1"}\n\n:\n\nevent: cluster\ndata: {"name":\ndata: "ü"}\n\n';
const EVENTS = [
  { event: "job", data: { id: "1" } },
  { event: "cluster", data: { name: "ü" } },
];

describe("parseEvents", () => {
  it("reads messages wherever the text is cut", async () => {
    for (let cut = 0; cut <= TEXT.length; cut += 1) {
      expect(await parse(TEXT.slice(0, cut), TEXT.slice(cut))).toEqual(EVENTS);
    }
    expect(await parse(...TEXT)).toEqual(EVENTS);
  });

  it("takes each of the three line ends, also when one is cut in two", async () => {
    for (const end of ["\r\n", "\r"]) {
      const text = TEXT.replaceAll("\n", end) + ":"; // a lone \r at the very end could still become \r\n
      expect(await parse(...text)).toEqual(EVENTS);
    }
  });

  it("does not make a message of half a one", async () => {
    expect(await parse('event: job\ndata: {"id": "1"}\n')).toEqual([]);
  });

  it("refuses data that is no JSON and a message without an end", async () => {
    await expect(parse("data: {\n\n")).rejects.toThrow(SyntaxError);
    await expect(parse("data: ", "x".repeat(5_000_000))).rejects.toThrow("no end");
  });
});
