import { type Signal, useSignal } from "@preact/signals"
import { useEffect } from "preact/hooks"
import { useLocation } from "preact-iso/router"
import { Field, onText } from "../parts/basics.tsx"
import { errorText, Fault } from "../parts/load.tsx"
import {
  beginSession,
  forgetPerson,
  isAsking,
  isPersonKnown,
  type LinkedKey,
  linkedKey,
  rememberPerson,
} from "../session.ts"
import { type ConsoleClient, consoleClientOf } from "../sign-in.ts"
import { at, BASE, type Installation, installation, isAccepted, RETURN_PATH, signInNote, signInTo } from "../state.ts"

/** Takes the key from the address, so that it is in no history. */
function fromFragment(): LinkedKey | undefined {
  const linked = linkedKey()
  if (linked !== undefined) history.replaceState(null, "", location.pathname + location.search)
  return linked
}

/** Sign-in with the issuer of the installation, or with an API key. Afterwards the page of the address is shown. */
export function SignInPage({ project }: { project: string | undefined }) {
  const document_ = useSignal<Installation | undefined>(undefined)
  const fault = useSignal<unknown>(undefined)
  const linked = useSignal(fromFragment())
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
      {facts !== undefined && !isAsking.value && (
        <Ways
          client={linked.value === undefined ? consoleClientOf(facts) : undefined}
          linked={linked.value}
          project={project ?? facts.default_project ?? hostProject()}
        />
      )}
    </main>
  )
}

interface WaysProps {
  /** Client of people; undefined: they can't sign in here. */
  client: ConsoleClient | undefined
  linked: LinkedKey | undefined
  project: string
}

/** Ways to sign in. While the issuer is asked there is no other, because its answer replaces the page. */
function Ways({ client, linked, project }: WaysProps) {
  const { path } = useLocation()
  const isBusy = useSignal(client !== undefined && (path === RETURN_PATH || isPersonKnown()))
  return (
    <>
      {client !== undefined && <IssuerSignIn at={client} isBusy={isBusy} />}
      <div hidden={isBusy.value}>
        <KeyForm key={project} linked={linked} project={project} isOnlyWay={client === undefined} />
      </div>
    </>
  )
}

/** Sign-in of a person. After the end of a token it happens by itself, as long as the issuer knows the person. */
function IssuerSignIn({ at: client, isBusy }: { at: ConsoleClient; isBusy: Signal<boolean> }) {
  const { route, path, url } = useLocation()
  const error = useSignal<string | undefined>(undefined)
  const isReturning = path === RETURN_PATH
  const run = (action: () => Promise<void>): void => {
    isBusy.value = true
    action().catch(async (fault: unknown) => {
      const { explainedByIssuer } = await import("../oidc.ts")
      error.value = `${client.issuer} did not sign you in: ${explainedByIssuer(fault)}`
      isBusy.value = false
    })
  }
  const start = (asksNothing: boolean) => async (): Promise<void> => {
    const { begin } = await import("../oidc.ts")
    await begin(client, isReturning ? BASE : url, asksNothing)
  }
  const end = async (): Promise<void> => {
    const { finish, needsQuestion, returnAddress } = await import("../oidc.ts")
    const returnTo = returnAddress() ?? BASE
    // A sign-in that fails is not repeated without a click, so that no page reloads itself for ever.
    forgetPerson()
    try {
      const token = await finish()
      if (!(await isAccepted(token, returnTo)))
        throw new Error(`Berth rejects its token. The token must have the audience ${client.audience}.`)
      rememberPerson()
      signInNote.value = undefined
      beginSession({ credential: { token } })
    } catch (fault) {
      // The issuer has forgotten the person, so the button is there for that.
      if (!needsQuestion(fault)) throw fault
      isBusy.value = false
    } finally {
      route(returnTo, true)
    }
  }
  useEffect(() => {
    if (isReturning) run(end)
    else if (isPersonKnown()) run(start(true))
    // A person who comes back from the issuer by the browser's button finds the page as it was left.
    const showAgain = ({ persisted }: PageTransitionEvent): void => {
      if (persisted) isBusy.value = false
    }
    addEventListener("pageshow", showAgain)
    return () => removeEventListener("pageshow", showAgain)
  }, [])
  return (
    <section class="panel" aria-label="Sign in as a person">
      <button type="button" class="primary wide" disabled={isBusy.value} onClick={() => run(start(false))}>
        {isBusy.value ? "Signing in" : "Sign in"}
      </button>
      <p class="minor">At {client.issuer}</p>
      {error.value !== undefined && (
        <p class="fault" role="alert">
          {error.value}
        </p>
      )}
    </section>
  )
}

/** Returns the first label of a host, which may name a project. */
function hostProject(): string {
  const labels = location.hostname.split(".")
  return labels.length > 1 && !/^\d+$/.test(labels.at(-1) ?? "") ? (labels[0] ?? "") : ""
}

interface KeyFormProps {
  linked: LinkedKey | undefined
  project: string
  /** False: most readers sign in as a person. */
  isOnlyWay: boolean
}

function KeyForm({ linked, project, isOnlyWay }: KeyFormProps) {
  const { route, path } = useLocation()
  const name = useSignal(linked?.project ?? project)
  const key = useSignal(linked?.key ?? "")
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
      error.value = errorText(fault).text
    }
    isBusy.value = false
  }
  return (
    <form class="panel" onSubmit={(event) => void submit(event)} aria-label="Sign in with an API key">
      <h2>Sign in with an API key</h2>
      {linked !== undefined && (
        <p class="note trouble">
          The link that you opened has the key of a project. Sign in only if you trust its sender.
        </p>
      )}
      <Field label="Project">
        <input
          name="username"
          autocomplete="username"
          required
          value={name.value}
          onInput={onText((value) => {
            name.value = value
          })}
        />
      </Field>
      <Field
        label="API key"
        hint="This tab keeps it until you sign out or close it, and new tabs get it from open ones."
      >
        <input
          type="password"
          name="password"
          autocomplete="current-password"
          required
          value={key.value}
          onInput={onText((value) => {
            key.value = value
          })}
        />
      </Field>
      {error.value !== undefined && (
        <p class="fault" role="alert">
          {error.value}
        </p>
      )}
      <button type="submit" class={isOnlyWay ? "primary" : ""} disabled={isBusy.value}>
        {name.value === "" ? "Sign in" : `Sign in to ${name.value}`}
      </button>
    </form>
  )
}
