/** Returns true for the names that a pattern matches. */
export type Glob = (name: string) => boolean

/** Returns the names that match a pattern, in which `*` stands for any letters. Absent: all. */
export function compileGlob(pattern: string | undefined): Glob {
  if (pattern === undefined) return () => true
  const parts = pattern.split("*").map((part) => part.replaceAll(/[\\^$.*+?()[\]{}|]/g, "\\$&"))
  const expression = new RegExp(`^${parts.join(".*")}$`)
  return (name) => expression.test(name)
}
