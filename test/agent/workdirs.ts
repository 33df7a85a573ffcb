import { createHash } from "node:crypto"
import { buffer } from "node:stream/consumers"
import { gzipSync } from "node:zlib"
import { pack } from "tar-stream"
import type { TestGateway } from "../harness/gateway.ts"

type Header = Parameters<ReturnType<typeof pack>["entry"]>[0]

/** Returns an archive (tar.gz) with these entries. */
export async function archiveOf(...entries: [Header, (string | Uint8Array)?][]): Promise<Buffer> {
  const archive = pack()
  for (const [header, content] of entries) {
    if (content === undefined) archive.entry(header)
    else archive.entry(header, content)
  }
  archive.finalize()
  return gzipSync(await buffer(archive as unknown as NodeJS.ReadableStream), { level: 1 })
}

/** Stores an archive in the project of a namespace. Returns its hash. */
export async function store({ uploads }: TestGateway, namespace: string, archive: Buffer): Promise<string> {
  const sha256 = createHash("sha256").update(archive).digest("hex")
  async function* pieces() {
    yield archive
  }
  await uploads.write({ namespace, sha256 }, { bytes: archive.byteLength, pieces: pieces() })
  return sha256
}

/** Returns the number of times that agents asked for an archive. */
export function fetches({ answered }: TestGateway): number {
  return answered.filter(({ kind }) => kind === "workdir").length
}
