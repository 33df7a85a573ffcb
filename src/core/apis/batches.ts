/** Does work for each item, at most `atOnce` at a time, and returns the results in the order of the items. */
export async function inBatches<Item, Result>(
  items: readonly Item[],
  atOnce: number,
  work: (item: Item, index: number) => Promise<Result>,
): Promise<Result[]> {
  const results: Result[] = []
  for (let at = 0; at < items.length; at += atOnce) {
    const batch = items.slice(at, at + atOnce)
    results.push(...(await Promise.all(batch.map((item, index) => work(item, at + index)))))
  }
  return results
}
