import { describe, expect, test } from "vitest"
import { declareResource } from "../../src/core/kube/resource.ts"
import type { Cases, Corpus } from "./corpus.ts"
import { JOBS } from "./job.ts"
import { LAUNCHES } from "./launch.ts"
import {
  API_KEYS,
  CONNECTIONS,
  CRON_JOBS,
  JOB_ARRAYS,
  ORGANIZATIONS,
  PROJECTS,
  STATEMENTS,
  WEBHOOKS,
} from "./others.ts"
import { type AnyObject, type Parts, validators } from "./server.ts"

const CORPORA = [
  JOBS,
  CRON_JOBS,
  JOB_ARRAYS,
  CONNECTIONS,
  WEBHOOKS,
  API_KEYS,
  LAUNCHES,
  STATEMENTS,
  ORGANIZATIONS,
  PROJECTS,
]

const GOOD = { server: undefined, validator: undefined }
const BAD = { server: expect.any(String), validator: expect.any(String) }
const REFUSED_BY_RULE = { server: expect.any(String), validator: undefined }

type Expected = typeof GOOD | typeof BAD | typeof REFUSED_BY_RULE

describe.each(CORPORA.map((corpus) => [corpus.kind.kind, corpus] as const))("%s", (_, corpus: Corpus) => {
  const { kind, base } = corpus
  const judge = validators("corpus")
  const titleFor = (expected: Expected): string =>
    `${expected === GOOD ? "accepts" : "rejects"} the ${kind.kind} with %s`

  function testSpecs(cases: Cases | undefined, expected: Expected): void {
    if (cases === undefined) return
    test.each(Object.entries(cases))(titleFor(expected), async (_, fields) => {
      const parts: Parts = { spec: { ...base, ...fields } }
      expect({ server: await judge.server(kind, parts), validator: judge.validator(kind, parts) }).toEqual(expected)
    })
  }

  function testMetadata(cases: Cases | undefined, expected: Expected): void {
    if (cases === undefined) return
    test.each(Object.entries(cases))(titleFor(expected), async (_, metadata) => {
      const parts: Parts = { metadata, spec: base }
      expect({ server: await judge.server(kind, parts), validator: judge.validator(kind, parts) }).toEqual(expected)
    })
  }

  describe("valid objects", () => {
    testSpecs(corpus.good, GOOD)
    testMetadata(corpus.goodMetadata, GOOD)
  })

  describe("invalid objects", () => testSpecs(corpus.bad, BAD))

  describe.skipIf(!corpus.refusedByRule && !corpus.refusedMetadata)(
    "objects that only the API server's rules reject",
    () => {
      testSpecs(corpus.refusedByRule, REFUSED_BY_RULE)
      testMetadata(corpus.refusedMetadata, REFUSED_BY_RULE)
    },
  )

  const { status } = corpus
  describe.skipIf(!status)("status", () => {
    const name = "corpus-status"
    const judgeStatus = async (fields: Readonly<Record<string, unknown>>) => {
      const written = judge.object(kind, { metadata: { name }, spec: base })
      const stored = await judge.client.apply(declareResource<AnyObject>(kind), written)
      const object = { metadata: stored.metadata, spec: base, status: { ...status?.base, ...fields } }
      return { server: await judge.serverStatus(kind, object), validator: judge.validator(kind, object) }
    }
    test.each(Object.entries(status?.good ?? {}))(`accepts the ${kind.kind} status with %s`, async (_, fields) => {
      expect(await judgeStatus(fields)).toEqual(GOOD)
    })
    test.each(Object.entries(status?.bad ?? {}))(`rejects the ${kind.kind} status with %s`, async (_, fields) => {
      expect(await judgeStatus(fields)).toEqual(BAD)
    })
  })
})
