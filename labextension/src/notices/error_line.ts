/** The last line of the error of a failed job, for its notification. */
import type { IJob } from "../common/api/objects";
import { referenceOf } from "../common/api/records";
import { withoutControls } from "../common/labels";
import { parseLines } from "../common/terminal_text";

/** Reads the output of jobs. */
export interface IOutputApi {
  reader(
    cluster: string,
    job: string,
    stream: "stdout" | "stderr",
  ): (offset: number, limit: number) => Promise<{ data: Uint8Array }>;
}

/** Bytes at the end of a stream in which the line is sought. */
const TAIL_BYTES = 4_096;
/** Longest wait for the output, in milliseconds: the notification does not wait for a slow file system. */
const MAX_WAIT_MS = 15_000;
/** Characters of the line: JupyterLab shortens notifications at 140. */
const MAX_CHARS = 90;
/** Lines of Slurm itself, which follow the error of a job. Since 26.05 those of slurmstepd begin with the time. */
const SLURM_LINE = /^(?:(?:srun|slurmstepd|slurmd)\b.*?: |\[\d{4}-\d\d-\d\dT[\d:.]+\] error: )/;

/** Return the last line that tells of an error: none of Slurm's own unless there is no other. */
export function lastErrorLine(output: string): string {
  const lines = parseLines(output, "")
    .lines.map(({ text }) => withoutControls(text).trim())
    .filter((text) => text !== "");
  const line = lines.filter((text) => !SLURM_LINE.test(text)).at(-1) ?? lines.at(-1) ?? "";
  const characters = Array.from(line); // one may have two code units
  return characters.length > MAX_CHARS ? `${characters.slice(0, MAX_CHARS).join("")}…` : line;
}

async function readError(api: IOutputApi, job: IJob): Promise<string> {
  const reference = referenceOf(job) ?? "";
  for (const stream of ["stderr", "stdout"] as const) {
    const read = api.reader(job.cluster, reference, stream);
    const { data } = await read(-TAIL_BYTES, TAIL_BYTES);
    const line = lastErrorLine(new TextDecoder().decode(data));
    if (line !== "") {
      return line;
    }
  }
  return "";
}

/** Return the last line of the error of a job; empty where it is not known in time, or each task has its own. */
export async function errorLine(api: IOutputApi, job: IJob): Promise<string> {
  const isOneOutput = job.state === "FAILED" && !job.tasks && !job.session && !job.kernel;
  const late = new Promise<string>((resolve) => {
    setTimeout(resolve, MAX_WAIT_MS, "");
  });
  return isOneOutput ? Promise.race([readError(api, job).catch(() => ""), late]) : "";
}
