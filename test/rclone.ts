import { join } from "node:path"
/** The program of Berth's image for volumes. */
export const RCLONE = {
  name: "rclone",
  folder: join(import.meta.dirname, "..", "src", "agent", "volumes", "rclone"),
}
