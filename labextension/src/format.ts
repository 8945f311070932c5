/** Durations for people. */

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
