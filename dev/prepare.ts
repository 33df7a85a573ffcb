import type { Terminal } from "./bootstrap/terminal.mjs"
import { findBinaries } from "./controlplane/binaries.ts"
import type { Binaries } from "./controlplane/programs.ts"
import type { LocalOptions } from "./options.ts"
import { type ChosenRuntime, chooseRuntime } from "./runtime.ts"
import { readSamples } from "./samples.ts"
import { unlessAborted } from "./unless-aborted.ts"

/** Preconditions of a stack. */
export interface Prepared {
  binaries: Binaries
  runtime: ChosenRuntime
}

/**
 * Obtains the servers' programs, and chooses what runs the jobs, with the samples' images. Takes minutes at first use,
 * and shows its progress. Throws as `findBinaries` and `chooseRuntime` do, and the signal's reason.
 */
export async function prepare(options: LocalOptions, terminal: Terminal, signal: AbortSignal): Promise<Prepared> {
  const { assetsDir, cacheDir } = options
  const report = (line: string) => terminal.line(line)
  const progress = terminal.progress.bind(terminal)
  try {
    const binaries = await findBinaries({ assetsDir, cacheDir, report, progress, signal })
    terminal.clear()
    const samples = await readSamples()
    const runtime = await unlessAborted(chooseRuntime(options, samples.images(), report), signal)
    return { binaries, runtime }
  } finally {
    terminal.clear()
  }
}
