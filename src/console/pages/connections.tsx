import { useSignal } from "@preact/signals"
import { readBody, type Schemas } from "../../client/client.ts"
import { type ConnectionCheck, checkTexts } from "../../client/connections.ts"
import { CLOUDS, PROVIDERS } from "../../client/providers.ts"
import { AccountContents } from "../parts/account-contents.tsx"
import { ActionFault, PanelForm, useAction } from "../parts/action.tsx"
import { Facts, Field, onText, Time } from "../parts/basics.tsx"
import { Conditions } from "../parts/conditions.tsx"
import { type Credential, CredentialInput, credentialsOf } from "../parts/credentials.tsx"
import { EditableList } from "../parts/editable-list.tsx"
import { Empty, useReloadOnChange } from "../parts/load.tsx"
import { type Listed, type PageQuery, usePages } from "../parts/pages.tsx"
import { client, may } from "../state.ts"

type Connection = Schemas["ConnectionRecord"]

async function readConnections(query: PageQuery, signal: AbortSignal): Promise<Listed<Connection>> {
  const answer = await readBody(client.value.api.GET("/connections", { params: { query }, signal }))
  return "connections" in answer ? { items: answer.connections, total: answer.total } : { items: [], total: 0 }
}

/** Accounts that pay for the machines, hold the buckets and serve the images. */
export function ConnectionsPage() {
  const connections = usePages("/connections", readConnections)
  useReloadOnChange(({ event }) => event === "connection", connections.reload)
  const remove = (name: string) => client.value.api.DELETE("/connections/{name}", { params: { path: { name } } })
  return (
    <EditableList
      title="Connections"
      noun="connection"
      of={connections}
      form={(done) => <NewConnection done={done} />}
      empty={
        <Empty title="No cloud account is connected.">
          <p>A connection lets Berth start machines, mount buckets or pull images with an account of yours.</p>
        </Empty>
      }
      removal={({ name }) => ({
        title: `Delete the connection ${name}?`,
        action: "Delete the connection",
        effect: "No new machine starts with it. Machines that run now end as planned.",
        act: () => remove(name),
      })}
    >
      {(found, ask) =>
        found.map((connection) => (
          <ConnectionPanel key={connection.id} connection={connection} remove={() => ask(connection)} />
        ))
      }
    </EditableList>
  )
}

const ABILITIES = ["vms", "buckets", "repositories"] as const
const ABILITY_NAMES = { vms: "machines", buckets: "buckets", repositories: "images" }

/** Looks of the results of a check that aren't faults. */
const CHECK_CLASSES: Partial<Record<ConnectionCheck["result"], string>> = { passed: "minor", unfinished: "note" }

/** A connection: its account, its uses, and what is wrong with it. */
export function ConnectionPanel({ connection, remove }: { connection: Connection; remove: () => void }) {
  const { name, type, capabilities = {}, conditions = [], created_at } = connection
  const prices = conditions.find((condition) => condition.type === "Prices")
  const action = useAction()
  const check = useSignal<ConnectionCheck | undefined>(undefined)
  const test = async (): Promise<void> => {
    check.value = undefined
    check.value = await readBody(client.value.api.POST("/connections/{name}/check", { params: { path: { name } } }))
  }
  const isChanging = useSignal(false)
  const change = (isOpen: boolean) => () => {
    isChanging.value = isOpen
  }
  return (
    <article class="panel">
      <header class="panel-title">
        <h2>
          {name} <span class="tag">{type}</span>
        </h2>
        {may("admin") && (
          <div class="actions">
            <button type="button" class="small" disabled={action.isBusy.value} onClick={() => action.run(test)}>
              Test now<span class="hidden"> {name}</span>
            </button>
            <button type="button" class="small" onClick={change(true)}>
              Rotate<span class="hidden"> {name}</span>
            </button>
            <button type="button" class="small" onClick={remove}>
              Delete<span class="hidden"> {name}</span>
            </button>
          </div>
        )}
      </header>
      <div role="status">
        {action.isBusy.value && <p class="minor">Berth asks {type} now, for at most 45 seconds.</p>}
        {check.value !== undefined && (
          <p class={CHECK_CLASSES[check.value.result] ?? "fault"}>{checkTexts(check.value).join(" ")}</p>
        )}
      </div>
      <ActionFault of={action} />
      <ul class="plain">
        {ABILITIES.map((ability) => {
          const state = capabilities[ability]
          if (state === undefined) return null
          const word = { True: "works", False: "doesn't work", Unknown: "not known" }[state.status]
          return (
            <li key={ability} class={`ability ${state.status}`}>
              {ABILITY_NAMES[ability]}: {word}
              {state.status !== "True" && (
                <span class="minor">
                  {" "}
                  {state.reason}
                  {state.message !== undefined && `: ${state.message}`}
                </span>
              )}
              {state.missing !== undefined && (
                <span class="minor below">
                  Missing: <code>{state.missing.join(", ")}</code>
                </span>
              )}
            </li>
          )
        })}
        {prices !== undefined && (
          <li class={`ability ${prices.status}`}>
            prices: <span class="minor">{prices.message ?? prices.reason}</span>
          </li>
        )}
        {Object.keys(capabilities).length === 0 && conditions.length === 0 && (
          <li class="minor">Berth has not checked it yet.</li>
        )}
      </ul>
      <Conditions
        of={conditions}
        said={[prices?.message ?? prices?.reason, ...ABILITIES.map((ability) => capabilities[ability]?.message)]}
      />
      <Facts
        of={[
          ["Account", accountOf(connection)],
          ["Created", <Time at={created_at} isRelative />],
        ]}
      />
      <AccountContents connection={name} />
      {isChanging.value && <Rotation of={connection} close={change(false)} />}
    </article>
  )
}

