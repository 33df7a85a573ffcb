import { useSignal } from "@preact/signals"
import type { ComponentChildren } from "preact"
import { useEffect, useRef } from "preact/hooks"
import { Route, Router, useLocation } from "preact-iso/router"
import { ArrayPage } from "./pages/array.tsx"
import { ArraysPage } from "./pages/arrays.tsx"
import { ConnectionsPage } from "./pages/connections.tsx"
import { CostsPage } from "./pages/costs.tsx"
import { CronJobPage } from "./pages/cronjob.tsx"
import { CronJobsPage } from "./pages/cronjobs.tsx"
import { JobPage } from "./pages/job.tsx"
import { JobsPage } from "./pages/jobs.tsx"
import { KeysPage } from "./pages/keys.tsx"
import { MachinesPage } from "./pages/machines.tsx"
import { MembersPage } from "./pages/members.tsx"
import { NewJobPage } from "./pages/new-job.tsx"
import { OffersPage } from "./pages/offers.tsx"
import { OverviewPage } from "./pages/overview.tsx"
import { ProjectsPage } from "./pages/projects.tsx"
import { SignInPage } from "./pages/sign-in.tsx"
import { WebhooksPage } from "./pages/webhooks.tsx"
import { PageTitle } from "./parts/basics.tsx"
import { Empty, Fault, Skeleton } from "./parts/load.tsx"
import { fits, session } from "./session.ts"
import {
  at,
  BASE,
  connection,
  credential,
  followChanges,
  me,
  project,
  projectIn,
  signInTo,
  signOutEverywhere,
  theme,
  zone,
} from "./state.ts"

/** The console: the sign-in, or the pages of a project. */
export function App() {
  const { path } = useLocation()
  const named = projectIn(path)
  if (session.value === undefined || !fits(session.value, named)) return <SignInPage project={named} />
  if (named === undefined) return <Frame>{path === BASE ? <ProjectsPage /> : <NotFound />}</Frame>
  return <Project key={named} name={named} />
}

/** Pages of one project, once the API has accepted the caller for it. */
function Project({ name }: { name: string }) {
  const error = useSignal<unknown>(undefined)
  const isCurrent = project.value === name && me.value !== undefined
  const enter = (): void => {
    const proof = credential.value
    if (proof === undefined || isCurrent) return
    error.value = undefined
    signInTo(name, proof).catch((fault: unknown) => {
      error.value = fault
    })
  }
  useEffect(enter, [name])
  useEffect(() => {
    if (!isCurrent) return
    const stop = new AbortController()
    void followChanges(stop.signal)
    return () => stop.abort()
  }, [isCurrent])
  if (error.value !== undefined)
    return (
      <Frame>
        <PageTitle title={name} />
        <Fault error={error.value} retry={enter} />
        <p>
          <a href={BASE}>Choose another project</a>
        </p>
      </Frame>
    )
  return (
    <Frame isInProject={isCurrent}>
      {isCurrent ? (
        <Router>
          <Route path="/console/projects/:project" component={OverviewPage} />
          <Route path="/console/projects/:project/jobs" component={JobsPage} />
          <Route path="/console/projects/:project/jobs/:job" component={JobPage} />
          <Route path="/console/projects/:project/new" component={NewJobPage} />
          <Route path="/console/projects/:project/cronjobs" component={CronJobsPage} />
          <Route path="/console/projects/:project/cronjobs/:cronjob" component={CronJobPage} />
          <Route path="/console/projects/:project/arrays" component={ArraysPage} />
          <Route path="/console/projects/:project/arrays/:array" component={ArrayPage} />
          <Route path="/console/projects/:project/costs" component={CostsPage} />
          <Route path="/console/projects/:project/offers" component={OffersPage} />
          <Route path="/console/projects/:project/connections" component={ConnectionsPage} />
          <Route path="/console/projects/:project/machines" component={MachinesPage} />
          <Route path="/console/projects/:project/webhooks" component={WebhooksPage} />
          <Route path="/console/projects/:project/keys" component={KeysPage} />
          <Route path="/console/projects/:project/members" component={MembersPage} />
          <Route default component={NotFound} />
        </Router>
      ) : (
        <Skeleton />
      )}
    </Frame>
  )
}

