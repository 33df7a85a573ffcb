import Type from "typebox"
import { REGISTRY_FIELDS, Secret, UserName } from "../credential-fields.ts"
import type { ProviderDefinition } from "../definition.ts"

export const dockerhub = {
  label: "Docker Hub",
  credentials: {
    forms: [Type.Object({ username: UserName("Docker ID or organization."), token: Secret("Access token.") })],
    fields: REGISTRY_FIELDS,
  },
  images: { platform: "dockerhub" },
} as const satisfies ProviderDefinition
