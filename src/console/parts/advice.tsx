import { type Advice, CHANGED, resourcesText } from "../../client/advice.ts"
import { readBody } from "../../client/client.ts"
import { count, usd } from "../format.ts"
import { at, client } from "../state.ts"
import { Answer, useLoad } from "./load.tsx"

/** Most advice that a page shows. The largest savings come first. */
const SHOWN = 10

/** Selection of the advice on a page. */
interface Selection {
  /** Name of a cronjob or of an array; neither: the whole project. */
  by?: { cronjob?: string; array?: string }
  /** Version of what the advice is about: advice is read again when it changes. */
  version?: string
  /** True for a page that says nothing without advice. */
  isQuiet?: boolean
}

/** Smaller resources with which measured jobs would cost less, with the change to make. */
export function AdvicePanel({ by = {}, version = "", isQuiet = false }: Selection) {
  const advice = useLoad(`advice ${JSON.stringify(by)} ${version}`, (signal) =>
    readBody(client.value.api.GET("/advice", { params: { query: { ...by, limit: SHOWN } }, signal })),
  )
  if (isQuiet && (advice.data.value?.total ?? 0) === 0) return null
  return (
    <section class="panel" aria-labelledby="advice">
      <h2 id="advice">Advice</h2>
      <Answer of={advice}>
        {({ advice: found, total }) => (
          <>
            {found.length === 0 && (
              <p class="minor">
                None so far. There is advice after three measured runs that succeeded, if smaller resources save at
                least 10 %.
              </p>
            )}
            {found.map((one) => (
              <One key={one.id} advice={one} isNamed={Object.keys(by).length === 0} />
            ))}
            {total > found.length && (
              <p class="minor">
                {count(total - found.length)} more: <code>berth advice</code> lists all.
              </p>
            )}
          </>
        )}
      </Answer>
    </section>
  )
}

function One({ advice, isNamed }: { advice: Advice; isNamed: boolean }) {
  const { kind, name, latest_job, reason, saving_usd_per_month, saving_percent, advised } = advice
  const path = kind === "image" ? `/jobs/${encodeURIComponent(latest_job)}` : `/${kind}s/${encodeURIComponent(name)}`
  return (
    <article aria-label={`Advice about ${name}`}>
      <p>
        {isNamed && (
          <>
            <a href={at(path)}>{name}</a>{" "}
          </>
        )}
        <strong>saves {usd(saving_usd_per_month)} a month</strong> ({Math.round(saving_percent)} %)
      </p>
      <p>{reason}</p>
      <p class="minor">
        {CHANGED[kind]}: <code>{resourcesText(advised.resources)}</code>
      </p>
    </article>
  )
}
