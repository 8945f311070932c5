import { describe, expect, it, vi } from "vitest";

import { findAnswerer, isLocalPort } from "../../src/sessions/lost_server";

const KEY = "20261122-050000-0011223344556677";

describe("The server between a page and its session", () => {
  it("is there at each address with a ticket, also on this computer", () => {
    for (const host of ["127.0.0.1", `${KEY}.localhost`, "hub.example.org"]) {
      expect(isLocalPort(host, `/user/ana/jupyter-slurm/${KEY}~T-x_1/lab`)).toBe(false);
    }
    for (const path of [`/user/ana/jupyter-slurm/${KEY}/lab/tree/a~b.ipynb`, "/lab"]) {
      expect(isLocalPort("127.0.0.1", path)).toBe(true);
      expect(isLocalPort(`${KEY}.localhost`, path)).toBe(true);
      expect(isLocalPort("hub.example.org", path)).toBe(false);
    }
  });

  it("is asked with a limit: a request that hangs does not end the later ones", async () => {
    const request = vi.fn<typeof fetch>(async () => Promise.reject(new TypeError("no")));
    expect(await findAnswerer("/user/ana/api/status", request)).toBe("none");
    expect(request.mock.calls.map(([, init]) => init?.mode)).toEqual(["cors", "no-cors"]);
    for (const [, init] of request.mock.calls) {
      expect(init?.signal).toBeInstanceOf(AbortSignal);
    }
  });
});
