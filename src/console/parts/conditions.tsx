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
        <p key={sentence} class="note">
          {sentence}
        </p>
      ))}
    </>
  )
}
