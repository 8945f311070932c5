import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    environment: "jsdom",
    testTimeout: 60_000, // beside other checks
    setupFiles: "test/setup.ts",
    include: ["test/**/*.test.ts", "test/**/*.test.tsx"],
    // JupyterLab's packages import each other without file endings, which Node alone refuses.
    server: { deps: { inline: [/@jupyterlab/, /@jupyter\//, /@lumino/] } },
  },
});
