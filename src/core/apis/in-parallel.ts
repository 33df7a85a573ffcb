/**
 * Does work for each item, at most `width` at a time. Returns the results in the order of the items. After an error the
 * other items are still worked on; then the first error is thrown.
 */
export async function inParallel<Item, Result>(
  items: readonly Item[],
  width: number,
  work: (item: Item, index: number) => Promise<Result>,
): Promise<Result[]> {
  const results: Result[] = []
  const errors: unknown[] = []
  const left = items.entries()
  const worker = async (): Promise<void> => {
    for (const [index, item] of left) {
      try {
        results[index] = await work(item, index)
      } catch (error) {
        errors.push(error)
      }
    }
  }
  await Promise.all(Array.from({ length: width }, worker))
  if (errors.length > 0) throw errors[0]
  return results
}
