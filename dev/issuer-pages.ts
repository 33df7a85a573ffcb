/** The pages of the local issuer: plain HTML, without scripts. */

/** Where a person types the name that they are signed in under. */
export function namePage(action: string, fault?: string): string {
  return page(
    "Sign in to Berth on this machine",
    `<p>Any name will do: this issuer is for development, and asks for no password.</p>
${fault === undefined ? "" : `<p role="alert">${escaped(fault)}</p>`}
<form method="post" action="${escaped(action)}">
<p><label>Name <input type="text" name="login" maxlength="${NAME_LENGTH}" required autofocus autocomplete="username"></label></p>
<p><button type="submit">Sign in</button></p>
</form>`,
  )
}

/** Where a person compares the code with the one in their terminal. @param form the library's, without a button */
export function confirmPage(form: string, code: string): string {
  return page(
    "Sign in to Berth on this machine",
    `<p>Your terminal shows a code. Go on only if it is this one:</p>
<p><strong>${escaped(code)}</strong></p>
${form}
<p><button type="submit" form="op.deviceConfirmForm">Continue</button></p>`,
  )
}

/** Where a person types the code in their terminal. @param form the library's, without a button */
export function codePage(form: string, isWrong: boolean): string {
  return page(
    "Sign in to Berth on this machine",
    `<p${isWrong ? ' role="alert">This code is not valid, or no longer. ' : ">"}Type the code that your terminal shows.</p>
${form}
<p><button type="submit" form="op.deviceInputForm">Continue</button></p>`,
  )
}

export function donePage(): string {
  return page("You are signed in", "<p>Go back to your terminal; this page can be closed.</p>")
}

export function faultPage(fault: string): string {
  return page("This did not work", `<p role="alert">${escaped(fault)}</p><p>Run <code>npm run login</code> again.</p>`)
}

/** Characters of a name. */
const NAME_LENGTH = 64

/** The name that a person has typed; undefined when it is none. */
export function nameIn(typed: string): string | undefined {
  const name = typed.trim()
  return name.length <= NAME_LENGTH && /^[^\p{C}]+$/u.test(name) ? name : undefined
}

export const NAME_RULE = `A name has 1 to ${NAME_LENGTH} printable characters.`

function page(title: string, content: string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title>
<style>body { font: 1rem/1.5 system-ui, sans-serif; max-width: 32rem; margin: 4rem auto; padding: 0 1rem }</style>
</head>
<body>
<h1>${title}</h1>
${content}
</body>
</html>
`
}

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`)
}
