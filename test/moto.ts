import { spawn } from "node:child_process"
import { once } from "node:events"
import { dirname, join } from "node:path"
import { createInterface } from "node:readline"
import { text } from "node:stream/consumers"
import { pythonEnvironment } from "./python-environment.ts"

const REQUIREMENTS = join(import.meta.dirname, "moto.requirements.txt")

/**
 * Serves on a free port, which it prints, until its standard input ends, so that it never outlives the test. Moto's
 * state is not made for threads: two instances at once in a subnet can fail with "generator already executing". So one
 * request is answered at a time, after its body has arrived.
 */
const SERVER = `
import io
import sys
import threading
from moto.server import ThreadedMotoServer
from moto.moto_server.werkzeug_app import DomainDispatcherApplication

turn = threading.Lock()
answer = DomainDispatcherApplication.__call__

def in_turn(app, environ, start_response):
    if "CONTENT_LENGTH" in environ:
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"] or 0))
        environ["wsgi.input"] = io.BytesIO(body)
    with turn:
        return answer(app, environ, start_response)

DomainDispatcherApplication.__call__ = in_turn
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
`

/**
 * Header with the account of a request, twelve digits, which overrides the access key's
 * (https://docs.getmoto.org/en/latest/docs/multi_account.html).
 */
export const MOTO_ACCOUNT = "x-moto-account-id"

/** Moto server (https://docs.getmoto.org): EC2, S3, ECR, STS, IAM and SSM of AWS, in memory. */
export interface Moto {
  /** Endpoint for SDKs, without a slash at the end. S3 needs path-style addresses. */
  readonly url: string
  /** Deletes everything in it. */
  reset(): Promise<void>
  stop(): Promise<void>
}

/**
 * Starts a moto server. Installs moto once into the cache directory if it is missing. One server for each test file is
 * cheap (a second), and `reset` clears it. @param environment moto's own settings, such as
 * `MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION: "true"`, or `INITIAL_NO_AUTH_ACTION_COUNT: "0"`, which limits access to
 * keys made by its IAM (`withoutAuthentication`)
 */
export async function startMoto(environment: Readonly<Record<string, string>> = {}): Promise<Moto> {
  const python = join(await motoEnvironment(), "bin", "python")
  const child = spawn(python, ["-c", SERVER], {
    stdio: ["pipe", "pipe", "pipe"],
    // Excludes the machine's own AWS settings.
    env: { PATH: process.env["PATH"], ...environment },
  })
  const complaints = text(child.stderr)
  const ended = once(child, "exit")
  const line = await Promise.race([
    once(createInterface({ input: child.stdout }), "line").then(([port]) => String(port)),
    ended.then(async () => Promise.reject(new Error(`moto did not start:\n${await complaints}`))),
  ])
  const url = `http://127.0.0.1:${line}`
  return {
    url,
    reset: async () => {
      const answer = await fetch(`${url}/moto-api/reset`, { method: "POST" })
      if (!answer.ok) throw new Error(`moto did not reset: ${answer.status} ${await answer.text()}`)
    },
    stop: async () => {
      child.stdin.end()
      if (child.exitCode === null && child.signalCode === null) await ended
    },
  }
}

/** Returns moto's Python environment, and creates it if it doesn't exist. */
export async function motoEnvironment(): Promise<string> {
  return dirname(await pythonEnvironment("moto", REQUIREMENTS))
}
