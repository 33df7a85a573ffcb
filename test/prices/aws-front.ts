import { once } from "node:events"
import { readdir, readFile } from "node:fs/promises"
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { join } from "node:path"
import { text } from "node:stream/consumers"
import { promisify } from "node:util"
import { gunzip } from "node:zlib"
import { documentedActions } from "../cloud/aws-policy.ts"
import { Ec2Schema } from "../cloud/ec2-schema.ts"
import { motoEnvironment } from "../moto.ts"

/** A product of the price list, like those that AWS sells under one instance type. */
export interface ListedProduct {
  regionCode: string
  instanceType: string
  usd: string
  /** Attributes that differ from those of Linux on shared hardware. */
  attributes?: Record<string, string>
  unit?: string
}

/** A price of the spot market, by machine type and zone. */
export interface ZonePrice {
  instanceType: string
  zone: string
  usd: string
}

const LINUX = {
  operatingSystem: "Linux",
  preInstalledSw: "NA",
  tenancy: "Shared",
  capacitystatus: "Used",
  marketoption: "OnDemand",
}

/**
 * A proxy before EC2 (moto, behind its own proxy) that adds APIs which moto lacks. The Price List's requests are
 * checked against AWS' own model of it. Spot prices are real prices, in pages.
 */
export class AwsPricesFront {
  readonly url: string
  products: ListedProduct[] = []
  /** Spot prices; undefined: moto's own. */
  spot: ZonePrice[] | undefined
  /** Maximum number of items on a page, for any request. */
  pageSize = 2
  /** Actions that the account's policy allows; other calls are rejected. Default: those of docs/roles/aws.json. */
  allowed: readonly string[] = documentedActions()
  /** Regions that the account has not enabled. */
  readonly disabled = new Set<string>()
  /** All calls, in the words of IAM, with their regions. */
  readonly calls: { action: string; region: string }[] = []
  /** Requests that AWS would reject. */
  readonly breaches: string[] = []
  readonly #server: Server
  readonly #ec2: string
  readonly #model: Model
  readonly #ec2Schema: Ec2Schema

  private constructor(server: Server, ec2: string, { model, ec2Schema }: { model: Model; ec2Schema: Ec2Schema }) {
    this.#server = server
    this.#ec2 = ec2
    this.#model = model
    this.#ec2Schema = ec2Schema
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    server.on("request", (request, response) => {
      this.#serve(request, response).catch((error: unknown) => {
        this.breaches.push(`the front failed: ${String(error)}`)
        request.socket.destroy()
      })
    })
  }

  /** @param ec2 the endpoint that serves everything else */
  static async start(ec2: string): Promise<AwsPricesFront> {
    const models = { model: await pricingModel(), ec2Schema: await Ec2Schema.load(await motoEnvironment()) }
    const server = createServer()
    server.listen(0, "127.0.0.1")
    await once(server, "listening")
    return new AwsPricesFront(server, ec2, models)
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections()
    this.#server.close()
    await once(this.#server, "close")
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await text(request)
    const target = request.headers["x-amz-target"]
    const [, region = "", service = ""] =
      /Credential=[^/]+\/\d+\/([^/]+)\/([^/]+)\//.exec(request.headers.authorization ?? "") ?? []
    const name = target === undefined ? new URLSearchParams(body).get("Action") : String(target).split(".")[1]
    const action = `${service}:${name}`
    this.calls.push({ action, region })
    if (service === "ec2" && (this.disabled.has(region) || !this.allowed.includes(action))) {
      const code = this.disabled.has(region) ? "AuthFailure" : "UnauthorizedOperation"
      const error = `<Errors><Error><Code>${code}</Code><Message>refused</Message></Error></Errors>`
      response.writeHead(403, { "content-type": "text/xml" }).end(`<Response>${error}</Response>`)
      return
    }
    if (service === "pricing") this.#pricing(action, region, body, response)
    else if (name === "DescribeSpotPriceHistory" && this.spot !== undefined) this.#spotPage(this.spot, body, response)
    else await this.#forward(request, body, response)
  }

  #pricing(action: string, region: string, body: string, response: ServerResponse): void {
    const answer = (status: number, json: object): void => {
      response.writeHead(status, { "content-type": "application/x-amz-json-1.1" }).end(JSON.stringify(json))
    }
    const asked = JSON.parse(body) as {
      Filters: { Field: string; Value: string }[]
      MaxResults: number
      NextToken?: string
    }
    const faults =
      action === "pricing:GetProducts" ? errorsIn(asked, "GetProductsRequest", this.#model) : [`no ${action}`]
    if (region !== "us-east-1") faults.push(`the Price List is not in ${region}`)
    this.breaches.push(...faults)
    const refused = faults.length > 0 ? "InvalidParameterException" : "AccessDeniedException"
    if (faults.length > 0 || !this.allowed.includes(action)) {
      answer(400, { __type: refused, message: faults.join("; ") || "not authorized" })
      return
    }
    const wanted = asked.Filters.map(({ Field, Value }) => [Field, Value] as const)
    const found = this.products.filter((product) => {
      const attributes: Record<string, string> = { ...LINUX, regionCode: product.regionCode, ...product.attributes }
      return wanted.every(([field, value]) => attributes[field]?.toLowerCase() === value.toLowerCase())
    })
    const from = Number(asked.NextToken ?? 0)
    const to = from + Math.min(this.pageSize, asked.MaxResults)
    const PriceList = found.slice(from, to).map((product) => JSON.stringify(productOf(product)))
    answer(200, { FormatVersion: "aws_v1", PriceList, ...(to < found.length && { NextToken: String(to) }) })
  }

  async #forward({ headers, url, method = "POST" }: IncomingMessage, body: string, response: ServerResponse) {
    const kept = Object.entries(headers).flatMap(([name, value]) =>
      typeof value === "string" && !["host", "connection", "content-length", "expect"].includes(name)
        ? [[name, value]]
        : [],
    )
    const answer = await fetch(this.#ec2 + (url ?? "/"), { method, headers: Object.fromEntries(kept), body })
    response.writeHead(answer.status, { "content-type": answer.headers.get("content-type") ?? "text/xml" })
    response.end(await answer.text())
  }

  #spotPage(all: readonly ZonePrice[], body: string, response: ServerResponse): void {
    const parameters = new URLSearchParams(body)
    this.breaches.push(...this.#ec2Schema.errorsOf(parameters))
    const time = parameters.get("StartTime") ?? ""
    const from = Number(parameters.get("NextToken") ?? 0)
    const items = all.slice(from, from + this.pageSize).map(({ instanceType, zone, usd }) => {
      const product = "<productDescription>Linux/UNIX</productDescription>"
      const price = `<spotPrice>${usd}</spotPrice><timestamp>${time}</timestamp>`
      const where = `<availabilityZone>${zone}</availabilityZone>`
      return `<item><instanceType>${instanceType}</instanceType>${product}${price}${where}</item>`
    })
    const next = from + this.pageSize < all.length ? String(from + this.pageSize) : ""
    const set = `<spotPriceHistorySet>${items.join("")}</spotPriceHistorySet><nextToken>${next}</nextToken>`
    const answer = `<DescribeSpotPriceHistoryResponse>${set}</DescribeSpotPriceHistoryResponse>`
    response.writeHead(200, { "content-type": "text/xml" }).end(answer)
  }
}

