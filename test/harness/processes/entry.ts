/** Returns the configuration that a test passes to a process of its own: JSON, its one argument. */
export function configuration<Config>(): Config {
  return JSON.parse(process.argv[2] ?? "") as Config
}

/** Prints the line that reports the program as ready. */
export function ready(facts: object): void {
  process.stdout.write(`READY ${JSON.stringify(facts)}\n`)
}

/**
 * Returns a signal that SIGTERM aborts. The end of the test process aborts it, too, because that process holds the
 * other end of standard input.
 */
export function stopSignal(): AbortSignal {
  const stop = new AbortController()
  const abort = (): void => stop.abort()
  process.once("SIGTERM", abort)
  process.stdin.once("close", abort).resume()
  stop.signal.addEventListener("abort", () => process.stdin.destroy(), { once: true })
  return stop.signal
}
