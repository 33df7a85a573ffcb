import type { CloudAccount } from "../clouds/cloud.ts"
import { accountOpener, createRegistries, type Providers, typesWithVms } from "../clouds/provider.ts"
import { imageReader } from "../clouds/registries/manifests.ts"
import type { SpendCaps } from "../core/apis/caps.ts"
import { systemClock } from "../core/apis/clock.ts"
import type { StoredConnection } from "../core/apis/connection.ts"
import type { Logger } from "../core/apis/logger.ts"
import type { StoredMachine } from "../core/apis/machine.ts"
import type { Architecture } from "../core/apis/offer.ts"
import type { StoredOrganization } from "../core/apis/organization.ts"
import type { StoredProject } from "../core/apis/project.ts"
import { NAMESPACE_INDEX } from "../core/identity/catch-up.ts"
import { capsIn, tenantsIn } from "../core/identity/projects.ts"
import type { Store } from "../core/kube/store.ts"
import type { Fetch } from "../core/outbound/guarded-fetch.ts"
import type { Offers } from "../market/catalogue/offers.ts"
import { BucketFinder } from "./buckets.ts"
import type { CredentialSources } from "./credentials.ts"
import type { CredentialsOf } from "./discoverer.ts"
import { agentImagePlatforms, ImageFinder, type ImageSettings } from "./images.ts"
import { createLaunchAccounts } from "./launch-accounts.ts"

/** Sources of the inputs of placement. */
export interface PlacementSources {
  offers: Offers
  /** Capabilities of each type of connection. */
  providers: Providers
  /** Accounts that need no connection: jobs of every project may run there. */
  ownAccounts: readonly CloudAccount[]
  /** Architectures assumed for an image whose own are unknown; none: any. */
  architectures: readonly Architecture[]
  /** Sends requests to registries for the architectures of images; absent: registries are not asked. */
  askRegistries?: Fetch
  /** Limits of the lookup of an image's architectures. Default: the finder's own. */
  images?: Pick<ImageSettings, "limitSeconds">
  /** Image that VMs run the agent from. Absent: they need none. */
  agentImage?: string | undefined
  /** Caps of the installation. */
  caps?: SpendCaps | undefined
  /** Has NAMESPACE_INDEX. */
  connections: { store: Store<StoredConnection> }
  /** Machines that people own. Absent: there are none. */
  machines?: { store: Pick<Store<StoredMachine>, "list"> }
  projects: { store: Store<StoredProject> }
  organizations: { store: Store<StoredOrganization> }
  credentialsOf: CredentialsOf
  /** Source of the Secrets' versions. Absent: a connection whose Secret has changed counts as verified. */
  secrets?: CredentialSources["secrets"]
  logger: Logger
}

/**
 * Constructs the inputs of placement: a project's accounts, buckets, images and caps. The operator places jobs by them,
 * and the façade plans dry runs.
 */
export function placementInputs(sources: PlacementSources) {
  const { offers, providers, ownAccounts, architectures, askRegistries: send, agentImage, secrets, logger } = sources
  const connections = sources.connections.store
  const projects = sources.projects.store
  const organizations = sources.organizations.store
  // Answers of providers age by the machine's clock, in tests too.
  const clock = systemClock
  const finding = {
    connections: (namespace: string) => connections.byIndex(NAMESPACE_INDEX, namespace),
    credentialsOf: sources.credentialsOf,
    clock,
    logger,
  }
  const settings = sources.images && { settings: sources.images }
  const readImage = send && imageReader({ clock, send })
  const images =
    readImage && new ImageFinder({ ...finding, registriesOf: createRegistries(providers), readImage, ...settings })
  return {
    offers,
    launchAccounts: createLaunchAccounts({
      ...{ ownAccounts, connections, types: typesWithVms(providers), machines: sources.machines?.store },
      ...(secrets && { sources: { secrets } }),
    }),
    buckets: new BucketFinder({ ...finding, openAccount: accountOpener(providers) }),
    ...(images && { images }),
    ...agentImagePlatforms({ agentImage, readImage, assumed: architectures, clock, logger, ...settings }),
    caps: capsIn({ projects, organizations, installation: sources.caps }),
    tenants: tenantsIn(projects, organizations),
  }
}
