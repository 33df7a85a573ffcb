const OR = new Intl.ListFormat("en-GB", { type: "disjunction" })

/** Returns words for a sentence, such as `aws, gcp or azure`. */
export function joinWithOr(words: readonly string[]): string {
  return OR.format(words)
}
