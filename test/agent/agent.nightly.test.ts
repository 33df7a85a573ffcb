import { describe } from "vitest"
import { agentLongSuite, prepareAgents } from "./suite.ts"

prepareAgents()

describe("an agent with the process runtime", () => agentLongSuite("process"))
