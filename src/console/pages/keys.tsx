import { useSignal } from "@preact/signals"
import { readBody, type Schemas } from "../../client/client.ts"
import { PanelForm } from "../parts/action.tsx"
import { Field, onText, TableFrame, Time } from "../parts/basics.tsx"
import { Conditions } from "../parts/conditions.tsx"
import { EditableList } from "../parts/editable-list.tsx"
import { Empty } from "../parts/load.tsx"
import { type Listed, type PageQuery, usePages } from "../parts/pages.tsx"
import { SecretOnce } from "../parts/secret-once.tsx"
import { client, may, me } from "../state.ts"

type Key = Schemas["KeyRecord"]

/** Reads the keys. The list has only their names, so each is read. */
async function readKeys(query: PageQuery, signal: AbortSignal): Promise<Listed<Key>> {
  const { api } = client.value
  const { keys, total } = await readBody(api.GET("/keys", { params: { query }, signal }))
  const read = (key_id: string) => readBody(api.GET("/keys/{key_id}", { params: { path: { key_id } }, signal }))
  return { items: await Promise.all(keys.map(({ id }) => read(id))), total }
}

/** API keys of the project. */
export function KeysPage() {
  const keys = usePages("/keys", readKeys)
  const revoke = (id: string) => client.value.api.DELETE("/keys/{key_id}", { params: { path: { key_id: id } } })
  return (
    <EditableList
      title="Keys"
      noun="key"
      of={keys}
      form={(done) => <NewKey done={done} />}
      empty={<Empty title="This project has no keys." />}
      removal={({ id, name }) => ({
        title: `Revoke the key ${name}?`,
        action: "Revoke the key",
        effect: "Programs that use it are rejected within a second. This can't be undone.",
        act: () => revoke(id),
      })}
    >
      {(found, remove) => <Keys keys={found} revoke={remove} />}
    </EditableList>
  )
}

/** Keys of the project, and what is wrong with each. */
export function Keys({ keys, revoke }: { keys: readonly Key[]; revoke: (key: Key) => void }) {
  return (
    <TableFrame label="Keys">
      <table>
        <thead>
          <tr>
            <th>Key</th>
            <th>Role</th>
            <th class="extra">Created</th>
            <th>Expires</th>
            {may("admin") && <th>Actions</th>}
          </tr>
        </thead>
        <tbody>
          {keys.map((key) => (
            <tr key={key.id}>
              <td class="wrapping">
                {key.name}
                {key.id === me.value?.id && <span class="tag">yours</span>}
                <Conditions of={key.conditions} />
              </td>
              <td>{key.role}</td>
              <td class="extra">
                <Time at={key.created_at} isRelative />
              </td>
              <td>{key.expires_at === null ? "never" : <Time at={key.expires_at} isRelative />}</td>
              {may("admin") && (
                <td>
                  <button type="button" class="small" onClick={() => revoke(key)}>
                    Revoke<span class="hidden"> {key.name}</span>
                  </button>
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </TableFrame>
  )
}

const ROLES = ["viewer", "developer", "admin"] as const

/** Form of a new key, and then its value, which is shown this once. */
function NewKey({ done }: { done: () => void }) {
  const name = useSignal("")
  const role = useSignal<(typeof ROLES)[number]>("developer")
  const days = useSignal("")
  const value = useSignal<string | undefined>(undefined)
  const create = async (): Promise<void> => {
    const count = Number(days.value)
    const expires_at = days.value === "" ? null : new Date(Date.now() + count * 86_400_000).toISOString()
    const body = { name: name.value.trim(), role: role.value, expires_at }
    value.value = (await readBody(client.value.api.POST("/keys", { body }))).value
  }
  if (value.value !== undefined)
    return (
      <SecretOnce
        title={`The key ${name.value}`}
        note="Copy the value now: Berth stores only its hash, and can't show it again."
        label="Value of the key"
        value={value.value}
        done={done}
      />
    )
  return (
    <PanelForm title="New key" action="Create the key" act={create} close={done}>
      <div class="fields">
        <Field label="Name" name="name">
          <input
            required
            value={name.value}
            onInput={onText((text) => {
              name.value = text
            })}
          />
        </Field>
        <Field label="Role" name="role">
          <select
            value={role.value}
            onChange={onText((text) => {
              role.value = text as typeof role.value
            })}
          >
            {ROLES.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </Field>
        <Field label="Expires after days" name="expires_at" hint="Empty: never.">
          <input
            type="number"
            min={1}
            max={3650}
            value={days.value}
            onInput={onText((text) => {
              days.value = text
            })}
          />
        </Field>
      </div>
    </PanelForm>
  )
}
