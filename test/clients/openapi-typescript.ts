import { join } from "node:path"
import { cached, runLogged } from "../cached.ts"

/** The generator needs TypeScript 5, whose compiler is a library; the repository has a newer one. */
const PACKAGES = ["openapi-typescript@7.13.0", "typescript@5.9.3"]

/** Installs https://openapi-ts.dev once into the cache directory. @returns the folder with its programs */
export async function openApiTypeScript(): Promise<string> {
  const proof = join("node_modules", "openapi-typescript", "bin", "cli.js")
  const make = async (directory: string): Promise<void> => {
    const flags = ["--no-audit", "--no-fund", "--ignore-scripts"]
    await runLogged("npm", ["install", "--prefix", directory, ...flags, ...PACKAGES], () => undefined)
  }
  const name = PACKAGES.join("-").replaceAll("@", "-")
  return join(await cached({ name, proof, make }), "node_modules")
}
