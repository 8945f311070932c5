/** Requests to the agent, which the server extension passes on, and those to the server extension itself. */
import { PageConfig } from "@jupyterlab/coreutils";

import type {
  ApiSchemas,
  Act,
  IActProgress,
  ICluster,
  IJob,
  IOutcome,
  IPrompt,
  IServerEvent,
} from "../common/api/objects";
import type { ILaunch } from "../common/launch_request";
import type { IJobApi, IRecord, IReport, ITasks, IUsage, Stream } from "../job_page/api";
import type { Read } from "../job_page/log/log_model";
import type { IForeignSubmission } from "../job_page/resubmission_dialog";
import type { IScriptPreview, IScriptSubmission } from "../jobs/actions/script_submission";
import type { IQueue, IQueueApi } from "../jobs/all_jobs";
import type { IJobsApi } from "../jobs/api";
import type { IResources, IResourcesApi, IResourcesQuery } from "../resources/model";
import type { IRoom } from "../resources/room";
import type { IRunningUse } from "../resources/running_use";
import type { IChoice, IPreview, ISessionsApi } from "../sessions/model";
import { ServerApi } from "./server_api";

/** Bytes at the end of a log that a request reads. */
const LOG_TAIL_BYTES = 16_384;
/** Longest wait for an answer, in milliseconds. The agent answers within three quarters of this. */
const MAX_WAIT_MS = 60_000;

