/** Opens something of several parts. If one of them fails, those that `open` gave to `closing` are closed again. */
export async function openWhole<T>(open: (closing: AsyncDisposableStack) => Promise<T>): Promise<T> {
  const closing = new AsyncDisposableStack()
  try {
    return await open(closing)
  } catch (error) {
    await closing.disposeAsync()
    throw error
  }
}
