import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { buildImage, docker, librariesOf } from "../agent/images.ts"

const ROOT = join(import.meta.dirname, "..", "..")
const NODE = join(ROOT, "node_modules", "node", "bin", "node")

/** Image of operator and façade. */
export interface Image {
  /** The chart's values `image`. */
  values: { repository: string } & ({ tag: string } | { digest: string })
  /** Further mounts of each container, `from:to:ro`. */
  binds: readonly string[]
}

/**
 * Returns an image in place of Berth's: this Node.js, and the sources as a mount. Builds it unless it exists, and keeps
 * it for the next run.
 */
export async function sourcesImage(): Promise<Image> {
  const values = { repository: "berth-test/nodejs", tag: process.versions.node }
  const image = { values, binds: [`${ROOT}:/berth:ro`] }
  const name = `${values.repository}:${values.tag}`
  if ((await docker.listImages({ filters: { reference: [name] } })).length > 0) return image
  await buildImage(name, {
    Dockerfile: ["FROM scratch", "COPY . /", 'ENTRYPOINT ["/nodejs/bin/node", "/berth/src/main.ts"]'].join("\n"),
    ".dockerignore": "Dockerfile\n.dockerignore\n",
    "nodejs/bin/node": await readFile(NODE),
    ...(await librariesOf(NODE)),
  })
  return image
}
