import { dump } from "js-yaml"
import type { Launch } from "../apis/launch.ts"
import { bootConfig, renderUserData } from "./bootstrap.ts"
import type { BootConfig } from "./protocol.ts"

/** Most user data that EC2 takes, bytes before base64 (GCP and Azure take more). */
export const USER_DATA_LIMIT_BYTES = 16 * 1024

/** What the agent's files and the dead-man's deadline are kept in, on the VM. */
export const STATE_DIR = "/var/lib/berth"

/** The agent's own part of it, in its container under the same path. */
export const AGENT_DATA_DIR = `${STATE_DIR}/agent`

/**
 * The systems that VMs boot: Amazon's ECS-optimized Linux 2023, Ubuntu, Ubuntu as Azure and Google publish it for GPUs,
 * and Google's Container-Optimized OS. All have cloud-init and systemd, and a Docker engine or a package with one.
 */
export type VmSystem = "ecs" | "ubuntu" | "ubuntuGpu" | "cos"

/** An upgrade at night restarts the engine, and with it the container. */
const UBUNTU_UPGRADES = ["apt-daily.timer", "apt-daily-upgrade.timer", "unattended-upgrades.service"]

/** How the systems differ. */
const SYSTEMS: Record<VmSystem, { packages: string[]; masked: string[] }> = {
  // ECS' own agent would look for a cluster for ever.
  ecs: { packages: [], masked: ["ecs.service"] },
  ubuntu: { packages: ["docker.io", "iptables"], masked: UBUNTU_UPGRADES },
  // An engine with NVIDIA's runtime is there; Ubuntu's own package would take its place.
  ubuntuGpu: { packages: [], masked: UBUNTU_UPGRADES },
  cos: { packages: [], masked: ["update-engine.service"] },
}

/**
 * Where clouds serve a VM's metadata, and with it the VM's own credentials: the link-local range (169.254.169.254
 * everywhere; 169.254.170.2 and .23 for AWS' containers) and Azure's host (168.63.129.16).
 */
const METADATA_ADDRESSES = ["169.254.0.0/16", "168.63.129.16/32"]

/** Some of these addresses are the VM's name server as well (169.254.169.254 on GCP, 168.63.129.16 on Azure). */
const DNS_PORT = 53

/** After the order to shut down, until the power goes whatever still hangs, seconds. */
const HARD_OFF_SECONDS = 120

/** A reference as the distribution project's grammar has it: nothing that a shell or systemd would read otherwise. */
const IMAGE = /^[A-Za-z0-9][-A-Za-z0-9._/:@]{0,511}$/

/** The system of each cloud's VMs, without and with GPUs: what the clouds' folders have them boot. */
const SYSTEM_OF: Readonly<Record<string, { cpu: VmSystem; gpu: VmSystem }>> = {
  aws: { cpu: "ecs", gpu: "ecs" },
  azure: { cpu: "ubuntu", gpu: "ubuntuGpu" },
  gcp: { cpu: "cos", gpu: "ubuntuGpu" },
}

/**
 * What a Launch's VM starts with on its cloud: cloud-init, or on the local cloud just the config. Pure. Throws as
 * `renderCloudInit` does, and TypeError when the Launch names no image for the agent of a public cloud's VM.
 */
export function userDataOf(launch: Pick<Launch, "metadata" | "spec">, bootstrapKey: Uint8Array): string {
  const { offer, agentImage } = launch.spec
  const config = bootConfig(launch, bootstrapKey)
  const system = SYSTEM_OF[offer.cloud]?.[offer.gpu === undefined ? "cpu" : "gpu"]
  if (system === undefined) return renderUserData(config)
  if (agentImage !== undefined) return renderCloudInit(config, { system, agentImage })
  throw new TypeError("no image for the agent: give the operator --agent-image (BERTH_AGENT_IMAGE)")
}

export interface CloudInitOptions {
  system: VmSystem
  /** Berth's published image (Dockerfile), which has the agent in a file of its own. */
  agentImage: string
}

/**
 * User data for cloud-init, as `#cloud-config`: a pure function, equal configs make equal bytes. The VM ends at
 * `lifetimeSeconds` after its first boot, whatever happens on it; containers don't reach the metadata service; the
 * agent runs as a service, and the VM powers off when it ends. Throws TypeError for an image that is no image
 * reference, RangeError for user data that no EC2 VM could have.
 */
