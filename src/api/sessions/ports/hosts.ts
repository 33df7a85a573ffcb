/**
 * Returns the part of a host before the domain of ports: the label of a session, or a text that is no session's. Empty for
 * the domain itself; undefined for any other host. Pure.
 * @param host the header Host as it came. A proxy's X-Forwarded-Host names no port.
 */
export function labelIn(host: string | undefined, domain: string): string | undefined {
  const name = (host ?? "").toLowerCase().replace(/:.*$/, "").replace(/\.+$/, "")
  if (name === domain) return ""
  return name.endsWith(`.${domain}`) ? name.slice(0, -domain.length - 1) : undefined
}
