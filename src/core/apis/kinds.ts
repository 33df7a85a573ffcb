import { API_KEY } from "./apikey.ts"
import { CONNECTION } from "./connection.ts"
import { CRON_JOB } from "./cronjob.ts"
import { JOB } from "./job.ts"
import { JOB_ARRAY } from "./jobarray.ts"
import type { KindDefinition } from "./kind.ts"
import { LAUNCH } from "./launch.ts"
import { MACHINE } from "./machine.ts"
import { ORGANIZATION } from "./organization.ts"
import { PROJECT } from "./project.ts"
import { STATEMENT } from "./statement.ts"
import { WEBHOOK } from "./webhook.ts"

/** Every kind of the group berth.dev. */
export const KINDS: readonly KindDefinition[] = [
  JOB,
  CRON_JOB,
  JOB_ARRAY,
  CONNECTION,
  MACHINE,
  WEBHOOK,
  API_KEY,
  LAUNCH,
  STATEMENT,
  ORGANIZATION,
  PROJECT,
]
