import { addressSuite, prepareTenants, tenantSuite } from "./tenancy.ts"

prepareTenants()
addressSuite("host")
tenantSuite()
