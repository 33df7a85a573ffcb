import { createHash } from "node:crypto"
import { adjectives, nouns } from "human-id"

/** Characters of a name's random part: no vowels, so that no words come about. */
const SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
const SUFFIX_LENGTH = 8
const NUMBERS = 10_000

/**
 * A name made from a seed, the same for the same seed: `<prefix>-<random>` or `word-word-number`. Every word is a
 * DNS label, and the random part never has the 12 characters that would make it look like a UUID's end.
 */
export function generatedName(seed: string, prefix?: string): string {
  const bytes = createHash("sha256").update(seed).digest()
  if (prefix !== undefined) {
    const suffix = Array.from(bytes.subarray(0, SUFFIX_LENGTH), (byte) => pick(SUFFIX_ALPHABET, byte))
    return `${prefix}-${suffix.join("")}`
  }
  const [adjective, noun, number] = [bytes.readUInt32BE(0), bytes.readUInt32BE(4), bytes.readUInt32BE(8)]
  return `${pick(adjectives, adjective)}-${pick(nouns, noun)}-${number % NUMBERS}`
}

function pick(from: string | readonly string[], number: number): string {
  return from[number % from.length] ?? ""
}
