import {
  DescribeInstanceAttributeCommand,
  DescribeInstancesCommand,
  EC2Client,
  type Instance,
  TerminateInstancesCommand,
} from "@aws-sdk/client-ec2"
import { TAGS, tagOf } from "../../src/cloud/aws/tags.ts"
import { MOTO_ACCOUNT, type Moto } from "../moto.ts"

/** What runs on a moto server, as somebody at AWS' console sees it: another witness than Berth, past any proxy. */
export class Ec2Console {
  readonly client: EC2Client

  /** @param account where it looks; moto's first one, if none is given */
  constructor({ url }: Pick<Moto, "url">, region: string, account?: string) {
    const credentials = { accessKeyId: "console", secretAccessKey: "console" }
    this.client = new EC2Client({ region, endpoint: url, credentials })
    if (account === undefined) return
    this.client.middlewareStack.add(
      (next) => (args) => {
        Object.assign((args.request as { headers: object }).headers, { [MOTO_ACCOUNT]: account })
        return next(args)
      },
      { step: "build" },
    )
  }

  /** All instances that carry this tag, ended ones as well. */
  async instances(tag: keyof typeof TAGS, value: string): Promise<Instance[]> {
    const Filters = [{ Name: `tag:${TAGS[tag]}`, Values: [value] }]
    const found: Instance[] = []
    let NextToken: string | undefined
    do {
      const command = new DescribeInstancesCommand({ Filters, MaxResults: 1000, ...(NextToken && { NextToken }) })
      const page = await this.client.send(command)
      found.push(...(page.Reservations ?? []).flatMap(({ Instances = [] }) => Instances))
      NextToken = page.NextToken
    } while (NextToken)
    return found
  }

  /** What an instance was started with. */
  async userData(id: string): Promise<string> {
    const command = new DescribeInstanceAttributeCommand({ InstanceId: id, Attribute: "userData" })
    const { UserData } = await this.client.send(command)
    return Buffer.from(UserData?.Value ?? "", "base64").toString()
  }

  async terminate(id: string): Promise<void> {
    await this.client.send(new TerminateInstancesCommand({ InstanceIds: [id] }))
  }

  close(): void {
    this.client.destroy()
  }
}

/** Name of the Launch that an instance was made for. */
export function launchOf(instance: Instance): string {
  return tagOf(instance.Tags, TAGS.launch) ?? ""
}

/** Whether nothing of it is there any more. */
export function isGone({ State }: Instance): boolean {
  return State?.Name === "terminated"
}
