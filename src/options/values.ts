import { readFileSync } from "node:fs"
import { isIP } from "node:net"
import { resolve } from "node:path"
import { InvalidArgumentError } from "commander"
import Type, { type Static, type TSchema } from "typebox"
import type { FieldError } from "../core/apis/field-error.ts"
import { LIMITS } from "../core/apis/field-limits.ts"
import { toMetadataName } from "../core/apis/names.ts"
import { LONGEST_REUSE_SECONDS } from "../core/apis/reuse.ts"
import { LONGEST_IDLE_SECONDS, SHORTEST_IDLE_SECONDS } from "../core/apis/usage.ts"
import { findErrors } from "../core/apis/validate.ts"
import { type VmProxy, VmProxySchema } from "../core/apis/vm-proxy.ts"
import { isThisMachine } from "../core/identity/oidc.ts"
import type { PrivateTargets } from "../core/outbound/public-fetch.ts"
import { claimsIn } from "../core/protocol/machines.ts"

type Parser<Value> = (text: string) => Value

/** Returns a parser that rejects the texts for which `read` returns undefined. @param fault what a rejected text is */
function parser<Value>(fault: string, read: (text: string) => Value | undefined): Parser<Value> {
  return (text) => {
    const value = read(text)
    if (value !== undefined) return value
    throw new InvalidArgumentError(`"${text}" ${fault}.`)
  }
}

function number(pattern: RegExp): (text: string) => number | undefined {
  return (text) => (pattern.test(text) ? Number(text) : undefined)
}

export const port = parser("is not a port: give a number from 0 (any free one) to 65535", (text) =>
  /^\d+$/.test(text) && Number(text) <= 65_535 ? Number(text) : undefined,
)

export const seconds = parser(
  "is not a number of seconds: give a whole number from 1 to 9999",
  number(/^[1-9]\d{0,3}$/),
)

/** Parses the time of an idle limit. */
export const idleSeconds = parser(
  `is not the time of an idle limit: give whole seconds from ${SHORTEST_IDLE_SECONDS} to ${LONGEST_IDLE_SECONDS}`,
  (text) => {
    const value = /^[1-9]\d{0,6}$/.test(text) ? Number(text) : 0
    return value >= SHORTEST_IDLE_SECONDS && value <= LONGEST_IDLE_SECONDS ? value : undefined
  },
)

/** Parses the time that VMs wait for another job. */
export const reuseIdleSeconds = parser(
  `is not the time that a VM waits for another job: give whole seconds from 1 to ${LONGEST_REUSE_SECONDS}`,
  (text) => (/^[1-9]\d{0,3}$/.test(text) && Number(text) <= LONGEST_REUSE_SECONDS ? Number(text) : undefined),
)

export const hours = parser("is not a number of hours: give a whole number, 0 for never", number(/^\d{1,4}$/))

/** Parses a number of requests. */
export const count = parser("is not a number of requests: give a whole number, at least 0", number(/^\d{1,9}$/))

export const mebibytes = parser(
  "is not a number of MiB: give a whole number from 1 to 999999",
  number(/^[1-9]\d{0,5}$/),
)

export const trueOrFalse = parser("is not true or false", (text) =>
  text === "true" || text === "false" ? text === "true" : undefined,
)

/** Parses a URL, and removes slashes at its end. */
export const httpUrl = parser("is not an http or https URL", (text) =>
  /^https?:$/.test(URL.parse(text)?.protocol ?? "") ? text.replace(/\/+$/, "") : undefined,
)

export const httpsUrl = parser("is not an https URL: clouds read the issuer's keys only by https", (text) =>
  URL.parse(text)?.protocol === "https:" ? text.replace(/\/+$/, "") : undefined,
)

