import Type, { type Static } from "typebox"
import { pricesOf, type StoredLaunch } from "../../../core/apis/launch.ts"
import { fromMetadataName } from "../../../core/apis/names.ts"
import { OFFER_PROVISIONINGS } from "../../../core/apis/offer.ts"
import { sumOfParts } from "../../../core/apis/price.ts"
import { ALLOWED, StringEnum } from "../../../core/apis/schema.ts"
import { nullable } from "../../../core/records/nullable.ts"
import { idleUsd } from "../../../core/reuse/reuse.ts"
import type { PageOf } from "../../http/json-schema.ts"

function time(description: string) {
  return Type.String({ format: "date-time", description, [ALLOWED]: "an RFC 3339 time" })
}

/** VM of a project that waits for another job. */
export const IdleVmRecordSchema = Type.Object({
  launch: Type.String({ description: "Name of the Launch that has the VM. DELETE /idle/{launch} ends the VM." }),
  job: Type.String({ description: "Name of the job that ran on it last." }),
  job_id: Type.String({ description: "Id of that job." }),
  key: nullable<string>("string", "Only jobs with this key get the VM. Null: those without a key."),
  provider: Type.String(),
  region: Type.String(),
  zone: nullable<string>("string", "Null: any zone of the region."),
  instance_type: Type.String(),
  provisioning: StringEnum(OFFER_PROVISIONINGS),
  connection: nullable<string>("string", "Connection whose account is billed. Null: none is needed."),
  vm_instance_id: nullable<string>("string", "Id of the VM in the cloud."),
  hourly_price_usd: Type.Number({ description: "Price of the machine, USD per hour." }),
  total_usd_per_hour: Type.Number({ description: "Price with disk and public address, USD per hour." }),
  idle_since: time("Time from which it waits."),
  idle_until: time("Time until which it waits at most. Then it powers itself off."),
  idle_usd: Type.Number({ description: "Cost of the wait so far, USD. It is part of the job's cost." }),
})
export type IdleVm = Static<typeof IdleVmRecordSchema>

/** Response of GET /idle. */
export type IdleList = PageOf<"idle", IdleVm>

/** Returns the record of an idle VM. @param wait since when and until when it waits, RFC 3339 */
export function toIdleVm(launch: StoredLaunch, wait: { since: string; until: string }, now: Date): IdleVm {
  const { metadata, spec, status } = launch
  const { offer, job, run, connection } = spec
  return {
    launch: metadata.name,
    job: job.name,
    job_id: job.uid,
    key: run.reuse?.key ?? null,
    provider: offer.cloud,
    region: offer.region,
    zone: offer.zone ?? null,
    instance_type: offer.instanceType,
    provisioning: offer.provisioning,
    connection: connection === undefined ? null : fromMetadataName(connection),
    vm_instance_id: status?.vm?.id ?? null,
    hourly_price_usd: offer.hourlyPriceUsd,
    total_usd_per_hour: sumOfParts(pricesOf(launch)),
    idle_since: wait.since,
    idle_until: wait.until,
    idle_usd: idleUsd(launch, now) ?? 0,
  }
}
