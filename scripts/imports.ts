// Checks the directions of imports: `node scripts/with-node.mjs scripts/imports.ts`. `npm run lint` runs it. ARCHITECTURE.md
// has the picture of the wings, and a test compares its table with `ROOMS`.
import { globSync, readFileSync } from "node:fs"
import { join, posix } from "node:path"
import { DEFINITIONS } from "../src/clouds/definitions.ts"

/**
 * Rooms of `src/`, and what each may import besides itself. A file belongs to the longest room that its path begins with.
 * A room without a list here belongs to its wing.
 */
export const ROOMS: Readonly<Record<string, readonly string[]>> = {
  core: ["clouds/definition.ts", "clouds/definitions.ts"],
  "core/apis": ["clouds/definition.ts", "clouds/definitions.ts"],
  "core/kube": ["core/apis"],
  "core/runtime": ["core/apis", "core/kube"],
  "core/protocol": ["core/apis", "clouds/definitions.ts"],
  "core/outbound": ["core/apis", "clouds/definitions.ts"],
  clouds: ["core"],
  "clouds/definition.ts": ["core/apis", "clouds/machines/family.ts", "clouds/rejection.ts"],
  "clouds/machines": ["core/apis", "clouds/definitions.ts"],
  market: ["core", "clouds"],
  "market/router": ["core/apis", "clouds/definitions.ts", "clouds/machines"],
  "market/placement": [
    "core/apis",
    "core/order",
    "core/machines",
    "core/reuse",
    "clouds/machines",
    "clouds/rejection.ts",
    "clouds/rejections.ts",
    "market/router",
    "market/catalogue/offers.ts",
  ],
  accounts: ["core", "clouds", "market"],
  operator: ["core", "clouds", "market", "accounts"],
  "operator/main.ts": ["core", "clouds", "market", "accounts", "operator", "options.ts"],
  api: ["core", "clouds/definition.ts", "clouds/definitions.ts", "market"],
  "api/http": ["core"],
  "api/logs": ["core"],
  "api/uploads": ["core"],
  "api/usage": ["core", "api/logs"],
  "api/gateway": ["core", "api/http", "api/logs", "api/uploads", "api/usage"],
  "api/main.ts": ["core", "clouds", "market", "accounts", "api", "options.ts"],
  agent: [
    ...["core/apis", "core/machines", "core/package.ts", "core/protocol", "core/reuse"],
    ...["clouds/definition.ts", "clouds/definitions.ts"],
  ],
  client: ["core/apis/output.ts", "core/apis/rest-names.ts", "core/apis/trouble.ts"],
  console: ["client", "core/apis/remote-command.ts"],
  cli: ["core/apis", "client", "smoke"],
  smoke: ["client/providers.ts"],
}

