import { request } from "undici"
import { createDispatcher } from "../../core/apis/dispatcher.ts"
import { answeredOperator, newNonce, OWNER_PATH, questionToken } from "../../core/identity/gateway-owner.ts"
import { GATEWAY_PATH } from "../../core/protocol/protocol.ts"

/** Time that a gateway has to answer, seconds. It is the longest delay of a new leader. */
const ANSWER_SECONDS = 3

/** Largest answer that is read, bytes. */
const ANSWER_BYTES = 16 * 1024

/**
 * Asks a gateway which operator leads in its cluster. Returns undefined without a valid answer, such as of a gateway of
 * another installation.
 */
export async function askGateway(url: string, key: Uint8Array, signal: AbortSignal): Promise<string | undefined> {
  const nonce = newNonce()
  // A connection of its own: the name may lead to another cluster since the last question.
  const dispatcher = createDispatcher({ connect: { timeout: ANSWER_SECONDS * 1000 }, maxResponseSize: ANSWER_BYTES })
  try {
    const { statusCode, body } = await request(
      `${url.replace(/\/+$/, "")}${GATEWAY_PATH}${OWNER_PATH}?nonce=${nonce}`,
      {
        dispatcher,
        headers: { authorization: `Bearer ${questionToken(key, nonce)}` },
        signal: AbortSignal.any([signal, AbortSignal.timeout(ANSWER_SECONDS * 1000)]),
      },
    )
    return statusCode === 200 ? answeredOperator(key, nonce, JSON.parse(await body.text())) : undefined
  } catch {
    // Any failure means the same: this gateway proves nothing.
    return undefined
  } finally {
    await dispatcher.destroy()
  }
}
