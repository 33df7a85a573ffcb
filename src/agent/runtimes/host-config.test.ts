import { expect, it } from "vitest"
import { containerLimits, containerRights, gpuRequest, ulimits } from "./host-config.ts"

const GIB = 1024 ** 3

it("the settings of a container set each limit of a process that Docker can set", () => {
  // https://github.com/docker/go-units/blob/master/ulimit.go
  const names = "core cpu data fsize locks memlock msgqueue nice nofile nproc rss rtprio rttime sigpending stack"
  expect(ulimits().Ulimits?.map(({ Name }) => Name)).toEqual(names.split(" "))
})

it("a container on a shared host gets half its memory as /dev/shm, and no new rights", () => {
  expect(containerLimits(6 * GIB, false)).toMatchObject({ Memory: 6 * GIB, MemorySwap: 6 * GIB, ShmSize: 6 * GIB })
  expect(containerLimits(6 * GIB, true)).toMatchObject({ Memory: 6 * GIB, MemorySwap: 6 * GIB, ShmSize: 3 * GIB })
  expect(containerRights(false)).toEqual({ CapDrop: ["NET_RAW"] })
  expect(containerRights(true)).toEqual({ CapDrop: ["NET_RAW"], SecurityOpt: ["no-new-privileges"] })
})

it.each([
  ["none", ["PATH=/bin"], [["gpu", "compute", "utility", "video", "graphics"]]],
  ["another variable", ["NVIDIA_DRIVER_CAPABILITIES_X=all"], [["gpu", "compute", "utility", "video", "graphics"]]],
  ["its own", ["NVIDIA_DRIVER_CAPABILITIES=all"], [["gpu"]]],
])("a container gets all parts of the driver unless it chooses some: %s", (_title, env, Capabilities) => {
  expect(gpuRequest(2, env)).toEqual({ DeviceRequests: [{ Driver: "", Count: 2, Capabilities }] })
  expect(gpuRequest(0, env)).toEqual({})
})
