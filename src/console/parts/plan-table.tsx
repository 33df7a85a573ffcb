import type { JobPlan } from "../../client/client.ts"
import { usd } from "../format.ts"
import { verdictText } from "../plan.ts"
import { TableFrame, Time } from "./basics.tsx"

/** Placements that a plan shows at first. */
const SHOWN = 8

/** Machines that a job may get, the cheapest first, and what their prices consist of. */
export function PlanTable({ plan }: { plan: JobPlan }) {
  const { verdict, reason, message, placements, warnings = [] } = plan
  return (
    <>
      {verdict !== "placeable" && (
        <p class={verdict === "noOffer" ? "fault" : "note"}>
          <strong>{verdictText(plan)}</strong> ({reason}): {message}
        </p>
      )}
      {warnings.map((warning) => (
        <p key={warning} class="note">
          {warning}
        </p>
      ))}
      {placements.length > 0 && (
        <TableFrame label="Machines, the cheapest first">
          <table class="cards">
            <thead>
              <tr>
                <th class="number">#</th>
                <th>Machine</th>
                <th class="number">$/h</th>
                <th class="number">Expected</th>
              </tr>
            </thead>
            <tbody>
              {placements.slice(0, SHOWN).map((one, index) => (
                <tr key={`${one.provider} ${one.instance_type} ${one.region} ${one.provisioning}`} title={one.why}>
                  <td class="number">{index + 1}</td>
                  <td class="row-name">
                    {one.provider} {one.instance_type}
                    {one.provisioning === "spot" && <span class="tag">spot</span>}
                    <span class="minor below">
                      {one.region}
                      {one.gpu !== null && <span> · {`${one.gpu.count}×${one.gpu.model}`}</span>} · {one.cpu} vCPU ·{" "}
                      {one.memory}
                    </span>
                  </td>
                  <td class="number" data-label="$/h">
                    {usd(one.cost_breakdown.total_usd_per_hour)}
                  </td>
                  <td class="number" data-label="Expected">
                    {usd(one.estimated_cost_usd)}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </TableFrame>
      )}
      {placements[0] !== undefined && <Parts first={placements[0]} />}
    </>
  )
}

function Parts({ first }: { first: JobPlan["placements"][number] }) {
  const { cost_breakdown: parts, why, price_date } = first
  return (
    <p class="minor">
      First: {why}. Its price per hour is {usd(parts.machine_usd_per_hour)} for the machine,{" "}
      {usd(parts.disk_usd_per_hour)} for the disk, {usd(parts.address_usd_per_hour)} for the address
      {price_date !== null && (
        <>
          ; priced <Time at={price_date} isRelative />
        </>
      )}
      .
    </p>
  )
}
