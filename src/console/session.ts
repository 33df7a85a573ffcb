import { signal } from "@preact/signals"
import type { Credential } from "../client/client.ts"

/**
 * The sign-in of this browser. This tab keeps it over reloads (sessionStorage), and a new tab gets it from an open one
 * (BroadcastChannel, which reaches pages of the same origin only). It is in no cookie and in no localStorage.
 */
export interface Session {
  credential: Credential
  /** Project that the API accepted the credential for. A key is for this one only. */
  project?: string | undefined
}

/** Present sign-in; undefined: signed out. */
export const session = signal<Session>()

/** True while other tabs may still answer the question for their sign-in. */
export const isAsking = signal(false)

const KEPT = "session"

/** True if a session can open the pages of a project; undefined: pages of no project. */
export function fits({ credential, project }: Session, named: string | undefined): boolean {
  return "token" in credential || named === undefined || named === project
}

export function beginSession(begun: Session): void {
  session.value = begun
  sessionStorage.setItem(KEPT, JSON.stringify(begun))
}

export function endSession(): void {
  session.value = undefined
  sessionStorage.removeItem(KEPT)
}

/** Kept in this tab: true if the issuer knows the person, so that a token that expires is replaced without a question. */
const SILENT = "sign-in-silent"

export function isPersonKnown(): boolean {
  return sessionStorage.getItem(SILENT) !== null
}

export function rememberPerson(): void {
  sessionStorage.setItem(SILENT, "true")
}

/** Forgets that the issuer knows the person, at a sign-out. */
export function forgetPerson(): void {
  sessionStorage.removeItem(SILENT)
}

/** A tab asks for a session for its page, a signed-in one answers, and a sign-out is for all of them. */
type Message = { ask: { project: string | undefined } } | { answer: Session } | { signedOut: true }

let tabs: BroadcastChannel | undefined
const post = (message: Message): void => tabs?.postMessage(message)

/** Longest time for which a page waits for other tabs before it shows the sign-in, milliseconds. A later answer counts too. */
const ASK_MS = 250

/**
 * Takes up the session of this tab, or asks the other tabs for theirs, and answers them from then on.
 * @param named the project of the page at present
 * @param signedOut is called when a person has signed out in another tab
 */
export function shareSession(named: () => string | undefined, signedOut: () => void): void {
  tabs = new BroadcastChannel("berth-session")
  tabs.onmessage = ({ data }: MessageEvent<Message>) => {
    if ("signedOut" in data) {
      if (session.value !== undefined) signedOut()
    } else if ("answer" in data) {
      if (session.value === undefined && fits(data.answer, named())) {
        beginSession(data.answer)
        isAsking.value = false
      }
    } else if (session.value !== undefined && fits(session.value, data.ask.project)) post({ answer: session.value })
  }
  addEventListener("hashchange", () => {
    if (linkedKey() !== undefined) location.reload()
  })
  if (linkedKey() !== undefined) return
  const kept = sessionStorage.getItem(KEPT)
  const own = kept === null ? undefined : (JSON.parse(kept) as Session)
  if (own !== undefined && fits(own, named())) {
    session.value = own
    return
  }
  isAsking.value = true
  post({ ask: { project: named() } })
  setTimeout(() => {
    isAsking.value = false
  }, ASK_MS)
}

/** Key and project of an address such as `#key=…&project=default`, which `npm start` prints. */
export interface LinkedKey {
  key: string
  project: string | null
}

/** Returns the key in the present address. It replaces the session once the reader agrees. */
export function linkedKey(): LinkedKey | undefined {
  const given = new URLSearchParams(location.hash.slice(1))
  const key = given.get("key")
  return key === null ? undefined : { key, project: given.get("project") }
}

/** Ends the session of each other tab. */
export function signOutOtherTabs(): void {
  post({ signedOut: true })
}
