import { DEFINITIONS, VM_CLOUDS } from "../../src/clouds/definitions.ts"
import { toy } from "./toy/definition.ts"

/** Adds the toy cloud, as its line in `definitions.ts` would. Suites import this module before all that reads the list. */
Object.assign(DEFINITIONS, { toy })
;(VM_CLOUDS as string[]).push("toy")
