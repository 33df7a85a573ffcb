import { readFileSync } from "node:fs"
import { brotliDecompressSync } from "node:zlib"
import { packageFile } from "../package.ts"
import { decode, type PriceList } from "./file.ts"

/** The price list that comes with this program, written by `scripts/catalogue.ts`. */
export const SHIPPED_FILE = packageFile("src", "catalogue", "data", "offers.br")

/** Reads a price list; some tens of milliseconds, so once at the start. @throws what the file system throws */
export function readPriceList(path: string = SHIPPED_FILE): PriceList {
  return decode(brotliDecompressSync(readFileSync(path)))
}
