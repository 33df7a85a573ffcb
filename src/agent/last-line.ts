import { LIMITS } from "../core/apis/field-limits.ts"
import { shownLine } from "../core/apis/output.ts"
import type { RunOrder } from "../core/protocol/protocol.ts"
import type { Spool } from "./spool.ts"

/** End of the output in which the last line is looked for, bytes. The longest value of a variable fits twice. */
const WINDOW_BYTES = 256 * 1024

/** Replacement of a secret. */
const MASK = "***"

/** Stands for one character of a secret. Half of a surrogate pair is in no text that was decoded from UTF-8. */
const HIDDEN = "\ud800"
const HIDDEN_PARTS = /\ud800+/gu

/** Shortest secret that is replaced, characters. Of a shorter one, the gaps would say more than its text does. */
const SHORTEST_SECRET = 3

/** Names of rclone's options that hold credentials (https://rclone.org/overview/). */
const CREDENTIAL = /key|pass|token|secret|sas|credential/

/**
 * Returns the last line of an attempt's output that is not empty, as a terminal shows it, without the secrets of the order;
 * undefined if there is none.
 * @param start offset in the spool at which the attempt's output begins
 * @param env environment of the container. An order after a restart of the agent may have newer values.
 */
export async function readLastLine(
  spool: Pick<Spool, "start" | "length" | "read">,
  start: number,
  { order, env }: { order: RunOrder; env?: readonly string[] | undefined },
): Promise<string | undefined> {
  const first = Math.max(start, spool.start)
  const from = Math.max(first, spool.length - WINDOW_BYTES)
  const output = await spool.read(from, spool.length - from)
  return lastLine(output, { isCut: from > start, secrets: secretsOf(order, env) })
}

/**
 * Returns the last line of an output that is not empty, in at most LIMITS.lastLine bytes of JSON. The beginning of a longer line
 * is kept, because programs name the error there.
 * @param isCut true if the output has no beginning, so that half a secret may be there
 */
export function lastLine(
  output: Buffer,
  { isCut = false, secrets = [] }: { isCut?: boolean; secrets?: readonly string[] } = {},
): string | undefined {
  const lines = secrets.flatMap((secret) => secret.split(/[\r\n]+/).map((line) => line.trim()))
  const values = lines.filter((value) => value.length >= SHORTEST_SECRET)
  const unknown = isCut ? Math.max(1, ...values.map(({ length }) => length)) : 0
  // Before the text is rendered, because what overwrites a secret may leave a part of it. And after, for one in colors.
  const text = hide(output.toString(), values, unknown)
  const shownValues = values.map(shownLine).filter((value) => value.length >= SHORTEST_SECRET)
  for (let end = text.length; end >= 0; ) {
    const begin = end === 0 ? 0 : text.lastIndexOf("\n", end - 1) + 1
    const line = hide(shownLine(text.slice(begin, end)), shownValues).replaceAll(HIDDEN_PARTS, MASK)
    if (line !== "") return cutLine(line)
    end = begin - 1
  }
  return undefined
}

/** Returns the values that must not be shown: those of secretEnv, and the credentials of registry and buckets. */
function secretsOf({ secretEnv, registry, buckets = {} }: RunOrder, env: readonly string[] = []): string[] {
  const started = env.map((entry) => /^([^=]*)=(.*)$/s.exec(entry) ?? [])
  const access = Object.values(buckets).flatMap(({ keys = {}, remote }) => [
    ...Object.values(keys),
    ...Object.entries(remote).flatMap(([name, value]) => (CREDENTIAL.test(name) ? [value] : [])),
  ])
  return [
    ...Object.values(secretEnv),
    ...started.flatMap(([, name = "", value = ""]) => (Object.hasOwn(secretEnv, name) ? [value] : [])),
    ...[registry?.password, registry?.token].filter((value) => value !== undefined),
    ...access,
  ]
}

/** Replaces each character of all values, and the first `unknown` ones, by HIDDEN. */
function hide(text: string, values: readonly string[], unknown = 0): string {
  const ranges = unknown > 0 ? [{ start: 0, end: Math.min(unknown, text.length) }] : []
  for (const value of new Set(values)) {
    for (let at = text.indexOf(value); at >= 0; at = text.indexOf(value, at + 1)) {
      ranges.push({ start: at, end: at + value.length })
    }
  }
  let hidden = ""
  for (const { start, end } of ranges.sort((a, b) => a.start - b.start)) {
    if (start > hidden.length) hidden += text.slice(hidden.length, start)
    hidden += HIDDEN.repeat(Math.max(0, end - hidden.length))
  }
  return hidden + text.slice(hidden.length)
}

/** Cuts a line to LIMITS.lastLine bytes of JSON, the last character of them …. */
function cutLine(line: string): string {
  if (jsonBytes(line) <= LIMITS.lastLine) return line
  let cut = ""
  let bytes = jsonBytes("…")
  for (const character of line) {
    bytes += jsonBytes(character)
    if (bytes > LIMITS.lastLine) break
    cut += character
  }
  return `${cut}…`
}

/** Returns the bytes that a text takes in an object of the API server. */
function jsonBytes(text: string): number {
  return Buffer.byteLength(JSON.stringify(text)) - 2
}
