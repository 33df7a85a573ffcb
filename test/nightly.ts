/** True in the nightly tier, which runs the longer form of some suites. */
export const isNightly = process.env["BERTH_NIGHTLY"] === "1"
