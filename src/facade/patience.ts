/** Waits for a cache, but not for ever: what was written is written, whatever the watch says. */
export async function withPatience(milliseconds: number, wait: (signal: AbortSignal) => Promise<void>): Promise<void> {
  const patience = AbortSignal.timeout(milliseconds)
  await wait(patience).catch((error: unknown) => {
    if (!patience.aborted) throw error
  })
}
