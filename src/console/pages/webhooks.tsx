import { useSignal } from "@preact/signals"
import { fetched, type Schemas } from "../../client/client.ts"
import { Copy, Dialog, Facts, Field, PageTitle, TableFrame, Time, typed } from "../parts/basics.tsx"
import { Answer, Empty, explained, useLoad, useReloadOnChange } from "../parts/load.tsx"
import { client, may } from "../state.ts"

type Webhook = Schemas["WebhookRecord"]
type Created = Schemas["WebhookCreated"]

async function readWebhooks(signal: AbortSignal): Promise<Webhook[]> {
  const query = { limit: 100 }
  return (await fetched(client.value.api.GET("/webhooks", { params: { query }, signal }))).webhooks
}

/** Receivers of the project's events, with what was sent to each. */
export function WebhooksPage() {
  const webhooks = useLoad("webhooks", readWebhooks)
  // The end of a job is what webhooks wait for.
  useReloadOnChange(({ event }) => event === "job", webhooks.reload)
  const isAdding = useSignal(false)
  const made = useSignal<Created | undefined>(undefined)
  const doomed = useSignal<Webhook | undefined>(undefined)
  const remove = (name: string) => async (): Promise<void> => {
    await client.value.api.DELETE("/webhooks/{name}", { params: { path: { name } } })
    webhooks.reload()
  }
  return (
    <>
      <PageTitle title="Webhooks">
        {may("admin") && (
          <button
            type="button"
            class="primary"
            onClick={() => {
              isAdding.value = true
              made.value = undefined
            }}
          >
            New webhook
          </button>
        )}
      </PageTitle>
      {made.value?.signing_secret != null && (
        <div class="panel" role="status">
          <h2>Signing secret of {made.value.name}</h2>
          <p>Give it to the receiver now. Berth does not show it again.</p>
          <p>
            <code>{made.value.signing_secret}</code> <Copy text={made.value.signing_secret} />
          </p>
        </div>
      )}
      {isAdding.value && (
        <NewWebhook
          done={(created) => {
            isAdding.value = false
            made.value = created
            webhooks.reload()
          }}
        />
      )}
      <Answer of={webhooks}>
        {(found) =>
          found.length === 0 ? (
            <Empty title="No webhook sends events.">
              <p>A webhook sends the end of each job to your CI, to Slack or to a service of yours.</p>
            </Empty>
          ) : (
            found.map((webhook) => (
              <WebhookPanel
                key={webhook.id}
                webhook={webhook}
                reload={webhooks.reload}
                remove={() => {
                  doomed.value = webhook
                }}
              />
            ))
          )
        }
      </Answer>
      {doomed.value !== undefined && (
        <Dialog
          title={`Delete the webhook ${doomed.value.name}?`}
          action="Delete the webhook"
          isDangerous
          act={remove(doomed.value.name)}
          close={() => {
            doomed.value = undefined
          }}
        >
          <p>What is pending is not delivered.</p>
        </Dialog>
      )}
    </>
  )
}

interface PanelProps {
  webhook: Webhook
  reload: () => void
  remove: () => void
}

function WebhookPanel({ webhook, reload, remove }: PanelProps) {
  const { name, format, events, is_active, url, receiver } = webhook
  const result = useSignal<string | undefined>(undefined)
  const path = { path: { name } }
  const report = (action: Promise<string | undefined>): void => {
    action.then(
      (text) => {
        result.value = text
        reload()
      },
      (error: unknown) => {
        result.value = explained(error).text
      },
    )
  }
  const test = async (): Promise<string> => {
    const { delivered, status_code, duration_ms, error } = await fetched(
      client.value.api.POST("/webhooks/{name}/test", { params: path }),
    )
    return delivered
      ? `The receiver accepted the test with ${status_code} in ${duration_ms} ms.`
      : `Not accepted: ${error}.`
  }
  const change = async (isActive: boolean): Promise<undefined> => {
    await fetched(client.value.api.PATCH("/webhooks/{name}", { params: path, body: { is_active: isActive } }))
  }
  const isStopped = !is_active || webhook.reason === "ReceiverGone" || webhook.reason === "RetriesExhausted"
  const button = (label: string, act: () => void) => (
    <button type="button" class="small" onClick={act}>
      {label}
      <span class="hidden"> {name}</span>
    </button>
  )
  return (
    <article class="panel">
      <header class="panel-title">
        <h2>
          {name} <span class="tag">{format}</span>
        </h2>
        {may("admin") && (
          <div class="actions">
            {button("Test", () => report(test()))}
            {button(isStopped ? "Enable" : "Pause", () => report(change(isStopped)))}
            {button("Delete", remove)}
          </div>
        )}
      </header>
      <p class="minor">{webhook.message ?? "Berth has not looked at it yet."}</p>
      {result.value !== undefined && <p role="status">{result.value}</p>}
      <Facts
        of={[
          ["State", webhook.reason],
          ["Events", events.join(", ")],
          ["Receiver", url ?? receiver ?? "a secret address"],
          ["Pending", String(webhook.pending_count)],
          ["Delivered", String(webhook.delivered_count)],
          ["Missed", String(webhook.missed_count)],
          ["Last success", webhook.last_success_at && <Time at={webhook.last_success_at} isRelative />],
          ["Failing since", webhook.failing_since && <Time at={webhook.failing_since} isRelative />],
        ]}
      />
      <Deliveries webhook={webhook} />
    </article>
  )
}

