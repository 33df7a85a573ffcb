import { useLocation } from "preact-iso/router"
import { count } from "../format.ts"
import { at } from "../state.ts"
import { type Loaded, useLoad } from "./load.tsx"

/** Items of a page. */
export const PAGE_SIZE = 50

/** Page of a list, and the number of items in all pages. */
export interface Listed<Item> {
  items: Item[]
  total: number
}

/** Part of a list that the API is asked for. */
export interface PageQuery {
  limit: number
  offset: number
}

/** Place of a page in its list. */
export interface Place {
  /** Number of the items before the page. */
  offset: number
  /** Shows the page that begins after this number of items. */
  go: (offset: number) => void
}

/** Answer of the API for one page of a list, and the page's place. */
export type Paged<Data> = Loaded<Data> & Place

/** Returns the offset that an address has; 0 if it has none. */
export function offsetIn(query: URLSearchParams): number {
  return Math.max(0, Number(query.get("offset")) || 0)
}

/** Asks the API for the page that the address names. @param path address of the list's first page in the project */
export function usePages<Data>(
  path: string,
  load: (query: PageQuery, signal: AbortSignal) => Promise<Data>,
): Paged<Data> {
  const { url, route } = useLocation()
  const offset = offsetIn(new URL(url, location.origin).searchParams)
  const loaded = useLoad(`${path} ${offset}`, (signal) => load({ limit: PAGE_SIZE, offset }, signal), path)
  const go = (next: number): void => route(at(next === 0 ? path : `${path}?offset=${next}`), true)
  return { ...loaded, offset, go }
}

/**
 * Buttons that show other pages of a list, newest first. A list of one page has none.
 * @param shown number of the page's items: less than PAGE_SIZE at the end, and where the API has cut a page by its bytes
 */
export function Pages({ of: { offset, go }, shown, total }: { of: Place; shown: number; total: number }) {
  if (offset === 0 && shown === total) return null
  return (
    <nav class="pages" aria-label="Pages of the list">
      <button type="button" disabled={offset === 0} onClick={() => go(Math.max(0, offset - PAGE_SIZE))}>
        Newer
      </button>
      <span>
        {shown === 0 ? "none" : `${count(offset + 1)}–${count(offset + shown)}`} of {count(total)}
      </span>
      <button type="button" disabled={offset + shown >= total} onClick={() => go(offset + shown)}>
        Older
      </button>
    </nav>
  )
}
