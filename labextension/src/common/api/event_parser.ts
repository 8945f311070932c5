/** Parser of server-sent events (WHATWG HTML, section 9.2.6). */
import type { IServerEvent } from "./objects";

/** Characters of a message. One without an end would fill the memory of the browser; no job record is as long. */
const MAX_MESSAGE_CHARS = 4 * 1024 * 1024;

function parseMessage(lines: readonly string[]): IServerEvent | null {
  let event = "message";
  const data: string[] = [];
  for (const line of lines) {
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") {
      event = value;
    } else if (field === "data") {
      data.push(value);
    }
  }
  return data.length > 0 ? { event, data: JSON.parse(data.join("\n")) as unknown } : null;
}

/**
 * Yield the messages of a stream; comments (heartbeats) and messages without data are left out.
 *
 * @param chunks - Decoded text, cut anywhere.
 * @throws SyntaxError - when the data of a message is not JSON.
 */
export async function* parseEvents(chunks: AsyncIterable<string>): AsyncGenerator<IServerEvent> {
  let rest = "";
  let lines: string[] = [];
  for await (const chunk of chunks) {
    rest += chunk;
    // A "\r" at the end may be the first half of "\r\n": it waits for the next chunk.
    const usable = rest.endsWith("\r") ? rest.length - 1 : rest.length;
    const parts = rest.slice(0, usable).split(/\r\n|\r|\n/);
    rest = (parts.pop() ?? "") + rest.slice(usable);
    if (rest.length > MAX_MESSAGE_CHARS) {
      throw new SyntaxError("a message of the event stream has no end");
    }
    for (const line of parts) {
      if (line !== "") {
        lines.push(line);
        continue;
      }
      const message = parseMessage(lines);
      lines = [];
      if (message !== null) {
        yield message;
      }
    }
  }
}
