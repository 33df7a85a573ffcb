import { execFileSync } from "node:child_process"
import { chmod, mkdir, mkdtemp, rm, symlink, utimes, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { Readable } from "node:stream"
import { gunzipSync } from "node:zlib"
import { extract } from "tar-stream"
import { afterEach, beforeEach, describe, expect, it } from "vitest"
import { packFolder, workdirFlag } from "./workdir.ts"

let folder = ""
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-pack-"))
})
afterEach(() => rm(folder, { recursive: true }))

async function write(files: Record<string, string>): Promise<void> {
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, path)), { recursive: true })
    await writeFile(join(folder, path), text)
  }
}

const packed = ({ bytes = 1024 * 1024, without = [] as string[] } = {}) => packFolder(folder, { bytes, without })

/** Returns the entries of the archive: type, name, permissions and target of links. */
async function entries(): Promise<string[]> {
  const parser = extract()
  Readable.from([gunzipSync((await packed()).archive)]).pipe(parser as unknown as NodeJS.WritableStream)
  const found: string[] = []
  for await (const entry of parser) {
    const { type, name, mode, linkname } = entry.header
    found.push(`${type} ${name} ${mode.toString(8)}${linkname ? ` ${linkname}` : ""}`)
    entry.resume()
  }
  return found
}

const files = async () => (await entries()).flatMap((entry) => /^file (.+) \d+$/.exec(entry)?.[1] ?? [])

