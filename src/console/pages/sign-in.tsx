import { useSignal } from "@preact/signals"
import { useEffect } from "preact/hooks"
import { useLocation } from "preact-iso/router"
import { Field, typed } from "../parts/basics.tsx"
import { explained, Fault } from "../parts/load.tsx"
import { at, BASE, type Installation, installation, signInNote, signInTo } from "../state.ts"

/** Key and project of an address such as `#key=…&project=default`, which `npm start` prints. */
function fromFragment(): { key: string; project: string | null } | undefined {
  const given = new URLSearchParams(location.hash.slice(1))
  const key = given.get("key")
  if (key === null) return undefined
  history.replaceState(null, "", location.pathname + location.search)
  return { key, project: given.get("project") }
}

/** Sign-in with the issuer of the installation, or with an API key. Afterwards the page of the address is shown. */
export function SignInPage({ project }: { project: string | undefined }) {
  const document_ = useSignal<Installation | undefined>(undefined)
  const fault = useSignal<unknown>(undefined)
  useEffect(() => {
    document.title = "Sign in · Berth"
    installation().then(
      (found) => {
        document_.value = found
      },
      (error: unknown) => {
        fault.value = error
      },
    )
  }, [])
  const facts = document_.value
  return (
    <main class="sign-in">
      <h1>Berth</h1>
      <p class="lead">Container jobs on the cheapest cloud VM that fits.</p>
      {signInNote.value !== undefined && (
        <p class="note" role="status">
          {signInNote.value} Sign in to come back to this page.
        </p>
      )}
      {fault.value !== undefined && <Fault error={fault.value} />}
      {facts !== undefined && <KeyForm project={project ?? facts.default_project ?? hostProject()} />}
    </main>
  )
}

/** Returns the first label of a host, which may name a project. */
function hostProject(): string {
  const labels = location.hostname.split(".")
  return labels.length > 1 && !/^\d+$/.test(labels.at(-1) ?? "") ? (labels[0] ?? "") : ""
}

function KeyForm({ project }: { project: string }) {
  const { route, path } = useLocation()
  const given = useSignal(fromFragment())
  const name = useSignal(given.value?.project ?? project)
  const key = useSignal(given.value?.key ?? "")
  const error = useSignal<string | undefined>(undefined)
  const isBusy = useSignal(false)
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault()
    isBusy.value = true
    error.value = undefined
    try {
      await signInTo(name.value.trim(), { key: key.value.trim() })
      if (path === BASE) route(at(""), true)
    } catch (fault) {
      error.value = explained(fault).text
    }
    isBusy.value = false
  }
  return (
    <form class="panel" onSubmit={(event) => void submit(event)} aria-label="Sign in with an API key">
      <h2>Sign in with an API key</h2>
      {given.value !== undefined && (
        <p class="note">The link that you opened has the key of a project. Sign in only if you trust its sender.</p>
      )}
      <Field label="Project">
        <input
          name="username"
          autocomplete="username"
          required
          value={name.value}
          onInput={typed((value) => {
            name.value = value
          })}
        />
      </Field>
      <Field label="API key" hint="The key stays in the memory of this page, and is forgotten when you close it.">
        <input
          type="password"
          name="password"
          autocomplete="current-password"
          required
          value={key.value}
          onInput={typed((value) => {
            key.value = value
          })}
        />
      </Field>
      {error.value !== undefined && (
        <p class="fault" role="alert">
          {error.value}
        </p>
      )}
      <button type="submit" class="primary" disabled={isBusy.value}>
        Sign in
      </button>
    </form>
  )
}
