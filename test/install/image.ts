import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { buildImage, docker, librariesOf } from "../agent/images.ts"

const ROOT = join(import.meta.dirname, "..", "..")
const NODE = join(ROOT, "node_modules", "node", "bin", "node")

/** Image in place of Berth's: this Node.js, and the sources by `MOUNTS`. */
export interface Image {
  repository: string
  tag: string
}

/** Mounts of the sources, at their paths in Berth's image. */
export const MOUNTS = [`${ROOT}:/berth:ro`]

/** Builds the image unless it exists, and keeps it for the next run. */
export async function berthImage(): Promise<Image> {
  const image = { repository: "berth-test/nodejs", tag: process.versions.node }
  const name = `${image.repository}:${image.tag}`
  if ((await docker.listImages({ filters: { reference: [name] } })).length > 0) return image
  await buildImage(name, {
    Dockerfile: ["FROM scratch", "COPY . /", 'ENTRYPOINT ["/nodejs/bin/node", "/berth/src/main.ts"]'].join("\n"),
    ".dockerignore": "Dockerfile\n.dockerignore\n",
    "nodejs/bin/node": await readFile(NODE),
    ...(await librariesOf(NODE)),
  })
  return image
}
