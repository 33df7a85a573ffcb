import type Docker from "dockerode"
import { readIfThere } from "../disk.ts"
import { CALL_SECONDS, errorMessage, errorStatus, ifFound, withTimeout } from "./engine.ts"
import { containerIn } from "./gpu-helper.ts"

/** Parts of an engine that a job uses. Its images are none of them: they stay for the next job. */
interface Contents {
  containers: string[]
  volumes: string[]
  networks: string[]
}

/** Object of an engine that could not be removed, and why. */
interface Failure {
  what: string
  error: unknown
}

/**
 * Removes all containers, volumes and networks of an engine that has nothing but Berth's, except the agent's own
 * container. Rejects with an Error that names what is still there.
 */
export async function wipeEngine(docker: Docker): Promise<void> {
  const { containers, volumes, networks } = await contentsOf(docker)
  const failures = [
    // Containers first: they hold the rest.
    ...(await removeAll("container", containers, (id) => docker.getContainer(id).remove({ force: true, v: true }))),
    ...(await removeAll("volume", volumes, (name) => docker.getVolume(name).remove({ force: true }))),
    ...(await removeAll("network", networks, (id) => docker.getNetwork(id).remove())),
  ]
  const left = await contentsOf(docker)
  rejectIfAny(
    [
      ...left.containers.map((id) => `container ${id.slice(0, 12)}`),
      ...left.volumes.map((name) => `volume ${name}`),
      ...left.networks.map((id) => `network ${id.slice(0, 12)}`),
    ],
    failures,
  )
}

/**
 * Checks that an engine that also has other jobs has no container with a label. Rejects with an Error that names those.
 * The engine removes their anonymous volumes along with them, and does not say whose any other is.
 */
export async function requireNoContainers(docker: Docker, label: string): Promise<void> {
  const found = await withTimeout(CALL_SECONDS, docker.listContainers({ all: true, filters: { label: [label] } }))
  rejectIfAny(found.map(({ Id }) => `container ${Id.slice(0, 12)}`))
}

async function contentsOf(docker: Docker): Promise<Contents> {
  const own = containerIn(readIfThere("/proc/self/mountinfo") ?? "")
  const containers = await withTimeout(CALL_SECONDS, docker.listContainers({ all: true }))
  // Docker's own networks are not custom ones.
  const networks = await withTimeout(CALL_SECONDS, docker.listNetworks({ filters: { type: ["custom"] } }))
  return {
    containers: containers.map(({ Id }) => Id).filter((id) => id !== own),
    volumes: await volumesOf(docker),
    networks: networks.map(({ Id }) => Id),
  }
}

/** Returns the engine's own volumes. Those of buckets are removed before, with their driver. */
async function volumesOf(docker: Docker): Promise<string[]> {
  // With this filter the engine lists no volumes of a driver that has ended. It still looks for one whose socket is left.
  const { Volumes } = await withTimeout(CALL_SECONDS, docker.listVolumes({ filters: { driver: ["local"] } }))
  // An engine without any answers null.
  return ((Volumes as Docker.VolumeInspectInfo[] | null) ?? []).map(({ Name }) => Name)
}

async function removeAll(
  what: string,
  names: readonly string[],
  remove: (name: string) => Promise<unknown>,
): Promise<Failure[]> {
  const failures: Failure[] = []
  for (const name of names) {
    try {
      await ifFound(remove(name))
    } catch (error) {
      // 409: it is being removed already, or in use. What is still there then is named.
      if (errorStatus(error) === undefined) throw error
      failures.push({ what: `${what} ${name}`, error })
    }
  }
  return failures
}

function rejectIfAny(left: readonly string[], failures: readonly Failure[] = []): void {
  if (left.length === 0) return
  const why = failures.length === 0 ? "" : `: ${errorMessage(failures[0]?.error)}`
  throw new Error(`the engine still has ${left.slice(0, 5).join(", ")}${left.length > 5 ? " and more" : ""}${why}`)
}
