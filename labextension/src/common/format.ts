/** Durations, times and sizes as text, in the forms that Slurm and the Python side print, too. */

/**
 * Return a duration as Slurm writes it: `M:SS`, `H:MM:SS` or `D-HH:MM:SS`.
 *
 * @param seconds - A negative one (clocks that differ) counts as zero.
 */
export function formatDuration(seconds: number): string {
  const total = Math.max(0, Math.floor(seconds));
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

function two(count: number): string {
  return String(count).padStart(2, "0");
}

/** Return the time of day of a moment (seconds since the epoch), with 24 hours. */
export function formatClock(seconds: number): string {
  const time = new Date(seconds * 1000);
  return [time.getHours(), time.getMinutes(), time.getSeconds()].map(two).join(":");
}

/** Return the day and the time of a moment (seconds since the epoch): `2026-11-26 16:34:32`. */
export function formatTime(seconds: number): string {
  const time = new Date(seconds * 1000);
  const day = [time.getFullYear(), two(time.getMonth() + 1), two(time.getDate())].join("-");
  return `${day} ${formatClock(seconds)}`;
}

/** Return an estimated moment (seconds since the epoch) without its seconds, and without the day if that is today. */
export function formatMinute(seconds: number): string {
  const isToday = new Date(seconds * 1000).toDateString() === new Date().toDateString();
  return (isToday ? formatClock(seconds) : formatTime(seconds)).slice(0, -3);
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
    ["TiB", 2 ** 40],
    ["GiB", 2 ** 30],
    ["MiB", 2 ** 20],
  ] as const) {
    if (count >= size) {
      return `${(count / size).toFixed(1)} ${unit}`;
    }
  }
  return count < 1024 ? `${count} B` : `${Math.round(count / 1024)} KiB`;
}
