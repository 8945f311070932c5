/** Times at which the agent has read the queue of each cluster. No DOM. */
import type { ICluster } from "../common/api/objects";
import { isUnknown } from "../common/api/records";

/** Remembers when the queue of each cluster was last read, in seconds since the epoch, on the clock of this page. */
export class PollTimes {
  private readonly _times = new Map<string, number>();

  constructor(private readonly _clock: () => number) {}

  /** Note the time of the last poll of a cluster. */
  readonly note = ({ id, poll }: ICluster): void => {
    const age = poll.error === null ? poll.seconds_since : poll.failing_for;
    if (age !== undefined && age !== null) {
      this._times.set(id, this._clock() - age);
    }
  };

  /** Return the oldest time of the clusters that jobs are known of; null if one was not read yet. */
  oldest(clusters: Iterable<ICluster>): number | null {
    const times = [...clusters]
      .filter((cluster) => !isUnknown(cluster))
      .map(({ id }) => this._times.get(id));
    return times.length === 0 || times.includes(undefined)
      ? null
      : Math.min(...(times as number[]));
  }
}
