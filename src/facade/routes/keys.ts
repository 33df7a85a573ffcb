import type { Router } from "express"
import type { Clock } from "../../apis/clock.ts"
import { parseBody } from "../../http/body.ts"
import { preconditionOf } from "../../http/entity-tags.ts"
import { invalidRequest } from "../../http/problem.ts"
import { Query } from "../../http/query.ts"
import type { Principal } from "../../identity/principal.ts"
import { type Admission, type Call, endpoint, pathParameter, sendRecord } from "../endpoint.ts"
import { idempotencyKeyOf, madeBefore } from "../idempotency.ts"
import type { Keys } from "../keys.ts"
import type { KeyCreated, KeyList } from "../schemas/key.ts"
import { sortingOf } from "../sorting.ts"
import { checkKey, checkKeyUpdate, keyItemOf, keyRecordOf, type WantedKey } from "../translate/key.ts"

export interface KeyRouteOptions {
  admission: Admission
  keysOf: (principal: Principal) => Keys
  clock: Clock
}

/** The contract's endpoints of API keys. */
export function keyRoutes(router: Router, { admission, keysOf, clock }: KeyRouteOptions): void {
  endpoint(
    router,
    "/keys",
    {
      GET: { role: "viewer", handle: (call) => listKeys(call, keysOf(call.principal)) },
      POST: { role: "admin", handle: (call) => createKey(call, keysOf(call.principal), clock) },
    },
    admission,
  )
  endpoint(
    router,
    "/keys/:key_id",
    {
      GET: { role: "viewer", handle: (call) => getKey(call, keysOf(call.principal)) },
      PATCH: { role: "admin", handle: (call) => updateKey(call, keysOf(call.principal)) },
      DELETE: { role: "admin", handle: (call) => deleteKey(call, keysOf(call.principal)) },
    },
    admission,
  )
}

async function createKey(call: Call, keys: Keys, clock: Clock): Promise<void> {
  const { req, res } = call
  new Query(req).check()
  const idempotencyKey = idempotencyKeyOf(req)
  const checked = checkKey(parseBody(req), clock.now())
  const { key, value } =
    "faults" in checked
      ? await madeBefore<WantedKey, never>(checked, "The key", idempotencyKey, (_, used) => keys.refuseReplay(used))
      : await keys.create(checked.wanted, idempotencyKey)
  const record: KeyCreated = { ...keyRecordOf(key), value }
  // The value is a secret, which nothing on the way may keep.
  res.location(`/1/keys/${record.id}`).set("Cache-Control", "no-store")
  sendRecord(call, key, { record, status: 201 })
}

function listKeys({ req, res }: Call, keys: Keys): void {
  const query = new Query(req)
  const name = query.filter("name")
  const sorting = sortingOf(query)
  const page = query.page()
  query.check()
  const found = keys.list(name, sorting, page)
  const list: KeyList = { keys: found.keys.map(keyItemOf), total: found.total, ...page }
  res.json(list)
}

async function getKey(call: Call, keys: Keys): Promise<void> {
  new Query(call.req).check()
  const key = await keys.find(pathParameter(call.req, "key_id"))
  sendRecord(call, key, { record: keyRecordOf(key) })
}

async function updateKey(call: Call, keys: Keys): Promise<void> {
  const { req } = call
  new Query(req).check()
  const precondition = preconditionOf(req)
  const checked = checkKeyUpdate(parseBody(req))
  if ("faults" in checked) throw invalidRequest(checked.faults, "The update")
  const key = await keys.setRole(pathParameter(req, "key_id"), checked.role, precondition)
  sendRecord(call, key, { record: keyRecordOf(key) })
}

async function deleteKey({ req, res }: Call, keys: Keys): Promise<void> {
  new Query(req).check()
  await keys.remove(pathParameter(req, "key_id"), preconditionOf(req))
  res.status(204).end()
}
