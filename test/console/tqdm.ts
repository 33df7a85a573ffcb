const STEPS_PER_SECOND = 32
const COLUMNS = 10
const EIGHTHS = " ▏▎▍▌▋▊▉█"

/**
 * Yields what tqdm 4.70 writes to a file that isn't a terminal: `tqdm(range(total), desc="train", mininterval=0)` with
 * 32 steps a second. It was compared with tqdm byte by byte.
 */
export function* tqdmBar(total: number): Generator<string> {
  for (let step = 0; step <= total; step++) yield state(step, total)
  yield `${state(total, total)}\n`
}

function state(step: number, total: number): string {
  const eighths = Math.floor((step / total) * COLUMNS * 8)
  const bar = (EIGHTHS[8] as string).repeat(Math.floor(eighths / 8)) + (step < total ? EIGHTHS[eighths % 8] : "")
  const percent = halfToEven((step / total) * 100)
  const [left, rate] =
    step === 0 ? ["?", "?"] : [time((total - step) / STEPS_PER_SECOND), STEPS_PER_SECOND.toFixed(2).padStart(5)]
  const times = `[${time(step / STEPS_PER_SECOND)}<${left}, ${rate}it/s]`
  return `\rtrain: ${String(percent).padStart(3)}%|${bar.padEnd(COLUMNS)}| ${step}/${total} ${times}`
}

function halfToEven(value: number): number {
  const floor = Math.floor(value)
  return value - floor === 0.5 ? floor + (floor % 2) : Math.round(value)
}

function time(seconds: number): string {
  const two = (value: number) => String(Math.floor(value)).padStart(2, "0")
  return `${two(seconds / 60)}:${two(seconds % 60)}`
}
