/** Durations and sizes as text. */

/**
 * Return a duration as Slurm writes it: `M:SS`, `H:MM:SS` or `D-HH:MM:SS`.
 *
 * @param seconds - A negative one (clocks that differ) counts as zero.
 */
export function formatDuration(seconds: number): string {
  const total = Math.max(0, Math.floor(seconds));
  const two = (n: number): string => String(n).padStart(2, "0");
  const [days, hours, minutes] = [
    Math.floor(total / 86400),
    Math.floor(total / 3600) % 24,
    Math.floor(total / 60) % 60,
  ];
  const tail = two(total % 60);
  if (days > 0) {
    return `${days}-${two(hours)}:${two(minutes)}:${tail}`;
  }
  return hours > 0 ? `${hours}:${two(minutes)}:${tail}` : `${minutes}:${tail}`;
}

/**
 * Return the seconds of a time limit in any of Slurm's forms: minutes, `M:SS`, `H:MM:SS`, `D-H`, `D-H:MM`, `D-H:MM:SS`; null
 * where it is none of them, or has no end.
 */
export function parseTimeLimit(text: string): number | null {
  const found = /^(?:(\d{1,6})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?$/.exec(text.trim());
  if (found === null) {
    return null;
  }
  const [days, first, second, third] = found.slice(1).map((part: string | undefined) => part);
  const number = (part: string | undefined): number => Number(part ?? 0);
  if (days !== undefined) {
    return ((number(days) * 24 + number(first)) * 60 + number(second)) * 60 + number(third);
  }
  return third === undefined
    ? number(first) * 60 + number(second)
    : (number(first) * 60 + number(second)) * 60 + number(third);
}

/** Return a number of bytes with a binary unit. */
export function formatSize(count: number): string {
  for (const [unit, size] of [
    ["GiB", 2 ** 30],
    ["MiB", 2 ** 20],
  ] as const) {
    if (count >= size) {
      return `${(count / size).toFixed(1)} ${unit}`;
    }
  }
  return `${Math.round(count / 1024)} KiB`;
}
