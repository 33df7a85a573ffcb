// Runs in the browser, on the page /1/docs.

const dark = matchMedia("(prefers-color-scheme: dark)")
const applyColorScheme = () => document.documentElement.classList.toggle("dark-mode", dark.matches)
applyColorScheme()
dark.addEventListener("change", applyColorScheme)

SwaggerUIBundle({
  dom_id: "#reference",
  url: "/1/openapi.json",
  deepLinking: true,
  // Shows x-required-role.
  showExtensions: true,
  displayRequestDuration: true,
  // Operations show the schemas that they use: the list of all stays folded.
  defaultModelsExpandDepth: 0,
  // Swagger's validator is a service on the internet.
  validatorUrl: null,
})
