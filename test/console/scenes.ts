import type { Page } from "playwright-core"

/** Page, or state of a page. */
export interface Scene {
  name: string
  path: string
  /** Text that the page has once it is complete. */
  shown: string
  /** Brings the page into the state. */
  prepare?: (page: Page) => Promise<unknown>
}

const page = (name: string, path: string, shown: string): Scene => ({ name, path, shown })

/** Every page, as a key of an admin sees it. */
export const PAGES: readonly Scene[] = [
  page("overview", "", "Why jobs wait"),
  page("jobs", "/jobs", "fine-tune"),
  page("jobs-grouped", "/jobs?group=origin", "6 succeeded"),
  page("job-log", "/jobs/fine-tune?tab=log", "gradient norm"),
  page("job-story", "/jobs/fine-tune?tab=story", "Offers that the cloud refused"),
  page("job-use", "/jobs/fine-tune?tab=usage", "GPU memory: at most"),
  page("job-spec", "/jobs/fine-tune?tab=spec", "ghcr.io/acme/train:3.2"),
  page("job-sessions", "/jobs/fine-tune?tab=sessions", "Open sessions"),
  page("new-job", "/new?from=fine-tune", "Its price per hour"),
  page("cronjobs", "/cronjobs", "nightly-train"),
  page("cronjob", "/cronjobs/nightly-train", "Next ticks"),
  page("arrays", "/arrays", "lr-sweep"),
  page("array", "/arrays/lr-sweep", "All its jobs"),
  page("offers", "/offers?gpu=L4", "g2-standard-4"),
  page("connections", "/connections", "aws-prod"),
  page("machines", "/machines", "GeForce RTX 4090"),
  page("webhooks", "/webhooks", "ci-server"),
  page("keys", "/keys", "yours"),
]
/** Pages that people see in another form. */
export const PAGES_OF_PEOPLE: readonly Scene[] = [
  page("costs", "/costs", "Change the project's caps"),
  page("members", "/members", "you"),
]

export const press = (name: string | RegExp) => (of: Page) => of.getByRole("button", { name }).first().click()

