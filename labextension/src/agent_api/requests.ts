/** Requests to the APIs of the server, behind the authentication of Jupyter. No other module makes them. */
import { URLExt } from "@jupyterlab/coreutils";
import { ServerConnection } from "@jupyterlab/services";

import { parseEvents } from "../common/api/event_parser";
import type { IProblem, IServerEvent } from "../common/api/objects";
import { RequestError } from "../common/api/problem";
import { decodeText } from "./event_stream";

/** The API of the agent. */
const API = "jupyter-slurm/api/v1";
/** The API of the server extension itself. */
export const SERVER_API = "jupyter-slurm/api/server";
/** Longest time of a request whose answer sets the clock, in milliseconds: the time of an answer may be that of its start. */
const MAX_CLOCK_REQUEST_MS = 2_000;

async function problemOf(response: Response): Promise<IProblem> {
  const fallback = { status: response.status, title: `${response.status} ${response.statusText}` };
  try {
    const body: unknown = await response.json();
    return typeof body === "object" && body !== null ? { ...fallback, ...body } : fallback;
  } catch {
    return fallback;
  }
}

function withBody(content: object): RequestInit {
  const headers = { "Content-Type": "application/json" };
  return { method: "POST", body: JSON.stringify(content), headers };
}

export class Requests {
  private _offset = 0;

  constructor(protected readonly settings: ServerConnection.ISettings) {}

  /** Seconds by which the clock of the server is ahead of this computer's. */
  get clockOffset(): number {
    return this._offset;
  }

  /** Return the URL of a path of the API. */
  urlOf(path: readonly string[], api = API): string {
    return URLExt.join(this.settings.baseUrl, api, ...path.map(encodeURIComponent));
  }

  /** Send a request with a body. */
  request(path: string[], content: object): Promise<Response> {
    return this.send(path, "", withBody(content));
  }

  protected async json(
    path: string[],
    query = "",
    init: RequestInit = {},
    api = API,
  ): Promise<unknown> {
    const sent = Date.now();
    const response = await this.send(path, query, init, api);
    const date = Date.parse(response.headers.get("Date") ?? "");
    if (!Number.isNaN(date) && Date.now() - sent < MAX_CLOCK_REQUEST_MS) {
      this._offset = (date - sent) / 1000;
    }
    return response.json();
  }

  protected post(path: string[], content: object, api = API): Promise<unknown> {
    return this.json(path, "", withBody(content), api);
  }

  protected async send(
    path: string[],
    query: string,
    init: RequestInit,
    api = API,
  ): Promise<Response> {
    if (path.some((part) => part === "." || part === "..")) {
      throw new RequestError({ status: 404, title: "There is nothing of this name." }); // such a part would change the path
    }
    const url = this.urlOf(path, api) + query;
    const response = await ServerConnection.makeRequest(url, init, this.settings);
    if (!response.ok) {
      throw new RequestError(await problemOf(response));
    }
    return response;
  }

  protected async stream(
    path: string[],
    query: string,
    signal: AbortSignal,
  ): Promise<AsyncIterable<IServerEvent>> {
    const headers = { Accept: "text/event-stream" };
    const response = await this.send(path, query, { signal, headers, cache: "no-store" });
    if (response.body === null) {
      throw new RequestError({ detail: "The event stream has no content." });
    }
    return parseEvents(decodeText(response.body));
  }
}
