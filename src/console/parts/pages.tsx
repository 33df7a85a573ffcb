import { useLocation } from "preact-iso/router"
import { count } from "../format.ts"
import { at } from "../state.ts"
import { Field, onText } from "./basics.tsx"
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
function offsetIn(query: URLSearchParams): number {
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

/** Orders of a list that is searched by name, as addresses name them, with the API's parameters. */
const ORDERS = {
  "": { text: "newest first", sort_by: "created_at", sort_order: "desc" },
  oldest: { text: "oldest first", sort_by: "created_at", sort_order: "asc" },
  name: { text: "name", sort_by: "name", sort_order: "asc" },
} as const

/** Part of a list that the API is asked for, by a part of the name and in an order. */
export interface SearchQuery extends PageQuery {
  name_contains: string
  sort_by: "name" | "created_at"
  sort_order: "asc" | "desc"
}

/** Search of a list, as its address has it. */
interface Search {
  /** Part of the name. */
  name: string
  order: keyof typeof ORDERS
}

/** Page of a list that is searched by name. */
export interface Searched<Data> extends Paged<Data> {
  search: Search
  change: (next: Partial<Search>) => void
}

/** Asks the API for the page that the address names, by a part of the name and in an order. @param path as in `usePages` */
export function useSearch<Data>(
  path: string,
  load: (query: SearchQuery, signal: AbortSignal) => Promise<Data>,
): Searched<Data> {
  const { url, route } = useLocation()
  const query = new URL(url, location.origin).searchParams
  const offset = offsetIn(query)
  const order = query.get("sort") ?? ""
  const search: Search = {
    name: query.get("name") ?? "",
    order: Object.hasOwn(ORDERS, order) ? (order as Search["order"]) : "",
  }
  const show = ({ name, order: sort }: Search, next: number): void => {
    const given = Object.entries({ name, sort, offset: next || "" }).filter(([, value]) => value !== "")
    const text = new URLSearchParams(given.map(([key, value]) => [key, String(value)])).toString()
    route(at(text === "" ? path : `${path}?${text}`), true)
  }
  const { text: _text, ...sorting } = ORDERS[search.order]
  const loaded = useLoad(
    `${path} ${offset} ${search.order} ${search.name}`,
    (signal) => load({ limit: PAGE_SIZE, offset, name_contains: search.name, ...sorting }, signal),
    path,
  )
  return {
    ...loaded,
    offset,
    go: (next) => show(search, next),
    search,
    change: (next) => show({ ...search, ...next }, 0),
  }
}

/** Fields that search and sort a list. @param what is listed, such as `arrays` */
export function SearchBar({ of: { search, change }, what }: { of: Searched<unknown>; what: string }) {
  return (
    <form class="filters few" role="search" aria-label={`Search ${what}`} onSubmit={(event) => event.preventDefault()}>
      <Field label="Name contains">
        <input type="search" value={search.name} onInput={onText((value) => change({ name: value.trim() }))} />
      </Field>
      <Field label="Sort">
        <select value={search.order} onChange={onText((value) => change({ order: value as Search["order"] }))}>
          {Object.entries(ORDERS).map(([order, { text }]) => (
            <option key={order} value={order}>
              {text}
            </option>
          ))}
        </select>
      </Field>
    </form>
  )
}

interface PagesProps {
  of: Place
  /** Number of the page's items: less than PAGE_SIZE at the end, and where the API has cut a page by its bytes. */
  shown: number
  total: number
  /** False: the list is in another order. */
  isNewestFirst?: boolean
}

/** Buttons that show other pages of a list. A list of one page has none. */
export function Pages({ of: { offset, go }, shown, total, isNewestFirst = true }: PagesProps) {
  if (offset === 0 && shown === total) return null
  return (
    <nav class="pages" aria-label="Pages of the list">
      <button type="button" disabled={offset === 0} onClick={() => go(Math.max(0, offset - PAGE_SIZE))}>
        {isNewestFirst ? "Newer" : "Previous"}
      </button>
      <span>
        {shown === 0 ? "none" : `${count(offset + 1)}–${count(offset + shown)}`} of {count(total)}
      </span>
      <button type="button" disabled={offset + shown >= total} onClick={() => go(offset + shown)}>
        {isNewestFirst ? "Older" : "Next"}
      </button>
    </nav>
  )
}
