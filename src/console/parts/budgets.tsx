import { useSignal } from "@preact/signals"
import { listOrganizations, type ProjectRecord, projectsIn } from "../../client/accounts.ts"
import { readBody, type Schemas } from "../../client/client.ts"
import type { CostReport } from "../../client/costs.ts"
import { count, usd } from "../format.ts"
import { accounts, credential, me, project } from "../state.ts"
import { PanelForm } from "./action.tsx"
import { Facts, Field, onText } from "./basics.tsx"
import { Answer, useLoad } from "./load.tsx"

type Budget = CostReport["budgets"][number]
type Caps = NonNullable<ProjectRecord["caps"]>
type Level = Schemas["Budget"]["level"]

const LEVELS: Record<Level, string> = {
  project: "This project",
  organization: "Its organization",
  installation: "The installation",
}
const ON_EXCEEDED = {
  wait: "New jobs wait for the next month. Running jobs go on.",
  cancel: "New jobs wait for the next month. Running jobs are cancelled.",
}
const RESERVES = {
  expected: "its expected cost: an hour for a job without a timeout, so such jobs may exceed the cap",
  strict: "the most that it can cost, so the cap is never exceeded",
}

/** Caps that the project's jobs are under, what is spent, and a form for those who may change the project's. */
export function Budgets({ budgets, reload }: { budgets: readonly Budget[]; reload: () => void }) {
  const access = useLoad("caps", readAccess)
  const isChanging = useSignal(false)
  return (
    <section class="panel" aria-labelledby="budgets">
      <header class="panel-title">
        <h2 id="budgets">Budgets</h2>
        {access.data.value?.project !== undefined && !isChanging.value && (
          <button
            type="button"
            class="small"
            onClick={() => {
              isChanging.value = true
            }}
          >
            Change the project's caps
          </button>
        )}
      </header>
      <Answer of={access}>
        {({ project: changed, reason }) => (
          <>
            {changed !== undefined && isChanging.value && (
              <CapsForm
                of={changed}
                close={() => {
                  isChanging.value = false
                }}
                done={() => {
                  isChanging.value = false
                  access.reload()
                  reload()
                }}
              />
            )}
            {budgets.length === 0 && <p>No cap limits what this project spends.</p>}
            {budgets.map((budget) => (
              <BudgetOf key={budget.level} budget={budget} />
            ))}
            {reason !== undefined && <p class="minor">{reason}</p>}
          </>
        )}
      </Answer>
    </section>
  )
}

/** The project, if the reader may change its caps; else the reason. */
interface Access {
  project?: ProjectRecord
  reason?: string
}

async function readAccess(): Promise<Access> {
  const proof = credential.peek()
  const organization = me.peek()?.organization_id ?? ""
  if (proof === undefined || "key" in proof)
    return { reason: "An API key can't change caps. Admins of the organization can, when they sign in as a person." }
  const membership = (await listOrganizations(accounts)).find(({ id }) => id === organization)
  if (membership === undefined)
    return { reason: `Only admins of the organization ${organization} can change caps. You are not a member of it.` }
  if (membership.role === "member")
    return { reason: `Only admins of ${membership.displayName} can change caps. You are a member of it.` }
  const found = (await projectsIn(accounts, organization)).find(({ id }) => id === project.peek())
  return found === undefined ? { reason: "The organization no longer has this project." } : { project: found }
}

function BudgetOf({ budget }: { budget: Budget }) {
  const { level, vms, max_vms, gpus, max_gpus, hourly_usd, max_hourly_usd, max_monthly_usd, on_exceeded, reserve } =
    budget
  const { idle_vms, max_idle_vms } = budget
  return (
    <article class="budget" aria-label={LEVELS[level]}>
      <h3>{LEVELS[level]}</h3>
      <MonthMeter of={budget} />
      <Facts
        of={[
          [
            "Price of all machines",
            `${usd(hourly_usd)}/h${max_hourly_usd === null ? "" : ` of ${usd(max_hourly_usd)}/h`}`,
          ],
          ["Machines", `${count(vms)}${max_vms === null ? "" : ` of ${count(max_vms)}`}`],
          [
            "GPUs",
            (gpus > 0 || max_gpus !== null) && `${count(gpus)}${max_gpus === null ? "" : ` of ${count(max_gpus)}`}`,
          ],
          [
            "Waiting machines",
            (idle_vms > 0 || max_idle_vms !== null) &&
              `${count(idle_vms)}${max_idle_vms === null ? "" : ` of ${count(max_idle_vms)}`}`,
          ],
          ["When the month is spent", max_monthly_usd !== null && ON_EXCEEDED[on_exceeded]],
          ["A running machine reserves", max_monthly_usd !== null && RESERVES[reserve]],
        ]}
      />
    </article>
  )
}