/** Returns the first part of the credentials that isn't secret. */
function accountOf(connection: Connection): string | undefined {
  const values = connection as Record<string, unknown>
  return credentialsOf(connection.type)
    .filter(({ isSecret }) => !isSecret)
    .map(({ name }) => textOf(values[name]))
    .find((text) => text !== "")
}

function NewConnection({ done }: { done: () => void }) {
  const type = useSignal<Connection["type"]>(CLOUDS[0])
  const values = useSignal<Record<string, string>>({})
  const set = (name: string) => (value: string) => {
    values.value = { ...values.value, [name]: value }
  }
  const add = async (): Promise<void> => {
    const names = ["name", ...credentialsOf(type.value).map(({ name }) => name)]
    const given = names.flatMap((name) => (values.value[name] ? [[name, values.value[name]] as const] : []))
    const body = { type: type.value, ...Object.fromEntries(given) }
    await client.value.api.POST("/connections", { body: body as never })
    done()
  }
  const input = (credential: Credential) => (
    <CredentialInput
      key={`${type.value} ${credential.name}`}
      {...credential}
      value={values.value[credential.name] ?? ""}
      set={set(credential.name)}
    />
  )
  return (
    <PanelForm title="New connection" action="Add the connection" act={add} close={done}>
      <div class="fields">
        <Field label="Account at">
          <select
            value={type.value}
            onChange={onText((text) => {
              type.value = text as Connection["type"]
            })}
          >
            {Object.entries(PROVIDERS).map(([name, { label }]) => (
              <option key={name} value={name}>
                {label}
              </option>
            ))}
          </select>
        </Field>
        {input({ name: "name", label: "Name of the connection" })}
        {credentialsOf(type.value).map(input)}
      </div>
      <p class="minor">Berth encrypts the secrets, and never shows them again.</p>
    </PanelForm>
  )
}

/** Form that replaces credentials of a connection. Secrets are never filled in: the API does not return them here. */
function Rotation({ of: connection, close }: { of: Connection; close: () => void }) {
  const fields = credentialsOf(connection.type)
  const present = connection as Record<string, unknown>
  const known = Object.fromEntries(fields.map(({ name, isSecret }) => [name, isSecret ? "" : textOf(present[name])]))
  const values = useSignal<Record<string, string>>(known)
  const rotate = async (): Promise<void> => {
    const changed = Object.entries(values.value).filter(([name, value]) => value !== known[name] && value !== "")
    if (changed.length === 0) throw new Error("Nothing has changed: enter the new secret.")
    const path = { params: { path: { name: connection.name } } }
    await client.value.api.PATCH("/connections/{name}", { ...path, body: Object.fromEntries(changed) as never })
    close()
  }
  return (
    <PanelForm title={`Rotate ${connection.name}`} action="Replace the credentials" act={rotate} close={close}>
      <div class="fields">
        {fields.map((field) => (
          <CredentialInput
            key={field.name}
            {...field}
            label={field.isSecret ? `New ${field.label.charAt(0).toLowerCase()}${field.label.slice(1)}` : field.label}
            isOptional
            value={values.value[field.name] ?? ""}
            set={(value) => {
              values.value = { ...values.value, [field.name]: value }
            }}
          />
        ))}
      </div>
      <p class="minor">
        An empty field keeps its value. Berth checks the new credentials at once, and starts VMs with them.
      </p>
    </PanelForm>
  )
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : ""
}
