/** Sends a request to a path of a project, such as `/jobs`. Rejects with the API's own words if it is rejected. */
export type SendRequest = (path: string, init: { method: string; body?: string }) => Promise<Response>

/** Returns requests with an API key. @param url of the REST API, without `/1` */
export function requestsWithKey({ url, apiKey }: { url: string; apiKey: string }): SendRequest {
  return async (path, init) => {
    const headers = { "X-Service-Api-Key": apiKey, "Content-Type": "application/json" }
    const answer = await fetch(`${url}/1${path}`, { ...init, headers })
    if (answer.ok) return answer
    const detail = detailIn(await answer.text())
    throw new Error(`${init.method} ${path.split("?")[0]}: ${answer.status} ${detail}`)
  }
}

function detailIn(text: string): string {
  try {
    const { detail, errors = [] } = JSON.parse(text) as { detail?: string; errors?: { detail: string }[] }
    return [detail, ...errors.map((error) => error.detail)].join(" ")
  } catch {
    return text.slice(0, 200)
  }
}
