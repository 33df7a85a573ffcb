import { expect, it } from "vitest"
import { takesInit } from "./init.ts"

/** Entrypoints and commands of well-known images, as their Dockerfiles have them, or commands of jobs. */
it.each([
  // python, node, golang and most images of one program
  ["python3", "train.py"],
  ["/usr/local/bin/myapp", "--all"],
  ["torchrun", "--nproc-per-node", "8", "train.py"],
  ["sh", "-c", "pip install x && python train.py"],
  ["bash", "train.sh"],
  ["./train.sh"],
  ["bash", "-lc", "/workspace/start.sh"],
])("a container of %j %j … gets an init", (...words) => {
  expect(takesInit(words)).toBe(true)
})

it.each(
  [
    // s6-overlay (https://github.com/just-containers/s6-overlay), v2 and v3
    ["/init"],
    ["/init", "/app/start"],
    ["/s6-init"],
    // tini, as in images of Jupyter, Elasticsearch and Jenkins
    ["tini", "-g", "--", "start-notebook.sh"],
    ["/usr/bin/tini-static", "--", "/docker-entrypoint.sh"],
    ["/usr/bin/env", "tini", "--", "x"],
    // dumb-init, as in Apache Airflow
    ["/usr/bin/dumb-init", "--", "/entrypoint"],
    // phusion/baseimage
    ["/sbin/my_init"],
    ["/lib/systemd/systemd"],
    ["/sbin/init"],
    ["/package/admin/s6/command/s6-svscan", "/run/service"],
    ["/usr/sbin/runsvdir-start"],
    // a job that wraps one in a shell
    ["sh", "-c", "export A=1; exec /init"],
    ["bash", "-c", "exec tini -- python train.py"],
    // start scripts of images, which may end in one
    ["docker-entrypoint.sh", "postgres"],
    ["/opt/nvidia/nvidia_entrypoint.sh", "python", "train.py"],
    ["/start.sh"],
    ["/run"],
    [],
  ].slice(0, -1) as string[][],
)("a container of %j %j … runs as with docker run", (...words) => {
  expect(takesInit(words)).toBe(false)
})
