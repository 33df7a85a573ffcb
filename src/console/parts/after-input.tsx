import { useSignal } from "@preact/signals"
import { readBody } from "../../client/client.ts"
import { completions, lastName } from "../order.ts"
import { client } from "../state.ts"
import { onText } from "./basics.tsx"
import { useLoad } from "./load.tsx"

/** Jobs, and arrays, whose names are proposed. */
const PROPOSED = 20

interface Props {
  value: string
  set: (value: string) => void
  /** Given by the field. */
  "aria-describedby"?: string
  "aria-invalid"?: boolean
}

/** Input for the jobs and arrays that must end first. It proposes the newest ones of the project. */
export function AfterInput({ value, set, ...described }: Props) {
  const isReached = useSignal(false)
  return (
    <>
      <input
        {...described}
        name="after"
        value={value}
        list="after-names"
        spellcheck={false}
        autocomplete="off"
        onFocus={() => {
          isReached.value = true
        }}
        onInput={onText(set)}
      />
      <datalist id="after-names">{isReached.value && <Proposals text={value} />}</datalist>
    </>
  )
}

function Proposals({ text }: { text: string }) {
  const part = lastName(text).replace(/^array\//, "")
  const names = useLoad(`names ${part}`, (signal) => readNames(part, signal), "names")
  return (
    <>
      {completions(text, names.data.value ?? []).map((one) => (
        <option key={one} value={one} />
      ))}
    </>
  )
}

/** Reads the newest names with this part, as people type them. Jobs of arrays are left out: people wait for the array. */
async function readNames(part: string, signal: AbortSignal): Promise<string[]> {
  const { api } = client.value
  const params = { query: { name_contains: part, limit: PROPOSED } }
  const [{ groups }, { arrays }] = await Promise.all([
    readBody(api.GET("/job-groups", { params, signal })),
    readBody(api.GET("/arrays", { params, signal })),
  ])
  const jobs = groups.filter(({ kind }) => kind !== "array").map(({ latest }) => latest.name)
  return [...jobs, ...arrays.map(({ name }) => `array/${name}`)]
}
