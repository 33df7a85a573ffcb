import { createLogger } from "../../src/core/telemetry/logger.ts"

/** Logger that logs nothing. To look into a test, set `level: "debug"`. */
export const silentLogger = createLogger({ level: "silent", name: "test" })
