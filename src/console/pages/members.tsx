import { useSignal } from "@preact/signals"
import { listMembers, listOrganizations, type MemberRecord } from "../../client/accounts.ts"
import type { Schemas } from "../../client/client.ts"
import { PanelForm } from "../parts/action.tsx"
import { Dialog, Field, onText, PageTitle, TableFrame } from "../parts/basics.tsx"
import { Answer, Empty, useLoad } from "../parts/load.tsx"
import { accounts, credential, me } from "../state.ts"

type Role = MemberRecord["role"]
const ROLES: Record<Role, string> = {
  owner: "also adds and removes owners",
  admin: "changes the organization, its members, projects and budgets",
  member: "developer in each project",
}

interface Membership {
  organization: Schemas["OrganizationRecord"]
  members: MemberRecord[]
}

/** Returns the organization of the project with its members; undefined if the reader is not one of them. */
async function readMembership(): Promise<Membership | undefined> {
  const organization = (await listOrganizations(accounts)).find(({ id }) => id === me.peek()?.organization_id)
  return organization && { organization, members: await listMembers(accounts, organization.id) }
}

/** Members of the project's organization, and their roles. */
export function MembersPage() {
  const proof = credential.value
  if (proof === undefined || "key" in proof)
    return (
      <>
        <PageTitle title="Members" />
        <Empty title="An API key belongs to a project, and sees no members.">
          <p>Sign in as a person to see the members of {me.value?.organization_id}.</p>
        </Empty>
      </>
    )
  return <Members />
}

function Members() {
  const membership = useLoad("members", readMembership)
  const isAdding = useSignal(false)
  const changed = useSignal<MemberRecord | undefined>(undefined)
  const own = membership.data.value?.organization.role
  const mayChange = own === "owner" || own === "admin"
  return (
    <>
      <PageTitle title="Members">
        {mayChange && (
          <button
            type="button"
            class="primary"
            onClick={() => {
              isAdding.value = true
            }}
          >
            New member
          </button>
        )}
      </PageTitle>
      <Answer of={membership}>
        {(found) =>
          found === undefined ? (
            <Empty title={`You are not a member of the organization ${me.value?.organization_id}.`}>
              <p>You have a role in this project only. Members of the organization see this list.</p>
            </Empty>
          ) : (
            <>
              {isAdding.value && (
                <NewMember
                  organization={found.organization}
                  close={() => {
                    isAdding.value = false
                  }}
                  done={() => {
                    isAdding.value = false
                    membership.reload()
                  }}
                />
              )}
              <MemberTable
                {...found}
                change={(member) => {
                  changed.value = member
                }}
              />
              {!mayChange && (
                <p class="minor">Owners and admins of {found.organization.displayName} change these roles.</p>
              )}
              {changed.value !== undefined && (
                <RoleDialog
                  member={changed.value}
                  organization={found.organization}
                  done={membership.reload}
                  close={() => {
                    changed.value = undefined
                  }}
                />
              )}
            </>
          )
        }
      </Answer>
    </>
  )
}

/** Returns the roles that a member of the organization may give. */
function rolesBy(own: Role): Role[] {
  if (own === "owner") return ["owner", "admin", "member"]
  return own === "admin" ? ["admin", "member"] : []
}

function MemberTable({ organization, members, change }: Membership & { change: (member: MemberRecord) => void }) {
  const roles = rolesBy(organization.role)
  return (
    <TableFrame label={`Members of ${organization.displayName}`}>
      <table>
        <thead>
          <tr>
            <th>Member of {organization.displayName}</th>
            <th>Role</th>
            <th class="extra">Role in its projects</th>
            {roles.length > 0 && <th>Actions</th>}
          </tr>
        </thead>
        <tbody>
          {members.map((member) => (
            <tr key={member.userId}>
              <td class="wrapping">
                {nameOf(member)}
                {member.userId === me.value?.id && <span class="tag">you</span>}
                {member.email !== null && <span class="minor below">{member.userId}</span>}
              </td>
              <td>{member.role}</td>
              <td class="extra">{member.role === "member" ? "developer" : "admin"}</td>
              {roles.length > 0 && (
                <td>
                  {roles.includes(member.role) && (
                    <button type="button" class="small" onClick={() => change(member)}>
                      Change<span class="hidden"> the role of {nameOf(member)}</span>
                    </button>
                  )}
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </TableFrame>
  )
}

function nameOf({ email, userId }: MemberRecord): string {
  return email ?? userId
}

async function setRole(organization: string, userId: string, role: Role): Promise<void> {
  const params = { path: { org_id: organization, member_user_id: userId } }
  await accounts.api.PUT("/organizations/{org_id}/members/{member_user_id}", { params, body: { role } })
}

function RoleField({ value, by, change }: { value: Role; by: Role; change: (role: Role) => void }) {
  return (
    <Field label="Role" hint={ROLES[value]}>
      <select value={value} onChange={onText((text) => change(text as Role))}>
        {rolesBy(by).map((role) => (
          <option key={role}>{role}</option>
        ))}
      </select>
    </Field>
  )
}

interface ChangeProps {
  organization: Schemas["OrganizationRecord"]
  close: () => void
  done: () => void
}

function RoleDialog({ member, organization, close, done }: ChangeProps & { member: MemberRecord }) {
  const role = useSignal(member.role)
  const act = async (): Promise<void> => {
    await setRole(organization.id, member.userId, role.value)
    done()
  }
  return (
    <Dialog title={`Role of ${nameOf(member)}`} action="Set the role" act={act} close={close}>
      <RoleField
        value={role.value}
        by={organization.role}
        change={(next) => {
          role.value = next
        }}
      />
      <p class="minor">The change takes effect within a second. A member can be removed with kubectl only.</p>
    </Dialog>
  )
}

function NewMember({ organization, close, done }: ChangeProps) {
  const userId = useSignal("")
  const role = useSignal<Role>("member")
  const add = async (): Promise<void> => {
    await setRole(organization.id, userId.value.trim(), role.value)
    done()
  }
  return (
    <PanelForm title="New member" action="Add the member" act={add} close={close}>
      <div class="fields">
        <Field
          label="User ID"
          hint="Issuer and subject: issuer#subject. The person sees it in the menu of the console, at the top right."
        >
          <input
            required
            spellcheck={false}
            autocomplete="off"
            value={userId.value}
            onInput={onText((text) => {
              userId.value = text
            })}
          />
        </Field>
        <RoleField
          value={role.value}
          by={organization.role}
          change={(next) => {
            role.value = next
          }}
        />
      </div>
    </PanelForm>
  )
}
