/**
 * Returns why the contents of an account are incomplete: the message, or else the reason, of the first connection in the
 * header Berth-Partial-Result (RFC 9651). Undefined: they are complete.
 */
export function whyPartial(header: string | null): string | undefined {
  if (header === null) return undefined
  const given = [...header.matchAll(/;(reason|message)="((?:[^"\\]|\\.)*)"/g)]
  const texts = new Map(given.reverse().map(([, name, text = ""]) => [name, text.replace(/\\(.)/g, "$1")]))
  return texts.get("message") ?? texts.get("reason") ?? "unknown"
}