function Deliveries({ webhook: { name, pending_count, delivered_count, missed_count } }: { webhook: Webhook }) {
  const counts = `${pending_count} ${delivered_count} ${missed_count}`
  const read = async (signal: AbortSignal) => {
    const params = { path: { name }, query: { limit: 20 } }
    return (await fetched(client.value.api.GET("/webhooks/{name}/deliveries", { params, signal }))).deliveries
  }
  const deliveries = useLoad(`deliveries ${name} ${counts}`, read, name)
  return (
    <Answer of={deliveries}>
      {(found) =>
        found.length > 0 && (
          <TableFrame label={`Deliveries of ${name}`}>
            <table>
              <thead>
                <tr>
                  <th scope="col">Event</th>
                  <th scope="col">Subject</th>
                  <th scope="col">Time</th>
                  <th scope="col">Result</th>
                  <th scope="col">Attempts</th>
                  <th scope="col">Cause</th>
                </tr>
              </thead>
              <tbody>
                {found.map(({ id, type, subject, time, status, attempts, status_code, error }) => (
                  <tr key={id}>
                    <td>{type}</td>
                    <td>{subject}</td>
                    <td>
                      <Time at={time} isRelative />
                    </td>
                    <td>{status}</td>
                    <td>{attempts}</td>
                    <td>{error ?? status_code}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </TableFrame>
        )
      }
    </Answer>
  )
}

const EVENTS = ["job.*", "job.failed", "cronjob.skipped", "connection.failed", "budget.threshold"] as const

function NewWebhook({ done }: { done: (made: Created | undefined) => void }) {
  const name = useSignal("")
  const url = useSignal("")
  const format = useSignal<Webhook["format"]>("cloudevents")
  const events = useSignal<readonly string[]>(["job.*"])
  const fault = useSignal<string | undefined>(undefined)
  const submit = (event: Event): void => {
    event.preventDefault()
    fault.value = undefined
    const body = { name: name.value, url: url.value, format: format.value, events: [...events.value] }
    fetched(client.value.api.POST("/webhooks", { body: body as Schemas["WebhookCreation"] })).then(
      done,
      (error: unknown) => {
        fault.value = explained(error).text
      },
    )
  }
  const toggle = (one: string): void => {
    const others = events.value.filter((event) => event !== one)
    events.value = others.length === events.value.length ? [...others, one] : others
  }
  return (
    <form class="panel" aria-label="New webhook" onSubmit={submit}>
      <h2>New webhook</h2>
      <div class="fields">
        <Field label="Name of the webhook">
          <input
            required
            spellcheck={false}
            value={name.value}
            onInput={typed((value) => {
              name.value = value
            })}
          />
        </Field>
        <Field label="Format">
          <select
            value={format.value}
            onChange={typed((value) => {
              format.value = value as Webhook["format"]
            })}
          >
            <option value="cloudevents">CloudEvents, signed</option>
            <option value="slack">Slack</option>
          </select>
        </Field>
        <Field label="Address of the receiver">
          <input
            {...(format.value === "slack" && { type: "password" })}
            required
            autocomplete="off"
            spellcheck={false}
            value={url.value}
            onInput={typed((value) => {
              url.value = value
            })}
          />
        </Field>
      </div>
      <fieldset>
        <legend>Events</legend>
        {EVENTS.map((event) => (
          <label key={event}>
            <input type="checkbox" checked={events.value.includes(event)} onChange={() => toggle(event)} /> {event}
          </label>
        ))}
      </fieldset>
      {fault.value !== undefined && (
        <p class="fault" role="alert">
          {fault.value}
        </p>
      )}
      <div class="actions">
        <button type="button" onClick={() => done(undefined)}>
          Back
        </button>
        <button type="submit" class="primary">
          Add the webhook
        </button>
      </div>
    </form>
  )
}
