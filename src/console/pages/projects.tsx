import { type OrganizationRecord, organizationsOf, type ProjectRecord, projectsIn } from "../../client/accounts.ts"
import { PageTitle } from "../parts/basics.tsx"
import { Conditions } from "../parts/conditions.tsx"
import { Answer, Empty, useLoad } from "../parts/load.tsx"
import { accounts, BASE, credential, me, signOut } from "../state.ts"

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
  const id = me.value?.project_id
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

async function readGroups(): Promise<Group[]> {
  const organizations = await organizationsOf(accounts)
  const groupOf = async (organization: OrganizationRecord): Promise<Group> => ({
    organization,
    projects: await projectsIn(accounts, organization.id),
  })
  return Promise.all(organizations.map(groupOf))
}

function OfPerson() {
  const groups = useLoad("projects", readGroups)
  return (
    <Answer of={groups}>
      {(found) =>
        found.length === 0 ? (
          <Empty title="You are in no organization yet.">
            <p>Ask an owner of yours to add you, or create an organization: docs/people.md of Berth says how.</p>
          </Empty>
        ) : (
          found.map((group) => <GroupPanel key={group.organization.id} {...group} />)
        )
      }
    </Answer>
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
