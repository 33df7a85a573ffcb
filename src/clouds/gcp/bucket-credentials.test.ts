import { expect, test } from "vitest"
import { accessBoundary } from "./bucket-credentials.ts"

test.each([
  [true, "inRole:roles/storage.objectViewer"],
  [false, "inRole:roles/storage.objectUser"],
])("the token of a volume with readOnly %s has only the role %s", (readOnly, role) => {
  const boundary = accessBoundary({ bucket: "cargo", prefix: "in", readOnly })
  expect(boundary).toMatchObject({ accessBoundary: { accessBoundaryRules: [{ availablePermissions: [role] }] } })
})
