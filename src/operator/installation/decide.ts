/** Facts about the installation's gateways that outlast a process. */
export interface GatewayRecord {
  /** URLs to which VMs of the installation report, or reported before; the latest one comes last. */
  gateways: readonly string[]
  /** URL of the gateway that showed that this cluster is a copy. */
  copyOf?: string
}

/** Gateway, and the operator that it named; undefined without a valid answer. */
export interface GatewayAnswer {
  url: string
  operator: string | undefined
}

/** Maximum number of recorded URLs. On one machine each start may have another port. */
const MOST_GATEWAYS = 8

/**
 * Decides whether this cluster is a copy. It is one if a gateway of the installation names another operator than the
 * leader here. Gateways without an answer prove nothing: a copy stays a copy until its gateway names this operator.
 */
export function nextRecord(
  record: GatewayRecord,
  { answers, operator, gatewayUrl }: { answers: readonly GatewayAnswer[]; operator: string; gatewayUrl: string },
): GatewayRecord {
  const others = record.gateways.filter((url) => url !== gatewayUrl)
  const gateways = record.gateways.includes(gatewayUrl)
    ? record.gateways
    : [...others, gatewayUrl].slice(-MOST_GATEWAYS)
  const other = answers.find((answer) => answer.operator !== undefined && answer.operator !== operator)
  if (other !== undefined) return { gateways, copyOf: other.url }
  const isReleased = answers.some((answer) => answer.url === record.copyOf && answer.operator === operator)
  return { gateways, ...(record.copyOf !== undefined && !isReleased && { copyOf: record.copyOf }) }
}

/** Returns the gateways that may show that this cluster is a copy: the operator's own first. */
export function gatewaysToAsk(record: GatewayRecord, gatewayUrl: string, launched: readonly string[]): string[] {
  const known = [gatewayUrl, ...(record.copyOf === undefined ? [] : [record.copyOf]), ...record.gateways, ...launched]
  return [...new Set(known)].slice(0, 2 * MOST_GATEWAYS)
}
