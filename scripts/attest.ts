import { createHash, generateKeyPairSync, type KeyObject, sign } from "node:crypto"
import { bundleToJSON, toDSSEBundle, toMessageSignatureBundle } from "@sigstore/bundle"
import { dsse } from "@sigstore/core"

/** Documents about the files of a release: checksums, provenance, signatures and notes. All of it is pure but the key. */

/** File of a release, and its content. */
export interface ReleaseFile {
  name: string
  content: Uint8Array
}

/** Type of an in-toto statement in a DSSE envelope: https://github.com/in-toto/attestation/blob/main/spec/v1/envelope.md */
const STATEMENT = "application/vnd.in-toto+json"

/** Build that a provenance describes. */
export interface Build {
  /** Commit of the sources. */
  commit: string
  version: string
  startedOn: Date
  finishedOn: Date
}

const REPOSITORY = "https://github.com/berth-dev/berth"

/** Returns the lines of `SHA256SUMS`, as `sha256sum --check` reads them. */
export function checksums(files: readonly ReleaseFile[]): string {
  return files.map(({ name, content }) => `${sha256(content).toString("hex")}  ${name}\n`).join("")
}

/**
 * Returns a SLSA provenance of these files: https://slsa.dev/spec/v1.0/provenance. The workflow's own has the same
 * form, and GitHub as its builder.
 */
export function provenance(files: readonly ReleaseFile[], { commit, version, startedOn, finishedOn }: Build): object {
  return {
    _type: "https://in-toto.io/Statement/v1",
    subject: files.map(({ name, content }) => ({ name, digest: { sha256: sha256(content).toString("hex") } })),
    predicateType: "https://slsa.dev/provenance/v1",
    predicate: {
      buildDefinition: {
        buildType: `${REPOSITORY}/blob/main/scripts/release.ts`,
        externalParameters: { version },
        resolvedDependencies: [{ uri: `git+${REPOSITORY}`, digest: { gitCommit: commit } }],
      },
      runDetails: {
        builder: { id: "urn:berth:rehearsal" },
        metadata: { startedOn: startedOn.toISOString(), finishedOn: finishedOn.toISOString() },
      },
    },
  }
}

/**
 * Key for one rehearsal. Cosign's own keys are of the same kind, ECDSA on P-256 with SHA-256:
 * https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md
 */
export class ThrowAwayKey {
  readonly #privateKey: KeyObject
  /** Public key in PEM, as `cosign verify-blob --key` reads it. */
  readonly publicPem: string

  constructor() {
    const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" })
    this.#privateKey = privateKey
    this.publicPem = publicKey.export({ type: "spki", format: "pem" }) as string
  }

  /** Returns the Sigstore bundle of a file, as `cosign sign-blob --bundle` writes it. */
  signFile(content: Uint8Array): string {
    const signature = sign("sha256", content, this.#privateKey)
    return text(toMessageSignatureBundle({ digest: sha256(content), signature, keyHint: this.#hint() }))
  }

  /** Returns the Sigstore bundle of a statement, as `cosign attest-blob --bundle` writes it. */
  signStatement(statement: object): string {
    const artifact = Buffer.from(JSON.stringify(statement))
    const signature = sign("sha256", dsse.preAuthEncoding(STATEMENT, artifact), this.#privateKey)
    // Without a hint: the library would make it the signature's keyid, and cosign rejects a keyid that is not its own.
    return text(toDSSEBundle({ artifact, artifactType: STATEMENT, signature }))
  }

  #hint(): string {
    return sha256(Buffer.from(this.publicPem)).toString("base64")
  }
}

function text(bundle: Parameters<typeof bundleToJSON>[0]): string {
  return `${JSON.stringify(bundleToJSON(bundle))}\n`
}

function sha256(content: Uint8Array): Buffer {
  return createHash("sha256").update(content).digest()
}

/** Returns the notes with links to the repository's files at the tag. GitHub resolves relative links in files only. */
export function linkedTo(tag: string, notes: string): string {
  return notes.replace(/\]\((?![a-z]+:|#)/g, `](${REPOSITORY}/blob/${tag}/`)
}

/** Returns the changelog's entry of a version, without its heading; undefined if there is none. */
export function notesOf(changelog: string, version: string): string | undefined {
  const entries = changelog.split(/^## /m).slice(1)
  const entry = entries.find((one) => /^\[?v?([^\s\]:]+)/.exec(one)?.[1] === version)
  const notes = entry?.replace(/^.*\n/, "").trim()
  return notes === undefined || notes === "" ? undefined : `${notes}\n`
}
