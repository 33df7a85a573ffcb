import { join } from "node:path"
import { runLogged } from "../cached.ts"
import { pythonEnvironment } from "../python-environment.ts"

/** Returns the folder with the programs of Apache Airflow, installed once into the cache directory. */
export function airflowPrograms(): Promise<string> {
  return pythonEnvironment("apache-airflow", join(import.meta.dirname, "airflow-requirements.txt"))
}

/**
 * Adds the wheel to Airflow, which has all that it needs.
 * @returns the environment of a program that has both. It has no connection to Berth.
 */
export async function withAirflow(folder: string, wheel: string): Promise<Record<string, string>> {
  const programs = await airflowPrograms()
  const packages = join(folder, "packages")
  const pip = ["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check"]
  await runLogged(join(programs, "python"), [...pip, "--target", packages, wheel], () => undefined)
  return {
    PATH: `${programs}:${process.env["PATH"]}`,
    PYTHONPATH: packages,
    AIRFLOW_HOME: join(folder, "airflow"),
    AIRFLOW__CORE__LOAD_EXAMPLES: "False",
    // It asks its makers for news otherwise.
    AIRFLOW__USAGE_DATA_COLLECTION__ENABLED: "False",
  }
}

/** Returns the variable with the Airflow connection `berth_default`. */
export function berthConnection(url: string, key: string, project?: string): Record<string, string> {
  const extra = project === undefined ? {} : { project }
  return { AIRFLOW_CONN_BERTH_DEFAULT: JSON.stringify({ conn_type: "berth", host: url, password: key, extra }) }
}
