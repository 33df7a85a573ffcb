import type { ComponentChildren } from "preact"
import { Copy } from "./basics.tsx"

interface SecretOnceProps {
  title: string
  note: string
  /** Name of the value. */
  label: string
  value: string
  done: () => void
  /** Shown before the value. */
  children?: ComponentChildren
}

/** Secret that the API returns only once. */
export function SecretOnce({ title, note, label, value, done, children }: SecretOnceProps) {
  return (
    <section class="panel" aria-label={title}>
      <h2>{title}</h2>
      <p class="note" role="status">
        {note}
      </p>
      {children}
      <pre class="code" tabIndex={0} aria-label={label}>
        {value}
      </pre>
      <div class="actions">
        <Copy text={value} />
        <button type="button" class="primary" onClick={done}>
          I have copied it
        </button>
      </div>
    </section>
  )
}
