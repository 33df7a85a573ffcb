import { once } from "node:events"
import { createServer, type IncomingMessage } from "node:http"
import type { AddressInfo } from "node:net"
import { text } from "node:stream/consumers"

/**
 * A proxy before moto that returns lists in pages, like AWS and unlike moto. Its operations are ListBuckets
 * (https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListBuckets.html), with the regions of buckets, and
 * DescribeRepositories (https://docs.aws.amazon.com/AmazonECR/latest/APIReference/API_DescribeRepositories.html).
 */
export interface AwsFront {
  url: string
  /** Received requests, as `<service>/<region> <what>`. */
  requests: string[]
  /** Errors for services whose requests are rejected, by `<service>/<region>`. */
  refused: Map<string, { status: number; code: string } | "hang">
  /** Values of EC2's quotas, by their codes. Moto has none. */
  quotas: Map<string, number>
  stop(): Promise<void>
}

export async function startAwsFront(motoUrl: string, pageSize: number): Promise<AwsFront> {
  const requests: string[] = []
  const refused: AwsFront["refused"] = new Map()
  const quotas: AwsFront["quotas"] = new Map()
  const server = createServer(async (req, res) => {
    const body = await text(req)
    const scope = scopeOf(req)
    requests.push(`${scope} ${req.headers["x-amz-target"] ?? `${req.method} ${req.url}`}`)
    const refusal = refused.get(scope)
    if (refusal === "hang") return
    if (refusal !== undefined) {
      res.writeHead(refusal.status).end(refusalOf(scope, refusal.code))
      return
    }
    if (isPriceList(req)) {
      res.writeHead(200, { "content-type": "application/x-amz-json-1.1" }).end(NO_PRICES)
      return
    }
    const quota = req.headers["x-amz-target"] === QUOTA ? quotas.get(quotaCode(body)) : undefined
    if (quota !== undefined) {
      const Quota = { ServiceCode: "ec2", QuotaCode: quotaCode(body), Value: quota }
      res.writeHead(200, { "content-type": "application/x-amz-json-1.1" }).end(JSON.stringify({ Quota }))
      return
    }
    const answer = await forward(motoUrl, req, body)
    const paged = pageOf(answer, { req, body, pageSize })
    res.writeHead(answer.status, { "content-type": answer.type, ...answer.headers }).end(paged)
  })
  server.listen(0, "127.0.0.1")
  await once(server, "listening")
  const stop = async () => {
    server.closeAllConnections()
    server.close()
    await once(server, "close")
  }
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, requests, refused, quotas, stop }
}

/** https://docs.aws.amazon.com/servicequotas/2019-06-24/apireference/API_GetServiceQuota.html */
const QUOTA = "ServiceQuotasV20190624.GetServiceQuota"

function quotaCode(body: string): string {
  const { ServiceCode, QuotaCode } = JSON.parse(body) as Record<string, string>
  return ServiceCode === "ec2" ? (QuotaCode ?? "") : ""
}

/** The price list (https://docs.aws.amazon.com/aws-cost-management/latest/APIReference/API_pricing_GetProducts.html), which moto lacks. */
function isPriceList({ headers }: IncomingMessage): boolean {
  return headers["x-amz-target"] === "AWSPriceListService.GetProducts"
}

const NO_PRICES = JSON.stringify({ FormatVersion: "aws_v1", PriceList: [] })

/** Returns the service and the region of a request's signature. */
function scopeOf(req: IncomingMessage): string {
  const [, region, service] =
    /Credential=[^/]+[/][0-9]+[/]([^/]+)[/]([^/]+)[/]/.exec(req.headers.authorization ?? "") ?? []
  return `${service}/${region}`
}

/** Each service has its own form of errors. */
function refusalOf(scope: string, code: string): string {
  const said = `<Code>${code}</Code><Message>refused</Message>`
  if (/^(ecr|pricing|servicequotas|ssm)[/]/.test(scope)) return JSON.stringify({ __type: code, message: "refused" })
  if (scope.startsWith("ec2/")) return `<Response><Errors><Error>${said}</Error></Errors></Response>`
  return scope.startsWith("s3/") ? `<Error>${said}</Error>` : `<ErrorResponse><Error>${said}</Error></ErrorResponse>`
}

interface Answer {
  status: number
  type: string
  headers: Record<string, string>
  body: string
}

async function forward(motoUrl: string, req: IncomingMessage, body: string): Promise<Answer> {
  const kept = ["authorization", "content-type", "x-amz-target", "x-amz-date", "x-amz-content-sha256"]
  const headers = kept.flatMap((name) => (req.headers[name] === undefined ? [] : [[name, String(req.headers[name])]]))
  const method = req.method ?? "GET"
  const response = await fetch(`${motoUrl}${req.url}`, {
    method,
    headers: Object.fromEntries(headers),
    ...(body !== "" && { body }),
  })
  const region = response.headers.get("x-amz-bucket-region")
  return {
    status: response.status,
    type: response.headers.get("content-type") ?? "",
    headers: region === null ? {} : { "x-amz-bucket-region": region },
    body: await response.text(),
  }
}

interface Asked {
  req: IncomingMessage
  body: string
  pageSize: number
}

function pageOf(answer: Answer, { req, body, pageSize }: Asked): string {
  const url = new URL(req.url ?? "/", "http://localhost")
  if (req.method === "GET" && url.searchParams.has("max-buckets"))
    return bucketPage(answer.body, url.searchParams, pageSize)
  const isRepositories = String(req.headers["x-amz-target"]).endsWith(".DescribeRepositories")
  return isRepositories && answer.status === 200 ? repositoryPage(answer.body, body, pageSize) : answer.body
}

function bucketPage(xml: string, query: URLSearchParams, pageSize: number): string {
  const all = xml.match(/<Bucket>.*?<[/]Bucket>/gs) ?? []
  const from = Number(query.get("continuation-token") ?? 0)
  const size = Math.min(pageSize, Number(query.get("max-buckets")))
  const page = all
    .slice(from, from + size)
    .map((bucket) =>
      bucket.replace(
        "</Bucket>",
        `<BucketRegion>${/eu/.test(bucket) ? "eu-west-1" : "us-east-1"}</BucketRegion></Bucket>`,
      ),
    )
  const token = from + size < all.length ? `<ContinuationToken>${from + size}</ContinuationToken>` : ""
  return `<?xml version="1.0"?><ListAllMyBucketsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Buckets>${page.join("")}</Buckets>${token}</ListAllMyBucketsResult>`
}

function repositoryPage(json: string, body: string, pageSize: number): string {
  const { repositories } = JSON.parse(json) as { repositories: unknown[] }
  const { nextToken = "0", maxResults = 100 } = JSON.parse(body || "{}") as { nextToken?: string; maxResults?: number }
  const from = Number(nextToken)
  const size = Math.min(pageSize, maxResults)
  const more = from + size < repositories.length ? { nextToken: String(from + size) } : {}
  return JSON.stringify({ repositories: repositories.slice(from, from + size), ...more })
}
