/** Lines of a log, from 0. Both ends belong to it. */
export interface LineRange {
  from: number
  to: number
}

/** Returns the lines that a text such as `12` or `10-20` names; undefined for another text. */
export function rangeOf(text: string | null): LineRange | undefined {
  const [, first, last = first] = /^([1-9]\d*)(?:-([1-9]\d*))?$/.exec(text ?? "") ?? []
  if (first === undefined) return undefined
  const lines = [Number(first) - 1, Number(last) - 1]
  return { from: Math.min(...lines), to: Math.max(...lines) }
}

/** Returns the text of lines, as an address has it. */
export function rangeText({ from, to }: LineRange): string {
  return from === to ? `${from + 1}` : `${from + 1}-${to + 1}`
}
