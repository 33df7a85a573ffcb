/** Style sheets, which esbuild bundles: as text where an import has the attribute `type: "text"`. */
declare module "*.css" {
  const text: string
  export default text
}
