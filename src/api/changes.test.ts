import { setTimeout as delay } from "node:timers/promises"
import { expect, test } from "vitest"
import { Changes } from "./changes.ts"

/** Object of a server that takes a while for each request, and rejects a change of an older version. */
class SlowObject {
  version = 0

  async change(): Promise<{ version: number } | undefined> {
    const read = this.version
    await delay(10)
    if (read !== this.version) return undefined
    return { version: ++this.version }
  }
}

test("two replicas with many changes of one object make all of them", async () => {
  const object = new SlowObject()
  const replicas = [new Changes(), new Changes()]
  const changed = replicas.flatMap((replica) =>
    Array.from({ length: 50 }, () => replica.run({ noun: "object", key: "a" }, () => object.change())),
  )
  const versions = (await Promise.all(changed)).map(({ version }) => version)
  expect(versions.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 100 }, (_, n) => n + 1))
})
