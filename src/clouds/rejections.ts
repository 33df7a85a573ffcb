import { vmsOf } from "./definitions.ts"
import type { Meaning, RefusalClass } from "./rejection.ts"

/** Meaning of all other rejections. */
const CLASSES: Readonly<Record<RefusalClass, Meaning>> = {
  Capacity: { scope: ["offer"] },
  Quota: {
    scope: ["region", "quota", "provisioning", "size"],
    remedy: "request a higher quota from the cloud, or allow smaller machines, other regions or other clouds",
  },
  Credentials: { scope: [], remedy: "replace the credentials of the connection, which ends the cooldown at once" },
  Account: { scope: [], remedy: "change the setting or use another account" },
  Region: { scope: ["region", "spot"], remedy: "set `region` of the job to a region that the account allows" },
  InvalidRequest: { scope: ["offer"] },
  Unavailable: { scope: ["region"] },
}

/** Returns the meaning of a rejection by its class, and by the cloud's code ("": it has none) and message. */
export function interpretRejection(
  cloud: string,
  { class: kind, code = "", message }: { class: RefusalClass; code?: string; message: string },
): Meaning {
  const text = `${code} ${message}`
  const known = vmsOf(cloud)?.rejections.find((row) => (row.class ?? kind) === kind && row.says.test(text))
  return { ...CLASSES[kind], ...known }
}
