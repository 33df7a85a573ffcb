import { useSignal } from "@preact/signals"
import { readBody, type Schemas } from "../../client/client.ts"
import { parseLabels, parseList } from "../draft.ts"
import { ActionFault, buttonsOf, GroupError, PanelForm, useAction } from "../parts/action.tsx"
import { Dialog, Facts, Field, labelsText, onText, Signed, TableFrame, Time } from "../parts/basics.tsx"
import { Conditions } from "../parts/conditions.tsx"
import { EditableList } from "../parts/editable-list.tsx"
import { Answer, Empty, useLoad, useReloadEvery } from "../parts/load.tsx"
import { type Listed, type PageQuery, usePages } from "../parts/pages.tsx"
import { SecretOnce } from "../parts/secret-once.tsx"
import { client, may } from "../state.ts"

type Webhook = Schemas["WebhookRecord"]
type Format = Webhook["format"]

/** Berth writes the numbers of a webhook at most once in this time, milliseconds. */
const NUMBERS_MS = 10_000

async function readWebhooks(query: PageQuery, signal: AbortSignal): Promise<Listed<Webhook>> {
  const { webhooks, total } = await readBody(client.value.api.GET("/webhooks", { params: { query }, signal }))
  return { items: webhooks, total }
}

/** Receivers of the project's events, with what was sent to each. */
export function WebhooksPage() {
  const webhooks = usePages("/webhooks", readWebhooks)
  useReloadEvery(NUMBERS_MS, webhooks.reload)
  const remove = (name: string) => client.value.api.DELETE("/webhooks/{name}", { params: { path: { name } } })
  return (
    <EditableList
      title="Webhooks"
      noun="webhook"
      of={webhooks}
      form={(done) => <NewWebhook done={done} />}
      empty={
        <Empty title="No webhook sends events.">
          <p>A webhook sends the end of each job to your CI, to Slack or to a service of yours.</p>
        </Empty>
      }
      removal={({ name }) => ({
        title: `Delete the webhook ${name}?`,
        action: "Delete the webhook",
        effect: "Pending events are discarded.",
        act: () => remove(name),
      })}
    >
      {(found, ask) =>
        found.map((webhook) => (
          <WebhookPanel key={webhook.id} webhook={webhook} reload={webhooks.reload} remove={() => ask(webhook)} />
        ))
      }
    </EditableList>
  )
}

/** Reasons for which Berth sends nothing, until somebody enables the webhook. */
const DISABLED: readonly (string | null)[] = ["ReceiverGone", "RetriesExhausted"]
const HEALTHY: readonly (string | null)[] = ["Active", "Paused", null]

interface PanelProps {
  webhook: Webhook
  reload: () => void
  remove: () => void
}

/** A webhook: its receiver, its state and its latest deliveries. */
export function WebhookPanel({ webhook, reload, remove }: PanelProps) {
  const { name, format, is_active, reason, message, failing_since } = webhook
  const action = useAction()
  const result = useSignal<string | undefined>(undefined)
  const secret = useSignal<string | undefined>(undefined)
  const isRotating = useSignal(false)
  const params = { path: { name } }
  const test = async (): Promise<void> => {
    result.value = undefined
    result.value = resultOf(await readBody(client.value.api.POST("/webhooks/{name}/test", { params })))
  }
  const isStopped = !is_active || DISABLED.includes(reason)
  const change = async (): Promise<void> => {
    await readBody(client.value.api.PATCH("/webhooks/{name}", { params, body: { is_active: isStopped } }))
    reload()
  }
  const rotate = async (): Promise<void> => {
    const { signing_secret } = await readBody(client.value.api.POST("/webhooks/{name}/rotate", { params }))
    secret.value = signing_secret ?? undefined
    reload()
  }
  const button = buttonsOf(name, action)
  return (
    <article class="panel" aria-label={name}>
      <header class="panel-title">
        <h2>
          {name} <span class="tag">{format === "slack" ? "Slack" : "CloudEvents"}</span>
        </h2>
        {may("admin") && (
          <div class="actions">
            {button("Test", () => action.run(test))}
            {button(isStopped ? "Enable" : "Disable", () => action.run(change))}
            {format === "cloudevents" &&
              button("Rotate", () => {
                isRotating.value = true
              })}
            {button("Delete", remove)}
          </div>
        )}
      </header>
      <p class={HEALTHY.includes(reason) ? "minor" : "fault"}>{message ?? "Not checked yet."}</p>
      {failing_since !== null && (
        <p class="note trouble">
          No delivery has succeeded since <Time at={failing_since} />.{!isStopped && " Berth retries."}
        </p>
      )}
      <Conditions of={webhook.conditions} said={[message]} />
      <ActionFault of={action} />
      {result.value !== undefined && <p role="status">{result.value}</p>}
      {secret.value !== undefined && (
        <NewSecret
          of={name}
          value={secret.value}
          done={() => {
            secret.value = undefined
          }}
        />
      )}
      <WebhookFacts of={webhook} />
      <Deliveries webhook={webhook} />
      {isRotating.value && (
        <Dialog
          title={`Rotate the signing secret of ${name}?`}
          action="Create a new secret"
          act={rotate}
          close={() => {
            isRotating.value = false
          }}
        >
          <p>For a day, messages are signed with both secrets. Give the new one to the receiver in that time.</p>
        </Dialog>
      )}
    </article>
  )
}

