import { useLocation } from "preact-iso/router"
import { readBody, type Schemas } from "../../client/client.ts"
import { CLOUDS } from "../../client/providers.ts"
import { count, usd } from "../format.ts"
import { Field, onText, PageTitle, TableFrame, Time } from "../parts/basics.tsx"
import { Answer, Empty, useLoad } from "../parts/load.tsx"
import { at, client } from "../state.ts"

const FIELDS = ["gpu", "cpu", "memory", "region", "cloud"] as const
type Name = (typeof FIELDS)[number] | "provisioning"

const LABELS: Record<(typeof FIELDS)[number], [label: string, placeholder: string]> = {
  gpu: ["GPU", "L4, L4:2 or 24Gi"],
  cpu: ["vCPU", "4"],
  memory: ["Memory", "16Gi"],
  region: ["Regions", "eu"],
  cloud: ["Clouds", CLOUDS.join(" ")],
}

/** Cheapest offers for a need, without any submission. */
export function OffersPage() {
  const { url, route } = useLocation()
  const query = new URL(url, location.origin).searchParams
  const textOf = (name: Name): string => query.get(name) ?? ""
  const set = (name: Name) => (value: string) => {
    const next = new URLSearchParams(query)
    if (value.trim() === "") next.delete(name)
    else next.set(name, value.trim())
    route(at(`/offers?${next}`), true)
  }
  const offers = useLoad(`offers ${query}`, (signal) => readOffers(textOf, signal), "offers")
  return (
    <>
      <PageTitle title="Offers" />
      <form class="filters" role="search" aria-label="Needs" onSubmit={(event) => event.preventDefault()}>
        {FIELDS.map((name) => (
          <Field key={name} label={LABELS[name][0]}>
            <input value={textOf(name)} placeholder={LABELS[name][1]} onChange={onText(set(name))} />
          </Field>
        ))}
        <Field label="Buy">
          <select value={textOf("provisioning")} onChange={onText(set("provisioning"))}>
            <option value="">on demand</option>
            <option value="spot">spot</option>
            <option value="spotFirst">spot or on demand</option>
          </select>
        </Field>
      </form>
      <Answer of={offers}>{(found) => <Offers {...found} />}</Answer>
    </>
  )
}

function readOffers(textOf: (name: Name) => string, signal: AbortSignal) {
  const list = (name: Name): string[] =>
    textOf(name)
      .split(/[\s,]+/)
      .filter((one) => one !== "")
  const texts = {
    gpu: textOf("gpu"),
    memory: textOf("memory"),
    cpu: textOf("cpu"),
    provisioning: textOf("provisioning"),
  }
  const set = Object.fromEntries(Object.entries(texts).filter(([, value]) => value !== ""))
  const query = { ...set, region: list("region"), cloud: list("cloud") as (typeof CLOUDS)[number][], limit: 50 }
  return readBody(client.value.api.GET("/offers", { params: { query }, signal }))
}

function Offers({ offers, total, message }: Schemas["OfferList"]) {
  if (offers.length === 0) return <Empty title={message ?? "No offer fits."} />
  return (
    <>
      {message !== null && <p class="note">{message}</p>}
      <TableFrame label="Offers">
        <table class="cards">
          <thead>
            <tr>
              <th>Machine</th>
              <th>Region</th>
              <th class="number">vCPU</th>
              <th class="number">Memory</th>
              <th>GPU</th>
              <th class="number">Machine $/h</th>
              <th class="number">All $/h</th>
              <th class="number">Priced</th>
            </tr>
          </thead>
          <tbody>
            {offers.map((offer, index) => (
              <tr key={index}>
                <td class="row-name">
                  {offer.provider} {offer.instance_type}
                  {offer.provisioning === "spot" && <span class="tag">spot</span>}
                  {offer.unavailable !== null && <span class="minor below">{offer.unavailable}</span>}
                </td>
                <td>{offer.zone ?? offer.region}</td>
                <td class="number" data-label="vCPU">
                  {offer.cpu}
                </td>
                <td class="number" data-label="Memory">
                  {offer.memory}
                </td>
                <td data-label="GPU">
                  {offer.gpu === null ? "" : `${offer.gpu.count}×${offer.gpu.model} (${offer.gpu.vram})`}
                </td>
                <td class="number" data-label="Machine $/h">
                  {usd(offer.hourly_price_usd)}
                </td>
                <td class="number" data-label="All $/h">
                  {usd(offer.total_usd_per_hour)}
                </td>
                <td class="number" data-label="Priced">
                  {offer.price_date !== null && <Time at={offer.price_date} isRelative />}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </TableFrame>
      <p class="minor">
        The cheapest {count(offers.length)} of {count(total)}. All: with disk and public address.
      </p>
    </>
  )
}
