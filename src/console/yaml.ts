/** Parser of YAML, which the console loads only when it needs one. Of the package, this part alone is in its files. */
export { CORE_SCHEMA, load } from "js-yaml"
