import { createHash } from "node:crypto"
import { describe, expect, it } from "vitest"
import { checksums, linkedTo, notesOf, provenance, ThrowAwayKey } from "../../scripts/attest.ts"
import { verifiedBy } from "./signatures.ts"

const FILES = ["a", "b"].map((name) => ({ name, content: Buffer.from(`content of ${name}`) }))

describe("the documents of a release", () => {
  it("have the digests of the very files", () => {
    const digests = FILES.map(({ content }) => createHash("sha256").update(content).digest("hex"))
    expect(checksums(FILES)).toBe(`${digests[0]}  a\n${digests[1]}  b\n`)
    const build = { commit: "c0ffee", version: "1.2.3", startedOn: new Date(0), finishedOn: new Date(60_000) }
    expect(provenance(FILES, build)).toMatchObject({
      _type: "https://in-toto.io/Statement/v1",
      subject: [
        { name: "a", digest: { sha256: digests[0] } },
        { name: "b", digest: { sha256: digests[1] } },
      ],
      predicate: { buildDefinition: { resolvedDependencies: [{ digest: { gitCommit: "c0ffee" } }] } },
    })
  })

  it("carry signatures that Sigstore's own verifier accepts, for their content and key only", () => {
    const key = new ThrowAwayKey()
    const sums = Buffer.from(checksums(FILES))
    const signed = key.signFile(sums)
    expect(() => verifiedBy(key.publicPem, signed, sums)).not.toThrow()
    expect(() => verifiedBy(key.publicPem, signed, Buffer.from(`${sums}x`))).toThrow("signature verification failed")
    expect(() => verifiedBy(new ThrowAwayKey().publicPem, signed, sums)).toThrow("signature verification failed")
    const statement = { _type: "https://in-toto.io/Statement/v1", subject: [] }
    expect(verifiedBy(key.publicPem, key.signStatement(statement))).toEqual(statement)
    // Cosign skips a signature whose keyid is not the one that it computes itself.
    expect(key.signStatement(statement)).not.toMatch(/"keyid":"./)
    const forged = key.signStatement(statement).replace(/"payload":"./, '"payload":"f')
    expect(() => verifiedBy(key.publicPem, forged)).toThrow("signature verification failed")
  })

  it("have notes whose links lead to the files of the tag", () => {
    const notes = "- [a](docs/a.md#part), [b](https://example.com), [c](#c), `[d]`\n"
    expect(linkedTo("v1.2.3-rc.1", notes)).toBe(
      "- [a](https://github.com/berth-dev/berth/blob/v1.2.3-rc.1/docs/a.md#part), [b](https://example.com), [c](#c), `[d]`\n",
    )
  })

  it.each(["## 1.2.3", "## [1.2.3]", "## v1.2.3 (2026-12-01)", "## [1.2.3] - 2026-12-01", "## 1.2.3: the first"])(
    "have the notes below %s",
    (heading) => {
      const changelog = `# Changelog\n\n## 1.2.3-rc.1\n\nearly\n\n${heading}\n\n- new\n\n### Fixed\n\n- old\n\n## 1.2.2\n\nx\n`
      expect(notesOf(changelog, "1.2.3")).toBe("- new\n\n### Fixed\n\n- old\n")
      expect(notesOf(changelog, "1.2.3-rc.1")).toBe("early\n")
      expect(notesOf(changelog, "1.2.4")).toBeUndefined()
    },
  )
})
