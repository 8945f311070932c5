/** Periodic redraw of components that show running times. */
import * as React from "react";

/** Time between two redraws, in milliseconds. */
const REDRAW_INTERVAL_MS = 10_000;

/** Redraw the component periodically while it is shown. */
export function usePeriodicRedraw(): void {
  const [, tick] = React.useReducer((count: number) => count + 1, 0);
  React.useEffect(() => {
    const timer = setInterval(tick, REDRAW_INTERVAL_MS);
    return () => {
      clearInterval(timer);
    };
  }, []);
}