export function renderCloudInit(config: BootConfig, { system, agentImage }: CloudInitOptions): string {
  if (!IMAGE.test(agentImage)) {
    throw new TypeError(`agentImage ${JSON.stringify(agentImage)} is no image reference, such as registry/berth:1.0`)
  }
  const { packages, masked } = SYSTEMS[system]
  const file = (path: string, content: string, permissions = "0644") => ({ path, permissions, content })
  const document = {
    // Before anything else, and at every boot: whatever goes wrong after it, this VM ends.
    bootcmd: [
      ["/bin/sh", "-c", armDeadMan(config.lifetimeSeconds)],
      ["systemctl", "mask", "--now", "--no-block", ...masked],
    ],
    ...(packages.length > 0 && { package_update: true, packages }),
    write_files: [
      file(`${AGENT_DATA_DIR}/user-data.json`, renderUserData({ ...config, image: agentImage }), "0600"),
      file(`${STATE_DIR}/firewall.sh`, firewallScript(), "0600"),
      file("/etc/systemd/system/berth-firewall.service", FIREWALL_UNIT),
      file("/etc/systemd/system/berth-agent.service", agentUnit(agentImage)),
    ],
    runcmd: [
      ["systemctl", "daemon-reload"],
      ["systemctl", "enable", "--now", "--no-block", "berth-firewall.service", "berth-agent.service"],
    ],
  }
  const text = `#cloud-config\n${dump(document, { lineWidth: -1, noRefs: true })}`
  const bytes = Buffer.byteLength(text)
  if (bytes <= USER_DATA_LIMIT_BYTES) return text
  throw new RangeError(
    `user data has ${bytes} bytes, and EC2 takes ${USER_DATA_LIMIT_BYTES}: ` +
      `gatewayCa has ${config.gatewayCa?.length ?? 0} of them; give only the CA's own certificate`,
  )
}

/**
 * Arms the dead-man: a timer of systemd's, outside of the agent and of Docker. The deadline is kept, so that a reboot
 * doesn't begin a new lifetime; the units are made anew at each boot. A VM that can't arm it ends at once.
 */
function armDeadMan(lifetimeSeconds: number): string {
  return `arm() (
  set -eu
  mkdir -p ${STATE_DIR} /run/systemd/system
  now=$(date +%s)
  if [ ! -s ${STATE_DIR}/deadline ]; then
    echo $((now + ${lifetimeSeconds})) > ${STATE_DIR}/deadline.new
    sync
    mv ${STATE_DIR}/deadline.new ${STATE_DIR}/deadline
  fi
  left=$(($(cat ${STATE_DIR}/deadline) - now))
  [ $left -gt 0 ] || left=0
  cat > /run/systemd/system/berth-dead-man.service <<'END'
[Unit]
Description=The end of this VM's lifetime
DefaultDependencies=no
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'shutdown -P now || systemctl poweroff --no-block; sleep ${HARD_OFF_SECONDS}; systemctl poweroff --force --force'
END
  cat > /run/systemd/system/berth-dead-man.timer <<END
[Unit]
Description=The lifetime of this VM
DefaultDependencies=no
[Timer]
OnActiveSec=$left
AccuracySec=1s
END
  systemctl daemon-reload
  systemctl start --no-block berth-dead-man.timer
)
arm || systemctl poweroff --no-block
`
}

/** Docker keeps what is in its chain DOCKER-USER and asks it first for whatever a container sends. */
function firewallScript(): string {
  const rules = METADATA_ADDRESSES.flatMap((address) => [
    `rule -d ${address} -j REJECT`,
    ...["udp", "tcp"].map((protocol) => `rule -d ${address} -p ${protocol} --dport ${DNS_PORT} -j RETURN`),
  ])
  return `set -eu
iptables -w -n -L DOCKER-USER > /dev/null 2>&1 || iptables -w -N DOCKER-USER
# Each goes before the one above it.
rule() { iptables -w -C DOCKER-USER "$@" 2> /dev/null || iptables -w -I DOCKER-USER "$@"; }
${rules.join("\n")}
`
}

const FIREWALL_UNIT = `[Unit]
Description=Keeps containers from the metadata service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh ${STATE_DIR}/firewall.sh
[Install]
WantedBy=multi-user.target
`

/**
 * The agent in the host's network, since it asks the metadata service for notices of preemption. It ends in order only
 * when its VM has nothing more to do; otherwise it is started again and goes on where it was.
 */
function agentUnit(agentImage: string): string {
  const run = [
    // The engine's socket is root's, while the image's own user is nobody. The whole program would take twice the memory.
    "docker run --rm --name berth-agent --user 0 --entrypoint /nodejs/bin/node --network host --log-driver none",
    "--volume /var/run/docker.sock:/var/run/docker.sock",
    `--volume ${AGENT_DATA_DIR}:${AGENT_DATA_DIR}`,
    // The sockets of volume drivers, which the engine and the agent speak to.
    "--volume /run/docker/plugins:/run/docker/plugins",
    `${agentImage} /berth/agent.mjs agent --runtime docker --data-dir ${AGENT_DATA_DIR}`,
  ]
  return `[Unit]
Description=Berth's agent
Wants=network-online.target
Requires=docker.service berth-firewall.service
After=network-online.target docker.service berth-firewall.service
StartLimitIntervalSec=0
[Service]
ExecStartPre=-/bin/sh -c 'docker rm --force berth-agent'
ExecStart=/bin/sh -c '${run.join(" ")} && systemctl poweroff --no-block'
Restart=on-failure
RestartSec=5
TimeoutStartSec=infinity
TimeoutStopSec=90
[Install]
WantedBy=multi-user.target
`
}
