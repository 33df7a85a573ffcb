import { deflateRawSync, inflateRawSync } from "node:zlib"

/** Bytes of the dictionary: more than a usual object has, and few enough to load for each text. */
const DICTIONARY_BYTES = 8 * 1024

const WINDOW = { windowBits: 13 } as const

/**
 * Sizes of the buffers for results, bytes: more than a usual packed text and a usual text have. Node.js' own are 16 KiB,
 * and to allocate and collect one for each text took longer than the compression.
 */
const PACKING = { ...WINDOW, level: 3, memLevel: 5, chunkSize: 1024 } as const
const UNPACKING = { ...WINDOW, chunkSize: 4096 } as const

/**
 * Compresses texts that are alike, each on its own. The first text is the dictionary of all others, so a text costs
 * little more than its difference to that one. A packed text is a string with a byte in each character: V8 stores it with
 * 16 bytes more, a Buffer takes over 100.
 */
export class PackedTexts {
  #dictionary: Buffer | undefined

  pack(text: string): string {
    const bytes = Buffer.from(text)
    this.#dictionary ??= Buffer.from(bytes.subarray(-DICTIONARY_BYTES))
    return deflateRawSync(bytes, { ...PACKING, dictionary: this.#dictionary }).toString("latin1")
  }

  unpack(packed: string): string {
    const dictionary = this.#dictionary
    return inflateRawSync(Buffer.from(packed, "latin1"), { ...UNPACKING, ...(dictionary && { dictionary }) }).toString()
  }
}
