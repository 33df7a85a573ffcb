import { freePort } from "../dev/controlplane/ports.ts"
import { type GoProgram, goProgram } from "./go-program.ts"
import { startTied, type TiedProcess } from "./tied-process.ts"

/** A server of Google Cloud Storage: https://github.com/fsouza/fake-gcs-server */
export const FAKE_GCS: GoProgram = {
  name: "fake-gcs-server",
  package: "github.com/fsouza/fake-gcs-server",
  version: "v1.56.1",
}

/**
 * Starts an in-memory server of Google Cloud Storage's JSON API. It checks no tokens and puts every bucket into
 * US-CENTRAL1.
 */
export async function startFakeGcs(): Promise<TiedProcess> {
  const program = await goProgram(FAKE_GCS)
  for (;;) {
    // With port 0, the server doesn't print the port that it got.
    const port = String(await freePort())
    const args = ["-scheme", "http", "-host", "127.0.0.1", "-port", port, "-backend", "memory"]
    try {
      return await startTied(program, args, { ready: /server started at (http:[^" ]+)/ })
    } catch (error) {
      // Another process has taken the port meanwhile.
      if (!String(error).includes("address already in use")) throw error
    }
  }
}
