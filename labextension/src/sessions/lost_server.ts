/** The server between a page and its session, where it does not answer: what answers instead. No DOM. */

/**
 * What answers at the address of a session: the session; the server, which does not know the ticket of this page any
 * more or whose session has ended; another program, such as a hub or a proxy; or nothing.
 */
export type Answerer = "session" | "unknown-page" | "ended" | "other" | "none";

/** Limit of a request, in milliseconds: one that hangs must not end all later ones. */
const MAX_WAIT_MS = 30_000;

/** Ask for an address of the session. A page in a sandbox cannot read the answers of other programs. */
export async function findAnswerer(url: string, request: typeof fetch): Promise<Answerer> {
  const ask = (mode: RequestMode): Promise<Response | null> =>
    request(url, { cache: "no-store", mode, signal: AbortSignal.timeout(MAX_WAIT_MS) }).catch(
      () => null,
    );
  const answer = await ask("cors");
  if (answer === null) {
    return (await ask("no-cors")) === null ? "none" : "other";
  }
  if (answer.redirected || answer.status === 424) {
    return "other"; // a login, or a hub
  }
  switch (answer.status) {
    case 403:
      return "unknown-page";
    case 404:
    case 410:
      return "ended";
    default:
      return "session";
  }
}

/** Whether an address is below that of a user's server of JupyterHub. */
export function isBehindHub(path: string): boolean {
  return /\/user\/[^/]+\/(?:[^/]+\/)?jupyter-slurm\//.test(path);
}

/**
 * Whether an address is that of a session's own port on this computer, without a server between. A Jupyter server or a hub
 * of this computer has the same host; it puts a ticket into the address.
 */
export function isLocalPort(hostname: string, path: string): boolean {
  const isLocal = hostname === "127.0.0.1" || /^\d{8}-\d{6}-[0-9a-f]+\.localhost$/.test(hostname);
  return isLocal && !/\/jupyter-slurm\/[0-9a-f-]+~/.test(path);
}
