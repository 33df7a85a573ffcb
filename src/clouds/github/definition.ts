import Type from "typebox"
import { REGISTRY_FIELDS, Secret, UserName } from "../credential-fields.ts"
import type { ProviderDefinition } from "../definition.ts"

export const github = {
  label: "GitHub (images)",
  credentials: {
    forms: [
      Type.Object({
        username: UserName("GitHub user."),
        token: Secret("Personal access token with read:packages."),
      }),
    ],
    fields: REGISTRY_FIELDS,
  },
  images: { platform: "ghcr" },
} as const satisfies ProviderDefinition
