/** Paths of the web console, for the façade that serves it and for the script that builds it without the façade. */

/** Path of the console on every host. */
export const CONSOLE_PATH = "/console"

/** Subfolder of the files whose names have a hash of their content. */
export const ASSETS = "assets"

/** Path, below the console's, by which the façade exchanges codes of sign-ins. */
export const SIGN_IN_PATH = "/sign-in"

/** Page, below the console's path, to which the issuer sends the browser back. */
export const RETURN_PATH = "/signed-in"
