import { API_KEY } from "../../src/apis/apikey.ts"
import { CONNECTION } from "../../src/apis/connection.ts"
import { CRON_JOB } from "../../src/apis/cronjob.ts"
import { LIMITS } from "../../src/apis/limits.ts"
import { ORGANIZATION } from "../../src/apis/organization.ts"
import { PROJECT } from "../../src/apis/project.ts"
import type { Corpus } from "./corpus.ts"

const TIME = "2026-01-31T12:00:00Z"
const UUID = "123e4567-e89b-12d3-a456-426614174000"

export const CRON_JOBS: Corpus = {
  kind: CRON_JOB,
  base: { schedule: "0 3 * * *", jobDefinition: { image: "alpine" } },
  good: {
    "the least": {},
    everything: {
      jobDefinition: { image: "alpine", resources: { cpu: "2", gpu: { vram: "24Gi" } }, timeoutSeconds: 1 },
      active: false,
      startingDeadlineSeconds: 0,
      concurrencyPolicy: "Replace",
      successfulJobsHistoryLimit: 0,
      failedJobsHistoryLimit: 10_000,
    },
    "a schedule that is none (the controller and the façade say so)": { schedule: "whenever" },
    "the longest starting deadline": { startingDeadlineSeconds: Number.MAX_SAFE_INTEGER },
    "null for fields with a default": { active: null, concurrencyPolicy: null },
  },
  bad: {
    "no schedule": { schedule: undefined },
    "an empty schedule": { schedule: "" },
    "a schedule that is too long": { schedule: "*".repeat(257) },
    "a job definition without image": { jobDefinition: {} },
    "a job definition with a name": { jobDefinition: { image: "alpine", name: "x" } },
    "a cancelled job definition": { jobDefinition: { image: "alpine", cancelled: true } },
    "a bad env name in the job definition": { jobDefinition: { image: "alpine", env: { "": "1" } } },
    "a gpu count without model in the job definition": {
      jobDefinition: { image: "alpine", resources: { gpu: { count: 1 } } },
    },
    "active as a string": { active: "yes" },
    "an unknown policy": { concurrencyPolicy: "Skip" },
    "a starting deadline below zero": { startingDeadlineSeconds: -1 },
    "a starting deadline that JavaScript can't hold": { startingDeadlineSeconds: 2 ** 53 },
    "a starting deadline beyond 64 bits": { startingDeadlineSeconds: 1e19 },
    "a history limit that is too high": { successfulJobsHistoryLimit: 10_001 },
    "an unknown field": { suspend: true },
  },
  goodMetadata: {
    "the longest name": { name: "a".repeat(LIMITS.cronJobName) },
    "a coded name": { name: "abc-x.x0" },
  },
  refusedMetadata: {
    "a name that is too long": { name: "a".repeat(LIMITS.cronJobName + 1) },
    "a name with a dot": { name: "a.b" },
    "a name like a UUID": { name: UUID },
  },
  status: {
    base: {},
    good: { nothing: {}, everything: { observedGeneration: 3, lastTriggeredTime: TIME, nextTriggerTime: TIME } },
    bad: { "an unknown field": { active: [] }, "no time": { nextTriggerTime: "soon" } },
  },
}

export const CONNECTIONS: Corpus = {
  kind: CONNECTION,
  base: { type: "aws", credentialsSecretRef: { name: "aws-credentials" } },
  good: {
    "with a secret": {},
    sealed: { type: "gcp", credentialsSecretRef: undefined, sealedCredentials: "AAAA" },
    "the longest sealed credentials": { credentialsSecretRef: undefined, sealedCredentials: "A".repeat(65_536) },
  },
  bad: {
    "no type": { type: undefined },
    "an unknown type": { type: "oracle" },
    "a type in another case": { type: "AWS" },
    "credentials in clear": { access_key_id: "AKIA" },
    "a secret without name": { credentialsSecretRef: {} },
    "a secret with an empty name": { credentialsSecretRef: { name: "" } },
    "a secret's name with a slash": { credentialsSecretRef: { name: "../../beta/secrets/envs" } },
    "a secret's name with a capital": { credentialsSecretRef: { name: "Aws" } },
    "a secret of another namespace": { credentialsSecretRef: { name: "a", namespace: "b" } },
    "sealed credentials that are too long": { sealedCredentials: "A".repeat(65_537) },
  },
  refusedByRule: {
    "no credentials": { credentialsSecretRef: undefined },
    "two sources of credentials": { sealedCredentials: "AAAA" },
  },
  goodMetadata: { "a coded name": { name: "my-aws.ud" }, "the longest name": { name: "a".repeat(63) } },
  refusedMetadata: { "a name that is too long": { name: "a".repeat(64) }, "a name like a UUID": { name: UUID } },
  status: {
    base: {},
    good: {
      nothing: {},
      everything: { observedGeneration: 1, account: "123456789012", lastVerifiedTime: TIME, regions: ["eu-west-1"] },
    },
    bad: { "an account that is a number": { account: 123456789012 } },
  },
}