/** The API of the agent, as the server extension exposes it. */
export class AgentApi
  extends ServerApi
  implements IJobsApi, IJobApi, ISessionsApi, IResourcesApi, IQueueApi
{
  async clusters(): Promise<ICluster[]> {
    return (await this.json(["clusters"])) as ICluster[];
  }

  async jobs(cluster: string, finished: number, days?: number): Promise<IJob[]> {
    const period = days === undefined ? "" : `&days=${days}`;
    const query = `?state=all&finished=${finished}${period}`;
    return (await this.json(["clusters", cluster, "jobs"], query)) as IJob[];
  }

  async act(
    cluster: string,
    act: Act,
    jobs: readonly string[],
    limit?: string,
  ): Promise<IOutcome[]> {
    const request = { act, jobs, ...(limit === undefined ? {} : { time_limit: limit }) };
    return (await this.post(["clusters", cluster, "acts"], request)) as IOutcome[];
  }

  async acts(cluster: string): Promise<IActProgress[]> {
    return (await this.json(["clusters", cluster, "acts"])) as IActProgress[];
  }

  async stopAct(cluster: string, id: string): Promise<IActProgress> {
    return (await this.post(["clusters", cluster, "acts", id, "stop"], {})) as IActProgress;
  }

  async cancel(cluster: string, job: string): Promise<IJob> {
    return (await this.post(["clusters", cluster, "jobs", job, "cancel"], {
      signal: null,
    })) as IJob;
  }

  async connect(cluster: string): Promise<void> {
    await this.post(["clusters"], { profile: cluster }); // reads the profile again, which may have changed
    await this.post(["clusters", cluster, "connect"], {});
  }

  async disconnect(cluster: string): Promise<void> {
    await this.post(["clusters", cluster, "disconnect"], {});
  }

  async prompts(): Promise<IPrompt[]> {
    return (await this.json(["prompts"])) as IPrompt[];
  }

  async answer(prompt: string, answers: readonly string[] | null): Promise<void> {
    await this.post(["prompts", prompt], { answers });
  }

  async job(cluster: string, job: string): Promise<IJob> {
    return (await this.json(["clusters", cluster, "jobs", job])) as IJob;
  }

  events(signal: AbortSignal): Promise<AsyncIterable<IServerEvent>> {
    return this.stream(["events"], "", signal);
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
    const answer = (await this.json(["clusters", cluster, "names", kind], query)) as {
      names: IChoice[];
    };
    return answer.names;
  }

  async preview(cluster: string, launch: ILaunch, estimate: boolean): Promise<IPreview> {
    const request = { ...launch, dry_run: true, test_only: estimate };
    return (await this.post(["clusters", cluster, "sessions"], request)) as IPreview;
  }

  async launch(cluster: string, launch: ILaunch): Promise<IJob> {
    return (await this.post(["clusters", cluster, "sessions"], launch)) as IJob;
  }

  async session(cluster: string, session: string): Promise<IJob> {
    return (await this.json(["clusters", cluster, "sessions", session])) as IJob;
  }

  async reach(cluster: string, session: string): Promise<IJob> {
    return (await this.post(["clusters", cluster, "sessions", session, "open"], {})) as IJob;
  }

  async stop(cluster: string, session: string): Promise<IJob> {
    return (await this.post(["clusters", cluster, "sessions", session, "stop"], {})) as IJob;
  }

  async log(cluster: string, session: string): Promise<string> {
    const path = ["clusters", cluster, "jobs", session, "output"];
    const response = await this.send(path, `?stream=stderr&offset=-${LOG_TAIL_BYTES}`, {});
    return response.text();
  }

  async resources(cluster: string, { newer, nodes }: IResourcesQuery): Promise<IResources> {
    const query = `?newer=${newer === true}&nodes=${nodes === true}`;
    const signal = AbortSignal.timeout(MAX_WAIT_MS);
    return (await this.json(["clusters", cluster, "resources"], query, { signal })) as IResources;
  }

  async runningUse(cluster: string): Promise<IRunningUse> {
    const signal = AbortSignal.timeout(MAX_WAIT_MS);
    return (await this.json(["clusters", cluster, "running"], "", { signal })) as IRunningUse;
  }

  async room(cluster: string, newer: boolean): Promise<IRoom> {
    const signal = AbortSignal.timeout(MAX_WAIT_MS);
    return (await this.json(["clusters", cluster, "room"], `?newer=${newer}`, {
      signal,
    })) as IRoom;
  }

  async queue(cluster: string): Promise<IQueue> {
    const signal = AbortSignal.timeout(MAX_WAIT_MS);
    return (await this.json(["clusters", cluster, "queue"], "", { signal })) as IQueue;
  }

  address(path: string): string | null {
    const base = new URL(this.settings.baseUrl);
    return path.startsWith(`${base.pathname}jupyter-slurm/`) ? new URL(path, base).href : null;
  }

  isIsolated(): boolean {
    return PageConfig.getOption("jupyterSlurmSharesOrigin") !== "true";
  }

  async foreignSubmission(cluster: string, job: string): Promise<ApiSchemas["ForeignSubmission"]> {
    const path = ["clusters", cluster, "jobs", job, "foreign-submission"];
    return (await this.json(path)) as ApiSchemas["ForeignSubmission"];
  }

  async submit(cluster: string, submission: IScriptSubmission | IForeignSubmission): Promise<IJob> {
    return (await this.post(["clusters", cluster, "jobs"], submission)) as IJob;
  }

  async previewScript(
    cluster: string,
    submission: IScriptSubmission,
    estimate: boolean,
  ): Promise<IScriptPreview> {
    const request = { ...submission, dry_run: true, test_only: estimate };
    return (await this.post(["clusters", cluster, "jobs"], request)) as IScriptPreview;
  }

  async resubmit(cluster: string, job: string, key: string): Promise<IJob> {
    return (await this.post(["clusters", cluster, "jobs", job, "resubmit"], { key })) as IJob;
  }

  reader(cluster: string, job: string, stream: Stream): Read {
    return async (offset, limit) => {
      const query = `?stream=${stream}&offset=${offset}&limit=${limit}`;
      const response = await this.send(["clusters", cluster, "jobs", job, "output"], query, {
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
    return this.stream(["clusters", cluster, "jobs", job, "stream"], query, signal);
  }

  async text(cluster: string, job: string, what: "script" | "source"): Promise<string> {
    return (await this.send(["clusters", cluster, "jobs", job, what], "", {})).text();
  }

  async record(cluster: string, job: string): Promise<IRecord> {
    return (await this.json(["clusters", cluster, "jobs", job, "record"])) as IRecord;
  }

  async report(cluster: string, job: string): Promise<IReport> {
    return (await this.json(["clusters", cluster, "jobs", job, "report"])) as IReport;
  }

  async usage(cluster: string, job: string): Promise<IUsage> {
    return (await this.json(["clusters", cluster, "jobs", job, "usage"])) as IUsage;
  }

  async tasks(cluster: string, job: string): Promise<ITasks> {
    const path = ["clusters", cluster, "jobs", job, "tasks"];
    return (await this.json(path, "?parameters=true")) as ITasks;
  }

  async steps(cluster: string, job: string): Promise<IJob[]> {
    return (await this.json(["clusters", cluster, "jobs", job, "steps"])) as IJob[];
  }
}
