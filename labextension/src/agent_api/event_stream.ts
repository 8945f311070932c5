/** Text of an event stream, as it arrives. */

/** Longest silence of an event stream, in milliseconds: the agent sends a heartbeat every 15 seconds. */
const MAX_SILENCE_MS = 50_000;

/** Read a part of a stream; after a silence the connection counts as broken: a computer may have slept. */
async function readPart(
  reader: ReadableStreamDefaultReader<Uint8Array>,
): Promise<ReadableStreamReadResult<Uint8Array>> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const silence = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(new TypeError("The stream is silent."));
    }, MAX_SILENCE_MS);
  });
  try {
    return await Promise.race([reader.read(), silence]);
  } finally {
    clearTimeout(timer);
  }
}

/** Yield the text of a stream until it ends. */
export async function* decodeText(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  try {
    for (;;) {
      const { done, value } = await readPart(reader);
      if (done) {
        return;
      }
      yield decoder.decode(value, { stream: true });
    }
  } finally {
    // A reader that stops early must free the connection too: the browser has few of them.
    await reader.cancel().catch(() => undefined);
  }
}
