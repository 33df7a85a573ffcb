/** Runs all tasks, `width` at a time. Then throws the first error, if there was one. */
export async function inParallel(tasks: readonly (() => Promise<unknown>)[], width: number): Promise<void> {
  const left = [...tasks]
  const errors: unknown[] = []
  const worker = async (): Promise<void> => {
    for (let task = left.shift(); task !== undefined; task = left.shift()) {
      await task().catch((error: unknown) => errors.push(error))
    }
  }
  await Promise.all(Array.from({ length: width }, worker))
  if (errors.length > 0) throw errors[0]
}
