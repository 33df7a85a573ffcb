// Plain JavaScript: the console is a TypeScript project of its own, with the browser's types.
import { mkdtemp, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { pathToFileURL } from "node:url"
import { build } from "esbuild"

/** Components with conditions, by the property that has the record. */
const PLACES = {
  job: "pages/job",
  array: "pages/array",
  cronJob: "pages/cronjob",
  launch: "parts/story",
  connection: "pages/connections",
  machine: "pages/machines",
  webhook: "pages/webhooks",
  keys: "pages/keys",
  projects: "pages/projects",
}

async function built() {
  const lines = Object.entries(PLACES).map(([of, place]) => `export * as ${of} from "./src/console/${place}.tsx"`)
  const contents = [
    ...lines,
    'export { h } from "preact"',
    'export { renderToString } from "preact-render-to-string"',
  ].join("\n")
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: process.cwd(), loader: "ts" },
    ...{ bundle: true, write: false, format: "esm", platform: "node", mainFields: ["module", "main"] },
    ...{ jsx: "automatic", jsxImportSource: "preact", loader: { ".css": "empty" } },
  })
  const file = join(await mkdtemp(join(tmpdir(), "berth-views-")), "views.mjs")
  await writeFile(file, outputFiles[0].text)
  return import(pathToFileURL(file).href)
}

let views

/** Renders a component of the console. `of`: the name of the property with the record. */
export async function rendered(component, of, props) {
  views ??= built()
  const { h, renderToString, ...places } = await views
  return renderToString(h(places[of][component], props))
}
