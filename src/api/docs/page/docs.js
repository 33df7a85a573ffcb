// Runs in the browser, on the page /1/docs, and on /projects/{project}/1/docs.

const dark = matchMedia("(prefers-color-scheme: dark)")
const applyColorScheme = () => document.documentElement.classList.toggle("dark-mode", dark.matches)
applyColorScheme()
dark.addEventListener("change", applyColorScheme)

SwaggerUIBundle({
  dom_id: "#reference",
  // The document next to the page: its server is the project of the page's address.
  url: location.pathname.replace(/\/docs\/?$/i, "/openapi.json"),
  deepLinking: true,
  // Shows x-required-role.
  showExtensions: true,
  displayRequestDuration: true,
  // Operations show the schemas that they use: the list of all stays folded.
  defaultModelsExpandDepth: 0,
  // Swagger's validator is a service on the internet.
  validatorUrl: null,
})
