import { readFile, rename, writeFile } from "node:fs/promises"
import { dump } from "js-yaml"
import type { Pki } from "./pki.ts"

/** Writes a complete kubeconfig (certificates embedded), readable by its owner only, by one rename. */
export async function writeKubeconfig(path: string, url: string, pki: Pki, user: KubeconfigUser): Promise<void> {
  const base64 = async (file: string) => (await readFile(file)).toString("base64")
  const config = {
    apiVersion: "v1",
    kind: "Config",
    clusters: [
      { name: "berth", cluster: { server: url, "certificate-authority-data": await base64(pki.clusterAuthority) } },
    ],
    users: [
      {
        name: user,
        user: {
          "client-certificate-data": await base64(pki.certificate(user)),
          "client-key-data": await base64(pki.key(user)),
        },
      },
    ],
    contexts: [{ name: "berth", context: { cluster: "berth", user } }],
    "current-context": "berth",
  }
  const draft = `${path}.draft`
  await writeFile(draft, dump(config, { lineWidth: -1 }), { mode: 0o600 })
  await rename(draft, path)
}

export type KubeconfigUser = "admin" | "kube-controller-manager"