describe("packFolder", () => {
  it("refuses a name and a link's target that are not UTF-8, in words, unless they are left out", async () => {
    const latin1 = (path: string) => Buffer.from(join(folder, path), "latin1")
    await write({ "sub/a": "" })
    await writeFile(latin1("sub/caf\xe9"), "")
    const words = "--workdir: the name of sub/caf\uFFFD is not UTF-8"
    await expect(packed()).rejects.toThrow(words)
    await write({ ".berthignore": "caf*" })
    expect(await files()).toEqual([".berthignore", "sub/a"])
    await symlink(Buffer.from("caf\xe9", "latin1"), join(folder, "link"))
    await expect(packed()).rejects.toThrow("the target of link is not UTF-8")
    await rm(join(folder, "link"))
    await write({ "sub/\uFFFD": "" })
    expect(await files()).toEqual([".berthignore", "sub/a", "sub/\uFFFD"])
    await mkdir(latin1("d\xe9"))
    await expect(packed()).rejects.toThrow("the name of d\uFFFD is not UTF-8")
  })

  it("never has the folders of the command's own credentials, whatever the ignore files say", async () => {
    await write({ ".berthignore": "!**", ".config/berth/config.json": "{}", ".config/berth.txt": "", "berth/a": "" })
    const { entries: all } = await packed()
    const without = [join(folder, ".config", "berth"), join(folder, "none"), dirname(folder)]
    const { entries: some } = await packed({ without })
    expect([all, some]).toEqual([7, 5])
    const link = `${folder}-link`
    await symlink(folder, link)
    try {
      expect((await packFolder(link, { bytes: 1024, without })).entries).toBe(5)
    } finally {
      await rm(link)
    }
  })

  it("leaves out .git, and what .gitignore and .berthignore name, in each folder", async () => {
    await write({
      ".git/config": "",
      "sub/.git": "gitdir: elsewhere",
      ".gitignore": "*.log\n/build/\n!keep.log\nsecret",
      ".berthignore": "data/**\n!data/small.csv\n!build.sh\n!/secret\n",
      "a.log": "",
      "keep.log": "",
      secret: "",
      "build/out": "",
      "sub/build/kept": "",
      "data/small.csv": "",
      "data/large.csv": "",
      "sub/.gitignore": "!*.log\nlocal",
      "sub/b.log": "",
      "sub/local/x": "",
      local: "",
    })
    expect(await files()).toEqual(
      [
        ".berthignore",
        ".gitignore",
        "data/small.csv",
        "keep.log",
        "local",
        "secret",
        "sub/.gitignore",
        "sub/b.log",
        "sub/build/kept",
      ].toSorted(),
    )
  })

  it("agrees with Git about ignored files", async () => {
    await write({
      ".gitignore": "# comment\n\\#hash\n*.py[co]\n/rooted\ndir/\na/**/z\n!a/keep/z\ntrailing   \n[!x]y\n",
      "#hash": "",
      "m.pyc": "",
      "m.py": "",
      rooted: "",
      "sub/rooted": "",
      "dir/x": "",
      "sub/dir": "a file of this name",
      "a/b/c/z": "",
      "a/keep/z": "",
      trailing: "",
      xy: "",
      zy: "",
    })
    execFileSync("git", ["init", "-q", folder])
    const known = execFileSync("git", ["-C", folder, "ls-files", "--others", "--exclude-standard"], {
      encoding: "utf8",
    })
    expect(await files()).toEqual(known.trim().split("\n").toSorted())
  })

  it("gives equal bytes for equal files, whatever their times, owners and other permissions", async () => {
    await write({ "a/b": "text", c: "more" })
    const first = await packed()
    await utimes(join(folder, "c"), 1, 1)
    await chmod(join(folder, "c"), 0o600)
    expect((await packed()).sha256).toBe(first.sha256)
    await chmod(join(folder, "c"), 0o700)
    expect((await packed()).sha256).not.toBe(first.sha256)
    await chmod(join(folder, "c"), 0o600)
    await write({ c: "less" })
    expect((await packed()).sha256).not.toBe(first.sha256)
  })

  it("keeps links within the folder, empty folders, empty files and permissions to execute", async () => {
    await write({ "bin/tool": "", "empty/gone": "", "a/b/c": "" })
    await chmod(join(folder, "bin/tool"), 0o755)
    await rm(join(folder, "empty/gone"))
    await symlink("../../bin/tool", join(folder, "a/b/relative"))
    await symlink(join(folder, "bin/tool"), join(folder, "absolute"))
    expect(await entries()).toEqual([
      "directory a 755",
      "directory a/b 755",
      "file a/b/c 644",
      expect.stringMatching(/^symlink a\/b\/relative .* \.\.\/\.\.\/bin\/tool$/),
      expect.stringMatching(/^symlink absolute .* bin\/tool$/),
      "directory bin 755",
      "file bin/tool 755",
      "directory empty 755",
    ])
  })

  it.each([
    ["an absolute path", "/usr/bin/python3"],
    ["a path above", "../elsewhere"],
  ])("rejects a link to %s", async (_what, target) => {
    await symlink(target, join(folder, "link"))
    await expect(packed()).rejects.toThrow(`link is a link to ${target}, outside of the folder`)
  })

  it("rejects a folder that is too large, and one that is not there", async () => {
    const random = (length: number) => Array.from({ length }, Math.random).join()
    const large = { "data/a/1": random(60_000), "data/b": random(60_000), model: random(60_000) }
    await write({ ...large, "src/main.py": "x", "out/ignored": random(90_000), ".berthignore": "out/\n" })
    const failure = packed({ bytes: 100_000 })
    await expect(failure).rejects.toThrow("is larger, compressed; the limit is 0.095")
    await expect(failure).rejects.toThrow(
      /The largest in it: data\/ \(2\.\d MiB, 2 files\), model \(1\.\d MiB\), (src\/ \(0\.0 MiB, 1 file\)|\.berthignore .*)\. Leave them out with a \.berthignore/,
    )
    await expect(packFolder(join(folder, "none"), { bytes: 1, without: [] })).rejects.toThrow("can't be read")
  })
})

describe("--workdir", () => {
  it.each([
    [".", { folder: ".", path: undefined }],
    ["./code:/srv/app", { folder: "./code", path: "/srv/app" }],
    ["C:code", { folder: "C:code", path: undefined }],
  ])("%s names a folder, and perhaps one in the container", (text, flag) => {
    expect(workdirFlag(text)).toEqual(flag)
  })
})
