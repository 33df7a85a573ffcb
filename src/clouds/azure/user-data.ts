/** Delay between two requests of a VM for its own deletion, seconds. */
const RETRY_SECONDS = 10

/**
 * Script that deletes the VM, because a VM that only shuts down is still billed. It uses the VM's own identity, which may
 * only delete the VM, and repeats the request until Azure accepts it. A new role assignment may take 30 minutes
 * (https://learn.microsoft.com/azure/role-based-access-control/troubleshooting), so callers set a time limit. The VM's
 * other scripts call it before they shut the VM down. It ignores a reboot.
 */
export const DELETE_SCRIPT = `#!/bin/sh
if systemctl list-jobs | grep -Eq 'reboot\\.target.*start'; then exit 0; fi
metadata=http://169.254.169.254/metadata
while :; do
  token=$(curl -sf -m 10 -H Metadata:true "$metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fmanagement.azure.com%2F" | sed -n 's/.*"access_token":"\\([^"]*\\)".*/\\1/p')
  id=$(curl -sf -m 10 -H Metadata:true "$metadata/instance/compute/resourceId?api-version=2021-02-01&format=text")
  if [ -n "$token" ] && [ -n "$id" ] && printf 'header = "Authorization: Bearer %s"\\n' "$token" |
    curl -sf -m 30 -K - -X DELETE "https://management.azure.com$id?api-version=2024-07-01&forceDeletion=true"; then exit 0; fi
  sleep ${RETRY_SECONDS}
done
`

/**
 * Time that the script has during a shutdown that no script of the VM began, seconds. systemd itself cuts a shutdown after
 * 30 minutes (JobTimeoutSec of poweroff.target).
 */
const STOP_SECONDS = 1700

/** Starts after the network and before the agent, so systemd stops it after the agent and before the network. */
const UNIT = `[Unit]
Description=Deletes this VM when it shuts down
Wants=network-online.target
After=network-online.target
Before=berth-agent.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
ExecStop=/bin/sh /var/lib/berth/delete-vm.sh
TimeoutStopSec=${STOP_SECONDS}
[Install]
WantedBy=multi-user.target
`

/** Runs early at every boot, so that the VM is deleted even if a later part fails. */
const BOOTHOOK = `#cloud-boothook
#!/bin/sh
mkdir -p /var/lib/berth
cat > /var/lib/berth/delete-vm.sh <<'BERTH_END'
${DELETE_SCRIPT}BERTH_END
chmod 0700 /var/lib/berth/delete-vm.sh
cat > /etc/systemd/system/berth-delete-vm.service <<'BERTH_END'
${UNIT}BERTH_END
systemctl daemon-reload
systemctl enable berth-delete-vm.service
systemctl start --no-block berth-delete-vm.service
`

const BOUNDARY = "berth-user-data"

/** Returns user data for an Azure VM: the given data, preceded by the parts that delete the VM. Pure. */
export function withDeletion(userData: string): string {
  const parts = [
    { type: "text/cloud-boothook", text: BOOTHOOK },
    { type: "text/cloud-config", text: userData },
  ]
  const rendered = parts.map(
    ({ type, text }) => `--${BOUNDARY}\nContent-Type: ${type}; charset="utf-8"\nMIME-Version: 1.0\n\n${text}\n`,
  )
  const head = `Content-Type: multipart/mixed; boundary="${BOUNDARY}"\nMIME-Version: 1.0\n\n`
  return `${head}${rendered.join("")}--${BOUNDARY}--\n`
}
