/**
 * Types of the objects of the API of the agent, generated from openapi.yaml: `npm run api-types` writes them, and a test
 * compares them with the file.
 */
import { readFile, writeFile } from "node:fs/promises";
import process from "node:process";
import { fileURLToPath, URL } from "node:url";

import { load } from "js-yaml";
import openapiTS, { astToString } from "openapi-typescript";

const DOCUMENT = new URL("../jupyter_slurm/agent/openapi.yaml", import.meta.url);
const API_TYPES = new URL("src/common/api/schema_types.ts", import.meta.url);

const HEADER = `/**
 * Types of the objects of the API of the agent. Generated from jupyter_slurm/agent/openapi.yaml by \`npm run api-types\`:
 * changes by hand are lost.
 */
`;

/** Return the text of the generated module. */
export async function generateApiTypes() {
  // Of keys that stand twice the last one counts, as for the agent; openapi-typescript's own parser refuses them.
  const { openapi, info, components } = load(await readFile(DOCUMENT, "utf8"), { json: true });
  const schemas = { openapi, info, paths: {}, components: { schemas: components.schemas } };
  const types = astToString(
    await openapiTS(schemas, {
      immutable: true,
      defaultNonNullable: false,
      emptyObjectsUnknown: true,
      silent: true,
    }),
  );
  const start = types.indexOf("export interface components");
  return HEADER + types.slice(start, types.indexOf("export type $defs"));
}

/** Return the text of the module as it is in the sources. */
export function readApiTypes() {
  return readFile(API_TYPES, "utf8");
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await writeFile(API_TYPES, await generateApiTypes());
}
