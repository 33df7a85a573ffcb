import { useSignal } from "@preact/signals"
import { fetched, type Schemas } from "../../client/client.ts"
import { PanelForm } from "../parts/action.tsx"
import { Facts, Field, Time, typed } from "../parts/basics.tsx"
import { EditableList } from "../parts/editable-list.tsx"
import { Empty, useLoad, useReloadOnChange } from "../parts/load.tsx"
import { client, may } from "../state.ts"

type Connection = Schemas["ConnectionRecord"]

async function readConnections(signal: AbortSignal): Promise<Connection[]> {
  const answer = await fetched(client.value.api.GET("/connections", { params: { query: { limit: 100 } }, signal }))
  return "connections" in answer ? answer.connections : []
}

/** Accounts that pay for the machines, hold the buckets and serve the images. */
export function ConnectionsPage() {
  const connections = useLoad("connections", readConnections)
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

const ABILITIES = ["vms", "buckets", "repositories", "prices"] as const
const ABILITY_NAMES = { vms: "machines", buckets: "buckets", repositories: "images", prices: "prices" }

function ConnectionPanel({ connection, remove }: { connection: Connection; remove: () => void }) {
  const { name, type, capabilities = {}, created_at } = connection
  return (
    <article class="panel">
      <header class="panel-title">
        <h2>
          {name} <span class="tag">{type}</span>
        </h2>
        {may("admin") && (
          <button type="button" class="small" onClick={remove}>
            Delete<span class="hidden"> {name}</span>
          </button>
        )}
      </header>
      <ul class="plain">
        {ABILITIES.map((ability) => {
          const state = capabilities[ability]
          if (state === undefined) return null
          const word = { True: "works", False: "doesn't work", Unknown: "not checked yet" }[state.status]
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
            </li>
          )
        })}
        {Object.keys(capabilities).length === 0 && <li class="minor">Berth has not checked it yet.</li>}
      </ul>
      <Facts
        of={[
          ["Account", accountOf(connection)],
          ["Created", <Time at={created_at} isRelative />],
        ]}
      />
    </article>
  )
}

/** Returns the part of the credentials that is no secret. */
function accountOf(connection: Connection): string | null | undefined {
  const { role_arn, access_key_id, gcp_project_id, subscription_id, account_id, username } = connection
  return role_arn ?? gcp_project_id ?? subscription_id ?? account_id ?? username ?? access_key_id
}

interface Credential {
  name: string
  label: string
  isSecret?: boolean
  isOptional?: boolean
  isLong?: boolean
}

/** Fields of each type of connection. */
const TYPES: Record<Connection["type"], { title: string; fields: readonly Credential[] }> = {
  aws: {
    title: "AWS",
    fields: [
      { name: "role_arn", label: "Role (ARN), instead of a key", isOptional: true },
      { name: "access_key_id", label: "Access key id", isOptional: true },
      { name: "secret_access_key", label: "Secret access key", isSecret: true, isOptional: true },
    ],
  },
  gcp: {
    title: "Google Cloud",
    fields: [
      { name: "gcp_project_id", label: "Project id" },
      { name: "keyfile_json", label: "Key file (JSON)", isSecret: true, isLong: true, isOptional: true },
      { name: "service_account", label: "Service account, instead of a key file", isOptional: true },
      { name: "workload_identity_provider", label: "Its workload identity provider", isOptional: true },
    ],
  },
  azure: {
    title: "Azure",
    fields: [
      { name: "subscription_id", label: "Subscription id" },
      { name: "tenant_id", label: "Tenant id" },
      { name: "client_id", label: "Client id" },
      { name: "client_secret", label: "Client secret", isSecret: true, isOptional: true },
    ],
  },
  cloudflare: {
    title: "Cloudflare R2",
    fields: [
      { name: "account_id", label: "Account id" },
      { name: "access_key_id", label: "Access key id" },
      { name: "secret_access_key", label: "Secret access key", isSecret: true },
    ],
  },
  dockerhub: {
    title: "Docker Hub",
    fields: [
      { name: "username", label: "User name" },
      { name: "token", label: "Access token", isSecret: true },
    ],
  },
  github: {
    title: "GitHub (images)",
    fields: [
      { name: "username", label: "User name" },
      { name: "token", label: "Access token", isSecret: true },
    ],
  },
}

function NewConnection({ done }: { done: () => void }) {
  const type = useSignal<Connection["type"]>("aws")
  const values = useSignal<Record<string, string>>({})
  const set = (name: string) =>
    typed((value) => {
      values.value = { ...values.value, [name]: value }
    })
  const add = async (): Promise<void> => {
    const names = ["name", ...TYPES[type.value].fields.map(({ name }) => name)]
    const given = names.flatMap((name) => (values.value[name] ? [[name, values.value[name]] as const] : []))
    const body = { type: type.value, ...Object.fromEntries(given) }
    await client.value.api.POST("/connections", { body: body as never })
    done()
  }
  const input = ({ name, label, isSecret, isOptional, isLong }: Credential) => (
    <Field key={`${type.value} ${name}`} label={label}>
      {isLong ? (
        <textarea
          rows={3}
          spellcheck={false}
          required={!isOptional}
          value={values.value[name] ?? ""}
          onInput={set(name)}
        />
      ) : (
        <input
          {...(isSecret && { type: "password" })}
          autocomplete="off"
          spellcheck={false}
          required={!isOptional}
          value={values.value[name] ?? ""}
          onInput={set(name)}
        />
      )}
    </Field>
  )
  return (
    <PanelForm title="New connection" action="Add the connection" act={add} close={done}>
      <div class="fields">
        <Field label="Account at">
          <select
            value={type.value}
            onChange={typed((text) => {
              type.value = text as Connection["type"]
            })}
          >
            {Object.entries(TYPES).map(([name, { title }]) => (
              <option key={name} value={name}>
                {title}
              </option>
            ))}
          </select>
        </Field>
        {input({ name: "name", label: "Name of the connection" })}
        {TYPES[type.value].fields.map(input)}
      </div>
      <p class="minor">Berth encrypts the secrets, and never shows them again.</p>
    </PanelForm>
  )
}
