/** Returns the summary of a job for the page of the workflow, as Markdown. @param job record of the REST API */
export function jobSummary(job, { url, plan }) {
  const machine = [job.selected_provider, job.selected_instance_type, job.selected_region].filter(Boolean).join(" ")
  const rows = [
    ["Machine", machine],
    ["Why", job.placement_reason],
    ["Price", usd(job.hourly_price_usd, "/h")],
    ["Cost", usd(job.actual_cost ?? job.accrued_cost)],
    ["Exit code", job.exit_code],
    ["Cause", job.status === "succeeded" ? null : (job.error_message ?? job.message)],
  ]
  const lines = rows.filter(([, value]) => value !== null && value !== undefined && value !== "")
  return [
    `### Berth: ${plain(job.name)} ${plain(job.status)}`,
    "",
    "| | |",
    "|---|---|",
    `| Job | [${plain(job.id)}](${url}) |`,
    ...lines.map(([name, value]) => `| ${name} | ${plain(String(value))} |`),
    "",
    // A repeated step has no plan: its job is there already.
    ...(plan.trim() === ""
      ? []
      : ["<details><summary>Plan</summary>", "", fenced(plan.trimEnd()), "", "</details>", ""]),
  ].join("\n")
}

function usd(amount, unit = "") {
  return amount === null || amount === undefined ? null : `$${Number(amount.toPrecision(3))}${unit}`
}

/** Returns text that Markdown shows as it is: the last line of a container's output may be anything. */
function plain(text) {
  return text.replace(/[^\p{L}\p{N} ]/gu, (character) => `&#${character.codePointAt(0)};`)
}

/** Returns a block of code, with a longer fence than any in the text. */
function fenced(text) {
  const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((run) => run.length))
  const fence = "`".repeat(longest + 1)
  return `${fence}text\n${text}\n${fence}`
}
