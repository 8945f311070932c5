/** Cards of jobs that the user sees in this window, so that no notification is needed. */
import type { IJob } from "../common/api/objects";

/** Time for which a visible card may still show the state before, in milliseconds. */
const CARD_LAG_MS = 5_000;
const CARD_POLL_MS = 500;

/** Whether an element is on the screen, not scrolled away and not in a hidden tab. */
function isOnScreen(element: Element): Promise<boolean> {
  return new Promise((resolve) => {
    const observer = new IntersectionObserver((entries) => {
      observer.disconnect();
      resolve(entries.some(({ isIntersecting }) => isIntersecting));
    });
    observer.observe(element);
  });
}

/** Whether the card of a job below a cell is on the screen and shows its state, which may take a moment. */
export async function isCardVisible({ cluster, key, state }: IJob): Promise<boolean> {
  if (key === null) {
    return false;
  }
  const selector = `.jupyter-slurm-job[data-job="${CSS.escape(`${cluster}/${key}`)}"]`;
  const cards = [...document.querySelectorAll<HTMLElement>(selector)];
  const isShown = await Promise.all(cards.map(isOnScreen));
  if (!isShown.includes(true)) {
    return false;
  }
  for (let waited = 0; waited < CARD_LAG_MS; waited += CARD_POLL_MS) {
    const current = [...document.querySelectorAll<HTMLElement>(selector)];
    if (current.some((card) => card.dataset["state"] === state)) {
      return true;
    }
    await new Promise((resolve) => setTimeout(resolve, CARD_POLL_MS));
  }
  return false; // the kernel of the notebook is gone, or works: its card is the last picture
}
