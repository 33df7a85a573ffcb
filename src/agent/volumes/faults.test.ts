import { describe, expect, test } from "vitest"
import { isTransientFault } from "./faults.ts"

const S3 = "volume data: operation error S3: ListObjectsV2, https response error"

describe("the error of a mount", () => {
  test.each([
    `${S3} StatusCode: 503, RequestID: 1, api error SlowDown: Please reduce your request rate.`,
    `${S3} StatusCode: 500, RequestID: , HostID: , api error InternalError`,
    `${S3} StatusCode: 429, RequestID: , api error TooManyRequests`,
    "volume data: googleapi: Error 503: backendError",
    'Get "https://b.s3.amazonaws.com/": dial tcp 10.0.0.1:443: connect: connection refused',
    "read tcp 10.0.0.2:1->10.0.0.1:443: read: connection reset by peer",
    "net/http: TLS handshake timeout",
    "context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
    "dial tcp: lookup b.s3.amazonaws.com on 10.0.0.2:53: i/o timeout",
    "RESPONSE 503: 503 The server is busy. ERROR CODE: ServerBusy",
  ])("is transient: %s", (message) => {
    expect(isTransientFault(message)).toBe(true)
  })

  test.each([
    `${S3} StatusCode: 403, RequestID: 1, api error AccessDenied: Access Denied`,
    `${S3} StatusCode: 404, RequestID: 503, NoSuchBucket`,
    "volume data: googleapi: Error 403: the account can't read it, forbidden",
    "volume data: bucket timeouts does not exist: NoSuchBucket, timeout",
    "volumes need an image with rclone, and the Launch names none: set --volumes-image of the operator",
    "volume data: directory not found",
    "rclone does not answer: fusermount3: not installed",
  ])("is final: %s", (message) => {
    expect(isTransientFault(message)).toBe(false)
  })
})
