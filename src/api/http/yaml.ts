import { readYaml, YamlError } from "../../core/apis/yaml.ts"
import { badRequest, invalidRequest } from "./problem.ts"

/** Characters that separate values. A text without them has few values. */
const SEPARATOR = /[\n,:[\]{}]/g

/** Largest number of separators. Ordinary texts of 64 KiB, the largest spec of a job, have half of them. */
const MOST_SEPARATORS = 8000

/**
 * Parses a body that is one document of YAML, as `readYaml` reads it. Rejects YAML that expands to a large value.
 * @throws Problem 400 with the line and column of each error
 */
export function parseYaml(text: string, maxDepth: number): unknown {
  const separators = text.match(SEPARATOR)?.length ?? 0
  if (separators > MOST_SEPARATORS) {
    const detail = `The YAML has ${separators} line ends and characters , : [ ] { }; the maximum is ${MOST_SEPARATORS}.`
    throw badRequest(`${detail} Send fewer values, or send the body as JSON.`)
  }
  const documents = documentsIn(text, maxDepth)
  if (documents.length === 1) return documents[0]
  const detail = `the body must have one document, not ${documents.length}`
  throw invalidRequest([{ pointer: "", detail }], "The body")
}

function documentsIn(text: string, maxDepth: number): unknown[] {
  try {
    return readYaml(text, maxDepth)
  } catch (error) {
    if (!(error instanceof YamlError)) throw error
    if (error.errors.length === 0) throw badRequest(`The body is not supported YAML: ${error.message}.`)
    throw invalidRequest(error.errors, "The body")
  }
}