const HASH = "0123456789abcdef".repeat(4)

export const API_KEYS: Corpus = {
  kind: API_KEY,
  base: { role: "viewer", keyId: "abcdefgh", tokenHash: HASH },
  good: {
    "the least": {},
    everything: {
      role: "admin",
      keyId: "a".repeat(40),
      expiresAt: "2030-01-01T00:00:00.5+01:00",
    },
    "no expiry": { expiresAt: null },
  },
  bad: {
    "no role": { role: undefined },
    "an unknown role": { role: "owner" },
    "a key id that is too short": { keyId: "abcdefg" },
    "a key id that is too long": { keyId: "a".repeat(41) },
    "a key id with capitals": { keyId: "ABCDEFGH" },
    "a hash in capitals": { tokenHash: HASH.toUpperCase() },
    "a hash that is too short": { tokenHash: HASH.slice(1) },
    "a hash with a newline": { tokenHash: `${HASH}\n` },
    "a value in clear": { value: "berth_x_y" },
    "an expiry that is a date": { expiresAt: "2030-01-01" },
    "a display name: metadata.name says it all": { displayName: "My_Key" },
  },
  goodMetadata: { "a coded name": { name: "my-key.ud" } },
  refusedMetadata: { "a name that is too long": { name: "a".repeat(64) }, "a name like a UUID": { name: UUID } },
}

export const ORGANIZATIONS: Corpus = {
  kind: ORGANIZATION,
  base: { displayName: "Acme" },
  good: {
    "the least": {},
    everything: {
      displayName: "Ä".repeat(64),
      category: "",
      members: [
        { userId: "https://issuer#1", email: "a@example.com", role: "owner" },
        { userId: "https://issuer#2", role: "member" },
      ],
      groups: [{ group: "https://issuer#engineers", role: "member" }],
    },
    "no members": { members: [] },
    "a null category": { category: null },
  },
  bad: {
    "no name": { displayName: undefined },
    "an empty name": { displayName: "" },
    "a name that is too long": { displayName: "x".repeat(65) },
    "a category that is too long": { category: "x".repeat(33) },
    "a member without role": { members: [{ userId: "https://issuer#1" }] },
    "a member twice": {
      members: [
        { userId: "https://issuer#1", role: "owner" },
        { userId: "https://issuer#1", role: "member" },
      ],
    },
    "a project's role": { members: [{ userId: "https://issuer#1", role: "viewer" }] },
    "members as a map": { members: { "1": "owner" } },
    "a null member": { members: [null] },
    "a person without an issuer": { members: [{ userId: "system:admin", role: "owner" }] },
    "an issuer without a person": { members: [{ userId: "https://issuer#", role: "owner" }] },
    "a group of Kubernetes' own": { groups: [{ group: "system:authenticated", role: "member" }] },
    "a group twice": {
      groups: [
        { group: "https://issuer#engineers", role: "owner" },
        { group: "https://issuer#engineers", role: "member" },
      ],
    },
    "a group without role": { groups: [{ group: "https://issuer#engineers" }] },
  },
}

export const PROJECTS: Corpus = {
  kind: PROJECT,
  base: { displayName: "Research", organization: "acme-x1" },
  good: {
    "the least": {},
    everything: {
      namespace: "research",
      caps: { maxVms: 10, maxHourlyUsd: 12.5, maxMonthlyUsd: 1000 },
      members: [{ userId: "https://issuer#1", role: "developer" }],
      groups: [{ group: "https://issuer#/research/night shift", role: "viewer" }],
    },
    "caps of nothing": { caps: { maxVms: 0, maxHourlyUsd: 0 } },
  },
  bad: {
    "no organization": { organization: undefined },
    "an empty organization": { organization: "" },
    "half a VM": { caps: { maxVms: 0.5 } },
    "a cap below zero": { caps: { maxMonthlyUsd: -1 } },
    "an unknown cap": { caps: { maxGpus: 1 } },
    "an organization's role": { members: [{ userId: "https://issuer#1", role: "owner" }] },
    "an organization's role of a group": { groups: [{ group: "https://issuer#engineers", role: "member" }] },
    "a group of Kubernetes' own": { groups: [{ group: "system:masters", role: "admin" }] },
    "a member twice": {
      members: [
        { userId: "https://issuer#1", role: "viewer" },
        { userId: "https://issuer#1", role: "viewer" },
      ],
    },
  },
  goodMetadata: { "the longest name": { name: "a".repeat(40) } },
  refusedMetadata: { "a name that is too long": { name: "a".repeat(41) }, "a name with a dot": { name: "a.b" } },
}
