import { type DestinationStream, type LevelWithSilent, type Logger, pino, stdSerializers } from "pino"

export type { Logger } from "pino"

/** Bytes of lines that wait for a full disk (ENOSPC). Later lines are dropped. */
const WAITING_BYTES = 1024 * 1024

/**
 * Opens a file, by its path, or a file descriptor for appending log lines. A failed write does not fail the program.
 * The lines wait in memory and are written as soon as the disk accepts them.
 */
export function logDestination(dest: string | number): DestinationStream {
  const destination = pino.destination({ dest, append: true, sync: true, mode: 0o600, maxLength: WAITING_BYTES })
  destination.on("error", () => undefined)
  return destination
}

/**
 * Fields that are never written, in any object. Requests are logged without their headers, so this is the second
 * protection: for an object that is logged whole.
 */
const SECRET_PATHS = [
  "authorization",
  'headers["x-service-api-key"]',
  "headers.authorization",
  "headers.cookie",
  'req.headers["x-service-api-key"]',
  "req.headers.authorization",
  "req.headers.cookie",
  "apiKey",
  "value",
  "*.apiKey",
  "*.value",
  "tokenHash",
  "*.tokenHash",
  "spec.tokenHash",
  "*.spec.tokenHash",
  "sealedCredentials",
  "*.sealedCredentials",
  "spec.sealedCredentials",
  "*.spec.sealedCredentials",
  "bootstrapToken",
  "*.bootstrapToken",
  "env",
  "*.env",
  "spec.env",
  "*.spec.env",
  "secretEnv",
  "*.secretEnv",
]

export interface LoggerOptions {
  level: LevelWithSilent
  /** Name of the program in each line, such as `facade`. */
  name: string
  /** Destination of lines. Default: standard error, because standard output is for the output that a user requested. */
  destination?: DestinationStream
}

/** Returns a logger that writes lines of JSON with RFC 3339 times and without secrets. */
export function createLogger({ level, name, destination }: LoggerOptions): Logger {
  return pino(
    {
      level,
      name,
      base: { pid: process.pid },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: SECRET_PATHS, censor: "[redacted]" },
      serializers: { err: stdSerializers.err },
    },
    destination ?? logDestination(2),
  )
}
