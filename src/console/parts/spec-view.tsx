import { useSignal } from "@preact/signals"
import type { JobRecord, Schemas } from "../../client/client.ts"
import { toSubmission } from "../../client/resubmission.ts"
import { toBerthRun, toCurl, toManifest, toYaml } from "../spec.ts"
import { client } from "../state.ts"
import { Copy } from "./basics.tsx"

/** Forms of the specification, and the text of each. */
const FORMS = {
  YAML: (job: JobRecord) => toYaml(toSubmission(job)),
  kubectl: (job: JobRecord) => `kubectl create -f - <<"EOF"\n${toManifest(toSubmission(job))}EOF\n`,
  curl: (job: JobRecord) => toCurl(toSubmission(job), client.value.baseUrl),
  "berth run": (job: JobRecord) =>
    toBerthRun(toSubmission(job)) ??
    `berth run -f - <<"EOF"\n${toYaml(toSubmission(job))}EOF\n# berth run has no flags for some of these fields.`,
}

type Form = keyof typeof FORMS

/** Specification of a job, in the form that the reader needs to submit it elsewhere. */
export function SpecView({ job }: { job: JobRecord }) {
  const form = useSignal<Form>("YAML")
  const text = FORMS[form.value](job)
  return (
    <section class="panel">
      <h2>Specification</h2>
      <div class="actions">
        <fieldset class="choice">
          <legend class="hidden">Form</legend>
          {(Object.keys(FORMS) as Form[]).map((one) => (
            <label key={one}>
              <input
                type="radio"
                name="form"
                checked={form.value === one}
                onChange={() => {
                  form.value = one
                }}
              />
              {one}
            </label>
          ))}
        </fieldset>
        <Copy text={text} />
      </div>
      <pre class="code" tabIndex={0} aria-label={`Specification for ${form.value}`}>
        {text}
      </pre>
    </section>
  )
}

/** Definition of the jobs of a cronjob or an array. */
export function JobDefinition({ of }: { of: Schemas["JobDefinitionOutput"] }) {
  return (
    <section class="panel">
      <h2>Definition of its jobs</h2>
      <pre class="code" tabIndex={0} aria-label="Definition of its jobs">
        {toYaml(of)}
      </pre>
    </section>
  )
}
