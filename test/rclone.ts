import { join } from "node:path"

const FOLDER = join(import.meta.dirname, "..", "src", "agent", "volumes", "rclone")

/** The program of Berth's image for volumes. */
export const RCLONE = {
  name: "rclone",
  folder: FOLDER,
}

/** A server of S3's API over a folder, for benchmarks: `serve s3 FOLDER`. */
export const S3_SERVER = { name: "s3-server", folder: FOLDER, path: "./s3-server" }
