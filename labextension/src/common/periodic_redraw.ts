/** Times that go on are drawn again from time to time. */
import * as React from "react";

/** How often, in milliseconds. */
const TICK = 10_000;

/** Draw the component again, as long as it is shown. */
export function useTick(): void {
  const [, tick] = React.useReducer((count: number) => count + 1, 0);
  React.useEffect(() => {
    const timer = setInterval(tick, TICK);
    return () => {
      clearInterval(timer);
    };
  }, []);
}
