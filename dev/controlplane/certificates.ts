import { createHash, createPublicKey, generateKeyPairSync, type KeyObject, randomBytes, sign } from "node:crypto"
import { AsnConvert, OctetString } from "@peculiar/asn1-schema"
import {
  AlgorithmIdentifier,
  AttributeTypeAndValue,
  AttributeValue,
  AuthorityKeyIdentifier,
  BasicConstraints,
  Certificate,
  ExtendedKeyUsage,
  Extension,
  Extensions,
  GeneralName,
  id_ce_authorityKeyIdentifier,
  id_ce_basicConstraints,
  id_ce_extKeyUsage,
  id_ce_keyUsage,
  id_ce_subjectAltName,
  id_ce_subjectKeyIdentifier,
  id_kp_clientAuth,
  id_kp_serverAuth,
  KeyUsage,
  KeyUsageFlags,
  Name,
  RelativeDistinguishedName,
  SubjectAlternativeName,
  SubjectKeyIdentifier,
  SubjectPublicKeyInfo,
  TBSCertificate,
  Validity,
} from "@peculiar/asn1-x509"

const OID_COMMON_NAME = "2.5.4.3"
const OID_ORGANIZATION = "2.5.4.10"
/** ecdsa-with-SHA256 (RFC 5758, 3.2): its parameters are absent. */
const OID_ECDSA_SHA256 = "1.2.840.10045.4.3.2"
const VERSION_3 = 2
const DAY_MS = 24 * 3_600_000
const CLOCK_SKEW_MS = 3_600_000

/** Default validity of a certificate, in days. */
export const CERTIFICATE_DAYS = 365

/** A certificate and its private key. */
export interface KeyPair {
  /** PEM. */
  readonly certificate: string
  /** PEM, SEC 1 (as newPrivateKey). */
  readonly key: string
}

/** Holder and purpose of a certificate. Clients are identified by commonName (user) and organization (group). */
export interface CertificateSubject {
  readonly commonName: string
  readonly organization?: string
  /** DNS names and IP addresses at which its holder serves. */
  readonly hosts?: readonly string[]
  /** Time until it expires, seconds. Default: CERTIFICATE_DAYS. */
  readonly seconds?: number
}

/** Signs certificates. Its key lives only as long as this object. */
export interface CertificateAuthority {
  /** PEM. */
  readonly certificate: string
  issue(subject: CertificateSubject): KeyPair
}

/**
 * Returns a private key for ECDSA with P-256, as PEM in the form of SEC 1 ("EC PRIVATE KEY"). The API server reads the
 * public half from such a file, but not from PKCS #8.
 */
export function newPrivateKey(): string {
  return generateKeyPairSync("ec", { namedCurve: "P-256" })
    .privateKey.export({ type: "sec1", format: "pem" })
    .toString()
}

/** Creates a certificate authority with a new key. */
export function newCertificateAuthority(commonName: string): CertificateAuthority {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" })
  const issuer = { name: distinguishedName({ commonName }), privateKey, keyId: keyIdentifier(publicKey) }
  const certificate = issueCertificate(issuer, { commonName }, publicKey, [
    extension(id_ce_basicConstraints, new BasicConstraints({ cA: true }), true),
    extension(id_ce_keyUsage, new KeyUsage(KeyUsageFlags.keyCertSign | KeyUsageFlags.cRLSign), true),
  ])
  return {
    certificate,
    issue: (subject) => {
      const key = newPrivateKey()
      return { certificate: issueCertificate(issuer, subject, createPublicKey(key), leafExtensions(subject)), key }
    },
  }
}

interface Issuer {
  readonly name: Name
  readonly privateKey: KeyObject
  readonly keyId: SubjectKeyIdentifier
}

