import type { Objects } from "../../src/api/usage/objects.ts"

/** Objects in memory, whose writes can fail or be slow. */
export class MemoryObjects implements Objects {
  readonly kept = new Map<string, Uint8Array>()
  puts = 0
  fault: Error | undefined
  gate: Promise<void> | undefined

  async get(name: string) {
    return this.kept.get(name)
  }

  async put(name: string, bytes: Uint8Array) {
    this.puts++
    await this.gate
    if (this.fault !== undefined) throw this.fault
    this.kept.set(name, bytes)
  }

  async remove(name: string) {
    this.kept.delete(name)
  }

  async *names() {
    yield* this.kept.keys()
  }
}
