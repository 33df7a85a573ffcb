/**
 * Lets xterm.js work under a policy that forbids inline styles, as the console's does. xterm.js writes style sheets as
 * `<style>` elements, and colors of cells as `style` attributes, by the page's own `document`
 * (https://github.com/xtermjs/xterm.js/blob/6.0.0/src/browser/renderer/dom/DomRendererRowFactory.ts#L517). The policy allows
 * the same by CSSOM. So elements that are made after a call have constructed style sheets, and the property `style`.
 */
export function constructStyles(): void {
  const create = document.createElement.bind(document)
  document.createElement = (name: string, options?: ElementCreationOptions): HTMLElement => {
    if (name === "style") return constructedStyle(create("i"))
    const element = create(name, options)
    return name === "span" ? withStyleProperty(element) : element
  }
}

/** Adds a style sheet to the page. */
export function adoptStyles(text = ""): CSSStyleSheet {
  const sheet = new CSSStyleSheet()
  sheet.replaceSync(text)
  document.adoptedStyleSheets.push(sheet)
  return sheet
}

/** Makes an element stand for a style sheet, which has its text and is removed with it. */
function constructedStyle(element: HTMLElement): HTMLElement {
  const sheet = adoptStyles()
  Object.defineProperty(element, "textContent", { set: (text: string) => sheet.replaceSync(text) })
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => one !== sheet)
    Element.prototype.remove.call(element)
  }
  return element
}

function withStyleProperty(element: HTMLElement): HTMLElement {
  element.setAttribute = (name, value) => {
    if (name === "style") element.style.cssText = value
    else Element.prototype.setAttribute.call(element, name, value)
  }
  return element
}
