/** What tabs on the same server agree on: which of them tells of a change, and which one listens while none is seen. */

/** What the claims take from their surroundings; tests pass their own. */
export interface IClaimOptions {
  /** What tabs have in common; some browsers throw already when it is asked for. */
  readonly storage: () => Pick<Storage, "getItem" | "setItem">;
  /** Web Locks; browsers have none where the page comes by plain HTTP from another machine. */
  readonly locks: Pick<LockManager, "request"> | null;
  readonly clock?: () => number;
  readonly sleep?: (milliseconds: number) => Promise<void>;
}

/** How long it is remembered that something was told, in milliseconds; and of how many things. */
const REMEMBERED = 24 * 3600 * 1000;
const MOST = 2_000;
/** In this time what a tab has written is known to all others, each of which may be a process, in milliseconds. */
const WRITTEN = 60_000;

/**
 * Return what claims changes for this tab: of some keys those that no tab has claimed before, each once.
 *
 * @param name - The same in tabs that show the same jobs.
 */
export function claims(
  name: string,
  { storage, locks, clock = Date.now, sleep = defaultSleep }: IClaimOptions,
): (keys: readonly string[]) => Promise<ReadonlySet<string>> {
  let here: Record<string, number> = {};
  const load = (): Record<string, number> => {
    try {
      const told: unknown = JSON.parse(storage().getItem(name) ?? "{}");
      return typeof told === "object" && told !== null ? { ...here, ...told } : here;
    } catch {
      return here; // the browser keeps nothing for this page: other tabs are not known then
    }
  };
  const take = (keys: readonly string[]): ReadonlySet<string> => {
    const told = load();
    const ours = new Set(keys.filter((key) => !Object.hasOwn(told, key)));
    const now = clock();
    const all = [...Object.entries(told), ...[...ours].map((key) => [key, now] as const)];
    here = Object.fromEntries(all.filter(([, time]) => now - time < REMEMBERED).slice(-MOST));
    try {
      storage().setItem(name, JSON.stringify(here));
    } catch {
      // It is full, or not ours.
    }
    return ours;
  };
  /** Whether no other tab tells of it just now: of what that has written, this one may not have heard yet. */
  const isFree = (key: string): Promise<boolean> =>
    new Promise((resolve, reject) => {
      const hold = (lock: Lock | null): Promise<void> => {
        resolve(lock !== null);
        return lock === null ? Promise.resolve() : sleep(WRITTEN);
      };
      locks?.request(`${name}:${key}`, { ifAvailable: true }, hold).catch(reject);
    });
  return async (keys) => {
    if (locks === null) {
      return take(keys);
    }
    try {
      const free = await Promise.all(keys.map(isFree));
      return await locks.request(name, () => take(keys.filter((_, at) => free[at])));
    } catch {
      return take(keys); // a page in a frame of its own may have no locks: twice is better than not at all
    }
  };
}

/**
 * Return what says whether this tab wants to do something that one of all tabs is to do.
 *
 * A stream that is open is one of the six connections that a browser has to a server, for all tabs together.
 *
 * @param name - The same in all of them.
 * @param told - Is told when it is this tab's turn, and when that is over; another one has its turn when this one goes.
 */
export function turns(
  name: string,
  locks: IClaimOptions["locks"],
  told: (isOurs: boolean) => void,
): (isWanted: boolean) => void {
  let wish: AbortController | null = null;
  return (isWanted) => {
    if (isWanted === (wish !== null)) {
      return;
    }
    if (!isWanted) {
      wish?.abort();
      wish = null;
      told(false);
      return;
    }
    const { signal } = (wish = new AbortController());
    const begin = (): void => {
      if (!signal.aborted) {
        told(true);
      }
    };
    if (locks === null) {
      begin();
      return;
    }
    const hold = (): Promise<void> =>
      new Promise((resolve) => {
        signal.addEventListener("abort", () => {
          resolve();
        });
        begin();
      });
    locks.request(name, { signal }, hold).catch(begin); // as above
  };
}

function defaultSleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
