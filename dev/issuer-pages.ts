/** The pages of the local issuer: plain HTML, without scripts. */

/** Page for the user's name. */
export function namePage(action: string, fault?: string): string {
  return page(
    "Sign in to Berth on this machine",
    `<p>Enter any name. This issuer is for development, and asks for no password.</p>
${fault === undefined ? "" : `<p role="alert">${escaped(fault)}</p>`}
<form method="post" action="${escaped(action)}">
<p><label>Name <input type="text" name="login" maxlength="${NAME_LENGTH}" required autofocus autocomplete="username"></label></p>
<p><button type="submit">Sign in</button></p>
</form>`,
  )
}

/** Page that shows the code for comparison with the terminal. @param form the library's, without a button */
export function confirmPage(form: string, code: string): string {
  return page(
    "Sign in to Berth on this machine",
    `<p>Your terminal shows a code. Continue only if it is this one:</p>
<p><strong>${escaped(code)}</strong></p>
${form}
<p><button type="submit" form="op.deviceConfirmForm">Continue</button></p>`,
  )
}

/** Page for the terminal's code. @param form the library's, without a button */
export function codePage(form: string, isWrong: boolean): string {
  return page(
    "Sign in to Berth on this machine",
    `<p${isWrong ? ' role="alert">This code is not valid or has expired. ' : ">"}Type the code that your terminal shows.</p>
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

/** Maximum length of a name. */
const NAME_LENGTH = 64

/** Returns the typed name without outer spaces; undefined if it is not valid. */
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
