import { type DestinationStream, type LevelWithSilent, type Logger, pino, stdSerializers } from "pino"

export type { Logger } from "pino"

/** Lines that wait for a disk that takes none (ENOSPC), bytes. Later ones are dropped. */
const WAITING_BYTES = 1024 * 1024

/**
 * A file, by its path, or a file descriptor that log lines are appended to. A write that fails does not fail the program:
 * the lines wait in memory and are written as soon as the disk takes them.
 */
export function logDestination(dest: string | number): DestinationStream {
  const destination = pino.destination({ dest, append: true, sync: true, mode: 0o600, maxLength: WAITING_BYTES })
  destination.on("error", () => undefined)
  return destination
}

/**
 * Fields that are never written, whatever object they come in. Requests are logged without their headers, so
 * this is the second line: for an object that somebody logs whole.
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
  /** Names the program in each line, such as `facade`. */
  name: string
  /** Where lines go; default: standard error, because standard output belongs to what a user asked for. */
  destination?: DestinationStream
}

/** Lines of JSON with RFC 3339 times and without secrets. */
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
