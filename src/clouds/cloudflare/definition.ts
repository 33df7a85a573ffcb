import Type from "typebox"
import { Identifier, KEY_PAIR, KEY_PAIR_FIELDS } from "../credential-fields.ts"
import type { ProviderDefinition } from "../definition.ts"

export const cloudflare = {
  label: "Cloudflare R2",
  credentials: {
    forms: [
      Type.Object({
        account_id: Identifier(
          "^[0-9a-f]{32}$",
          "Id of the Cloudflare account that has the R2 buckets.",
          "32 characters of 0-9 and a-f",
        ),
        ...KEY_PAIR,
      }),
    ],
    fields: {
      account_id: { label: "Account id", flag: "--account-id <id>", help: "account" },
      ...KEY_PAIR_FIELDS,
    },
  },
  buckets: { platform: "r2", egress: { default: { sameMacroRegion: 0, otherMacroRegion: 0, internet: 0 } } },
} as const satisfies ProviderDefinition
