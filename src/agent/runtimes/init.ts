/**
 * Names of programs that are an init, or start one: `/init` of s6-overlay, `dumb-init`, `my_init`, `tini-static`,
 * `s6-svscan` and so on. Most refuse to be another process than the first one.
 */
const INIT = /init$|^(tini|s6-|catatonit|systemd|runit|runsvdir|procd|pid1)/

/** Names that images give to their start scripts. Such a script may end in an init. */
const START_SCRIPT = /entrypoint|\.(ba|da|z)?sh$|^(boot|run|start)/

/**
 * Returns true if a container with these words as its command may have a first process of Berth's choice, which reaps
 * orphans and takes signals that the command itself doesn't handle. An image that may bring its own init must not: it
 * would fail, and runs without Berth's. An image's start script is in doubt, because nothing shows what it ends in.
 */
export function takesInit(words: readonly string[]): boolean {
  const [program = ""] = words
  if (START_SCRIPT.test(nameOf(program)) && (program.startsWith("/") || /entrypoint/.test(program))) return false
  // A shell's script is one word with several commands.
  return !words.flatMap((word) => word.split(/[\s;&|()"'`]+/)).some((word) => INIT.test(nameOf(word)))
}

function nameOf(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1).toLowerCase()
}
