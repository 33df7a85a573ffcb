import {
  type ClientRequest,
  type IncomingMessage,
  type OutgoingHttpHeaders,
  type RequestOptions,
  request,
  type ServerResponse,
} from "node:http"
import { type Duplex, pipeline } from "node:stream"
import { allowSeconds } from "../http/server.ts"

/** Time for the body of a request, seconds: that of a session. */
const BODY_SECONDS = 3600

export interface Exchange {
  req: IncomingMessage
  res: ServerResponse
  /** The request that is sent in its place. */
  options: RequestOptions
  /** Returns the headers of the response from those of the answer. */
  headersOf: (headers: IncomingMessage["headersDistinct"]) => OutgoingHttpHeaders
  /** Answers a request that got no answer. */
  onError: (error: Error) => void
}

/** Passes a request on, and its response back, each as fast as the other end takes it. */
export function exchange(passed: Exchange): void {
  const { req, res, options, headersOf, onError } = passed
  allowSeconds(req, BODY_SECONDS)
  // Downloads and streams of events may take as long as the session.
  req.socket.setTimeout(0)
  const outgoing = send(options, {
    onAnswer: (answer) => passAnswer(answer, res, headersOf),
    onError: (error, sent) => {
      if (res.headersSent || res.destroyed) res.destroy()
      // The other end has closed a connection that waited for its next request.
      else if (sent?.reusedSocket && isRepeatable(req)) exchange(passed)
      else onError(error)
    },
  })
  if (outgoing === undefined) return
  res.once("close", () => outgoing.destroy())
  if (hasBody(req)) pipeline(req, outgoing, () => undefined)
  else outgoing.end()
}

/** Returns true for a request that changes nothing and has no body: it may be sent once more. */
export function isRepeatable(req: IncomingMessage): boolean {
  return (req.method === "GET" || req.method === "HEAD") && !hasBody(req)
}

function hasBody({ headers }: IncomingMessage): boolean {
  return headers["content-length"] !== undefined || headers["transfer-encoding"] !== undefined
}

interface Handlers {
  /** Takes the answer. What it throws is an error of the request. */
  onAnswer: (answer: IncomingMessage) => void
  /** Takes the connection once its other end has changed to the protocol that the request asked for. */
  onUpgrade?: (answer: IncomingMessage, stream: Duplex, first: Buffer) => void
  /** Is called once, instead of `onAnswer` or after it. */
  onError: (error: Error, sent?: ClientRequest) => void
}

/** Begins a request. Whatever its other end does, only `onError` learns of it. Undefined if it can't be sent. */
export function send(options: RequestOptions, { onAnswer, onUpgrade, onError }: Handlers): ClientRequest | undefined {
  try {
    const outgoing = request(options)
    let isSettled = false
    const fail = (error: Error): void => {
      if (isSettled) return
      isSettled = true
      onError(error, outgoing)
    }
    outgoing.once("response", (answer) => {
      try {
        onAnswer(answer)
        answer.once("end", () => {
          isSettled = true
        })
      } catch (error) {
        outgoing.destroy()
        fail(error as Error)
      }
    })
    // Node.js closes a connection that changes its protocol without a listener for that.
    if (onUpgrade !== undefined)
      outgoing.once("upgrade", (...accepted) => {
        isSettled = true
        onUpgrade(...accepted)
      })
    outgoing.on("error", fail)
    outgoing.once("close", () => fail(new Error("the connection was closed before the answer was complete")))
    return outgoing
  } catch (error) {
    onError(error as Error)
    return undefined
  }
}

/** Passes an answer back. Its status has no words: programs may write there what HTTP does not allow. @throws RangeError */
export function passAnswer(answer: IncomingMessage, res: ServerResponse, headersOf: Exchange["headersOf"]): void {
  res.writeHead(answer.statusCode ?? 0, headersOf(answer.headersDistinct))
  // A stream of events begins before its first event.
  res.flushHeaders()
  pipeline(answer, res, () => undefined)
}
