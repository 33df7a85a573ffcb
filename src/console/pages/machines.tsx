import { type Signal, useSignal } from "@preact/signals"
import { useRef } from "preact/hooks"
import { type JobRecord, readBody, type Schemas } from "../../client/client.ts"
import { duration, timeText, usd } from "../format.ts"
import { ActionFault, buttonsOf, PanelForm, useAction } from "../parts/action.tsx"
import { Dialog, Facts, Field, onText, Signed, Time } from "../parts/basics.tsx"
import { StateMessage } from "../parts/conditions.tsx"
import { EditableList } from "../parts/editable-list.tsx"
import { Empty, useReloadEvery, useReloadOnChange } from "../parts/load.tsx"
import { type Listed, type PageQuery, usePages } from "../parts/pages.tsx"
import { SecretOnce } from "../parts/secret-once.tsx"
import { at, client, may, zone } from "../state.ts"

type Machine = Schemas["MachineRecord"]
type Join = Schemas["MachineJoin"]

/** Time between two reads, milliseconds: hosts join, fall silent and end jobs without an event of the project. */
const RELOAD_MS = 10_000

async function readMachines(query: PageQuery, signal: AbortSignal): Promise<Listed<Machine>> {
  const { machines, total } = await readBody(client.value.api.GET("/machines", { params: { query }, signal }))
  return { items: machines, total }
}

/** Machines that the project owns, with the job of each. */
export function MachinesPage() {
  const machines = usePages("/machines", readMachines)
  useReloadEvery(RELOAD_MS, machines.reload)
  useReloadOnChange(({ event }) => event === "job", machines.reload)
  const remove = (name: string) => client.value.api.DELETE("/machines/{name}", { params: { path: { name } } })
  return (
    <EditableList
      title="Machines"
      noun="machine"
      of={machines}
      form={(done) => <NewMachine done={done} />}
      empty={
        <Empty title="This project has no machines of its own.">
          <p>Workstations, servers and VMs that you have already can run jobs, before a cloud is paid for them.</p>
        </Empty>
      }
      removal={({ name, job }) => ({
        title: `Remove the machine ${name}?`,
        action: "Remove the machine",
        effect: `${job === null ? "Its job, if it has one," : `Its job ${job}`} ends, and gets another machine. The host forgets its keys.`,
        act: () => remove(name),
      })}
    >
      {(found, ask) =>
        found.map((machine) => (
          <MachinePanel key={machine.id} machine={machine} reload={machines.reload} remove={() => ask(machine)} />
        ))
      }
    </EditableList>
  )
}

/** Sign of each state. It needs no color, as that of a job. */
const SIGNS: Record<Machine["status"], JobRecord["status"]> = {
  ...({ pending: "queued", ready: "succeeded", busy: "running", draining: "booting" } as const),
  ...({ drained: "cancelled", silent: "failed", unfit: "failed", removing: "booting" } as const),
}

interface PanelProps {
  machine: Machine
  reload: () => void
  remove: () => void
}