function leafExtensions({ hosts = [] }: CertificateSubject): Extension[] {
  const names = hosts.map((host) => new GeneralName(/^[\d.]+$|:/.test(host) ? { iPAddress: host } : { dNSName: host }))
  // A server is also a client: etcd's own gateway and peers connect with the serving certificate.
  const purposes = hosts.length > 0 ? [id_kp_serverAuth, id_kp_clientAuth] : [id_kp_clientAuth]
  return [
    extension(id_ce_basicConstraints, new BasicConstraints({ cA: false }), true),
    extension(id_ce_keyUsage, new KeyUsage(KeyUsageFlags.digitalSignature), true),
    extension(id_ce_extKeyUsage, new ExtendedKeyUsage(purposes)),
    ...(names.length > 0 ? [extension(id_ce_subjectAltName, new SubjectAlternativeName(names))] : []),
  ]
}

function issueCertificate(
  issuer: Issuer,
  subject: CertificateSubject,
  publicKey: KeyObject,
  extensions: readonly Extension[],
): string {
  const now = Date.now()
  const signature = new AlgorithmIdentifier({ algorithm: OID_ECDSA_SHA256 })
  const content = new TBSCertificate({
    version: VERSION_3,
    serialNumber: positiveSerial(),
    signature,
    issuer: issuer.name,
    validity: new Validity({
      notBefore: new Date(now - CLOCK_SKEW_MS),
      notAfter: new Date(now + (subject.seconds === undefined ? CERTIFICATE_DAYS * DAY_MS : subject.seconds * 1000)),
    }),
    subject: distinguishedName(subject),
    subjectPublicKeyInfo: AsnConvert.parse(publicKey.export({ type: "spki", format: "der" }), SubjectPublicKeyInfo),
    extensions: new Extensions([
      ...extensions,
      extension(id_ce_subjectKeyIdentifier, keyIdentifier(publicKey)),
      extension(id_ce_authorityKeyIdentifier, new AuthorityKeyIdentifier({ keyIdentifier: issuer.keyId })),
    ]),
  })
  const signed = sign("sha256", Buffer.from(AsnConvert.serialize(content)), issuer.privateKey)
  const certificate = new Certificate({
    tbsCertificate: content,
    signatureAlgorithm: signature,
    signatureValue: arrayBuffer(signed),
  })
  return pem(Buffer.from(AsnConvert.serialize(certificate)))
}

function extension(extnID: string, value: object, critical = false): Extension {
  return new Extension({ extnID, critical, extnValue: new OctetString(AsnConvert.serialize(value)) })
}

function distinguishedName({ commonName, organization }: CertificateSubject): Name {
  const attribute = (type: string, utf8String: string) =>
    new RelativeDistinguishedName([new AttributeTypeAndValue({ type, value: new AttributeValue({ utf8String }) })])
  return new Name([
    ...(organization === undefined ? [] : [attribute(OID_ORGANIZATION, organization)]),
    attribute(OID_COMMON_NAME, commonName),
  ])
}

/** RFC 5280, 4.2.1.2, method 1: the SHA-1 of the public key's bits. */
function keyIdentifier(publicKey: KeyObject): SubjectKeyIdentifier {
  const spki = AsnConvert.parse(publicKey.export({ type: "spki", format: "der" }), SubjectPublicKeyInfo)
  return new SubjectKeyIdentifier(arrayBuffer(createHash("sha1").update(Buffer.from(spki.subjectPublicKey)).digest()))
}

/** A serial number of 127 random bits, which DER never reads as zero or negative. */
function positiveSerial(): ArrayBuffer {
  const bytes = randomBytes(16)
  bytes[0] = ((bytes[0] ?? 0) & 0x3f) | 0x40
  return arrayBuffer(bytes)
}

/** Copies the bytes out of the pool that small Buffers share. */
function arrayBuffer(bytes: Buffer): ArrayBuffer {
  return new Uint8Array(bytes).buffer
}

function pem(der: Buffer): string {
  const lines = der.toString("base64").match(/.{1,64}/g) ?? []
  return ["-----BEGIN CERTIFICATE-----", ...lines, "-----END CERTIFICATE-----", ""].join("\n")
}
