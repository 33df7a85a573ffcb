import {
  groupsWarningFor,
  listOrganizations,
  type OrganizationRecord,
  type ProjectRecord,
  projectsIn,
} from "../../client/accounts.ts"
import { PageTitle } from "../parts/basics.tsx"
import { Conditions } from "../parts/conditions.tsx"
import { Answer, Empty, useLoad } from "../parts/load.tsx"
import { session } from "../session.ts"
import { accounts, BASE, credential, signOut } from "../state.ts"

interface Group {
  organization: OrganizationRecord
  projects: ProjectRecord[]
}

/** Projects that the caller may use. A key has one. */
export function ProjectsPage() {
  const isKey = credential.value !== undefined && "key" in credential.value
  return (
    <>
      <PageTitle title="Projects" />
      {isKey ? <OfKey /> : <OfPerson />}
    </>
  )
}

function OfKey() {
  const id = session.value?.project
  return (
    <div class="panel">
      {id !== undefined && (
        <p>
          Your API key is for one project: <a href={`${BASE}/projects/${encodeURIComponent(id)}`}>{id}</a>
        </p>
      )}
      <p>Another project needs another key.</p>
      <button type="button" onClick={() => signOut()}>
        Sign in with another key
      </button>
    </div>
  )
}

interface Found {
  groups: Group[]
  /** Sentences about groups of the person that Berth can't see. */
  warning: string | undefined
}

async function readGroups(): Promise<Found> {
  const [organizations, warning] = await Promise.all([listOrganizations(accounts), groupsWarningFor(accounts)])
  const groupOf = async (organization: OrganizationRecord): Promise<Group> => ({
    organization,
    projects: await projectsIn(accounts, organization.id),
  })
  return { groups: await Promise.all(organizations.map(groupOf)), warning }
}

function OfPerson() {
  return <Answer of={useLoad("projects", readGroups)}>{(found) => <PersonsProjects {...found} />}</Answer>
}

/** Organizations of a person with their projects. */
export function PersonsProjects({ groups, warning }: Found) {
  return (
    <>
      {warning !== undefined && (
        <p class="note trouble" role="status">
          {warning}
        </p>
      )}
      {groups.length === 0 ? (
        <Empty title="You are in no organization yet.">
          <p>Ask an owner of yours to add you, or create an organization: docs/people.md of Berth says how.</p>
        </Empty>
      ) : (
        groups.map((group) => <GroupPanel key={group.organization.id} {...group} />)
      )}
    </>
  )
}

/** An organization with its projects, and what is wrong with each. */
export function GroupPanel({ organization, projects }: Group) {
  return (
    <section class="panel">
      <h2>{organization.displayName}</h2>
      <Conditions of={organization.conditions} />
      {projects.length === 0 && <p class="minor">It has no project.</p>}
      <ul class="plain">
        {projects.map(({ id, displayName, conditions }) => (
          <li key={id}>
            <a href={`${BASE}/projects/${encodeURIComponent(id)}`}>{displayName}</a> <span class="minor">{id}</span>
            <Conditions of={conditions} />
          </li>
        ))}
      </ul>
    </section>
  )
}
