import { type OrganizationRecord, organizationsOf, projectsIn } from "../../client/accounts.ts"
import { PageTitle } from "../parts/basics.tsx"
import { Answer, Empty, useLoad } from "../parts/load.tsx"
import { accounts, BASE, credential, me, signOut } from "../state.ts"

interface Group {
  organization: string
  projects: { id: string; displayName: string }[]
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
  const groupOf = async ({ id, displayName }: OrganizationRecord): Promise<Group> => ({
    organization: displayName,
    projects: await projectsIn(accounts, id),
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
          found.map(({ organization, projects }) => (
            <section class="panel" key={organization}>
              <h2>{organization}</h2>
              {projects.length === 0 && <p class="minor">It has no project.</p>}
              <ul class="plain">
                {projects.map(({ id, displayName }) => (
                  <li key={id}>
                    <a href={`${BASE}/projects/${encodeURIComponent(id)}`}>{displayName}</a>{" "}
                    <span class="minor">{id}</span>
                  </li>
                ))}
              </ul>
            </section>
          ))
        )
      }
    </Answer>
  )
}
