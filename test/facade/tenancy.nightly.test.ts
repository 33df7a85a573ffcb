import { addressSuite, prepareTenants } from "./tenancy.ts"

prepareTenants()
addressSuite("path")
