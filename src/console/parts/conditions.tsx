import { type ConditionRecord, troublesOf } from "../../client/conditions.ts"

/** Sentences of the conditions that are not as they should be. `said`: sentences that the page shows already. */
export function Conditions({
  of,
  said,
}: {
  of: readonly ConditionRecord[] | undefined
  said?: readonly (string | null | undefined)[]
}) {
  return (
    <>
      {troublesOf(of, said).map((sentence) => (
        <p key={sentence} class="note trouble">
          {sentence}
        </p>
      ))}
    </>
  )
}

/** Shows the message of an object, in the look of a trouble if it is one, and what else its conditions say. */
export function StateMessage({ of: { message, conditions } }: { of: Explained }) {
  const isTrouble = troublesOf(conditions, [message]).length < troublesOf(conditions).length
  return (
    <>
      {message !== null && <p class={isTrouble ? "note trouble" : "note"}>{message}</p>}
      <Conditions of={conditions} said={[message]} />
    </>
  )
}

/** Object with a message, such as an array. */
interface Explained {
  message: string | null
  conditions?: readonly ConditionRecord[]
}
