/** Periodic redraw of components that show running times. */
import * as React from "react";

/** Time between two redraws, in milliseconds. */
const REDRAW_INTERVAL_MS = 10_000;

/** Redraw the component periodically while it is shown; return the number of these redraws. */
export function usePeriodicRedraw(): number {
  const [count, tick] = React.useReducer((before: number) => before + 1, 0);
  React.useEffect(() => {
    const timer = setInterval(tick, REDRAW_INTERVAL_MS);
    return () => {
      clearInterval(timer);
    };
  }, []);
  return count;
}