function resultOf({ delivered, status_code, duration_ms, error }: Schemas["WebhookTest"]): string {
  if (delivered) return `The receiver accepted the test with ${status_code} in ${duration_ms} ms.`
  return `The test was not accepted: ${error}.`
}

function NewSecret({ of, value, done }: { of: string; value: string; done: () => void }) {
  return (
    <SecretOnce
      title={`The signing secret of ${of}`}
      note="Give it to the receiver now: Berth can't show it again."
      label="Signing secret"
      value={value}
      done={done}
    />
  )
}

function WebhookFacts({ of }: { of: Webhook }) {
  const { url, receiver, format, last_success_at } = of
  return (
    <Facts
      of={[
        ["State", of.reason],
        ["Receiver", url ?? receiver ?? (format === "slack" ? "a secret address at Slack" : "an address in a Secret")],
        ["Events", of.events.join(", ")],
        ["Only with labels", labelsText(of.labels)],
        ["Only with tags", of.tags.join(", ")],
        ["Also sends", of.include.join(", ")],
        ["Pending", String(of.pending_count)],
        ["Delivered", String(of.delivered_count)],
        ["Missed", String(of.missed_count)],
        ["Last success", last_success_at === null ? "never" : <Time at={last_success_at} isRelative />],
      ]}
    />
  )
}

function Deliveries({ webhook: { name, updated_at } }: { webhook: Webhook }) {
  const read = async (signal: AbortSignal) => {
    const params = { path: { name }, query: { limit: 20 } }
    return (await readBody(client.value.api.GET("/webhooks/{name}/deliveries", { params, signal }))).deliveries
  }
  // Each status of the webhook has other deliveries.
  const deliveries = useLoad(`deliveries ${name} ${updated_at}`, read, name)
  return (
    <Answer of={deliveries}>
      {(found) =>
        found.length === 0 ? (
          <p class="minor">Nothing was sent yet.</p>
        ) : (
          <TableFrame label={`Deliveries of ${name}`}>
            <table class="cards">
              <thead>
                <tr>
                  <th>Subject</th>
                  <th>Event</th>
                  <th>Result</th>
                  <th class="number">Attempts</th>
                  <th class="number">Time</th>
                </tr>
              </thead>
              <tbody>
                {found.map((delivery) => (
                  <DeliveryRow key={delivery.id} delivery={delivery} />
                ))}
              </tbody>
            </table>
          </TableFrame>
        )
      }
    </Answer>
  )
}

/** Sign of each result. It needs no color, as that of a job. */
const SIGNS = { pending: "queued", delivered: "succeeded", missed: "failed" } as const

function DeliveryRow({ delivery }: { delivery: Schemas["WebhookDelivery"] }) {
  const { type, subject, time, status, attempts, status_code, error, next_attempt_at } = delivery
  return (
    <tr>
      <td class="row-name">{subject}</td>
      <td>{type}</td>
      <td class="whole-row">
        <Signed of={status} as={SIGNS[status]} />
        <span class="minor below">
          {error ?? (status_code === null ? "" : `answered ${status_code}`)}
          {next_attempt_at !== null && (
            <>
              {error !== null && ", "}next attempt <Time at={next_attempt_at} isRelative />
            </>
          )}
        </span>
      </td>
      <td class="number" data-label="Attempts">
        {attempts}
      </td>
      <td class="number">
        <Time at={time} isRelative />
      </td>
    </tr>
  )
}

