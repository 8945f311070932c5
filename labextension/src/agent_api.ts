/**
 * Requests to the server: the API of the agent behind the authentication of Jupyter. No other module makes requests.
 */
import { PageConfig, URLExt } from "@jupyterlab/coreutils";
import { ServerConnection } from "@jupyterlab/services";

import { parseEvents } from "./common/api/event_parser";
import type {
  ApiSchemas,
  Act,
  IActProgress,
  ICluster,
  IJob,
  IOutcome,
  IProblem,
  IPrompt,
  IServerEvent,
} from "./common/api/objects";
import { RequestError } from "./common/api/problem";
import type { ILaunch } from "./common/launch_request";
import type { IJobApi, IRecord, IReport, ITasks, IUsage, Stream } from "./job_page/api";
import type { Read } from "./job_page/log/log_model";
import type { IQueue, IQueueApi } from "./jobs/all_jobs";
import type { IJobsApi } from "./jobs/api";
import type { IScriptPreview, IScriptSubmission } from "./jobs/actions/script_submission";
import type { IForeignSubmission } from "./job_page/resubmission_dialog";
import type { IKernelApi, IKernelPlace, IKernelRequest, IKernelSpec } from "./kernels/model";
import type { IMove, IMoveRequest, IMovesApi, ISurvey } from "./kernels/move_model";
import type { IResources, IResourcesApi, IResourcesQuery } from "./resources/model";
import type { IRoom } from "./resources/room";
import type { IRunningUse } from "./resources/running_use";
import type { IChoice, IPreview, ISessionsApi } from "./sessions/model";
import type { ITerminalRecord, ITerminalsApi } from "./terminals/model";

const API = "jupyter-slurm/api/v1";
/** The API of the server extension itself. */
const SERVER_API = "jupyter-slurm/api/server";
/** Bytes at the end of a log that a request reads. */
const LOG_TAIL_BYTES = 16_384;
/** Longest silence of an event stream, in milliseconds: the agent sends a heartbeat every 15 seconds. */
const MAX_SILENCE_MS = 50_000;
/** Longest wait for an answer, in milliseconds. The agent answers within three quarters of this. */
const MAX_WAIT_MS = 60_000;

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

