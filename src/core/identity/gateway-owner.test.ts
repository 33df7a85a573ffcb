import { describe, expect, it } from "vitest"
import { answeredOperator, isQuestion, newNonce, ownerAnswer, questionToken } from "./gateway-owner.ts"

const key = new Uint8Array(32).fill(7)
const others = new Uint8Array(32).fill(8)
const nonce = newNonce()

describe("a question to a gateway", () => {
  it("is accepted with the installation's key only, and for its own nonce", () => {
    const token = questionToken(key, nonce)
    expect(isQuestion(key, { nonce, token })).toBe(true)
    expect(isQuestion(others, { nonce, token })).toBe(false)
    expect(isQuestion(key, { nonce: newNonce(), token })).toBe(false)
    expect(isQuestion(key, { nonce, token: undefined })).toBe(false)
    expect(isQuestion(key, { nonce: ["0"], token })).toBe(false)
    expect(isQuestion(key, { nonce: "0", token: questionToken(key, "0") })).toBe(false)
  })

  it("has an answer that only the gateway of this installation can make, and no other can repeat", () => {
    const answer = ownerAnswer(key, nonce, "operator-1")
    expect(answeredOperator(key, nonce, answer)).toBe("operator-1")
    expect(answeredOperator(key, newNonce(), answer)).toBeUndefined()
    expect(answeredOperator(key, nonce, { ...answer, operator: "operator-2" })).toBeUndefined()
    expect(answeredOperator(key, nonce, ownerAnswer(others, nonce, "operator-1"))).toBeUndefined()
    for (const invalid of [null, undefined, "x", { operator: 1, proof: answer.proof }, { operator: "operator-1" }])
      expect(answeredOperator(key, nonce, invalid)).toBeUndefined()
    // A question isn't an answer.
    expect(answeredOperator(key, nonce, { operator: "x", proof: questionToken(key, nonce) })).toBeUndefined()
  })
})
