import { readdir, readFile } from "node:fs/promises"
import { join } from "node:path"
import { promisify } from "node:util"
import { gunzip } from "node:zlib"

/** Part of AWS' service model that this module checks requests against. */
interface Shape {
  type: string
  required?: string[]
  members?: Record<string, { shape: string; locationName?: string; queryName?: string }>
  member?: { shape: string }
  enum?: string[]
}

interface Model {
  metadata: { apiVersion: string }
  operations: Record<string, { input?: { shape: string } }>
  shapes: Record<string, Shape>
}

/** Enums whose values AWS extends more often than it publishes models. */
const OPEN_ENUMS = ["InstanceType"]

/**
 * AWS' published model of EC2's API (botocore's service model, which moto includes), to check requests against. It has
 * the names of actions and parameters in the EC2 query protocol, their types, and the required ones.
 */
export class Ec2Schema {
  readonly #model: Model

  private constructor(model: Model) {
    this.#model = model
  }

  /** @param directory of the Python environment with moto */
  static async load(directory: string): Promise<Ec2Schema> {
    const [python = ""] = (await readdir(join(directory, "lib"))).filter((name) => name.startsWith("python"))
    const file = join(directory, "lib", python, "site-packages/botocore/data/ec2/2016-11-15/service-2.json.gz")
    return new Ec2Schema(JSON.parse(String(await promisify(gunzip)(await readFile(file)))) as Model)
  }

  /** Returns all violations of a request. */
  errorsOf(parameters: URLSearchParams): string[] {
    const action = parameters.get("Action") ?? ""
    const operation = this.#model.operations[action]
    if (operation === undefined) return [`no such action: ${action}`]
    const { apiVersion } = this.#model.metadata
    const version = parameters.get("Version")
    const faults = version === apiVersion ? [] : [`Version is ${version}, not ${apiVersion}`]
    const tree = treeOf([...parameters].filter(([key]) => key !== "Action" && key !== "Version"))
    if (operation.input !== undefined) this.#check(tree, operation.input.shape, action, faults)
    return faults
  }

  #check(value: Tree | string, name: string, path: string, faults: string[]): void {
    const shape = this.#model.shapes[name]
    if (shape === undefined) throw new Error(`the model has no shape ${name}`)
    if (shape.type === "structure") this.#checkStructure(value, shape, path, faults)
    else if (shape.type === "list") this.#checkList(value, shape, path, faults)
    else if (typeof value !== "string") faults.push(`${path} is no single value`)
    else if (!isScalar(value, shape)) faults.push(`${path} is no ${shape.type}: ${value.slice(0, 80)}`)
    else if (shape.enum !== undefined && !OPEN_ENUMS.includes(name) && !shape.enum.includes(value)) {
      faults.push(`${path} is none of ${shape.enum.join(", ")}: ${value}`)
    }
  }

  #checkStructure(value: Tree | string, shape: Shape, path: string, faults: string[]): void {
    if (typeof value === "string") {
      faults.push(`${path} is no structure`)
      return
    }
    const members = new Map(
      Object.entries(shape.members ?? {}).map(([name, member]) => [queryName(name, member), { name, ...member }]),
    )
    for (const [key, part] of value) {
      const member = members.get(key)
      if (member === undefined) faults.push(`${path} has no parameter ${key}`)
      else this.#check(part, member.shape, `${path}.${key}`, faults)
    }
    for (const [key, { name }] of members) {
      if (shape.required?.includes(name) === true && !value.has(key)) faults.push(`${path} lacks ${key}`)
    }
  }

  #checkList(value: Tree | string, shape: Shape, path: string, faults: string[]): void {
    if (typeof value === "string" || shape.member === undefined) {
      faults.push(`${path} is no list`)
      return
    }
    let number = 1
    for (const [key, part] of value) {
      if (key !== String(number++)) faults.push(`${path} is not numbered from 1: ${key}`)
      this.#check(part, shape.member.shape, `${path}.${key}`, faults)
    }
  }
}

type Tree = Map<string, Tree | string>

function treeOf(parameters: readonly (readonly [string, string])[]): Tree {
  const tree: Tree = new Map()
  for (const [key, value] of parameters) {
    const path = key.split(".")
    const last = path.pop() ?? ""
    let at = tree
    for (const part of path) {
      const next = at.get(part)
      const branch: Tree = next instanceof Map ? next : new Map()
      at.set(part, branch)
      at = branch
    }
    at.set(last, value)
  }
  return tree
}

/** Returns a member's name in the EC2 query protocol. */
function queryName(name: string, member: { locationName?: string; queryName?: string }): string {
  if (member.queryName !== undefined) return member.queryName
  const location = member.locationName ?? name
  return location.charAt(0).toUpperCase() + location.slice(1)
}

function isScalar(value: string, { type }: Shape): boolean {
  if (type === "integer" || type === "long") return /^-?\d+$/.test(value)
  if (type === "boolean") return value === "true" || value === "false"
  if (type === "timestamp") return !Number.isNaN(Date.parse(value))
  if (type === "float" || type === "double") return value !== "" && !Number.isNaN(Number(value))
  return true
}
