/** Classes of a cloud's rejection, named like the cloud errors. */
export const REFUSALS = [
  "Capacity",
  "Quota",
  "Credentials",
  "Account",
  "Region",
  "InvalidRequest",
  "Unavailable",
] as const