/** https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-price-list-query-api.html */
function productOf({ regionCode, instanceType, usd, attributes, unit = "Hrs" }: ListedProduct) {
  const sku = "2223B6PCG6QAUYY6"
  const dimension = {
    unit,
    endRange: "Inf",
    description: "",
    appliesTo: [],
    beginRange: "0",
    pricePerUnit: { USD: usd },
  }
  const term = {
    priceDimensions: { [`${sku}.JRTCKXETXF.6YS6EN2CT7`]: dimension },
    sku,
    effectiveDate: "2026-11-01T00:00:00Z",
    offerTermCode: "JRTCKXETXF",
    termAttributes: {},
  }
  return {
    product: {
      productFamily: "Compute Instance",
      attributes: { ...LINUX, regionCode, instanceType, servicecode: "AmazonEC2", ...attributes },
      sku,
    },
    serviceCode: "AmazonEC2",
    terms: { OnDemand: { [`${sku}.JRTCKXETXF`]: term } },
    version: "20261120000000",
    publicationDate: "2026-11-20T00:00:00Z",
  }
}

/** The part of AWS' service model that requests are checked against. */
interface Shape {
  type: string
  required?: string[]
  members?: Record<string, { shape: string }>
  member?: { shape: string }
  enum?: string[]
  min?: number
  max?: number
}
type Model = Record<string, Shape>

async function pricingModel(): Promise<Model> {
  const directory = await motoEnvironment()
  const [python = ""] = (await readdir(join(directory, "lib"))).filter((name) => name.startsWith("python"))
  const file = join(directory, "lib", python, "site-packages/botocore/data/pricing/2017-10-15/service-2.json.gz")
  return (JSON.parse(String(await promisify(gunzip)(await readFile(file)))) as { shapes: Model }).shapes
}

/** Returns the faults of a value of AWS' JSON protocol. */
function errorsIn(value: unknown, name: string, model: Model, path = name): string[] {
  const shape = model[name]
  if (shape === undefined) throw new Error(`the model has no shape ${name}`)
  if (shape.type === "structure") {
    const fields = value as Record<string, unknown>
    const faults = (shape.required ?? []).filter((field) => !(field in fields)).map((field) => `${path} lacks ${field}`)
    for (const [field, part] of Object.entries(fields)) {
      const member = shape.members?.[field]
      if (member === undefined) faults.push(`${path} has no ${field}`)
      else faults.push(...errorsIn(part, member.shape, model, `${path}.${field}`))
    }
    return faults
  }
  if (shape.type === "list")
    return (value as unknown[]).flatMap((part, index) =>
      errorsIn(part, shape.member?.shape ?? "", model, `${path}[${index}]`),
    )
  const { enum: values, min = Number.NEGATIVE_INFINITY, max = Number.POSITIVE_INFINITY } = shape
  const size = typeof value === "string" ? value.length : Number(value)
  const isOfType = shape.type === "integer" ? Number.isInteger(value) : typeof value === "string"
  const isGood = isOfType && size >= min && size <= max && (values?.includes(String(value)) ?? true)
  return isGood ? [] : [`${path} can't be ${JSON.stringify(value)}`]
}
