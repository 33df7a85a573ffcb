import { expect, test } from "vitest"
import { mountOptions } from "./driver.ts"

const VOLUME = { bucket: "cargo", mountPath: "/data" }

test("a volume has rclone's options for its fields only", () => {
  expect(mountOptions(VOLUME, 1)).toEqual({})
  expect(mountOptions({ ...VOLUME, readOnly: false }, 1)).toEqual({})
  expect(mountOptions({ ...VOLUME, readOnly: true }, 1)).toEqual({ read_only: "true" })
  expect(mountOptions({ ...VOLUME, cache: "reads" }, 5_000_000_000)).toMatchObject({
    vfs_cache_mode: "full",
    vfs_cache_max_size: "5000000000B",
  })
})