/** Parses DOCKER_HOST. Only local sockets are useful: a remote engine does not run containers on this VM. */
export const socketPath = parser(
  "is not a socket of this machine: give an absolute path, such as /var/run/docker.sock, " +
    "or unix:///var/run/docker.sock. Engines at tcp:// and ssh:// addresses can't be used",
  (text) => {
    const path = text.replace(/^unix:\/\//, "")
    return path.startsWith("/") ? path : undefined
  },
)

/** Parses the token with which a host joins as a machine. Its signature is checked by Berth. */
export function joinToken(text: string): string {
  try {
    claimsIn(text)
    return text
  } catch {
    throw new InvalidArgumentError("it is no join token: copy the whole command of `berth machine join` once more.")
  }
}

/** Parses scopes of RFC 6749, separated by spaces. */
export const scopes = parser(
  `is no list of scopes: separate them by one space, as in "openid email"`,
  (text) => /^[!#-[\]-~]+( [!#-[\]-~]+)*$/.exec(text)?.[0],
)

export const keyName = parser("is not allowed as a key's name: use at most 50 letters, digits, - and _", (text) => {
  const metadataName = toMetadataName(text)
  return metadataName !== undefined && metadataName.length <= LIMITS.keyName ? text : undefined
})

/** Parses a time in the future. The value is in UTC. */
export const futureTime = parser("is not a future time, such as 2031-01-31T12:00:00Z", (text) => {
  const time = new Date(text)
  const hasOffset = /T.*(Z|[+-]\d{2}:\d{2})$/.test(text)
  return hasOffset && time.getTime() > Date.now() ? time.toISOString().replace(/[.]000Z$/, "Z") : undefined
})

/** Express's names of groups of addresses. */
const PROXY_NAMES = ["loopback", "linklocal", "uniquelocal"]

/** Parses trusted proxies. Express takes any other value for "all", which would let every client choose its address. */
export const proxies = parser<string | number>(
  "is neither a number from 1 to 9 nor addresses or networks such as 10.0.0.0/8",
  (text) => {
    if (/^[1-9]$/.test(text)) return Number(text)
    const networks = text.split(",").map((network) => network.trim())
    return networks.every((network) => PROXY_NAMES.includes(network) || isAddress(network))
      ? networks.join(",")
      : undefined
  },
)

const HOST = /^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/

/** Parses a domain, in lower case. */
export const domain = parser("is not a domain: give one such as ports.example.com", (text) => {
  const name = text.toLowerCase()
  return HOST.test(name) && !name.startsWith("*") ? name : undefined
})

const privateReceiver = parser(
  "is neither a host, a domain such as *.corp.example.com nor a network such as 10.0.0.0/8",
  (target) => (isAddress(target) || HOST.test(target) ? target : undefined),
)

/** Parses the receivers of webhooks that have no public address. An address is a network of one. */
export function privateReceivers(text: string): PrivateTargets {
  const targets = text.split(",").map((target) => privateReceiver(target.trim().toLowerCase()))
  const widths = { 4: "32", 6: "128" }
  const networks = targets.filter(isAddress).map((network) => {
    const [address = "", bits = widths[isIP(address) === 4 ? 4 : 6]] = network.split("/")
    return `${address}/${bits}`
  })
  return { hosts: targets.filter((target) => !isAddress(target)), networks }
}

function isAddress(network: string): boolean {
  const [address = "", bits, ...more] = network.split("/")
  const family = isIP(address)
  if (family === 0 || more.length > 0) return false
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (family === 4 ? 32 : 128))
}

export function absolute(path: string): string {
  return resolve(path)
}

/** Returns the parser of JSON that has this schema. @param faultsOf what else is wrong with a value */
export function json<T extends TSchema>(
  schema: T,
  faultsOf: (value: Static<T>) => FieldError[] = () => [],
): Parser<Static<T>> {
  return (text) => {
    const value = parseJson(
      text,
      (error) => `not valid JSON: ${error instanceof Error ? error.message : String(error)}.`,
    )
    const errors = findErrors(schema, value)
    if (errors.length === 0) errors.push(...faultsOf(value as Static<T>))
    if (errors.length === 0) return value as Static<T>
    throw new InvalidArgumentError(listErrors(errors))
  }
}

const WorkloadIssuersSchema = Type.Array(
  Type.Object({ issuer: Type.String({ maxLength: 256 }), audience: Type.String({ minLength: 1, maxLength: 512 }) }),
  { minItems: 1, maxItems: 16 },
)

/** Parses the issuers of workloads. Their keys must arrive over TLS, except from this machine. */
export const workloadIssuers = json(WorkloadIssuersSchema, (issuers) =>
  issuers.flatMap(({ issuer }, index) => {
    const url = URL.canParse(issuer) ? new URL(issuer) : undefined
    const pointer = `/${index}/issuer`
    if (url === undefined || !(url.protocol === "https:" || isThisMachine(url)))
      return [{ pointer, detail: `${pointer} must be an https URL, not ${JSON.stringify(issuer)}` }]
    const isFirst = issuers.findIndex((other) => other.issuer === issuer) === index
    return isFirst ? [] : [{ pointer, detail: `${pointer} is there twice: each issuer has one audience` }]
  }),
)

/** Returns the parser of a cloud's networks by region. */
export function networks<T extends TSchema>(
  schema: T,
  { isRegion, example }: { isRegion: RegExp; example: string },
): Parser<Static<T>> {
  const detail = `not a region of this cloud, such as ${example}`
  return json(schema, (value) =>
    Object.keys(value as object)
      .filter((region) => !isRegion.test(region))
      .map((region) => ({ pointer: `/${region}`, detail })),
  )
}

/** Parses the proxy of VMs. No error has a part of the text, which may have a password. */
export function vmProxy(text: string): VmProxy {
  const value = parseJson(text, () => `give JSON, such as {"url":"http://proxy.example.com:3128"}`)
  const errors = findErrors(VmProxySchema, value)
  if (errors.length === 0) return value as VmProxy
  throw new InvalidArgumentError(`${listErrors(errors)}. The user data of VMs has it, so it has no password`)
}

function parseJson(text: string, faultOf: (error: unknown) => string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new InvalidArgumentError(faultOf(error))
  }
}

function listErrors(errors: readonly FieldError[]): string {
  return errors.map(({ pointer, detail }) => `${pointer}: ${detail}`).join("; ")
}

/** Reads a PEM file. Each VM's user data has it, so only certificates are allowed. */
export function certificates(path: string): string {
  const pem = textOf(path)
  const found = pem.match(/-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g) ?? []
  if (found.length > 0 && !pem.includes("PRIVATE KEY")) return `${found.join("\n")}\n`
  throw new InvalidArgumentError(`${path} is no file of certificates in PEM: give the authority's certificate only.`)
}

function textOf(path: string): string {
  try {
    return readFileSync(path, "utf8")
  } catch (error) {
    throw new InvalidArgumentError(`the file can't be read: ${error instanceof Error ? error.message : String(error)}.`)
  }
}
