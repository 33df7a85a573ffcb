// Apart from json.ts: its parser throws problems, and problems are sent by this.

/** Returns the value as JSON that ends with a newline, so that a terminal's prompt starts on a line of its own. */
export function jsonText(value: unknown): string {
  return `${JSON.stringify(value)}\n`
}
