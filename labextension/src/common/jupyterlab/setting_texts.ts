/** Texts of settings in the language of the user: JupyterLab itself searches them in its language packs only. */
import type { ISettingRegistry } from "@jupyterlab/settingregistry";

/** Texts of a schema of settings: its title and description, and the title and description of each setting. */
export interface ISettingTexts {
  readonly title: string;
  readonly description: string;
  readonly settings: Readonly<Record<string, readonly [string, string]>>;
}

/** Return the schema of settings with other texts. */
export function translatedSchema(
  schema: ISettingRegistry.ISchema,
  { title, description, settings }: ISettingTexts,
): ISettingRegistry.ISchema {
  const properties = { ...schema.properties };
  for (const [name, [label, help]] of Object.entries(settings)) {
    const known = properties[name];
    if (known !== undefined) {
      properties[name] = { ...known, title: label, description: help };
    }
  }
  return { ...schema, title, description, properties };
}

/** Load the settings of a plugin, shown with these texts; null: there are none. */
export async function loadSettings(
  registry: ISettingRegistry | null,
  plugin: string,
  texts: ISettingTexts,
): Promise<ISettingRegistry.ISettings | null> {
  registry?.transform(plugin, {
    fetch: (found) => ({ ...found, schema: translatedSchema(found.schema, texts) }),
  });
  return (await registry?.load(plugin).catch(() => null)) ?? null;
}
