// @ts-check
/**
 * Progress of one long step.
 * @typedef {object} Progress
 * @property {string} what the step, such as "downloading kube-apiserver"
 * @property {number} done from 0 to 1
 * @property {number | undefined} [secondsLeft] estimate; absent while there is none
 */

/** Minimum share of the work, and of seconds, for an estimate. An earlier one would vary too much. */
const LEAST_DONE = 0.02
const LEAST_SECONDS = 3

/**
 * Returns the progress of a step, with an estimate of the time left. It assumes a constant speed.
 * @param {string} what
 * @param {number} done from 0 to 1
 * @param {number} elapsedSeconds since the step began
 * @returns {Progress}
 */
export function progressOf(what, done, elapsedSeconds) {
  if (done < LEAST_DONE || elapsedSeconds < LEAST_SECONDS) return { what, done }
  return { what, done, secondsLeft: (elapsedSeconds / done) * (1 - done) }
}

/**
 * Returns one line for people: `building etcd: 34 %, about 5 min left`.
 * @param {Progress} progress
 */
export function progressLine({ what, done, secondsLeft }) {
  const share = `${what}: ${Math.floor(100 * done)} %`
  return secondsLeft === undefined || done >= 1 ? share : `${share}, about ${duration(secondsLeft)} left`
}

/**
 * Rounds up, to 5 s below a minute and a half.
 * @param {number} seconds
 */
function duration(seconds) {
  return seconds < 90 ? `${Math.max(5, 5 * Math.ceil(seconds / 5))} s` : `${Math.ceil(seconds / 60)} min`
}

/**
 * Returns a sink of progress for logs and pipes. It writes a line when a step begins, and at each further quarter.
 * @param {(line: string) => void} write
 * @returns {(progress: Progress) => void}
 */
export function inQuarters(write) {
  /** @type {Map<string, number>} */
  const quarters = new Map()
  return (progress) => {
    const quarter = Math.floor(4 * progress.done)
    if (quarter <= (quarters.get(progress.what) ?? -1)) return
    quarters.set(progress.what, quarter)
    write(progressLine(progress))
  }
}
