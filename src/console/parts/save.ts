/** Gives the reader a file to keep. */
export function saveFile(name: string, pieces: BlobPart[], type: string): void {
  const link = document.createElement("a")
  link.href = URL.createObjectURL(new Blob(pieces, { type }))
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000)
}
