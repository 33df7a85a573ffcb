import {
  CreateSubnetCommand,
  CreateVpcCommand,
  DeleteSubnetCommand,
  DeleteVpcCommand,
  DescribeInstanceAttributeCommand,
  DescribeInstancesCommand,
  DescribeSubnetsCommand,
  DescribeVpcsCommand,
  EC2Client,
  type Instance,
  TerminateInstancesCommand,
} from "@aws-sdk/client-ec2"
import { findTag, TAGS } from "../../src/clouds/aws/tags.ts"
import { MOTO_ACCOUNT, type Moto } from "../moto.ts"

/** View of a moto server that is independent of Berth and of any proxy, like AWS' console. */
export class Ec2Console {
  readonly client: EC2Client

  /** @param account of the view; default: moto's first one */
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

  /** Returns all instances with this tag, terminated ones included. */
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

  /** Returns an instance's user data. */
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

/** Deletes the default VPC of a region, as organizations do in regions that they don't use. */
export async function removeDefaultVpc(moto: Pick<Moto, "url">, region: string): Promise<void> {
  const { client } = new Ec2Console(moto, region)
  const { Vpcs = [] } = await client.send(new DescribeVpcsCommand({}))
  for (const { VpcId = "" } of Vpcs) {
    const Filters = [{ Name: "vpc-id", Values: [VpcId] }]
    const { Subnets = [] } = await client.send(new DescribeSubnetsCommand({ Filters }))
    for (const { SubnetId } of Subnets) await client.send(new DeleteSubnetCommand({ SubnetId }))
    await client.send(new DeleteVpcCommand({ VpcId }))
  }
  client.destroy()
}

/** Creates a VPC with one subnet in a region, and returns the subnet's id. */
export async function makeSubnet(moto: Pick<Moto, "url">, region: string): Promise<string> {
  const { client } = new Ec2Console(moto, region)
  const { Vpc } = await client.send(new CreateVpcCommand({ CidrBlock: "10.0.0.0/16" }))
  const { Subnet } = await client.send(new CreateSubnetCommand({ VpcId: Vpc?.VpcId, CidrBlock: "10.0.0.0/24" }))
  client.destroy()
  return Subnet?.SubnetId ?? ""
}

/** Returns the name of an instance's Launch. */
export function launchOf(instance: Instance): string {
  return findTag(instance.Tags, TAGS.launch) ?? ""
}

/** Returns true if the instance is terminated. */
export function isGone({ State }: Instance): boolean {
  return State?.Name === "terminated"
}
