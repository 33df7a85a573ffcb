import { EC2Client, RunInstancesCommand, type RunInstancesCommandInput } from "@aws-sdk/client-ec2"
import { beforeAll, expect } from "vitest"
import { goldenRequests } from "../../scripts/machines-page.ts"
import { motoEnvironment } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"
import { Ec2Schema } from "./ec2-schema.ts"

const { describe, it } = needing(missingTool("moto"))

/** Returns the body that the SDK would send, in EC2's query protocol. */
async function bodyOf(input: RunInstancesCommandInput): Promise<URLSearchParams> {
  const { promise, resolve } = Promise.withResolvers<string>()
  const client = new EC2Client({
    region: "us-east-1",
    credentials: { accessKeyId: "AKIAEXAMPLE", secretAccessKey: "example" },
    maxAttempts: 1,
    requestHandler: {
      handle(request: object) {
        resolve(String((request as { body?: unknown }).body))
        return Promise.reject(new Error("nothing is sent"))
      },
    },
  })
  await client.send(new RunInstancesCommand(input)).catch(() => undefined)
  client.destroy()
  return new URLSearchParams(await promise)
}

describe("the launch request", () => {
  let schema: Ec2Schema
  beforeAll(async () => {
    schema = await Ec2Schema.load(await motoEnvironment())
  })

  it.each(goldenRequests().filter(({ cloud }) => cloud === "aws"))(
    "fits EC2's service model: $file",
    async ({ request }) => {
      const body = await bodyOf(request as RunInstancesCommandInput)
      expect(body.get("InstanceType")).toBe((request as RunInstancesCommandInput).InstanceType)
      expect(schema.errorsOf(body)).toEqual([])
    },
  )
})
