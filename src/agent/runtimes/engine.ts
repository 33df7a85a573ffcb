/** Timeout of a call to the engine, seconds. */
export const CALL_SECONDS = 120

export const MIB = 1024 * 1024

/** Adds a timeout to a call. dockerode's promises never settle if the connection breaks within an answer. */
export async function withTimeout<Result>(seconds: number, call: Promise<Result>): Promise<Result> {
  const { promise: late, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(() => reject(new Error(`the engine has not answered for ${seconds} s`)), seconds * 1000)
  try {
    return await Promise.race([call, late])
  } finally {
    clearTimeout(timer)
  }
}

/** Returns undefined for Docker's 404. */
export async function ifFound<Result>(result: Promise<Result>): Promise<Result | undefined> {
  try {
    return await withTimeout(CALL_SECONDS, result)
  } catch (error) {
    if (errorStatus(error) === 404) return undefined
    throw error
  }
}

/** Returns the HTTP status of an error of the Engine API, which dockerode stores in the error. */
export function errorStatus(error: unknown): number | undefined {
  return (error as { statusCode?: number }).statusCode
}

/** Returns the engine's own message, without dockerode's prefix. */
export function errorMessage(error: unknown): string {
  const { json, message } = error as { json?: { message?: string }; message?: string }
  return (json?.message ?? message ?? String(error)).replace(/^\(HTTP code \d+\) [^-]* - /, "").trim()
}
