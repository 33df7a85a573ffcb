import { type DestinationStream, type LevelWithSilent, type Logger, pino, stdSerializers } from "pino"

export { destination as logFile, type Logger } from "pino"

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
    destination ?? pino.destination({ dest: 2, sync: true }),
  )
}
