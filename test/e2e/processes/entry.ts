/** The configuration that a test hands to a program of its own: JSON, its one argument. */
export function configuration<Config>(): Config {
  return JSON.parse(process.argv[2] ?? "") as Config
}

/** Says that the program is up. */
export function ready(facts: object): void {
  process.stdout.write(`READY ${JSON.stringify(facts)}\n`)
}

/** Aborted by SIGTERM, and when the test process is gone, however it ended: it holds the other end of standard input. */
export function stopSignal(): AbortSignal {
  const stop = new AbortController()
  const abort = (): void => stop.abort()
  process.once("SIGTERM", abort)
  process.stdin.once("close", abort).resume()
  stop.signal.addEventListener("abort", () => process.stdin.destroy(), { once: true })
  return stop.signal
}
