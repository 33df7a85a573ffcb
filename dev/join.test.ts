import { execFileSync } from "node:child_process"
import { expect, test } from "vitest"
import { joinToken } from "../src/core/protocol/machines.ts"
import { joinFromSource } from "./join.ts"

const token = joinToken(new Uint8Array(32), { namespace: "default", name: "desk", uid: "u-1", number: 1, expires: 1 })

test("the command of a join runs this repository's agent, with a folder for each machine", () => {
  const options = { dataDir: "/home/me/my $data", url: "http://127.0.0.1:8080", token }
  const { source = "" } = joinFromSource({ ...options, runtime: { runtime: "docker", dockerSocket: "/run/d.sock" } })
  // The words of the command, without a start of its program.
  const script = source.replace(process.execPath, "printf '%s\\n' \"$BERTH_JOIN_TOKEN\"")
  const printed = execFileSync("/bin/sh", ["-euc", script.replace(" printf", "; printf")], { encoding: "utf8" })
  expect(printed.trim().split("\n")).toEqual([
    ...[token, expect.stringMatching(/\/src\/main\.ts$/), "host", "--gateway", "http://127.0.0.1:8080"],
    ...["--data-dir", "/home/me/my $data/machines/u-1", "--runtime", "docker", "--docker-socket", "/run/d.sock"],
  ])
})
