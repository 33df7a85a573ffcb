/** Errors of rclone and of storage services that pass: no answer, a broken connection, a service that is down or busy. */
const TRANSIENT =
  /time(d )?[ -]?out|deadline exceeded|connection (was )?(reset|refused|closed|aborted)|broken pipe|unexpected EOF|no route to host|(network|host) is unreachable|temporary failure|try again|StatusCode: (429|5\d\d)|(HTTP|status|Error)( code)?:? (429|5\d\d)\b|\b(429|5\d\d) (Too Many|Internal|Bad Gateway|Service|Gateway)|SlowDown|ServiceUnavailable|InternalError|ServerBusy|too ?many ?requests/i

/** Answers that no other VM changes, whatever else the message says. */
const FINAL =
  /AccessDenied|Forbidden|denied|unauthorized|NoSuchBucket|no such bucket|bucket .*(not exist|not found)|InvalidAccessKeyId|SignatureDoesNotMatch|invalid_grant|StatusCode: 40[0-4]|Error 40[0-4]\b|\b40[134] /i

/** Returns true if a mount that failed with this message may succeed on another VM. */
export function isTransientFault(message: string): boolean {
  return TRANSIENT.test(message) && !FINAL.test(message)
}