const EVENTS = {
  "job.*": "each end of a job",
  "job.succeeded": "a job has succeeded",
  "job.failed": "a job has failed",
  "job.cancelled": "a job was cancelled",
  "cronjob.skipped": "a tick of a cronjob got no job",
  "connection.failed": "credentials no longer work",
  "budget.threshold": "50, 80 or 100 % of the month's cap are spent",
}
type EventName = keyof typeof EVENTS

/** Form of a new webhook, and then its signing secret, which is shown this once. */
function NewWebhook({ done }: { done: () => void }) {
  const name = useSignal("")
  const url = useSignal("")
  const format = useSignal<Format>("cloudevents")
  const events = useSignal<readonly EventName[]>(["job.*"])
  const labels = useSignal("")
  const tags = useSignal("")
  const hasOutput = useSignal(false)
  const secret = useSignal<string | undefined>(undefined)
  const create = async (): Promise<void> => {
    const body = {
      name: name.value.trim(),
      url: url.value.trim(),
      format: format.value,
      events: [...events.value],
      labels: parseLabels(labels.value),
      tags: parseList(tags.value),
      ...(hasOutput.value && { include: ["output" as const] }),
    }
    const { signing_secret } = await readBody(client.value.api.POST("/webhooks", { body }))
    if (signing_secret === null) done()
    else secret.value = signing_secret
  }
  if (secret.value !== undefined) return <NewSecret of={name.value.trim()} value={secret.value} done={done} />
  const isSlack = format.value === "slack"
  return (
    <PanelForm title="New webhook" action="Add the webhook" act={create} close={done}>
      <div class="fields">
        <Field label="Name" name="name">
          <input required spellcheck={false} autocomplete="off" value={name.value} onInput={setter(name)} />
        </Field>
        <Field label="Format" name="format">
          <select
            value={format.value}
            onChange={onText((value) => {
              format.value = value === "slack" ? "slack" : "cloudevents"
            })}
          >
            <option value="cloudevents">CloudEvents, signed</option>
            <option value="slack">Slack</option>
          </select>
        </Field>
        <Field
          label="Address of the receiver"
          name="url"
          hint={isSlack ? "Berth encrypts it, and never shows it again." : "By https. Only admins see all of it."}
        >
          <input
            {...(isSlack && { type: "password" })}
            required
            autocomplete="off"
            spellcheck={false}
            value={url.value}
            onInput={setter(url)}
          />
        </Field>
        <Field label="Only jobs with labels" name="labels" hint="key=value, separated by spaces. Empty: all jobs.">
          <input
            pattern="\s*([^\s,=]+=[^\s,]*[\s,]*)*"
            title="key=value, separated by spaces"
            spellcheck={false}
            value={labels.value}
            onInput={setter(labels)}
          />
        </Field>
        <Field label="Only jobs with tags" name="tags" hint="Separated by spaces. Empty: all jobs.">
          <input spellcheck={false} value={tags.value} onInput={setter(tags)} />
        </Field>
      </div>
      <EventChoice chosen={events.value} choose={(next) => (events.value = next)} />
      <label class="toggle">
        <input
          type="checkbox"
          checked={hasOutput.value}
          onChange={({ currentTarget }) => {
            hasOutput.value = currentTarget.checked
          }}
        />
        <span>
          Send the end of each job's log too. <span class="minor">It may hold secrets.</span>
        </span>
      </label>
    </PanelForm>
  )
}

function setter(signal: { value: string }) {
  return onText((value) => {
    signal.value = value
  })
}

interface EventChoiceProps {
  chosen: readonly EventName[]
  choose: (next: readonly EventName[]) => void
}

function EventChoice({ chosen, choose }: EventChoiceProps) {
  return (
    <fieldset class="choice events">
      <legend class="field-label">Events</legend>
      {(Object.keys(EVENTS) as EventName[]).map((event) => (
        <label key={event}>
          <input
            type="checkbox"
            checked={chosen.includes(event)}
            onChange={({ currentTarget }) =>
              choose(currentTarget.checked ? [...chosen, event] : chosen.filter((one) => one !== event))
            }
          />
          <span>
            {event} <span class="minor">{EVENTS[event]}</span>
          </span>
        </label>
      ))}
      <GroupError name="events" />
    </fieldset>
  )
}