/** A machine: its state, its job, what its host has, and what its owner can do. */
export function MachinePanel({ machine, reload, remove }: PanelProps) {
  const { name, status, job, unschedulable, shared, facts } = machine
  const action = useAction()
  const isAsking = useSignal(false)
  const isChanging = useSignal(false)
  const join = useSignal<Join | undefined>(undefined)
  const params = { path: { name } }
  const drain = async (): Promise<void> => {
    await readBody(client.value.api.PATCH("/machines/{name}", { params, body: { unschedulable: !unschedulable } }))
    reload()
  }
  const joinAgain = async (): Promise<void> => {
    join.value = (await readBody(client.value.api.POST("/machines/{name}/token", { params }))).join
    reload()
  }
  const button = buttonsOf(name, action)
  return (
    <article class="panel" aria-label={name}>
      <header class="panel-title">
        <h2>
          {name} {shared && <span class="tag">for every project</span>}
        </h2>
        {may("admin") && status !== "removing" && (
          <div class="actions">
            {button(unschedulable ? "Undo the drain" : "Drain", () => action.run(drain))}
            {button("Change", () => {
              isChanging.value = true
            })}
            {button("Join again", () => {
              isAsking.value = true
            })}
            {button("Remove", remove)}
          </div>
        )}
      </header>
      <p class="state">
        <Signed of={status} as={SIGNS[status]} />
        {job !== null && (
          <span>
            runs <a href={at(`/jobs/${encodeURIComponent(job)}`)}>{job}</a>
          </span>
        )}
      </p>
      <ActionFault of={action} />
      <StateMessage of={machine} />
      {join.value !== undefined && (
        <JoinOnce
          name={name}
          join={join.value}
          done={() => {
            join.value = undefined
          }}
        />
      )}
      <MachineFacts of={machine} />
      {isChanging.value && (
        <ChangeMachine
          machine={machine}
          reload={reload}
          close={() => {
            isChanging.value = false
          }}
        />
      )}
      {isAsking.value && (
        <Dialog
          title={`Let a host join as ${name}?`}
          action="Make a command"
          act={joinAgain}
          close={() => {
            isAsking.value = false
          }}
        >
          <p>
            {facts === null
              ? "The new command replaces the former one."
              : "The host that runs the new command replaces the present one. A job on the present one ends first."}
          </p>
        </Dialog>
      )}
    </article>
  )
}

function MachineFacts({ of }: { of: Machine }) {
  const { facts, hourly_price_usd, region, lease_seconds, lease_ends_at, last_heartbeat_at, joined_at } = of
  const gib = (size: number) => `${size.toLocaleString()} GiB`
  return (
    <Facts
      of={[
        ["vCPU", facts?.cpu.toLocaleString()],
        ["Memory", facts && gib(facts.memory_gib)],
        ["GPUs", facts && gpuText(facts)],
        ["Free disk when it joined", facts && gib(facts.disk_gib)],
        ["Architecture", facts?.architecture],
        ["Price while it runs a job", `${usd(hourly_price_usd)}/h`],
        ["Region", region],
        ["Last heartbeat", last_heartbeat_at && <Time at={last_heartbeat_at} isRelative />],
        ["Lease", duration(lease_seconds)],
        ["Present lease ends", lease_ends_at && <Time at={lease_ends_at} isRelative />],
        ["Joined", joined_at && <Time at={joined_at} isRelative />],
        ["Agent", of.agent_version],
      ]}
    />
  )
}

function gpuText({ gpu_model, gpu_count, gpu_vram_gib }: Schemas["MachineFacts"]): string {
  if (gpu_model === null) return "none"
  return `${gpu_count} × ${gpu_model}${gpu_vram_gib === null ? "" : `, ${gpu_vram_gib} GiB each`}`
}

/** Form of a new machine, and then the command with which its host joins, which is shown this once. */
function NewMachine({ done }: { done: () => void }) {
  const name = useSignal("")
  const settings = useSettings({})
  const made = useSignal<Schemas["MachineJoining"] | undefined>(undefined)
  const create = async (): Promise<void> => {
    const body = { name: name.value.trim(), ...valuesOf(settings) }
    made.value = await readBody(client.value.api.POST("/machines", { body }))
  }
  if (made.value !== undefined) return <JoinOnce name={made.value.name} join={made.value.join} done={done} />
  return (
    <PanelForm title="New machine" action="Add the machine" act={create} close={done}>
      <div class="fields">
        <Field label="Name" name="name">
          <input required spellcheck={false} autocomplete="off" value={name.value} onInput={setter(name)} />
        </Field>
        <SettingFields of={settings} />
      </div>
    </PanelForm>
  )
}

