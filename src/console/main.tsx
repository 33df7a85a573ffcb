import { render } from "preact"
import { LocationProvider } from "preact-iso/router"
import { App } from "./app.tsx"
import { resume } from "./state.ts"
import "./style.css"

const root = document.getElementById("console")
if (root === null) throw new Error("index.html has no element #console")
resume()
render(
  <LocationProvider scope="/console">
    <App />
  </LocationProvider>,
  root,
)
