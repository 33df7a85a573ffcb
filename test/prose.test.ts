import { describe, expect, it } from "vitest"
import { subjectError } from "../scripts/commits.ts"
import { findingsIn, longSentencesIn, passagesOf, titleFindingsIn } from "../scripts/prose.ts"

function findings(path: string, content: string): string[] {
  return findingsIn(passagesOf(path, content))
}

describe("the check of words", () => {
  it.each([
    ["a comment, over two lines", "src/a.ts", "x()\n// It waits for the\n// moment.\n", ['2: "for the moment"']],
    ["a docstring", "src/a.ts", "/**\n * Returns a key.\n * It is made anew.\n */\n", ['3: "anew"']],
    ["a message", "src/a.ts", 'throw new Error("the VM is gone")', ['1: "gone"']],
    ["a piece of a template", "src/a.ts", "log(`VM $" + "{vm.name} shall end`)", ['1: "shall"']],
    ["a document", "docs/a.md", "# A\n\nNobody knows.\n", ['3: "Nobody"']],
    ["a comment in YAML", "values.yaml", "a: 1\nb: 2 # as if it were 3\n", ['2: "as if"']],
  ])("finds a banned word in %s", (_where, path, content, expected) => {
    expect(findings(path, content).map((finding) => finding.replace(/ is a banned word.*/, ""))).toEqual(expected)
  })

  it.each(["Whether", "What", "Who", "How", "Where", "When", "Why"])(
    "finds a docstring that begins with %s",
    (word) => {
      expect(findings("src/a.ts", `/** ${word} it is so. */`)).toEqual([expect.stringContaining(`not with "${word}"`)])
      expect(findings("src/a.ts", `// ${word} it is so.`)).toEqual([])
    },
  )

  it.each([
    ["a name of one word", "src/a.ts", 'const phase = "gone"'],
    ["an identifier", "src/a.ts", "tell(nobody)"],
    ["code in a comment", "src/a.ts", "// `nobody` is a user of the system."],
    ["a code block", "docs/a.md", "```sh\necho gone\n```\n"],
    ["an example of what not to write", "docs/a.md", "| ~~it goes away~~ | it is deleted |"],
    ["a link's target", "docs/a.md", "[a decision](0026-nobody-told.md)"],
    ["another meaning", "docs/a.md", "Labels tell these VMs apart. Deleted by that key. It answers 410 Gone."],
    ["a value in YAML", "values.yaml", 'a: "gone with it"\n'],
  ])("allows %s", (_what, path, content) => {
    expect(findings(path, content)).toEqual([])
  })

  it.each([
    ["a test", 'x()\nit("of a job stays", run)', ['2: "of"']],
    ["a group of tests", 'describe(\n  "Without a cache", run)', ['2: "Without"']],
    ["a table of tests", "test.each([1])(`with $" + "{a} %s`, run)", ['1: "with"']],
    ["a test that needs a program", 'needing(docker).it("which waits", run)', ['1: "which"']],
    ["no title", 'if (/a/.test("of a job")) parse("of a job")', []],
    ["a whole sentence", 'it("offers a job", run)\nit("a job of a cronjob stays", run)', []],
  ])("finds half a sentence as the title of %s", (_what, program, expected) => {
    expect(titleFindingsIn(program).map((finding) => finding.replace(/ a title begins .* not with/, ""))).toEqual(
      expected,
    )
  })

  it("counts sentences of more than 20 words", () => {
    const sentence = (words: number): string => `${Array.from({ length: words }, () => "word").join(" ")}.`
    expect(longSentencesIn(passagesOf("docs/a.md", `${sentence(20)} ${sentence(20)}\n\n- ${sentence(21)}`))).toBe(1)
  })
})

describe("the check of commit subjects", () => {
  it.each([
    "router: skip offers in cooldown",
    "job controller: fold 15 files",
    "apis, kube: share names",
    "ci: run it (#12)",
  ])("accepts %j", (subject) => expect(subjectError(subject)).toBeUndefined())

  it("rejects a subject of 90 characters, one without an area, and one with a full stop", () => {
    expect(subjectError(`router: ${"a".repeat(82)}`)).toContain("has 90 characters")
    expect(subjectError("Skip offers in cooldown")).toContain("area: imperative")
    expect(subjectError("router: skip offers in cooldown.")).toContain("without a full stop")
  })
})
