import { request } from "undici"
import { createDispatcher } from "../../core/apis/dispatcher.ts"
import type { StoredJob } from "../../core/apis/job.ts"
import { originalUidOf } from "../../core/apis/origin.ts"
import { OUTPUT_PATH, outputToken } from "../../core/protocol/output.ts"
import { GATEWAY_PATH } from "../../core/protocol/protocol.ts"

/** Time that a gateway has to answer, seconds. */
const ANSWER_SECONDS = 5

/** Largest answer that is read, bytes: the tail in JSON, where a character may take six. */
const ANSWER_BYTES = 16 * 1024

/** Reads the tail of a job's log. Rejects if no gateway gives it. */
export type ReadOutput = (job: StoredJob, signal: AbortSignal) => Promise<string>

/** Returns a reader that asks the gateway, because only the façade has the store of logs. */
export function gatewayOutput(url: string, key: Uint8Array): ReadOutput {
  return async (job, signal) => {
    const question = { namespace: job.metadata.namespace ?? "", uid: originalUidOf(job) }
    const dispatcher = createDispatcher({ connect: { timeout: ANSWER_SECONDS * 1000 }, maxResponseSize: ANSWER_BYTES })
    try {
      const address = `${url.replace(/\/+$/, "")}${GATEWAY_PATH}${OUTPUT_PATH}?${new URLSearchParams({ ...question })}`
      const { statusCode, body } = await request(address, {
        dispatcher,
        headers: { authorization: `Bearer ${outputToken(key, question)}` },
        signal: AbortSignal.any([signal, AbortSignal.timeout(ANSWER_SECONDS * 1000)]),
      })
      if (statusCode !== 200) throw new Error(`the gateway answered ${statusCode}`)
      const { output } = (await body.json()) as { output?: unknown }
      if (typeof output !== "string") throw new Error("the gateway's answer has no output")
      return output
    } finally {
      await dispatcher.destroy()
    }
  }
}
