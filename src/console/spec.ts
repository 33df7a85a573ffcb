import type { JobSubmission } from "../client/client.ts"
import { toFlags } from "../client/job-fields.ts"
import { withoutEmpty } from "../client/resubmission.ts"

/** The forms in which a job can be taken elsewhere: YAML, kubectl, curl, `berth run`. */

/** Value of JSON. */
type Value = string | number | boolean | null | undefined | readonly Value[] | { readonly [key: string]: Value }

/** Returns a value as YAML. Texts that YAML could read as something else are quoted. */
export function toYaml(value: object): string {
  return `${block(value as Value, "").replace(/^\n/, "")}\n`
}

function block(value: Value, indent: string): string {
  if (Array.isArray(value)) {
    if (value.length === 0) return " []"
    if (value.every((item) => typeof item !== "object")) {
      const flow = value.map((item) => scalar(item, ",[]{}")).join(", ")
      if (flow.length < 80 && !flow.includes("\n")) return ` [${flow}]`
    }
    return value.map((item) => `\n${indent}-${block(item, `${indent}  `).replace(/^\n\s*/, " ")}`).join("")
  }
  if (typeof value === "object" && value !== null) {
    const entries = Object.entries(value).filter(([, item]) => item !== undefined)
    if (entries.length === 0) return " {}"
    return entries.map(([key, item]) => `\n${indent}${scalar(key, "")}:${block(item, `${indent}  `)}`).join("")
  }
  return ` ${scalar(value, "")}`
}

/** Texts that need no quotes. A dot begins a number in YAML, such as .5, but not a path. */
const PLAIN = /^(?:[A-Za-z_/]|\.\.?\/)[-A-Za-z0-9_/.@+=]*(?::[-A-Za-z0-9_/.@+=]+)*$/
const RESERVED = /^(?:true|false|yes|no|on|off|y|n|null)$/i

function scalar(value: Value, flow: string): string {
  if (typeof value !== "string") return String(value)
  const isPlain = PLAIN.test(value) && !RESERVED.test(value) && ![...flow].some((sign) => value.includes(sign))
  return isPlain ? value : JSON.stringify(value)
}

/** Returns the manifest of a Job for kubectl. */
export function toManifest({ name, namePrefix, ...spec }: JobSubmission): string {
  const metadata = name != null ? { name } : { generateName: `${namePrefix ?? "job"}-` }
  const region = typeof spec.region === "string" ? { region: [spec.region] } : {}
  const cpu = spec.resources?.cpu
  const gpu = spec.resources?.gpu
  const resources = {
    ...spec.resources,
    ...(cpu != null && { cpu: String(cpu) }),
    ...(typeof gpu === "string" && { gpu: { vram: gpu } }),
  }
  const { project_id: _project, organization_id: _organization, ...fields } = spec
  return toYaml({
    apiVersion: "berth.dev/v1alpha1",
    kind: "Job",
    metadata,
    spec: withoutEmpty({ ...fields, ...region, resources }),
  })
}

/** Returns a text as one word of a POSIX shell. */
export function shellWord(text: string): string {
  return /^[-A-Za-z0-9_/.:=@%+,]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}

/** Returns the command that submits a job over REST. */
export function toCurl(job: JobSubmission, baseUrl: string): string {
  return [
    `curl --fail-with-body ${shellWord(`${baseUrl}/jobs`)} \\`,
    '  -H "X-Service-Api-Key: $BERTH_API_KEY" \\',
    '  -H "Content-Type: application/yaml" --data-binary @- <<"EOF"',
    `${toYaml(job)}EOF`,
  ].join("\n")
}

/** Returns the command of the command line; undefined if its flags can't say all of the job. */
export function toBerthRun(job: JobSubmission): string | undefined {
  const flags = toFlags(job)?.map(([name, text]) => (text === undefined ? name : `${name} ${shellWord(text)}`))
  if (flags === undefined) return undefined
  const words = [...(job.command ?? []).slice(1), ...(job.args ?? [])].map(shellWord)
  return ["berth run", ...flags, ...(words.length === 0 ? [] : [`-- ${words.join(" ")}`])].join(" \\\n  ")
}
