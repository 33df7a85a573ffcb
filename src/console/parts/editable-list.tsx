import { useSignal } from "@preact/signals"
import type { ComponentChildren } from "preact"
import { may } from "../state.ts"
import { Dialog, PageTitle } from "./basics.tsx"
import { Answer } from "./load.tsx"
import { type Listed, type Paged, Pages } from "./pages.tsx"

/** Question before an item is deleted. */
export interface Removal {
  title: string
  /** Text of the button that deletes. */
  action: string
  /** Effect of the deletion. */
  effect: string
  act: () => Promise<unknown>
}

interface EditableListProps<Item> {
  title: string
  /** Word for one item, such as `key`. */
  noun: string
  of: Paged<Listed<Item>>
  /** Returns the form of a new item. */
  form: (done: () => void) => ComponentChildren
  /** Text for a list without items. */
  empty: ComponentChildren
  removal: (item: Item) => Removal
  /** Returns the items as they are shown. */
  children: (items: Item[], remove: (item: Item) => void) => ComponentChildren
}

/** Page of a list, to which admins add items and from which they delete some. */
export function EditableList<Item>({ title, noun, of, form, empty, removal, children }: EditableListProps<Item>) {
  const isAdding = useSignal(false)
  const doomed = useSignal<Item | undefined>(undefined)
  const asked = doomed.value === undefined ? undefined : removal(doomed.value)
  return (
    <>
      <PageTitle title={title}>
        {may("admin") && (
          <button
            type="button"
            class="primary"
            onClick={() => {
              isAdding.value = true
            }}
          >
            New {noun}
          </button>
        )}
      </PageTitle>
      {isAdding.value &&
        form(() => {
          isAdding.value = false
          of.reload()
        })}
      <Answer of={of}>
        {({ items, total }) =>
          total === 0 ? (
            empty
          ) : (
            <>
              {children(items, (item) => {
                doomed.value = item
              })}
              <Pages of={of} shown={items.length} total={total} />
            </>
          )
        }
      </Answer>
      {asked !== undefined && (
        <Dialog
          title={asked.title}
          action={asked.action}
          isDangerous
          act={async () => {
            await asked.act()
            of.reload()
          }}
          close={() => {
            doomed.value = undefined
          }}
        >
          <p>{asked.effect}</p>
        </Dialog>
      )}
    </>
  )
}
