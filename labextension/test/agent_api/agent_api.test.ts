// @vitest-environment node
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

import { ServerConnection } from "@jupyterlab/services";
import { afterEach, describe, expect, it, vi } from "vitest";

import { AgentApi } from "../../src/agent_api/agent_api";

/** The part of the server, as small as it can be, at the other end of a real connection. */
describe("AgentApi", () => {
  let server: Server;

  async function start(
    answer: (request: IncomingMessage, response: ServerResponse) => void,
  ): Promise<AgentApi> {
    server = createServer(answer);
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    const baseUrl = `http://127.0.0.1:${port}/user/me/`;
    return new AgentApi(ServerConnection.makeSettings({ baseUrl, token: "secret" }));
  }

  afterEach(() => {
    server.closeAllConnections();
    server.close();
  });

  function refusing(status: number, type: string, body: string): Promise<AgentApi> {
    return start((_, response) => {
      response.writeHead(status, { "Content-Type": type }).end(body);
    });
  }

  it("asks below the base address, with the token, and quotes what stands in an address", async () => {
    const seen: (string | undefined)[] = [];
    const api = await start((request, response) => {
      const path = request.url?.split("?")[0] ?? ""; // JupyterLab adds the time, against caches
      seen.push(`${request.method ?? ""} ${path}`, request.headers.authorization);
      response.end("{}");
    });
    await api.job("local", "../12?x");
    await api.act("local-1", "cancel", ["12_3"]);
    await api.removeKernel("../x"); // it is the server that knows of kernels, not the agent
    expect(seen).toEqual([
      "GET /user/me/jupyter-slurm/api/v1/clusters/local/jobs/..%2F12%3Fx",
      "token secret",
      "POST /user/me/jupyter-slurm/api/v1/clusters/local-1/acts",
      "token secret",
      "DELETE /user/me/jupyter-slurm/api/server/kernelspecs/..%2Fx",
      "token secret",
    ]);
  });

  it("asks who uses what, and for the room for files, which is newer after a click", async () => {
    const seen: (string | undefined)[] = [];
    const api = await start((request, response) => {
      seen.push(request.url?.replace(/&?\d{13}$/, ""));
      response.end("{}");
    });
    await api.runningUse("local");
    await api.room("local", true);
    expect(seen.map((url) => url?.replace("/user/me/jupyter-slurm/api/v1/clusters/", ""))).toEqual([
      expect.stringMatching(/^local\/running\??$/),
      "local/room?newer=true",
    ]);
  });

  it("asks for nothing whose name would lead to another address", async () => {
    const seen: (string | undefined)[] = [];
    const api = await start((request, response) => {
      seen.push(request.url);
      response.end("{}");
    });
    for (const name of ["..", "."]) {
      await expect(api.job("local", name)).rejects.toMatchObject({ problem: { status: 404 } });
      await expect(api.cancel(name, "12")).rejects.toMatchObject({ problem: { status: 404 } });
    }
    expect(seen).toEqual([]);
  });

  it("goes by the server's clock", async () => {
    const api = await start((_, response) => {
      const date = new Date(Date.now() - 3_600_000).toUTCString();
      response.writeHead(200, { Date: date }).end("[]");
    });
    expect(await api.clusters()).toEqual([]);
    expect(api.clockOffset).toBeLessThan(-3590);
  });

  it("does not count the time of a request as a difference of the clocks, and sets no clock by a slow one", async () => {
    vi.useFakeTimers({ toFake: ["Date"], now: 1_000_000_000_000 });
    try {
      let took = 1_500;
      const api = await start((_, response) => {
        const date = new Date(Date.now() + 60_000).toUTCString(); // as Tornado: that of the start
        vi.setSystemTime(Date.now() + took);
        response.writeHead(200, { Date: date }).end("[]");
      });
      await api.clusters();
      expect(api.clockOffset).toBe(60);
      took = 45_000;
      vi.setSystemTime(Date.now() + 500_000);
      await api.clusters();
      expect(api.clockOffset).toBe(60);
    } finally {
      vi.useRealTimers();
    }
  });

  it("tells a refusal in the agent's words", async () => {
    const body = '{"title": "AgentUnreachable", "detail": "No agent answers.", "hint": "Look."}';
    const api = await refusing(503, "application/problem+json", body);
    await expect(api.clusters()).rejects.toMatchObject({
      message: "No agent answers.",
      problem: { status: 503, hint: "Look." },
    });
  });

  it("tells the status where something in between answers", async () => {
    const api = await refusing(502, "text/html", "<h1>Bad Gateway</h1>");
    await expect(api.events(new AbortController().signal)).rejects.toThrow("502 Bad Gateway");
  });

  it("reads the stream as it comes, and lets go of the connection", async () => {
    const closed = vi.fn();
    const api = await start((request, response) => {
      request.on("close", closed);
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      const bytes = new TextEncoder().encode('event: job\ndata: {"id": "\u00fc"}\n\n');
      for (const byte of bytes) {
        response.write(Uint8Array.of(byte));
      }
    });
    const stop = new AbortController();
    for await (const event of await api.events(stop.signal)) {
      expect(event).toEqual({ event: "job", data: { id: "ü" } });
      break;
    }
    stop.abort();
    await vi.waitFor(() => {
      expect(closed).toHaveBeenCalledOnce();
    });
  });

  it("takes a stream without heartbeats for a broken connection", async () => {
    const api = await start((_, response) => {
      response.writeHead(200, { "Content-Type": "text/event-stream" }).write(": heartbeat\n\n");
    });
    const stream = await api.events(new AbortController().signal);
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    try {
      const ended = expect(stream[Symbol.asyncIterator]().next()).rejects.toThrow(TypeError);
      await vi.advanceTimersByTimeAsync(60_000);
      await vi.advanceTimersByTimeAsync(60_000); // the heartbeat may have come between
      await ended;
    } finally {
      vi.useRealTimers();
    }
  });
});
