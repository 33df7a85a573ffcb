import type { Tag } from "@aws-sdk/client-ec2"

/** The tags by which Berth finds its own resources. All other tags are for people and bills. */
export const TAGS = {
  installation: "berth.dev/installation",
  launch: "berth.dev/launch",
  /** Digest of the launch spec: identifies a repeated call. */
  spec: "berth.dev/spec",
} as const

const PREFIX = "berth.dev/"

/** Returns tags in EC2's form, in the order of their keys. Berth's own keys get its prefix. */
export function tagList(tags: Readonly<Record<string, string>>): Tag[] {
  return Object.entries(tags)
    .map(([key, value]) => ({ Key: key.startsWith(PREFIX) || key === "Name" ? key : `${PREFIX}${key}`, Value: value }))
    .sort((a, b) => (a.Key < b.Key ? -1 : 1))
}

/** Returns the value of a resource's tag. */
export function findTag(tags: readonly Tag[] | undefined, key: string): string | undefined {
  return tags?.find((tag) => tag.Key === key)?.Value
}
