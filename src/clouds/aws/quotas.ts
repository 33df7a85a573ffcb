import type { SdkConfig } from "./sdk.ts"

/**
 * EC2's quotas of vCPUs that decide most launches (https://docs.aws.amazon.com/general/latest/gr/ec2-service.html). A new
 * account often has 0 for GPUs.
 */
const QUOTAS: readonly [code: string, what: string][] = [
  ["L-1216C47A", "VMs on demand without GPUs"],
  ["L-34B43A08", "spot VMs without GPUs"],
  ["L-DB2E81BA", "VMs on demand with GPUs of the G families"],
]

/**
 * Returns notes on the account's quotas of zero in a region. A quota that can't be read counts as unknown: the policy may
 * lack the permission.
 */
export async function zeroQuotas(config: SdkConfig, abortSignal: AbortSignal): Promise<string[]> {
  const { default: sdk } = await import("@aws-sdk/client-service-quotas")
  const { GetServiceQuotaCommand, ServiceQuotasClient } = sdk
  const client = new ServiceQuotasClient(config)
  try {
    const notes = QUOTAS.map(async ([QuotaCode, what]) => {
      const { Quota } = await client.send(new GetServiceQuotaCommand({ ServiceCode: "ec2", QuotaCode }), {
        abortSignal,
      })
      if (Quota?.Value !== 0) return []
      const request = `aws service-quotas request-service-quota-increase --service-code ec2 --quota-code ${QuotaCode} --region ${config.region} --desired-value 8`
      return [`no ${what} in ${config.region}, because the quota of vCPUs is 0: request more by \`${request}\``]
    })
    const answers = await Promise.allSettled(notes)
    return answers.flatMap((answer) => (answer.status === "fulfilled" ? answer.value : []))
  } finally {
    client.destroy()
  }
}
