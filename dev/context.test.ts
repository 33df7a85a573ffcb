import { expect, it } from "vitest"
import { contextNameOf } from "./context.ts"

const ours = { url: "http://127.0.0.1:8080", apiKey: "ours" }
const other = { url: "http://127.0.0.1:9090", key: "other" }

it.each([
  ["local, for the first stack", {}, "local"],
  ["local again, after a start on another port", { local: { url: "http://127.0.0.1:7070", key: "ours" } }, "local"],
  ["local again, after its data was deleted", { local: { url: ours.url, key: "former" } }, "local"],
  ["another, beside another stack", { local: other }, "local-2"],
  ["another, beside a person who is signed in as local", { local: { url: "https://berth.example.com" } }, "local-2"],
  ["the next free one", { local: other, "local-2": { ...other, url: "http://127.0.0.1:9091" } }, "local-3"],
])("a stack's context is %s", (_, contexts, name) => {
  expect(contextNameOf(contexts, ours)).toBe(name)
})
