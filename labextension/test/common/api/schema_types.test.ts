// @vitest-environment node
import { expect, it } from "vitest";

import { generateApiTypes, readApiTypes } from "../../../api_types.mjs";

it("has the types that are generated from openapi.yaml; if this fails, run `npm run api-types`", async () => {
  expect(await readApiTypes()).toBe(await generateApiTypes());
});
