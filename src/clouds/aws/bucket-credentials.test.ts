import { expect, test } from "vitest"
import { bucketPolicy } from "./bucket-credentials.ts"

const SCOPE = { bucket: "cargo", prefix: "in", launch: "job-1", lifetimeSeconds: 3600 }

test("the key of a read-only volume can list, read and decrypt, and nothing else", () => {
  const { Statement } = bucketPolicy({ ...SCOPE, readOnly: true }) as { Statement: { Action: string[] }[] }
  expect(Statement.flatMap(({ Action }) => Action)).toEqual(["s3:ListBucket", "s3:GetObject", "kms:Decrypt"])
})

test("the key of a volume that is not read-only can write too", () => {
  const { Statement } = bucketPolicy({ ...SCOPE, readOnly: false }) as { Statement: { Action: string[] }[] }
  expect(Statement.flatMap(({ Action }) => Action)).toContain("s3:PutObject")
})
