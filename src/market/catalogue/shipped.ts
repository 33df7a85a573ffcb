import { readFileSync } from "node:fs"
import { brotliDecompressSync } from "node:zlib"
import { packageFile } from "../../core/package.ts"
import { decode, type PriceList } from "./file.ts"

/** Price list that this program contains. `scripts/catalogue.ts` writes it. */
export const SHIPPED_FILE = packageFile("src", "market", "catalogue", "data", "offers.br")

/**
 * Reads a price list. It takes tens of milliseconds, so read it once at the start. @throws the errors of the file
 * system
 */
export function readPriceList(path: string = SHIPPED_FILE): PriceList {
  return decode(brotliDecompressSync(readFileSync(path)))
}