async function* decodeText(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
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

/** The API of the agent, as the server extension exposes it. */
export class AgentApi
  implements
    IJobsApi,
    IJobApi,
    ISessionsApi,
    IResourcesApi,
    IQueueApi,
    IKernelApi,
    IMovesApi,
    ITerminalsApi
{
  private _offset = 0;

  constructor(private readonly _settings: ServerConnection.ISettings) {}

  get clockOffset(): number {
    return this._offset;
  }

  async clusters(): Promise<ICluster[]> {
    return (await this._json(["clusters"])) as ICluster[];
  }

  async jobs(cluster: string, finished: number, days?: number): Promise<IJob[]> {
    const period = days === undefined ? "" : `&days=${days}`;
    const query = `?state=all&finished=${finished}${period}`;
    return (await this._json(["clusters", cluster, "jobs"], query)) as IJob[];
  }

  async act(
    cluster: string,
    act: Act,
    jobs: readonly string[],
    limit?: string,
  ): Promise<IOutcome[]> {
    const request = { act, jobs, ...(limit === undefined ? {} : { time_limit: limit }) };
    return (await this._post(["clusters", cluster, "acts"], request)) as IOutcome[];
  }

  async acts(cluster: string): Promise<IActProgress[]> {
    return (await this._json(["clusters", cluster, "acts"])) as IActProgress[];
  }

  async stopAct(cluster: string, id: string): Promise<IActProgress> {
    return (await this._post(["clusters", cluster, "acts", id, "stop"], {})) as IActProgress;
  }

  async cancel(cluster: string, job: string): Promise<IJob> {
    return (await this._post(["clusters", cluster, "jobs", job, "cancel"], {
      signal: null,
    })) as IJob;
  }

  async connect(cluster: string): Promise<void> {
    await this._post(["clusters"], { profile: cluster }); // reads the profile again, which may have changed
    await this._post(["clusters", cluster, "connect"], {});
  }

  async disconnect(cluster: string): Promise<void> {
    await this._post(["clusters", cluster, "disconnect"], {});
  }

  async prompts(): Promise<IPrompt[]> {
    return (await this._json(["prompts"])) as IPrompt[];
  }

  async answer(prompt: string, answers: readonly string[] | null): Promise<void> {
    await this._post(["prompts", prompt], { answers });
  }

  async job(cluster: string, job: string): Promise<IJob> {
    return (await this._json(["clusters", cluster, "jobs", job])) as IJob;
  }

  events(signal: AbortSignal): Promise<AsyncIterable<IServerEvent>> {
    return this._stream(["events"], "", signal);
  }

  async names(
    cluster: string,
    kind: string,
    partition: string,
    wait: number,
    start = "",
  ): Promise<IChoice[]> {
    const [within, below] = [partition, start].map(encodeURIComponent);
    const query = `?wait=${wait}&partition=${within}&start=${below}`;
    const answer = (await this._json(["clusters", cluster, "names", kind], query)) as {
      names: IChoice[];
    };
    return answer.names;
  }

  async preview(cluster: string, launch: ILaunch, estimate: boolean): Promise<IPreview> {
    const request = { ...launch, dry_run: true, test_only: estimate };
    return (await this._post(["clusters", cluster, "sessions"], request)) as IPreview;
  }

  async launch(cluster: string, launch: ILaunch): Promise<IJob> {
    return (await this._post(["clusters", cluster, "sessions"], launch)) as IJob;
  }

  async session(cluster: string, session: string): Promise<IJob> {
    return (await this._json(["clusters", cluster, "sessions", session])) as IJob;
  }

  async reach(cluster: string, session: string): Promise<IJob> {
    return (await this._post(["clusters", cluster, "sessions", session, "open"], {})) as IJob;
  }

  async stop(cluster: string, session: string): Promise<IJob> {
    return (await this._post(["clusters", cluster, "sessions", session, "stop"], {})) as IJob;
  }

  async log(cluster: string, session: string): Promise<string> {
    const path = ["clusters", cluster, "jobs", session, "output"];
    const response = await this._send(path, `?stream=stderr&offset=-${LOG_TAIL_BYTES}`, {});
    return response.text();
  }

  async resources(cluster: string, { newer, nodes }: IResourcesQuery): Promise<IResources> {
    const query = `?newer=${newer === true}&nodes=${nodes === true}`;
    const signal = AbortSignal.timeout(MAX_WAIT_MS);
    return (await this._json(["clusters", cluster, "resources"], query, { signal })) as IResources;
  }

  async runningUse(cluster: string): Promise<IRunningUse> {
    const signal = AbortSignal.timeout(MAX_WAIT_MS);
    return (await this._json(["clusters", cluster, "running"], "", { signal })) as IRunningUse;
  }

  async room(cluster: string, newer: boolean): Promise<IRoom> {
    const signal = AbortSignal.timeout(MAX_WAIT_MS);
    return (await this._json(["clusters", cluster, "room"], `?newer=${newer}`, {
      signal,
    })) as IRoom;
  }

  async queue(cluster: string): Promise<IQueue> {
    const signal = AbortSignal.timeout(MAX_WAIT_MS);
    return (await this._json(["clusters", cluster, "queue"], "", { signal })) as IQueue;
  }

  address(path: string): string | null {
    const base = new URL(this._settings.baseUrl);
    return path.startsWith(`${base.pathname}jupyter-slurm/`) ? new URL(path, base).href : null;
  }

  isIsolated(): boolean {
    return PageConfig.getOption("jupyterSlurmSharesOrigin") !== "true";
  }

  async foreignSubmission(cluster: string, job: string): Promise<ApiSchemas["ForeignSubmission"]> {
    const path = ["clusters", cluster, "jobs", job, "foreign-submission"];
    return (await this._json(path)) as ApiSchemas["ForeignSubmission"];
  }

  async submit(cluster: string, submission: IScriptSubmission | IForeignSubmission): Promise<IJob> {
    return (await this._post(["clusters", cluster, "jobs"], submission)) as IJob;
  }

  async previewScript(
    cluster: string,
    submission: IScriptSubmission,
    estimate: boolean,
  ): Promise<IScriptPreview> {
    const request = { ...submission, dry_run: true, test_only: estimate };
    return (await this._post(["clusters", cluster, "jobs"], request)) as IScriptPreview;
  }

  async resubmit(cluster: string, job: string, key: string): Promise<IJob> {
    return (await this._post(["clusters", cluster, "jobs", job, "resubmit"], { key })) as IJob;
  }

  reader(cluster: string, job: string, stream: Stream): Read {
    return async (offset, limit) => {
      const query = `?stream=${stream}&offset=${offset}&limit=${limit}`;
      const response = await this._send(["clusters", cluster, "jobs", job, "output"], query, {
        cache: "no-store",
      });
      const data = new Uint8Array(await response.arrayBuffer());
      return { data, size: Number(response.headers.get("X-Total-Size") ?? data.length) };
    };
  }

  follow(
    cluster: string,
    job: string,
    offsets: Readonly<Record<Stream, number>>,
    signal: AbortSignal,
  ): Promise<AsyncIterable<IServerEvent>> {
    const query = `?stdout=${offsets.stdout}&stderr=${offsets.stderr}`;
    return this._stream(["clusters", cluster, "jobs", job, "stream"], query, signal);
  }

  async text(cluster: string, job: string, what: "script" | "source"): Promise<string> {
    return (await this._send(["clusters", cluster, "jobs", job, what], "", {})).text();
  }

  async record(cluster: string, job: string): Promise<IRecord> {
    return (await this._json(["clusters", cluster, "jobs", job, "record"])) as IRecord;
  }

  async report(cluster: string, job: string): Promise<IReport> {
    return (await this._json(["clusters", cluster, "jobs", job, "report"])) as IReport;
  }

  async usage(cluster: string, job: string): Promise<IUsage> {
    return (await this._json(["clusters", cluster, "jobs", job, "usage"])) as IUsage;
  }

  async tasks(cluster: string, job: string): Promise<ITasks> {
    const path = ["clusters", cluster, "jobs", job, "tasks"];
    return (await this._json(path, "?parameters=true")) as ITasks;
  }

  async steps(cluster: string, job: string): Promise<IJob[]> {
    return (await this._json(["clusters", cluster, "jobs", job, "steps"])) as IJob[];
  }

  async kernelSpecs(): Promise<IKernelSpec[]> {
    const answer = (await this._json(["kernelspecs"], "", {}, SERVER_API)) as {
      kernelspecs: IKernelSpec[];
    };
    return answer.kernelspecs;
  }

  async addKernel(request: IKernelRequest): Promise<IKernelSpec> {
    return (await this._post(["kernelspecs"], request, SERVER_API)) as IKernelSpec;
  }

  async removeKernel(name: string): Promise<void> {
    await this._send(["kernelspecs", name], "", { method: "DELETE" }, SERVER_API);
  }

  async newNotebook(session: string): Promise<string> {
    const answer = (await this._post(["sessions", session, "notebooks"], {}, SERVER_API)) as {
      path: string;
    };
    return answer.path;
  }

  async kernelPlace(id: string): Promise<IKernelPlace | null> {
    const answer = (await this._json(["kernels", id], "", { cache: "no-store" }, SERVER_API)) as {
      place: IKernelPlace | null;
    };
    return answer.place;
  }

  async beginMove(request: IMoveRequest): Promise<IMove> {
    return (await this._post(["moves"], { ...request, check: true }, SERVER_API)) as IMove;
  }

  async variables(notebook: string, kernel: string | undefined): Promise<ISurvey | null> {
    const answer = (await this._post(["variables"], { notebook, kernel }, SERVER_API)) as {
      survey: ISurvey | null;
    };
    return answer.survey;
  }

  async moves(): Promise<IMove[]> {
    const answer = (await this._json(["moves"], "", { cache: "no-store" }, SERVER_API)) as {
      moves: IMove[];
    };
    return answer.moves;
  }

  async move(id: string): Promise<IMove> {
    return (await this._json(["moves", id], "", { cache: "no-store" }, SERVER_API)) as IMove;
  }

  async giveUpMove(id: string): Promise<IMove> {
    return (await this._json(["moves", id], "", { method: "DELETE" }, SERVER_API)) as IMove;
  }

  /** Send a request with a body. */
  request(path: string[], content: object): Promise<Response> {
    return this._send(path, "", withBody(content));
  }

  /** Return the URL of a path of the API. */
  urlOf(path: readonly string[], api = API): string {
    return URLExt.join(this._settings.baseUrl, api, ...path.map(encodeURIComponent));
  }

  async startTerminal(cluster: string, job: string | null): Promise<ITerminalRecord> {
    const path = ["clusters", cluster, "terminals"];
    return (await this._post(path, { job }, SERVER_API)) as ITerminalRecord;
  }

  async terminals(cluster: string): Promise<readonly ITerminalRecord[]> {
    const path = ["clusters", cluster, "terminals"];
    return (await this._json(path, "", {}, SERVER_API)) as ITerminalRecord[];
  }

  terminalSettings(cluster: string): ServerConnection.ISettings {
    const path = [SERVER_API, "clusters", encodeURIComponent(cluster)] as const;
    const baseUrl = URLExt.join(this._settings.baseUrl, ...path);
    return { ...this._settings, baseUrl, wsUrl: URLExt.join(this._settings.wsUrl, ...path) };
  }

  private async _stream(
    path: string[],
    query: string,
    signal: AbortSignal,
  ): Promise<AsyncIterable<IServerEvent>> {
    const headers = { Accept: "text/event-stream" };
    const response = await this._send(path, query, { signal, headers, cache: "no-store" });
    if (response.body === null) {
      throw new RequestError({ detail: "The event stream has no content." });
    }
    return parseEvents(decodeText(response.body));
  }

  private async _json(
    path: string[],
    query = "",
    init: RequestInit = {},
    api = API,
  ): Promise<unknown> {
    const response = await this._send(path, query, init, api);
    const date = Date.parse(response.headers.get("Date") ?? "");
    if (!Number.isNaN(date)) {
      this._offset = (date - Date.now()) / 1000;
    }
    return response.json();
  }

  private _post(path: string[], content: object, api = API): Promise<unknown> {
    return this._json(path, "", withBody(content), api);
  }

  private async _send(
    path: string[],
    query: string,
    init: RequestInit,
    api = API,
  ): Promise<Response> {
    if (path.some((part) => part === "." || part === "..")) {
      throw new RequestError({ status: 404, title: "There is nothing of this name." }); // such a part would change the path
    }
    const url = this.urlOf(path, api) + query;
    const response = await ServerConnection.makeRequest(url, init, this._settings);
    if (!response.ok) {
      throw new RequestError(await problemOf(response));
    }
    return response;
  }
}
