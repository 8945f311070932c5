/**
 * Coordination of tabs on the same server: which tab notifies of a change, and which tab listens while all are hidden.
 */

/** Dependencies of the claims; tests pass their own. */
export interface IClaimOptions {
  /** Storage that the tabs share; in some browsers already the access throws. */
  readonly storage: () => Pick<Storage, "getItem" | "setItem">;
  /** Web Locks; null where the page comes by plain HTTP from another computer: browsers have none then. */
  readonly locks: Pick<LockManager, "request"> | null;
  readonly clock?: () => number;
  readonly sleep?: (milliseconds: number) => Promise<void>;
}

/** Lifetime of a claim, in milliseconds; and the largest number of claims. */
const CLAIM_LIFETIME_MS = 24 * 3600 * 1000;
const MAX_CLAIMS = 2_000;
/** Time after which all other tabs see what one has written, in milliseconds. Each tab may be a process of its own. */
const CLAIM_VISIBLE_MS = 60_000;

/**
 * Return a function that claims changes for this tab: of its keys it returns those that no tab has claimed before.
 *
 * @param name - The same in tabs that show the same jobs.
 */
export function createClaim(
  name: string,
  { storage, locks, clock = Date.now, sleep = defaultSleep }: IClaimOptions,
): (keys: readonly string[]) => Promise<ReadonlySet<string>> {
  let ownClaims: Record<string, number> = {};
  const load = (): Record<string, number> => {
    try {
      const stored: unknown = JSON.parse(storage().getItem(name) ?? "{}");
      return typeof stored === "object" && stored !== null
        ? { ...ownClaims, ...stored }
        : ownClaims;
    } catch {
      return ownClaims; // without storage the other tabs are unknown
    }
  };
  const take = (keys: readonly string[]): ReadonlySet<string> => {
    const known = load();
    const claimed = new Set(keys.filter((key) => !Object.hasOwn(known, key)));
    const now = clock();
    const all = [...Object.entries(known), ...[...claimed].map((key) => [key, now] as const)];
    ownClaims = Object.fromEntries(
      all.filter(([, time]) => now - time < CLAIM_LIFETIME_MS).slice(-MAX_CLAIMS),
    );
    try {
      storage().setItem(name, JSON.stringify(ownClaims));
    } catch {
      // The storage is full or not accessible.
    }
    return claimed;
  };
  /** Whether no other tab claims the key at this moment: what that tab has written may not be visible yet. */
  const isFree = (key: string): Promise<boolean> =>
    new Promise((resolve, reject) => {
      const hold = (lock: Lock | null): Promise<void> => {
        resolve(lock !== null);
        return lock === null ? Promise.resolve() : sleep(CLAIM_VISIBLE_MS);
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
      return take(keys); // a page in a frame of its own may have no locks: two notifications are better than none
    }
  };
}

/**
 * Return a function that requests a turn, or gives the turn back, where one of all tabs is to do something.
 *
 * An open stream is one of the six connections that a browser has to a server, for all tabs together.
 *
 * @param name - The same in all tabs.
 * @param onTurn - Called when the turn of this tab begins and when it ends. When this tab closes, another one has its
 * turn.
 */
export function createTurnRequest(
  name: string,
  locks: IClaimOptions["locks"],
  onTurn: (isOurs: boolean) => void,
): (isWanted: boolean) => void {
  let wish: AbortController | null = null;
  return (isWanted) => {
    if (isWanted === (wish !== null)) {
      return;
    }
    if (!isWanted) {
      wish?.abort();
      wish = null;
      onTurn(false);
      return;
    }
    const { signal } = (wish = new AbortController());
    const begin = (): void => {
      if (!signal.aborted) {
        onTurn(true);
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
    locks.request(name, { signal }, hold).catch(begin); // a page in a frame of its own may have no locks
  };
}

function defaultSleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