export const STATES: readonly Scene[] = [
  {
    ...page("job-log-line", "/jobs/fine-tune?tab=log&line=12-14", "gradient norm"),
    prepare: async (of) => {
      await of.getByLabel("Times", { exact: true }).last().check()
      await of.locator(".log-time").first().waitFor()
      await of.locator(".log-line.linked").first().waitFor()
    },
  },
  page("jobs-between", "/jobs?submitted=between&ended_before=2099-01-01T00:00:00Z&sort_by=cost", "nightly-7"),
  {
    ...page("job-cancel", "/jobs/fine-tune?tab=log", "gradient norm"),
    prepare: async (of) => {
      await press("Cancel")(of)
      await of.getByRole("checkbox", { name: "Cancel these 2 too" }).waitFor()
    },
  },
  {
    ...page("job-terminal-refused", "/jobs/fine-tune?tab=sessions", "Open sessions"),
    prepare: async (of) => {
      await of.getByLabel("Command", { exact: true }).fill("x".repeat(5000))
      await press("Open the terminal")(of)
      await of.getByText("command[0]").waitFor()
    },
  },
  page("job-sessions-waiting", "/jobs/convert-images?tab=sessions", "needs a running container"),
  page("job-order", "/jobs/evaluate?tab=spec", "success needed"),
  {
    ...page("jobs-cancel", "/jobs?label=team%3Dspeech", "sweep-1"),
    prepare: async (of) => {
      await press("Cancel all that match")(of)
      await of.getByText("Cancel 3 jobs?").waitFor()
    },
  },
  {
    ...page("new-array", "/new?as=array", "Jobs at the same time"),
    prepare: async (of) => {
      await of.getByLabel("Values", { exact: true }).fill("LEARNING_RATE=0.1,0.01\nSEED=1..15")
      await of.getByLabel("Image", { exact: true }).fill("ghcr.io/acme/train:3.2")
      await of.getByText("30 jobs: about").waitFor()
    },
  },
  {
    ...page("new-cronjob", "/new?as=cronjob", "Schedule (UTC)"),
    prepare: async (of) => {
      await of.getByLabel("Schedule (UTC)", { exact: true }).fill("30 3 * * MON-FRI")
      await of.getByLabel("Image", { exact: true }).fill("ghcr.io/acme/report:1")
      await of.getByText("runs a month").waitFor()
    },
  },
  {
    ...page("new-job-wrong", "/new?as=array", "Jobs at the same time"),
    prepare: async (of) => {
      await of.getByLabel("vCPU", { exact: true }).fill("many")
      await of.getByLabel("Memory", { exact: true }).fill("lots")
      await of.getByText("Correct vCPU, Memory").waitFor()
    },
  },
  { ...page("new-key", "/keys", "yours"), prepare: press("New key") },
  { ...page("key-revoke", "/keys", "yours"), prepare: press(/^Revoke/) },
  { ...page("new-connection", "/connections", "aws-prod"), prepare: press("New connection") },
  { ...page("connection-rotate", "/connections", "aws-prod"), prepare: press(/^Rotate .*aws-prod/) },
  {
    ...page("connection-buckets", "/connections", "aws-prod"),
    prepare: async (of) => {
      await press(/^Buckets of .*aws-prod/)(of)
      await of.getByRole("cell", { name: "training-data" }).waitFor()
    },
  },
  { ...page("connection-delete", "/connections", "aws-prod"), prepare: press(/^Delete .*aws-prod/) },
  {
    ...page("array-cancel", "/arrays/lr-sweep", "All its jobs"),
    prepare: async (of) => {
      await of.getByRole("link", { name: /^12: failed/ }).focus()
      await press("Cancel")(of)
    },
  },
  { ...page("new-machine", "/machines", "workstation-1"), prepare: press("New machine") },
  {
    ...page("machine-command", "/machines", "workstation-1"),
    prepare: async (of) => {
      await press(/^Join again .*workstation-1/)(of)
      await press("Make a command")(of)
      await of.getByLabel("Command", { exact: true }).waitFor()
    },
  },
  { ...page("machine-change", "/machines", "workstation-1"), prepare: press(/^Change .*workstation-1/) },
  { ...page("machine-remove", "/machines", "workstation-1"), prepare: press(/^Remove .*workstation-1/) },
  { ...page("new-webhook", "/webhooks", "ci-server"), prepare: press("New webhook") },
  {
    ...page("webhook-wrong", "/webhooks", "ci-server"),
    prepare: async (of) => {
      await press("New webhook")(of)
      await of.getByLabel("Name").fill("a")
      await of.getByLabel("Address of the receiver").fill("ci.example.com")
      await of.getByLabel("job.* each end").uncheck()
      await press("Add the webhook")(of)
      await of.getByText("correct the marked fields").waitFor()
    },
  },
  {
    ...page("webhook-secret", "/webhooks", "ci-server"),
    prepare: async (of) => {
      await press(/^Rotate .*ci-server/)(of)
      await press("Create a new secret")(of)
      await of.getByLabel("Signing secret", { exact: true }).waitFor()
    },
  },
  { ...page("webhook-rotate", "/webhooks", "ci-server"), prepare: press(/^Rotate .*ci-server/) },
  { ...page("webhook-delete", "/webhooks", "ci-server"), prepare: press(/^Delete .*ci-server/) },
  { ...page("menu", "/offers?gpu=L4", "g2-standard-4"), prepare: (of) => of.locator(".menu summary").click() },
  page("costs-by-key", "/costs?by=label%3Ateam", "An API key can't change caps."),
  page("members-by-key", "/members", "An API key belongs to a project"),
  page("no-such-job", "/jobs/none", "none"),
  page("no-such-page", "/nothing", "The console has no such page."),
  {
    ...page("offline", "/jobs", "Offline"),
    prepare: (of) => of.getByRole("alert").first().waitFor(),
  },
]
export const STATES_OF_PEOPLE: readonly Scene[] = [
  { ...page("caps", "/costs", "Change the project's caps"), prepare: press("Change the project's caps") },
  { ...page("new-member", "/members", "you"), prepare: press("New member") },
  { ...page("member-role", "/members", "you"), prepare: press(/^Change the role of .*cem/) },
]
/** Pages of a project without anything. */
export const EMPTY: readonly Scene[] = [
  page("empty-overview", "", "Nothing ran here yet."),
  page("empty-jobs", "/jobs", "This project has no jobs yet."),
  page("empty-cronjobs", "/cronjobs", "This project has no cronjobs."),
  page("empty-arrays", "/arrays", "This project has no arrays."),
  page("empty-webhooks", "/webhooks", "No webhook sends events."),
  page("empty-machines", "/machines", "This project has no machines of its own."),
  page("empty-connections", "/connections", "No cloud account is connected."),
  page("empty-costs", "/costs", "Nothing was spent"),
  page("no-offer", "/offers?cpu=4000", "4000"),
]