/** Month against its cap. @param isShort true: only its amounts, for a small place */
export function MonthMeter({ of, isShort = false }: { of: Budget; isShort?: boolean }) {
  const { level, spent_usd, reserved_usd, max_monthly_usd: most, left_usd } = of
  if (most === null) return <p>{usd(spent_usd)} spent this month. The month has no cap.</p>
  const share = (amount: number): string => `${most === 0 ? 100 : Math.min(100, (amount / most) * 100)}%`
  const text = `${usd(spent_usd)} of ${usd(most)} spent`
  return (
    <div class={spent_usd >= most ? "month over" : "month"}>
      <div
        class="meter"
        role="meter"
        aria-label={`Month of ${LEVELS[level].toLowerCase()}`}
        aria-valuemin={0}
        aria-valuemax={most}
        aria-valuenow={Math.min(most, spent_usd)}
        aria-valuetext={text}
      >
        <i style={{ width: share(spent_usd) }} />
        <i class="reserved" style={{ width: share(reserved_usd) }} />
      </div>
      {isShort ? (
        <span class="minor">
          {level === "project" ? "" : `${LEVELS[level]}: `}
          {usd(left_usd ?? 0)} left of {usd(most)}
        </span>
      ) : (
        <p class="minor">
          {text}, {usd(reserved_usd)} reserved by running machines, {usd(left_usd ?? 0)} left for new ones.
        </p>
      )}
    </div>
  )
}

const AMOUNTS = [
  { name: "maxMonthlyUsd", label: "USD in a calendar month", step: "any" },
  { name: "maxHourlyUsd", label: "USD per hour, of all machines", step: "any" },
  { name: "maxVms", label: "Machines at a time", step: "1" },
  { name: "maxGpus", label: "GPUs at a time", step: "1" },
  { name: "maxIdleVms", label: "Machines that wait for another job", step: "1" },
] as const

/** Caps of the project. An empty field isn't a cap. */
function CapsForm({ of, close, done }: { of: ProjectRecord; close: () => void; done: () => void }) {
  const caps = useSignal<Caps>(of.caps ?? {})
  const change = (next: Partial<Caps>): void => {
    caps.value = { ...caps.value, ...next }
  }
  const setAmount = (name: (typeof AMOUNTS)[number]["name"]) => (text: string) => {
    const { [name]: _, ...others } = caps.value
    caps.value = text === "" ? others : { ...others, [name]: Number(text) }
  }
  const save = async (): Promise<void> => {
    const params = { path: { project_id: of.id } }
    await readBody(
      accounts.api.PATCH("/projects/{project_id}", { params, body: { displayName: of.displayName, caps: caps.value } }),
    )
    done()
  }
  const { onExceeded = "wait", reserve = "expected" } = caps.value
  return (
    <PanelForm title="Caps of this project" action="Set the caps" act={save} close={close}>
      <div class="fields">
        {AMOUNTS.map(({ name, label, step }) => (
          <Field key={name} label={label} name={`caps.${name}`} hint="Empty: no cap.">
            <input type="number" min={0} step={step} value={caps.value[name] ?? ""} onInput={onText(setAmount(name))} />
          </Field>
        ))}
        <Field label="When the month is spent" hint={ON_EXCEEDED[onExceeded]}>
          <select
            value={onExceeded}
            onChange={onText((value) => change({ onExceeded: value === "cancel" ? "cancel" : "wait" }))}
          >
            <option value="wait">running jobs go on</option>
            <option value="cancel">cancel running jobs</option>
          </select>
        </Field>
        <Field label="A running machine reserves" hint={`It takes ${RESERVES[reserve]}.`}>
          <select
            value={reserve}
            onChange={onText((value) => change({ reserve: value === "strict" ? "strict" : "expected" }))}
          >
            <option value="expected">its expected cost</option>
            <option value="strict">its highest cost</option>
          </select>
        </Field>
      </div>
    </PanelForm>
  )
}
