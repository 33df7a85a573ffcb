export function rendered(component: string, of: string, props: object): Promise<string>