/** Modules that only some files may import: `from` matches the specifier of a package, `in` the importing file. */
const PACKAGES: readonly { from: RegExp; in: RegExp; why: string }[] = [
  {
    from: /^@aws-sdk\/client-s3$/,
    in: /^src\/(clouds\/(aws|cloudflare)\/|api\/(logs|uploads)\/s3-store|api\/usage\/s3-objects)|^test\/((logs|uploads)\/s3-store|usage\/store|agent\/volumes|attacks\/reuse-volumes|(cloud|e2e)\/(aws|ec2-))/,
    why: "only AWS, R2 and the stores of logs, uploads and usage use the S3 client",
  },
  {
    from: /^@aws-sdk\/(?!client-s3$)/,
    in: /^src\/clouds\/aws\/|^test\/(cloud|e2e)\/(aws|ec2-)/,
    why: "the SDK of AWS is imported only in clouds/aws",
  },
  { from: /^@azure\//, in: /^src\/clouds\/azure\//, why: "the SDK of Azure is imported only in clouds/azure" },
  {
    from: /^@google-cloud\//,
    in: /^src\/clouds\/gcp\//,
    why: "the SDK of Google Cloud is imported only in clouds/gcp",
  },
  { from: /^dockerode$/, in: /^(?!src\/)|^src\/agent\//, why: "only the agent and dev/ call the Docker engine" },
  {
    from: /^node:/,
    in: /^(?!src\/(client|console)\/)|\.test\.ts$/,
    why: "client and console run in browsers, which have no modules of Node.js",
  },
]

/** Modules that do I/O: of Node.js, packages and `core/kube`. */
const INPUT_OUTPUT =
  /^node:(child_process|cluster|dgram|dns|fs|http|http2|https|inspector|net|os|process|readline|repl|sqlite|stream|timers|tls|tty|worker_threads)(\/|$)|^(@kubernetes\/|(dockerode|express|pino|undici)$)|^src\/core\/kube\/(client|reflector|transport|watch|lease|limiter)\.ts$/

/** Files that do no I/O. */
const PURE =
  /^src\/(clouds\/(machines\/|definitions?\.ts|rejections?\.ts|[a-z]+\/(boot-disk|definition|disk-prices|machines|rejections)\.ts)|market\/(router\/|placement\/|advice\/(advice|needs)\.ts)|core\/records\/|api\/resources\/[a-z]+\/(record|schema|submission|translate)\.ts|operator\/.*\/(backlog|decide|schedule)\.ts)|^dev\/.*\/decide\.ts/

const CLOUD_FOLDERS = new RegExp(`^src/clouds/(${Object.keys(DEFINITIONS).join("|")})/`)

/** The list of all clouds, and what loads their providers by it. */
const LISTS = ["src/clouds/definitions.ts", "src/clouds/registry.ts"]

const FORMS = /^(?!\s*(?:\*|\/\/)).*?(?:\bfrom|\bimport)\s*\(?\s*["']([^"'\n]+)["']/gm

/** An import that is not allowed. */
export interface Violation {
  file: string
  specifier: string
  why: string
}

/** Returns the imports of a file that are not allowed. @param file path from the root of the repository */
export function violationsIn(file: string, source: string): Violation[] {
  return [...source.matchAll(FORMS)].flatMap(([, specifier = ""]) => {
    const why = objectionTo(file, specifier)
    return why === undefined ? [] : [{ file, specifier, why }]
  })
}

function objectionTo(file: string, specifier: string): string | undefined {
  const isOurs = specifier.startsWith(".")
  const target = isOurs ? posix.join(posix.dirname(file), specifier) : specifier
  if (PURE.test(file) && !isTest(file) && INPUT_OUTPUT.test(target))
    return "this file is pure: gather the facts elsewhere, and pass them in"
  if (!isOurs) return PACKAGES.find(({ from, in: places }) => from.test(specifier) && !places.test(file))?.why
  if (!file.startsWith("src/")) return undefined
  if (!target.startsWith("src/"))
    return isTest(file) ? undefined : "src is the shipped program: it imports nothing else"
  return crossing(file, target)
}

/** Returns why a file of `src/` may not import another one. */
function crossing(file: string, target: string): string | undefined {
  const [, cloud] = CLOUD_FOLDERS.exec(target) ?? []
  if (cloud !== undefined && !file.startsWith(`src/clouds/${cloud}/`) && !LISTS.includes(file))
    return "a cloud is known only to its folder, to clouds/definitions.ts and to clouds/registry.ts"
  const room = roomOf(file)
  if (room === undefined) return undefined
  const allowed = [room, ...(ROOMS[room] ?? [])]
  if (allowed.some((each) => isIn(target, each))) return undefined
  return `${room} imports only ${allowed.join(", ")}`
}

/** Returns the room of a file; undefined for the files at the top of `src/`, which construct programs. */
function roomOf(file: string): string | undefined {
  return Object.keys(ROOMS)
    .filter((room) => isIn(file, room))
    .sort((a, b) => b.length - a.length)[0]
}

function isIn(file: string, room: string): boolean {
  return file === `src/${room}` || file.startsWith(`src/${room}/`)
}

function isTest(file: string): boolean {
  return /\.test\.tsx?$/.test(file)
}

/** Returns the imports of the whole repository that are not allowed. */
export function violations(root: string): Violation[] {
  const files = globSync("{src,dev,test,bench,scripts}/**/*.{ts,tsx}", { cwd: root })
  return files.flatMap((file) => violationsIn(file.replaceAll("\\", "/"), readFileSync(join(root, file), "utf8")))
}

if (import.meta.main) {
  const found = violations(join(import.meta.dirname, ".."))
  for (const { file, specifier, why } of found) console.error(`${file}: imports ${specifier}: ${why}`)
  process.exitCode = found.length === 0 ? 0 : 1
}
