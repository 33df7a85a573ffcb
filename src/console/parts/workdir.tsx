import { readBody, type Schemas } from "../../client/client.ts"
import { ApiError } from "../../client/errors.ts"
import { bytes } from "../format.ts"
import { client } from "../state.ts"
import { useLoad } from "./load.tsx"

/** Number of digits that distinguish a hash from others. */
const SHOWN_DIGITS = 12

/** Files that a job's container gets: their hash, size and folder. */
export function Workdir({ of: { sha256, path = "/workspace" } }: { of: Schemas["WorkdirOutput"] }) {
  const upload = useLoad(`upload ${sha256}`, (signal) =>
    readBody(client.value.api.GET("/uploads/{sha256}", { params: { path: { sha256 } }, signal })),
  )
  const fault = upload.error.value
  const isGone = fault instanceof ApiError && fault.status === 404
  return (
    <>
      <code title={sha256}>{sha256.slice(0, SHOWN_DIGITS)}</code> in <code>{path}</code>
      {upload.data.value !== undefined && `, ${bytes(upload.data.value.bytes)}`}
      {isGone && ", no longer stored"}
    </>
  )
}
