import { useSignal } from "@preact/signals"
import type { Schemas } from "../../client/client.ts"
import { count } from "../format.ts"
import { whyPartial } from "../partial-result.ts"
import { client } from "../state.ts"
import { Field, onText, TableFrame } from "./basics.tsx"
import { Answer, Empty, useLoad } from "./load.tsx"

type Item = Schemas["DiscoveredItem"]

/** Items of an account, and why some lack. */
interface Contents {
  items: readonly Item[]
  lacking: string | undefined
}

/** Query of a discovery by one connection. */
type Asked = { params: { query: { connection_id: string } }; signal: AbortSignal }

/** Contents of accounts, each with the request that lists them. */
const SORTS = {
  Buckets: async (asked: Asked) => {
    const { data, response } = await client.value.api.GET("/resources/storages", asked)
    return contentsOf(data?.storages, response)
  },
  Images: async (asked: Asked) => {
    const { data, response } = await client.value.api.GET("/resources/repositories", asked)
    return contentsOf(data?.repositories, response)
  },
  "Machine pools": async (asked: Asked) => {
    const { data, response } = await client.value.api.GET("/resources/virtual-machine-pools", asked)
    return contentsOf(data?.virtual_machine_pools, response)
  },
}
type Sort = keyof typeof SORTS

function contentsOf(items: readonly Item[] = [], { headers }: Response): Contents {
  return { items, lacking: whyPartial(headers.get("Berth-Partial-Result")) }
}

/** Buckets, images and pools in the account of a connection. They are read when the reader asks for them. */
export function AccountContents({ connection }: { connection: string }) {
  const shown = useSignal<Sort | undefined>(undefined)
  const toggle = (sort: Sort) => () => {
    shown.value = shown.value === sort ? undefined : sort
  }
  return (
    <>
      <div class="actions" role="group" aria-label={`Contents of ${connection}`}>
        {(Object.keys(SORTS) as Sort[]).map((sort) => (
          <button key={sort} type="button" class="small" aria-expanded={shown.value === sort} onClick={toggle(sort)}>
            {sort}
            <span class="hidden"> of {connection}</span>
          </button>
        ))}
      </div>
      {shown.value !== undefined && <Found key={shown.value} sort={shown.value} connection={connection} />}
    </>
  )
}

function Found({ sort, connection }: { sort: Sort; connection: string }) {
  const query = { connection_id: connection }
  const contents = useLoad(`${sort} ${connection}`, (signal) => SORTS[sort]({ params: { query }, signal }))
  return <Answer of={contents}>{(found) => <Items sort={sort} {...found} />}</Answer>
}

/** Most rows that are shown; a text narrows them down. */
const MOST_ROWS = 100

function Items({ sort, items, lacking }: Contents & { sort: Sort }) {
  const text = useSignal("")
  const matching = items.filter(({ name }) => name.includes(text.value.trim()))
  const set = onText((value) => {
    text.value = value
  })
  return (
    <>
      {lacking !== undefined && (
        <p class="note trouble" role="status">
          The list is incomplete: {lacking}
        </p>
      )}
      {items.length > MOST_ROWS && (
        <Field label="Name contains" hint={`${count(matching.length)} of ${count(items.length)}`}>
          <input value={text.value} onInput={set} />
        </Field>
      )}
      {items.length === 0 && lacking === undefined && (
        <Empty title="The account has none, or the credentials may not list them." />
      )}
      {items.length > 0 && (
        <TableFrame label={sort}>
          <table class="cards">
            <thead>
              <tr>
                <th>Name</th>
                <th>At</th>
                <th>Region</th>
              </tr>
            </thead>
            <tbody>
              {matching.slice(0, MOST_ROWS).map(({ id, name, platform, type, metadata }) => (
                <tr key={id}>
                  <td class="row-name">{name}</td>
                  <td>
                    {platform} {type}
                  </td>
                  <td>{metadata["region"]}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </TableFrame>
      )}
    </>
  )
}
