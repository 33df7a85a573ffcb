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
 * Starts a server of Google Cloud Storage's JSON API, in memory . It checks no tokens and puts every bucket into US-CENTRAL1.
 */
export async function startFakeGcs(): Promise<TiedProcess> {
  const program = await goProgram(FAKE_GCS)
  for (;;) {
    // Of port 0 it does not tell which one it got.
    const port = String(await freePort())
    const args = ["-scheme", "http", "-host", "127.0.0.1", "-port", port, "-backend", "memory"]
    try {
      return await startTied(program, args, { ready: /server started at (http:[^" ]+)/ })
    } catch (error) {
      // Somebody has taken the port in between.
      if (!String(error).includes("address already in use")) throw error
    }
  }
}
