import type { Tag } from "@aws-sdk/client-ec2"

/** The tags by which Berth knows its own; the rest is for people and bills. */
export const TAGS = {
  installation: "berth.dev/installation",
  launch: "berth.dev/launch",
  /** Digest of the launch specification: tells an identical call from another one. */
  spec: "berth.dev/spec",
} as const

const PREFIX = "berth.dev/"

/** Tags in EC2's form, in the order of their keys; keys of ours get our prefix. */
export function tagList(tags: Readonly<Record<string, string>>): Tag[] {
  return Object.entries(tags)
    .map(([key, value]) => ({ Key: key.startsWith(PREFIX) || key === "Name" ? key : `${PREFIX}${key}`, Value: value }))
    .sort((a, b) => (a.Key < b.Key ? -1 : 1))
}

/** The value of a resource's tag. */
export function tagOf(tags: readonly Tag[] | undefined, key: string): string | undefined {
  return tags?.find((tag) => tag.Key === key)?.Value
}
