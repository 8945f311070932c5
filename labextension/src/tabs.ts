/** What tabs on the same server agree on: which of them tells of a change. */

/** What the claims take from their surroundings; tests pass their own. */
export interface IClaimOptions {
  /** What tabs have in common; some browsers throw already when it is asked for. */
  readonly storage: () => Pick<Storage, "getItem" | "setItem">;
  /** Web Locks; browsers have none where the page comes by plain HTTP from another machine. */
  readonly locks: Pick<LockManager, "request"> | null;
  readonly clock?: () => number;
}

/** How long it is remembered that something was told, in milliseconds; and of how many things. */
const REMEMBERED = 24 * 3600 * 1000;
const MOST = 2_000;

/**
 * Return what claims changes for this tab: of some keys those that no tab has claimed before, each once.
 *
 * @param name - The same in tabs that show the same jobs.
 */
export function claims(
  name: string,
  { storage, locks, clock = Date.now }: IClaimOptions,
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
  return async (keys) => {
    try {
      return locks === null ? take(keys) : await locks.request(name, () => take(keys));
    } catch {
      return take(keys); // a page in a frame of its own may have no locks: twice is better than not at all
    }
  };
}
