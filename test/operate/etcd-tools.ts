import { mkdir, rm, symlink } from "node:fs/promises"
import { join } from "node:path"
import { type GoProgram, goProgram } from "../go-program.ts"

/** etcd's own `etcdctl` and `etcdutl`, built as one program. */
export const ETCD_TOOLS: GoProgram = { name: "etcd-tools", folder: join(import.meta.dirname, "etcd-tools") }

/** Puts both programs into a folder for PATH. */
export async function linkEtcdTools(folder: string): Promise<void> {
  const program = await goProgram(ETCD_TOOLS)
  await mkdir(folder, { recursive: true })
  for (const name of ["etcdctl", "etcdutl"]) {
    await rm(join(folder, name), { force: true })
    await symlink(program, join(folder, name))
  }
}