function NotFound() {
  return (
    <>
      <PageTitle title="Page not found" />
      <Empty title="The console has no such page.">
        <a href={BASE}>Go to the start</a>
      </Empty>
    </>
  )
}

const PAGES: readonly [path: string, title: string][] = [
  ["", "Overview"],
  ["/jobs", "Jobs"],
  ["/cronjobs", "Cronjobs"],
  ["/arrays", "Arrays"],
  ["/costs", "Costs"],
  ["/offers", "Offers"],
  ["/connections", "Connections"],
  ["/machines", "Machines"],
  ["/webhooks", "Webhooks"],
  ["/keys", "Keys"],
  ["/members", "Members"],
]

/** Header, navigation and the place of a page. */
function Frame({ isInProject = false, children }: { isInProject?: boolean; children: ComponentChildren }) {
  const { path } = useLocation()
  const navigation = useRef<HTMLElement>(null)
  useEffect(() => {
    navigation.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" })
  }, [path, isInProject])
  return (
    <>
      <a class="skip" href="#page" onClick={skip}>
        Skip to the page
      </a>
      <header class="top">
        <a class="brand" href={isInProject ? at("") : BASE}>
          Berth
        </a>
        {isInProject && (
          <nav aria-label="Pages" ref={navigation}>
            {PAGES.map(([suffix, title]) => {
              const isHere = suffix === "" ? path === at("") : path === at(suffix) || path.startsWith(`${at(suffix)}/`)
              return (
                <a key={suffix} href={at(suffix)} aria-current={isHere ? "page" : undefined}>
                  {title}
                </a>
              )
            })}
          </nav>
        )}
        <div class="top-end">
          {isInProject && <Live />}
          <Settings />
        </div>
      </header>
      {connection.value === "offline" && isInProject && (
        <p class="offline" role="status">
          Berth can't be reached. The page shows what was last read; it tries again every few seconds.
        </p>
      )}
      <main id="page" tabIndex={-1}>
        {children}
      </main>
    </>
  )
}

/** Moves the focus, since a fragment would be a new address. */
function skip(event: Event): void {
  event.preventDefault()
  document.getElementById("page")?.focus()
}

const LIVE = { connecting: "Connecting", live: "Live", offline: "Offline" }

function Live() {
  return (
    <span class={`live ${connection.value}`} title="Changes appear by themselves while this says Live">
      {LIVE[connection.value]}
    </span>
  )
}

const THEMES = ["auto", "light", "dark"]

function Settings() {
  const who = me.value
  return (
    <details class="menu">
      <summary>{project.value !== undefined && who !== undefined ? project.value : "Settings"}</summary>
      <div class="menu-content">
        {who !== undefined && (
          <p>
            {who.name ?? who.id}
            <br />
            <span class="minor">
              {who.kind === "key" ? "API key" : "person"}, {who.role}, Berth {who.version}
              {who.kind === "person" && <span class="below">User ID: {who.id}</span>}
            </span>
          </p>
        )}
        {who?.warning != null && <p class="note trouble">{who.warning}</p>}
        <label class="field">
          <span class="field-label">Theme</span>
          <select
            value={theme.value}
            onChange={(event) => {
              theme.value = event.currentTarget.value
            }}
          >
            {THEMES.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        <label class="field">
          <span class="field-label">Times</span>
          <select
            value={zone.value}
            onChange={(event) => {
              zone.value = event.currentTarget.value === "utc" ? "utc" : "local"
            }}
          >
            <option value="local">local</option>
            <option value="utc">UTC</option>
          </select>
        </label>
        <a href={BASE}>Other projects</a>
        <button type="button" onClick={signOutEverywhere}>
          Sign out
        </button>
      </div>
    </details>
  )
}