/** Form that changes the settings of a machine. It sends only those that were changed in it. */
function ChangeMachine({ machine, reload, close }: { machine: Machine; reload: () => void; close: () => void }) {
  // The page reads the machine again while the form is open.
  const { current: before } = useRef(machine)
  const settings = useSettings(before)
  const change = async (): Promise<void> => {
    const values = Object.entries({ ...DEFAULT_SETTINGS, ...valuesOf(settings) })
    const body = Object.fromEntries(values.filter(([name, value]) => value !== before[name as keyof Settings]))
    await readBody(client.value.api.PATCH("/machines/{name}", { params: { path: { name: before.name } }, body }))
    close()
    reload()
  }
  return (
    <PanelForm title={`Change ${before.name}`} action="Change the machine" act={change} close={close}>
      <div class="fields">
        <SettingFields of={settings} />
      </div>
      <p class="minor">
        A job that runs keeps the price with which it began. A shorter lease counts after the present one.
      </p>
    </PanelForm>
  )
}

/** Settings of a machine that its owner chooses. */
type Settings = Pick<Machine, "hourly_price_usd" | "region" | "lease_seconds">

/** Settings of a machine that names none. */
const DEFAULT_SETTINGS: Settings = { hourly_price_usd: 0, region: "own", lease_seconds: 900 }

type SettingTexts = Record<keyof Settings, Signal<string>>

function useSettings({ hourly_price_usd, region, lease_seconds }: Partial<Settings>): SettingTexts {
  return {
    hourly_price_usd: useSignal(hourly_price_usd?.toString() ?? ""),
    region: useSignal(region ?? ""),
    lease_seconds: useSignal(lease_seconds?.toString() ?? ""),
  }
}

/** Returns the settings that are not empty. */
function valuesOf({ hourly_price_usd, region, lease_seconds }: SettingTexts): Partial<Settings> {
  return {
    ...(hourly_price_usd.value !== "" && { hourly_price_usd: Number(hourly_price_usd.value) }),
    ...(region.value.trim() !== "" && { region: region.value.trim() }),
    ...(lease_seconds.value !== "" && { lease_seconds: Number(lease_seconds.value) }),
  }
}

function SettingFields({ of: { hourly_price_usd: price, region, lease_seconds: lease } }: { of: SettingTexts }) {
  return (
    <>
      <Field label="Price, USD per hour" name="hourly_price_usd" hint="While it runs a job. Empty: 0.">
        <input type="number" min={0} step="any" value={price.value} onInput={setter(price)} />
      </Field>
      <Field label="Region" name="region" hint="Jobs may name it. Empty: own.">
        <input spellcheck={false} autocomplete="off" value={region.value} onInput={setter(region)} />
      </Field>
      <Field
        label="Lease, seconds"
        name="lease_seconds"
        hint="After as long without Berth, it ends its job. Empty: 900."
      >
        <input type="number" min={120} max={86_400} value={lease.value} onInput={setter(lease)} />
      </Field>
    </>
  )
}

function setter(signal: Signal<string>) {
  return onText((value) => {
    signal.value = value
  })
}

/** Programs that run the agent on a host, by the command that the API returns for each. */
const WAYS = { docker: "Docker", systemd: "systemd and Node.js", source: "Berth's source" } as const
type Way = keyof typeof WAYS

/** Command with which a host joins, or its token if the installation has no command. */
function JoinOnce({ name, join, done }: { name: string; join: Join; done: () => void }) {
  const ways = (Object.keys(WAYS) as Way[]).filter((way) => join[way] !== null)
  const chosen = useSignal(ways[0])
  const command = chosen.value && join[chosen.value]
  const what = command ? "Run this on the machine" : "This is the join token"
  return (
    <SecretOnce
      title={`Join ${name}`}
      note={`${what}, once and before ${timeText(join.expires_at, zone.value)}: Berth can't show it again.`}
      label={command ? "Command" : "Join token"}
      value={command ?? join.token}
      done={done}
    >
      {join.note !== null && <p class="note trouble">{join.note}</p>}
      {ways.length > 1 && (
        <fieldset class="choice">
          <legend class="field-label">What runs the agent</legend>
          {ways.map((way) => (
            <label key={way}>
              <input
                type="radio"
                name={`way-${name}`}
                checked={chosen.value === way}
                onChange={() => {
                  chosen.value = way
                }}
              />
              {WAYS[way]}
            </label>
          ))}
        </fieldset>
      )}
    </SecretOnce>
  )
}
