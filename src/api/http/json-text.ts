// Separate from json.ts to avoid an import cycle: its parser throws problems, and problems are sent with jsonText.

/** Returns the value as JSON with a newline at its end, so that a terminal's prompt starts on a new line. */
export function jsonText(value: unknown): string {
  return `${JSON.stringify(value)}\n`
}
