export function generateApiTypes(): Promise<string>;
export function readApiTypes(): Promise<string>;
